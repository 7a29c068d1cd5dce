"""One worker's part of a run whose first layer is split by feature columns (P3)."""

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
from gnnscale.nn.optim.update_rules import optimizer_state, restore_optimizer
from gnnscale.sampling import Block, MiniBatch
from gnnscale.training.p3.split_model import (
    PARTIAL_BYTES,
    HostPartialSumExchange,
    SplitGNN,
    column_slice,
)

#: Entries of the header: numbers of destinations, sources and edges, and a flag for each of
#: ``_OPTIONAL``.
_HEADER = 6

#: Optional float32 arrays of a block, of length num_edges, num_edges and num_src.
_OPTIONAL = ("importance", "edge_weights", "weight_sums")


@dataclass(frozen=True, kw_only=True)
class InputBlock:
    """First layer's block of a peer's mini-batch, for this device to aggregate its columns."""

    vertices: IntArray  #: ``[num_src]`` vertex of each source
    block: Block  #: the first layer's block


def pack(batch: MiniBatch) -> torch.Tensor:
    """Return the first layer's block of ``batch``, with its vertices, in one int32 tensor."""
    block = batch.blocks[0]
    optional = [getattr(block, name) for name in _OPTIONAL]
    sizes = [block.num_dst, block.num_src, block.num_edges]
    header = np.array([*sizes, *(array is not None for array in optional)], np.int32)
    parts = [
        header,
        batch.input_vertices.view(np.int32),
        np.diff(block.indptr).astype(np.int32),
        block.indices,
    ]
    parts += [array.view(np.int32) for array in optional if array is not None]
    return torch.from_numpy(np.concatenate(parts))


