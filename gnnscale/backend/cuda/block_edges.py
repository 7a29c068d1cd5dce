"""Arrays of a block in device memory, and its edges sorted by source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gnnscale.backend.cuda.kernels import Kernels, grid
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class RowSegments:
    """Segments in CSR form: result row i sums the rows ``indices[indptr[i]:indptr[i + 1]]``."""

    indptr: torch.Tensor  #: ``[n + 1]`` int64
    indices: torch.Tensor  #: int32
    num_rows: torch.Tensor  #: ``[1]`` int64 on the device: number of valid rows


@dataclass(frozen=True, kw_only=True)
class BlockArrays(Block):
    """Block whose numbers of edges and vertices only the device may know.

    Its arrays are tensors. ``num_src``, ``num_dst`` and ``num_edges`` are capacities; entries past
    the valid ones are undefined.
    """

    indptr: torch.Tensor  # type: ignore[assignment]
    indices: torch.Tensor  # type: ignore[assignment]
    importance: torch.Tensor | None = None  # type: ignore[assignment]
    edge_vertices: torch.Tensor | None = None  # type: ignore[assignment]
    edge_weights: torch.Tensor | None = None  # type: ignore[assignment]
    weight_sums: torch.Tensor | None = None  # type: ignore[assignment]
    kernels: Kernels  #: kernels of the device
    vertices: torch.Tensor  #: ``[num_src]`` int32 or int64 vertices of the graph by local id
    num_vertices: torch.Tensor  #: ``[2]`` int64: valid destinations and valid sources
    num_used: torch.Tensor  #: ``[1]`` int64: valid edges
    step: torch.Tensor  #: ``[1]`` int64: step of the run

    @cached_property
    def _by_source(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return order_by_source(self)

    def by_source(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the edges sorted by source; see ``order_by_source``."""
        return self._by_source

    def destinations(self) -> torch.Tensor:
        """Return the destination of each edge, ``[num_edges]`` int32; 0 past the valid edges."""
        return self._by_source[1]

    def sources(self) -> torch.Tensor:
        """Return the source of each edge, ``[num_edges]`` int32; 0 past the valid edges."""
        return torch.where(self.is_edge(), self.indices, 0)

    def is_edge(self) -> torch.Tensor:
        """Return whether each edge is valid, ``[num_edges]`` bool."""
        return torch.arange(self.num_edges, device=self.indices.device) < self.num_used

    @property
    def lists(self) -> RowSegments:
        """Sources of each destination."""
        return RowSegments(indptr=self.indptr, indices=self.indices, num_rows=self.num_vertices)


def order_by_source(block: BlockArrays) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort the edges of a block by source, stably.

    Returns:
        ``[num_edges]`` int64 edge at each sorted position; ``[num_edges]`` int32 destination of
        each edge, unsorted; ``[num_src + 1]`` int64 offset of each source's edges in the sorted
        order.
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
        grid=grid(block.kernels),
    )
    ordered, order = torch.sort(keys, stable=True)
    sources = torch.arange(block.num_src + 1, dtype=torch.int32, device=keys.device)
    return order, destinations, torch.searchsorted(ordered, sources)
