"""P3 on GPUs: devices trade input blocks, and each aggregates its columns for all of them.

A device has some columns of all features in its memory (P3, section 3.2). What it sends is of a
fixed size, with room for what a block has at most, so that a CUDA graph repeats it: blocks to all
others, partial products to the owner of their rows, and gradients of sums to all others. The order
on the training stream is the same on every device.
"""

from __future__ import annotations

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
from gnnscale.nn import Inputs
from gnnscale.nn.device_block import Rule

#: Each array of a block begins at a multiple of it.
_ALIGNMENT = 16
#: float32 arrays that a block may have, one number for each edge.
_OF_EDGES = ("importance", "edge_weights")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """An array of a block in a buffer of bytes."""

    first: int
    dtype: torch.dtype
    size: int

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        end = self.first + self.size * self.dtype.itemsize
        return buffer[self.first : end].view(self.dtype)


class CudaColumnExchange:
    """Trades the input blocks of all devices, and reads this device's columns for them."""

    def __init__(
        self,
        placed: ResidentGraph,
        engine: Engine,
        trade: ColumnExchange,
        room: BatchCapacity,
        *,
        rule: Rule,
        dtype: torch.dtype,
        uses_degrees: bool,
    ) -> None:
        """Make buffers.

        Args:
            placed: whose rows are this device's columns.
            room: for the samples of all devices alike.
            rule: how the first layer aggregates.
            dtype: in which the model computes.
        """
        self._placed = placed
        self._engine = engine
        self._trade = trade
        self._room = room
        self._rule = rule
        self._dtype = dtype
        self._uses_degrees = uses_degrees
        num_bytes = sum(_padded(each.size * each.dtype.itemsize) for each in self._parts.values())
        shape = (trade.size, num_bytes)
        self._blocks = torch.zeros(shape, dtype=torch.uint8, device=engine.device)
        self._mine = torch.zeros(num_bytes, dtype=torch.uint8, device=engine.device)

    def traded_bytes(self, width: int) -> tuple[int, int]:
        """Return the bytes of rows and of blocks that a step receives, of ``width`` products."""
        peers, rows = self._trade.size - 1, self._room.num_vertices[-2]
        # Partial products of own rows, and gradients of those of each peer, float32.
        return 2 * peers * rows * width * 4, peers * self._mine.nbytes

    def trade(self, batch: CudaBatch, inputs: Inputs) -> Inputs:
        """Return the rows of all devices' mini-batches over this device's columns; on a stream."""
        self._pack(batch.input_block)
        blocks, mine = self._blocks, self._mine
        self._engine.collective(lambda: self._trade.gather_into(blocks, mine), (blocks, mine))
        parts = [
            _filled(inputs.x, self._num_dst)
            if peer == self._trade.rank
            else self._aggregated(self._block(batch.input_block, peer))
            for peer in range(self._trade.size)
        ]
        return replace(inputs, parts=tuple(parts))

    @property
    def _num_dst(self) -> int:
        return self._room.num_vertices[-2]

    @cached_property
    def _parts(self) -> dict[str, _Part]:
        """The arrays of a block, by name."""
        topology, room = self._placed.topology, self._room
        num_edges = room.num_edges[-1]
        sizes: dict[str, tuple[torch.dtype, int]] = {
            "num_vertices": (torch.int64, 2),
            "num_used": (torch.int64, 1),
            "indptr": (torch.int64, self._num_dst + 1),
            "vertices": (topology.indices.dtype, room.num_vertices[-1]),
            "indices": (torch.int32, num_edges),
            **dict.fromkeys(_OF_EDGES, (torch.float32, num_edges)),
        }
        found, first = {}, 0
        for name, (dtype, size) in sizes.items():
            found[name] = _Part(first=first, dtype=dtype, size=size)
            first += _padded(size * dtype.itemsize)
        return found

    def _pack(self, block: CudaBlock) -> None:
        """Write this device's block into its buffer."""
        for name, part in self._parts.items():
            array = getattr(block, name)
            if array is not None:
                part.of(self._mine)[: len(array)].copy_(array)

    def _block(self, mine: CudaBlock, peer: int) -> CudaBlock:
        """Return a peer's block, which has the arrays that this device's has."""
        arrays: dict[str, Any] = {
            name: part.of(self._blocks[peer])
            for name, part in self._parts.items()
            if getattr(mine, name) is not None
        }
        vertices, count = arrays["vertices"], arrays["num_vertices"][1:]
        sums = self._placed.weight_sums
        if sums is not None:
            sums = aggregation.vertex_floats(self._engine.kernels, sums, vertices, count)
        return CudaBlock(
            **arrays,
            weight_sums=sums,
            num_src=len(vertices),
            kernels=self._engine.kernels,
            step=mine.step,
        )

    def _aggregated(self, block: CudaBlock) -> torch.Tensor:
        placed, degrees = self._placed, None
        if self._uses_degrees:
            degrees = aggregation.degrees_of(
                self._engine.kernels,
                placed.topology,
                block.vertices,
                block.num_vertices[1:],
                known=placed.degrees,
            )
        return aggregation.load_aggregated(
            block, placed.rows, self._rule, degrees, dtype=self._dtype
        )


class PartialSums:
    """Trades partial products and their gradients; see ``PartialTrade`` of the host."""

    def __init__(self, engine: Engine, trade: ColumnExchange) -> None:
        """Trade by ``trade``."""
        self._engine = engine
        self._trade = trade

    def sum_of_mine(
        self, parts: Sequence[torch.Tensor], multiply: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Return the sum over all devices of their products for this device's mini-batch."""
        products = torch.stack([multiply(part) for part in parts])
        received = torch.empty_like(products)
        self._engine.collective(
            lambda: self._trade.swap_into(received, products), (received, products)
        )
        # In the order of ranks, as on the host.
        total = received[0].clone()
        for each in received[1:].unbind():
            total += each
        return total

    def gradients_of_all(self, mine: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """Return the gradients of all devices' sums; ``mine`` is ``[num_dst, f^1]`` float32."""
        found = mine.new_empty(self._trade.size, *mine.shape)
        self._engine.collective(lambda: self._trade.gather_into(found, mine), (found, mine))
        return list(found.unbind())

    def take_waited_s(self) -> float:
        """Return 0: the host waits for nobody."""
        return 0.0


def agreed(room: BatchCapacity, trade: ColumnExchange) -> BatchCapacity:
    """Return the room that the samples of all devices need; every device calls this at once."""
    count = len(room.num_vertices)
    largest = trade.largest((*room.num_vertices, *room.num_edges))
    return BatchCapacity(num_vertices=tuple(largest[:count]), num_edges=tuple(largest[count:]))


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _filled(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return ``rows`` with zeros after them, ``count`` in all."""
    return functional.pad(rows, (0, 0, 0, count - len(rows)))