def unpack(numbers: torch.Tensor, dtype: np.dtype[Any]) -> InputBlock:
    """Return the block and vertices that ``pack`` made ``numbers`` of; vertex ids are ``dtype``."""
    values: Int32Array = numbers.numpy()
    num_dst, num_src, num_edges, *flags = (int(value) for value in values[:_HEADER])
    lengths = (num_edges, num_edges, num_src)
    sizes = (num_src * (dtype.itemsize // 4), num_dst, num_edges, *np.multiply(lengths, flags))
    vertices, counts, indices, *optional = np.split(values[_HEADER:], np.cumsum(sizes)[:-1])
    parts = zip(_OPTIONAL, optional, flags, strict=True)
    arrays: dict[str, Any] = {name: array.view(np.float32) for name, array, flag in parts if flag}
    indptr = np.zeros(num_dst + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    block = Block(indptr=indptr, indices=indices, num_src=num_src, **arrays)
    return InputBlock(vertices=vertices.view(dtype), block=block)


class InputBlockExchange:
    """All-to-all exchange of first-layer blocks, ahead of propagation (P3, section 3.2).

    Aggregation uses no weights. So blocks are exchanged, and columns read and aggregated, while
    earlier mini-batches are still training; only products with the weights wait for them.
    """

    def __init__(self, group: Group, model: SplitGNN, loader: FeatureLoader) -> None:
        """Exchange blocks over ``group``; ``loader`` reads the columns of this device."""
        self._group = group
        self._model = model
        self._loader = loader

    def trade(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Exchange first layers' blocks, and aggregate this device's columns for all mini-batches.

        Return ``inputs`` with the traffic added, and ``parts``: ``parts[r]`` has the rows of rank
        r's mini-batch, aggregated in this device's columns.
        """
        size, rank = self._group.size, self._group.rank
        packed = self._group.trade([pack(batch)] * size)
        parts, received = [inputs.x] * size, 0
        traffic = inputs.traffic
        for peer in range(size):
            if peer == rank:
                continue
            block = unpack(packed[peer], batch.input_vertices.dtype)
            parts[peer], read = self._load(block)
            traffic += read
            received += packed[peer].nbytes
        traffic += Traffic(
            rows=Access(peer_bytes=self._partial_bytes(parts)), lists=Access(peer_bytes=received)
        )
        return replace(inputs, parts=tuple(parts), traffic=traffic)

    def _load(self, inputs: InputBlock) -> tuple[torch.Tensor, Traffic]:
        """Return this device's columns, aggregated for a peer's mini-batch, and the bytes read."""
        loader = self._loader
        return self._model.layer(0).load(
            loader.store,
            inputs.vertices,
            inputs.block,
            loader.degrees_of(inputs.vertices, inputs.block),
            dtype=loader.dtype,
            num_threads=loader.num_threads,
        )

    def _partial_bytes(self, parts: list[torch.Tensor]) -> int:
        """Return the bytes of partial products and gradients that this device receives."""
        own_rows = len(parts[self._group.rank])
        peer_rows = sum(map(len, parts)) - own_rows
        rows = (self._group.size - 1) * own_rows + peer_rows
        return rows * self._model.widths[1] * PARTIAL_BYTES


class SplitWeights:
    """Gatherer of the full W¹ from all devices' columns, for checkpoints.

    After a restore it copies each device's columns back.
    """

    def __init__(
        self,
        full: GNN,
        split: SplitGNN,
        optimizer: torch.optim.Optimizer,
        columns: Sequence[tuple[int, int]],
        group: Group,
    ) -> None:
        """Prepare to gather the weights of ``split``, which ``optimizer`` updates.

        ``columns`` are ``(first, last + 1)`` of the feature columns of each device.
        """
        self._full = full
        self._split = split
        self._optimizer = optimizer
        self._columns = columns
        self._group = group
        #: the full model's optimizer state, by position of the parameter, as of the last ``join``
        self.state: dict[int, dict[str, torch.Tensor]] = {}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        (self._position,) = (i for i, p in enumerate(parameters) if p is split.own_weight)

    @torch.no_grad()
    def join(self) -> None:
        """Gather the columns of all devices into the full model's W¹, in every process.

        Attribute ``state`` becomes the optimizer state of the full model, with the tensors for W¹
        gathered in the same way. All workers call this at the same time.
        """
        self._weight.copy_(self._gathered(self._split.own_weight))
        self.state = optimizer_state(self._optimizer)
        weight_state = self.state.get(self._position, {})
        for name, value in weight_state.items():
            if value.shape == self._split.own_weight.shape:
                weight_state[name] = self._gathered(value)

    @torch.no_grad()
    def restore(self, optimizer: torch.optim.Optimizer) -> None:
        """Copy this device's columns of the full model's W¹ to the split model.

        The split model's optimizer gets the state of ``optimizer``, which is of the full model,
        with these columns of its tensors for W¹.
        """
        self._split.own_weight.copy_(self._own_columns(self._weight))
        state = optimizer_state(optimizer)
        state[self._position] = {
            name: self._own_columns(value) if value.shape == self._weight.shape else value
            for name, value in state.get(self._position, {}).items()
        }
        restore_optimizer(self._optimizer, state)

    @property
    def _weight(self) -> torch.Tensor:
        linear = self._full.layer(0).linear
        assert isinstance(linear, nn.Linear)
        return linear.weight

    def _own_columns(self, weight: torch.Tensor) -> torch.Tensor:
        return column_slice(weight, self._columns[self._group.rank], self._full.widths[0])

    def _gathered(self, values: torch.Tensor) -> torch.Tensor:
        """Return the full matrix, of which each device has the columns ``values`` ``[f^1, ...]``.

        It is a sum of matrices with zeros in all other columns.
        """
        first, end = self._columns[self._group.rank]
        columns = torch.zeros_like(self._weight).reshape(len(values), -1, self._full.widths[0])
        columns[:, :, first:end] = values.detach().reshape(len(values), -1, end - first)
        full = columns.reshape(self._weight.shape).contiguous()
        self._group.sum(full)
        return full


class SplitRun:
    """Split model, feature columns and exchange of a worker, in a run with P3."""

    def __init__(self, full: GNN, columns: Sequence[tuple[int, int]], group: Group) -> None:
        """Split ``full`` by each device's columns ``(first, last + 1)``; all workers call this."""
        self._full = full
        self._columns = columns
        self._group = group
        own_columns = columns[group.rank]
        #: the part of the model that this device trains
        self.model = SplitGNN(full, own_columns, HostPartialSumExchange(group.new_group()))

    def store(self, graph: Graph) -> HostFeatures:
        """Return a store of this device's columns of the features of ``graph``."""
        return HostFeatures.of(graph, columns=self._columns[self._group.rank])

    def exchange(self, loader: FeatureLoader) -> InputBlockExchange:
        """Return the exchange of first-layer blocks, by new connections; all workers call this."""
        return InputBlockExchange(self._group.new_group(), self.model, loader)

    def weights(self, optimizer: torch.optim.Optimizer) -> SplitWeights:
        """Return the gatherer of W¹, of which ``optimizer`` updates this device's columns."""
        return SplitWeights(self._full, self.model, optimizer, self._columns, self._group)
