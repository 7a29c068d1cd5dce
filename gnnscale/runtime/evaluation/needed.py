"""Which vertices' hidden rows the logits of some vertices need, and stores of these rows alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.backend.chunks import Vertices, cut
from gnnscale.core.stages import Traffic
from gnnscale.feature import Aggregation, FeatureStore
from gnnscale.graph import Graph
from gnnscale.runtime.evaluation.rows import FileRows, MemoryRows
from gnnscale.sampler import Block, NeighborSampler

#: Of a set of more vertices than this part, all are computed: each then is its own row.
_MOST = 0.5
_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def needed_vertices(
    graph: Graph,
    wanted: Vertices,
    num_hidden: int,
    *,
    chunk_edges: int,
    chunk_vertices: int,
    num_threads: int,
) -> list[Vertices]:
    """Return the vertices that each hidden layer is needed of, inputs first.

    Of the last hidden layer these are ``wanted`` and their in-neighbours; of each one before, the
    same of the layer above it. All vertices are computed if these are most of them.
    """
    everything = range(graph.num_vertices)
    sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
    needed: list[Vertices] = []
    for _ in range(num_hidden):
        if isinstance(wanted, range) or len(wanted) > _MOST * len(everything):
            needed.insert(0, everything)
            wanted = everything
            continue
        found = np.zeros(graph.num_vertices, np.bool_)
        for chunk in cut(graph, wanted, chunk_edges, chunk_vertices):
            found[sampler.reach(chunk, 0).input_vertices] = True
        reached = int(found.sum()) <= _MOST * len(everything)
        wanted = np.flatnonzero(found).astype(graph.indices.dtype) if reached else everything
        needed.insert(0, wanted)
    return needed


class _Ranks:
    """The place of a vertex among some, which ascend: a bit a vertex, and a number each eight."""

    def __init__(self, vertices: NDArray[Any], num_vertices: int) -> None:
        member = np.zeros(num_vertices, np.bool_)
        member[vertices] = True
        self._bits = np.packbits(member, bitorder="little")
        before = np.cumsum(_BITS[self._bits], dtype=vertices.dtype)
        self._before = before - _BITS[self._bits]

    def of(self, vertices: NDArray[Any]) -> NDArray[Any]:
        """Return the place of each of ``vertices``, all of which are members."""
        byte = vertices >> 3
        below = (1 << (vertices & 7)) - 1
        places: NDArray[Any] = self._before[byte] + _BITS[self._bits[byte] & below]
        return places


class NeededRows(FeatureStore):
    """Rows of some vertices, asked for by vertex."""

    def __init__(
        self,
        rows: MemoryRows | FileRows,
        places: Callable[[NDArray[Any]], NDArray[Any]],
        num_vertices: int,
    ) -> None:
        """Take row ``places(vertices)[i]`` of ``rows`` as that of ``vertices[i]``."""
        self.rows = rows
        self._places = places
        self._num_vertices = num_vertices

    @classmethod
    def of(
        cls, rows: MemoryRows | FileRows, vertices: NDArray[Any], num_vertices: int
    ) -> NeededRows:
        """Take row ``i`` of ``rows`` as that of ``vertices[i]``; they ascend."""
        return cls(rows, _Ranks(vertices, num_vertices).of, num_vertices)

    @property
    def num_rows(self) -> int:
        """Number of vertices of the graph."""
        return self._num_vertices

    @property
    def width(self) -> int:
        """Features of a row."""
        return self.rows.width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.rows.row_bytes

    def local(self, vertices: NDArray[Any], block: Block) -> tuple[NDArray[Any], Block]:
        """Return the rows of ``vertices``, and the block without its vertices."""
        return self._places(vertices), replace(block, edge_vertices=None)

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        return self.rows.gather(self._places(vertices), dtype=dtype, num_threads=num_threads)

    def aggregate(
        self,
        vertices: NDArray[Any],
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated over ``block``."""
        places, local = self.local(vertices, block)
        return self.rows.aggregate(places, local, aggregation, dtype=dtype, num_threads=num_threads)
