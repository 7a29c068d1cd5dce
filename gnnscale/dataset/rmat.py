"""The edges of an R-MAT graph in slices: drawn, made distinct and chosen on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.artifact.graph_store import vertex_dtype
from gnnscale.core.errors import ConfigError
from gnnscale.core.hardware import usable_cores
from gnnscale.core.progress import track
from gnnscale.dataset.storage.edge_file import EdgeFile
from gnnscale.dataset.storage.edge_spool import EdgeSpool
from gnnscale.dataset.storage.sorted_lists import sorted_lists

__all__ = ["RmatDraws"]

_SLICE_EDGES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RmatDraws:
    """What is drawn. The edges are those of ``ops.rmat_edges``, whatever the memory.

    Attributes:
        num_vertices: number of vertices.
        num_edges: number of distinct undirected edges.
        a: probability of the quadrant small id to small id.
        b: small to large.
        c: large to small.
        seed: fixes the edges.
    """

    num_vertices: int
    num_edges: int
    a: float
    b: float
    c: float
    seed: int

    def slices(
        self, folder: Path, *, memory_bytes: int
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Yield all edges in slices, ``(src, dst)`` with ``src < dst``, in no order.

        Args:
            folder: where draws lie meanwhile, 16 bytes an edge at most.
            memory_bytes: the largest buffer for sorting them; 20 bytes a vertex come on top.

        Raises:
            ConfigError: nearly all draws repeat edges.
        """
        distinct = EdgeFile(folder / "distinct", vertex_dtype(self.num_vertices))
        try:
            num_draws = 0
            # Hubs are hit again and again: draw until enough edges are distinct.
            while distinct.num_edges < self.num_edges:
                missing = self.num_edges - distinct.num_edges
                more = missing + missing // 8 + 1024
                found = self._draw(distinct, num_draws, more, folder, memory_bytes)
                # Where most draws repeat edges, the last ones would take for ever to find.
                if found < more // 10_000 + 1:
                    raise ConfigError(
                        f"dataset.a={self.a}, b={self.b}, c={self.c}: they leave too few "
                        f"different edges, dataset.num_edges={self.num_edges} are asked for"
                    )
                num_draws += more
            yield from self._choose(distinct)
        finally:
            distinct.close()

    def _draw(
        self, distinct: EdgeFile, first: int, num_draws: int, folder: Path, memory_bytes: int
    ) -> int:
        """Put draws among the distinct edges, which are sorted; return how many are new."""
        before = distinct.num_edges
        # A part of it, since a range's lists are there twice, beside slices of draws.
        spool = EdgeSpool(
            folder,
            num_vertices=self.num_vertices,
            undirected=False,
            self_loops="remove",
            memory_bytes=memory_bytes // 4,
        )
        try:
            for large, small in distinct.take_last(before):
                spool.add(large, small)
            with track("drawing edges", num_draws, "edges") as advance:
                for start in range(0, num_draws, _SLICE_EDGES):
                    count = min(_SLICE_EDGES, num_draws - start)
                    small, large = ops.rmat_draws(
                        self.num_vertices,
                        *(self.a, self.b, self.c),
                        *(self.seed, first + start, count, usable_cores()),
                    )
                    spool.add(large, small)
                    advance(count)
            for part in sorted_lists(spool, True):
                degrees = np.diff(part.offsets)
                ids = np.arange(part.first, part.first + len(degrees), dtype=part.lists.dtype)
                distinct.append(part.lists, np.repeat(ids, degrees))
        finally:
            spool.close()
        return distinct.num_edges - before

    def _choose(self, distinct: EdgeFile) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Drop the surplus evenly over the sorted edges, and number the vertices at random."""
        number = ops.rmat_numbering(self.num_vertices, self.seed)
        known, last = distinct.num_edges, self.num_edges
        for large, small in distinct.take_last(known):
            # Edge i is the one at place i * known // num_edges; these begin at `place`.
            place = distinct.num_edges
            first = -(-place * self.num_edges // known)
            from_place = first * known - place * self.num_edges
            chosen = (from_place + np.arange(last - first) * known) // self.num_edges
            last = first
            ends: tuple[Any, Any] = number[small[chosen]], number[large[chosen]]
            yield np.minimum(*ends), np.maximum(*ends)
