"""P3's exchange: every device aggregates its columns for the mini-batches of all devices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.backend.loading import FeatureLoader
from gnnscale.core.stages import Access, Traffic
from gnnscale.model import Inputs
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.p3.split_model import PARTIAL_BYTES, SplitGNN
from gnnscale.sampler import Block, MiniBatch

#: Destinations, sources, edges, and whether there is each of ``_OPTIONAL``.
_HEADER = 6

#: float32 arrays that a block may have: for each edge, each edge, and each source.
_OPTIONAL = ("importance", "edge_weights", "weight_sums")


@dataclass(frozen=True, kw_only=True)
class InputBlock:
    """What a device needs to aggregate its columns for another one's mini-batch."""

    vertices: NDArray[np.integer[Any]]  #: ``[num_src]`` vertex of each source
    block: Block  #: the first layer's block


def pack(batch: MiniBatch) -> torch.Tensor:
    """Return the input block of ``batch`` as int32 numbers.

    Vertex ids of 64 bits take two of them. A destination has fewer than 2^31 edges, so that its
    count takes the place of its offset.
    """
    block = batch.blocks[0]
    optional = [getattr(block, name) for name in _OPTIONAL]
    sizes = [block.num_dst, block.num_src, block.num_edges]
    header = np.array([*sizes, *(each is not None for each in optional)], np.int32)
    parts = [
        header,
        batch.input_vertices.view(np.int32),
        np.diff(block.indptr).astype(np.int32),
        block.indices,
    ]
    parts += [each.view(np.int32) for each in optional if each is not None]
    return torch.from_numpy(np.concatenate(parts))


def unpack(numbers: torch.Tensor, dtype: np.dtype[Any]) -> InputBlock:
    """Return the input block that ``pack`` has made into ``numbers``."""
    values: NDArray[np.int32] = numbers.numpy()
    num_dst, num_src, num_edges, *has = (int(each) for each in values[:_HEADER])
    lengths = (num_edges, num_edges, num_src)
    sizes = (num_src * (dtype.itemsize // 4), num_dst, num_edges, *np.multiply(lengths, has))
    vertices, counts, indices, *optional = np.split(values[_HEADER:], np.cumsum(sizes)[:-1])
    importance, edge_weights, weight_sums = (
        each.view(np.float32) if there else None for each, there in zip(optional, has, strict=True)
    )
    indptr = np.zeros(num_dst + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    block = Block(
        indptr=indptr,
        indices=indices,
        num_src=num_src,
        importance=importance,
        edge_weights=edge_weights,
        weight_sums=weight_sums,
    )
    return InputBlock(vertices=vertices.view(dtype), block=block)


class ColumnExchange:
    """Devices learn each other's input blocks, ahead of propagation (P3, section 3.2).

    What is aggregated depends on no weights. So blocks are traded, and columns read and aggregated,
    while earlier mini-batches are still being trained; only the products with the weights wait for
    those (see ``split_model``).
    """

    def __init__(self, group: Group, model: SplitGNN, loader: FeatureLoader) -> None:
        """Trade over ``group``."""
        self._group = group
        self._model = model
        self._loader = loader

    def trade(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Return the rows of all devices' mini-batches over this device's columns."""
        size, rank = self._group.size, self._group.rank
        mine = pack(batch)
        packed = self._group.trade([mine] * size)
        parts, received = [inputs.x] * size, 0
        traffic = inputs.traffic
        for peer in (each for each in range(size) if each != rank):
            found = unpack(packed[peer], batch.input_vertices.dtype)
            parts[peer], read = self._load(found)
            traffic += read
            received += packed[peer].nbytes
        traffic += Traffic(
            rows=Access(peer_bytes=self._partial_bytes(parts)), lists=Access(peer_bytes=received)
        )
        return replace(inputs, parts=tuple(parts), traffic=traffic)

    def _load(self, found: InputBlock) -> tuple[torch.Tensor, Traffic]:
        """Aggregate this device's columns for another device's mini-batch."""
        loader = self._loader
        return self._model.layer(0).load(
            loader.store,
            found.vertices,
            found.block,
            loader.degrees_of(found.vertices, found.block),
            dtype=loader.dtype,
            num_threads=loader.num_threads,
        )

    def _partial_bytes(self, parts: list[torch.Tensor]) -> int:
        """Bytes that this device will receive for these mini-batches.

        Every other device sends it a partial product of its own rows, and the gradients of that
        device's.
        """
        mine = len(parts[self._group.rank])
        others = sum(map(len, parts)) - mine
        rows = (self._group.size - 1) * mine + others
        return rows * self._model.widths[1] * PARTIAL_BYTES
