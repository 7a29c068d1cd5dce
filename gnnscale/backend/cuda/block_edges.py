"""The arrays of a block on a device, and its edges in the order of their sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gnnscale.backend.cuda import kernels as layouts
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class RowSegments:
    """Whose rows each row of a result is the sum of."""

    indptr: torch.Tensor  #: ``[n + 1]`` int64
    indices: torch.Tensor  #: int32
    num_rows: torch.Tensor  #: ``[1]`` int64 on the device: how many of the rows there are


@dataclass(frozen=True, kw_only=True)
class BlockArrays(Block):
    """A block of which the device alone may know how many edges and vertices it has.

    Its arrays are tensors. ``num_src``, ``num_dst`` and ``num_edges`` are as large as what it has
    room for, and entries after those that count hold anything.
    """

    indptr: torch.Tensor  # type: ignore[assignment]
    indices: torch.Tensor  # type: ignore[assignment]
    importance: torch.Tensor | None = None  # type: ignore[assignment]
    edge_vertices: torch.Tensor | None = None  # type: ignore[assignment]
    edge_weights: torch.Tensor | None = None  # type: ignore[assignment]
    weight_sums: torch.Tensor | None = None  # type: ignore[assignment]
    kernels: Kernels  #: of the device
    vertices: torch.Tensor  #: ``[num_src]`` int32 or int64 vertices of the graph by local id
    #: ``[2]`` int64: how many destinations and how many sources there are
    num_vertices: torch.Tensor
    num_used: torch.Tensor  #: ``[1]`` int64: how many edges there are
    step: torch.Tensor  #: ``[1]`` int64: the step of the run

    @cached_property
    def _by_source(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return order_by_source(self)

    def by_source(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return its edges in the order of their sources; see ``order_by_source``."""
        return self._by_source

    def destinations(self) -> torch.Tensor:
        """Return the destination of each edge, ``[num_edges]`` int32; 0 after the last edge."""
        return self._by_source[1]

    def sources(self) -> torch.Tensor:
        """Return the source of each edge, ``[num_edges]`` int32; 0 after the last edge."""
        return torch.where(self.is_edge(), self.indices, 0)

    def is_edge(self) -> torch.Tensor:
        """Return which of its edges there are, ``[num_edges]`` bool."""
        return torch.arange(self.num_edges, device=self.indices.device) < self.num_used

    @property
    def lists(self) -> RowSegments:
        """The sources of each destination."""
        return RowSegments(indptr=self.indptr, indices=self.indices, num_rows=self.num_vertices)


def order_by_source(block: BlockArrays) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort the edges of a block by source, and those of one source in their order.

    Returns:
        ``[num_edges]`` int64 edges in the new order, ``[num_edges]`` int32 destination of each edge
        in the old one, and ``[num_src + 1]`` int64 first edge of each source in the new one.
    """
    indices = block.indices
    keys, destinations = torch.empty_like(indices), torch.empty_like(indices)
    block.kernels.launch(
        "block_edges",
        block.indptr,
        indices,
        block.num_vertices,
        block.num_used,
        np.int64(block.num_edges),
        np.int32(block.num_src),
        keys,
        destinations,
        grid=layouts.grid(block.kernels),
    )
    ordered, order = torch.sort(keys, stable=True)
    sources = torch.arange(block.num_src + 1, dtype=torch.int32, device=keys.device)
    return order, destinations, torch.searchsorted(ordered, sources)
