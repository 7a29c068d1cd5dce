"""One worker's part of a run whose first layer is split by columns of the features (P3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.core import Access, Int32Array, IntArray, Traffic
from gnnscale.distributed.process_group import Group
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.nn import GNN, Inputs
from gnnscale.nn.optim.dense import optimizer_state, restore_optimizer
from gnnscale.sampling import Block, MiniBatch
from gnnscale.training.p3.split_model import (
    PARTIAL_BYTES,
    HostPartialSumExchange,
    SplitGNN,
    column_slice,
)

#: Destinations, sources, edges, and whether there is each of ``_OPTIONAL``.
_HEADER = 6

#: float32 arrays that a block may have: for each edge, each edge, and each source.
_OPTIONAL = ("importance", "edge_weights", "weight_sums")


@dataclass(frozen=True, kw_only=True)
class InputBlock:
    """What a device needs to aggregate its columns for another one's mini-batch."""

    vertices: IntArray  #: ``[num_src]`` vertex of each source
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
    values: Int32Array = numbers.numpy()
    num_dst, num_src, num_edges, *has = (int(each) for each in values[:_HEADER])
    lengths = (num_edges, num_edges, num_src)
    sizes = (num_src * (dtype.itemsize // 4), num_dst, num_edges, *np.multiply(lengths, has))
    vertices, counts, indices, *optional = np.split(values[_HEADER:], np.cumsum(sizes)[:-1])
    parts = zip(_OPTIONAL, optional, has, strict=True)
    found: dict[str, Any] = {name: each.view(np.float32) for name, each, there in parts if there}
    indptr = np.zeros(num_dst + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    block = Block(indptr=indptr, indices=indices, num_src=num_src, **found)
    return InputBlock(vertices=vertices.view(dtype), block=block)


class InputBlockExchange:
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
        """Bytes to receive: of each peer its partial product of own rows, and its gradients."""
        mine = len(parts[self._group.rank])
        others = sum(map(len, parts)) - mine
        rows = (self._group.size - 1) * mine + others
        return rows * self._model.widths[1] * PARTIAL_BYTES


class SplitWeights:
    """Joins the columns of all devices to the whole W¹, and takes them from it.

    A checkpoint so is that of the whole model, for any number of devices that write it.
    """

    def __init__(
        self,
        whole: GNN,
        split: SplitGNN,
        optimizer: torch.optim.Optimizer,
        columns: Sequence[tuple[int, int]],
        group: Group,
    ) -> None:
        """Join what ``split`` trains.

        Args:
            split: the model that is trained; all but W¹ are parameters of ``whole``.
            group: the workers; every method that joins is called by all of them.
        """
        self._whole = whole
        self._split = split
        self._optimizer = optimizer
        self._columns = columns
        self._group = group
        #: what an optimizer of the whole model would keep of each parameter, as of the last
        #: ``join``
        self.state: dict[int, dict[str, torch.Tensor]] = {}
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        (self._number,) = (i for i, each in enumerate(parameters) if each is split.own_weight)

    @torch.no_grad()
    def join(self) -> None:
        """Bring the whole model's W¹ and ``state`` up to date, in every process."""
        self._weight.copy_(self._joined(self._split.own_weight))
        self.state = optimizer_state(self._optimizer)
        mine = self.state.get(self._number, {})
        for name, value in mine.items():
            if value.shape == self._split.own_weight.shape:
                mine[name] = self._joined(value)

    @torch.no_grad()
    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """Take this device's columns of the whole model, and of its optimizer's state."""
        self._split.own_weight.copy_(self._mine(self._weight))
        state = optimizer_state(optimizer)
        state[self._number] = {
            name: self._mine(value) if value.shape == self._weight.shape else value
            for name, value in state.get(self._number, {}).items()
        }
        restore_optimizer(self._optimizer, state)

    @property
    def _weight(self) -> torch.Tensor:
        linear = self._whole.layer(0).linear
        assert isinstance(linear, nn.Linear)
        return linear.weight

    def _mine(self, whole: torch.Tensor) -> torch.Tensor:
        return column_slice(whole, self._columns[self._group.rank], self._whole.widths[0])

    def _joined(self, mine: torch.Tensor) -> torch.Tensor:
        """Return all devices' columns together; what is not this device's is zeros in the sum."""
        first, end = self._columns[self._group.rank]
        whole = torch.zeros_like(self._weight).reshape(len(mine), -1, self._whole.widths[0])
        whole[:, :, first:end] = mine.detach().reshape(len(mine), -1, end - first)
        joined = whole.reshape(self._weight.shape).contiguous()
        self._group.sum(joined)
        return joined


class SplitRun:
    """What stands in the place of the whole model, of all features, and of no exchange."""

    def __init__(self, whole: GNN, columns: Sequence[tuple[int, int]], group: Group) -> None:
        """Split ``whole`` among the workers of ``group``, who all do so at the same time.

        Args:
            columns: ``(first, last + 1)`` of the features that each device has.
        """
        self._whole = whole
        self._columns = columns
        self._group = group
        mine = columns[group.rank]
        #: the part of the model that this device trains
        self.model = SplitGNN(whole, mine, HostPartialSumExchange(group.with_own_connections()))

    def store(self, graph: Graph) -> HostFeatures:
        """Return the device's columns of the features."""
        return HostFeatures.of(graph, columns=self._columns[self._group.rank])

    def exchange(self, loader: FeatureLoader) -> InputBlockExchange:
        """Return the exchange of input blocks, over separate connections."""
        return InputBlockExchange(self._group.with_own_connections(), self.model, loader)

    def weights(self, optimizer: torch.optim.Optimizer) -> SplitWeights:
        """Return what joins the devices' weights, which ``optimizer`` updates here."""
        return SplitWeights(self._whole, self.model, optimizer, self._columns, self._group)
