"""P3 on GPUs: devices all-gather input blocks, and each aggregates its columns for all of them.

A device has some columns of all features in its memory (P3, section 3.2). Messages have a fixed
size, the capacity of a block, so that CUDA graphs can replay them. A step exchanges blocks
(all-gather), partial products (all-to-all), and gradients of sums (all-gather), in this order on
the training stream of every device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.nn import functional

from gnnscale.backend.base import ColumnExchange
from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.backend.cuda.block import CudaBlock
from gnnscale.backend.cuda.capacity import BatchCapacity
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.placement import ResidentGraph
from gnnscale.nn import Inputs, Rule

#: Alignment in bytes of each array of a block.
_ALIGNMENT = 16
#: Optional float32 arrays of a block with an entry for each edge.
_EDGE_ARRAYS = ("importance", "edge_weights")


@dataclass(frozen=True, kw_only=True)
class _PackedArray:
    """Position of a block's array in a buffer: its first byte, type and number of elements."""

    first: int
    dtype: torch.dtype
    size: int

    def view(self, buffer: torch.Tensor) -> torch.Tensor:
        end = self.first + self.size * self.dtype.itemsize
        return buffer[self.first : end].view(self.dtype)


class CudaColumnExchange:
    """Exchange of first-layer blocks among P3's devices; each aggregates its columns over all.

    ``placed.rows`` are this device's columns of the features; ``capacity`` is the capacity of all
    devices' samples.
    """

    def __init__(
        self,
        placed: ResidentGraph,
        engine: Engine,
        trade: ColumnExchange,
        capacity: BatchCapacity,
        *,
        rule: Rule,
        dtype: torch.dtype,
        uses_degrees: bool,
    ) -> None:
        self._placed = placed
        self._engine = engine
        self._trade = trade
        self._capacity = capacity
        self._rule = rule
        self._dtype = dtype
        self._uses_degrees = uses_degrees
        num_bytes = sum(
            _padded(array.size * array.dtype.itemsize) for array in self._arrays.values()
        )
        shape = (trade.size, num_bytes)
        self._blocks = torch.zeros(shape, dtype=torch.uint8, device=engine.device)
        self._block_buffer = torch.zeros(num_bytes, dtype=torch.uint8, device=engine.device)

    def traded_bytes(self, width: int) -> tuple[int, int]:
        """Return the bytes of rows and of blocks that this device receives in a step.

        Rows are partial products and gradients with ``width`` columns.
        """
        peers, rows = self._trade.size - 1, self._capacity.num_vertices[-2]
        # Partial products of this device's rows and gradients of every peer's sums, float32.
        return 2 * peers * rows * width * 4, peers * self._block_buffer.nbytes

    def trade(self, batch: CudaBatch, inputs: Inputs) -> Inputs:
        """All-gather the first-layer blocks, and aggregate this device's columns over each of them.

        Returns ``inputs`` with the aggregated columns of each device's block as ``parts``, by rank;
        for this device's own block these are ``inputs.x``, padded with zeros.
        """
        self._pack(batch.input_block)
        blocks, block = self._blocks, self._block_buffer
        self._engine.collective(lambda: self._trade.all_gather_into(blocks, block), (blocks, block))
        parts = [
            _filled(inputs.x, self._num_dst)
            if peer == self._trade.rank
            else self._aggregated(self._block(batch.input_block, peer))
            for peer in range(self._trade.size)
        ]
        return replace(inputs, parts=tuple(parts))

    @property
    def _num_dst(self) -> int:
        return self._capacity.num_vertices[-2]

    @cached_property
    def _arrays(self) -> dict[str, _PackedArray]:
        """Position of each array in the buffer of a packed block, by name."""
        topology, capacity = self._placed.topology, self._capacity
        num_edges = capacity.num_edges[-1]
        sizes: dict[str, tuple[torch.dtype, int]] = {
            "num_vertices": (torch.int64, 2),
            "num_used": (torch.int64, 1),
            "indptr": (torch.int64, self._num_dst + 1),
            "vertices": (topology.indices.dtype, capacity.num_vertices[-1]),
            "indices": (torch.int32, num_edges),
            **dict.fromkeys(_EDGE_ARRAYS, (torch.float32, num_edges)),
        }
        arrays, first = {}, 0
        for name, (dtype, size) in sizes.items():
            arrays[name] = _PackedArray(first=first, dtype=dtype, size=size)
            first += _padded(size * dtype.itemsize)
        return arrays

    def _pack(self, block: CudaBlock) -> None:
        """Copy this device's block into the buffer that is sent to peers."""
        for name, part in self._arrays.items():
            array = getattr(block, name)
            if array is not None:
                part.view(self._block_buffer)[: len(array)].copy_(array)

    def _block(self, block: CudaBlock, peer: int) -> CudaBlock:
        """Return the block received from device ``peer``, as a view of the receive buffer.

        It has the optional arrays that ``block``, this device's, has.
        """
        arrays: dict[str, Any] = {
            name: part.view(self._blocks[peer])
            for name, part in self._arrays.items()
            if getattr(block, name) is not None
        }
        vertices, kernels = arrays["vertices"], self._engine.kernels
        return CudaBlock(
            **arrays,
            weight_sums=self._placed.sums_of(kernels, vertices, arrays["num_vertices"][1:]),
            num_src=len(vertices),
            kernels=kernels,
            step=block.step,
        )

    def _aggregated(self, block: CudaBlock) -> torch.Tensor:
        placed, degrees = self._placed, None
        if self._uses_degrees:
            count = block.num_vertices[1:]
            degrees = placed.degrees_of(self._engine.kernels, block.vertices, count)
        return aggregation.load_aggregated(
            block, placed.rows, self._rule, degrees, dtype=self._dtype
        )


@dataclass(frozen=True)
class PartialSums:
    """Exchange between P3's devices of partial products of their columns, and of gradients."""

    _engine: Engine
    _trade: ColumnExchange

    def reduce_products(
        self, parts: Sequence[torch.Tensor], multiply: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Apply ``multiply`` to each of ``parts``, and send each product to the part's device.

        Returns the sum of all devices' products for this device's mini-batch. ``parts`` are this
        device's aggregated columns of each device's mini-batch, by rank.
        """
        products = torch.stack([multiply(part) for part in parts])
        received = torch.empty_like(products)
        self._engine.collective(
            lambda: self._trade.all_to_all_into(received, products), (received, products)
        )
        # Summed in rank order, as on the host.
        total = received[0].clone()
        for product in received[1:].unbind():
            total += product
        return total

    def all_gather_gradients(self, mine: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """Return the tensors that all devices pass as ``mine``, by rank; ``rows`` is unused.

        ``mine`` are gradients ``[num_dst, f^1]`` of this device's sum of products.
        """
        gradients = mine.new_empty(self._trade.size, *mine.shape)
        self._engine.collective(
            lambda: self._trade.all_gather_into(gradients, mine), (gradients, mine)
        )
        return list(gradients.unbind())

    def pop_waited_s(self) -> float:
        """Return 0, the seconds for which the host has waited for peers: only the device waits."""
        return 0.0


def shared_capacity(capacity: BatchCapacity, trade: ColumnExchange) -> BatchCapacity:
    """Return the elementwise maximum of all devices' ``capacity``; a collective call."""
    count = len(capacity.num_vertices)
    largest = trade.largest((*capacity.num_vertices, *capacity.num_edges))
    return BatchCapacity(num_vertices=tuple(largest[:count]), num_edges=tuple(largest[count:]))


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _filled(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return ``rows`` padded with zeros to ``count`` rows."""
    return functional.pad(rows, (0, 0, 0, count - len(rows)))
