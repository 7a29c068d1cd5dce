"""Candidates of link prediction: the vertices that an edge's destination is compared with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, Int32Array, Int64Array, IntArray


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Candidate vertices, grouped by kind; an edge is compared with its destination's kind.

    Example: kinds [0, 1, 1, -1, 0] have ``vertices`` [0, 4, 1, 2] and ``offsets`` [0, 2, 4]; an
    edge to vertex 1 is compared with vertices 1 and 2, and vertex 3 is no candidate.
    """

    kinds: Int32Array  #: ``[num_vertices]`` int32 kind of each vertex; -1 for no candidate
    vertices: Int64Array  #: ``[num_candidates]`` candidates by kind, ascending within a kind
    offsets: Int64Array  #: ``[num_kinds + 1]`` first position of each kind in ``vertices``

    @classmethod
    def from_kinds(cls, kinds: Int32Array) -> Candidates:
        """Group vertices by ``kinds`` ``[num_vertices]``, numbered from 0; -1 for no candidate."""
        vertices = np.flatnonzero(kinds >= 0)
        vertices = vertices[np.argsort(kinds[vertices], kind="stable")]
        counts = np.bincount(kinds[vertices], minlength=1)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return cls(kinds=kinds, vertices=vertices, offsets=offsets)

    @property
    def content(self) -> str:
        """Hex digest, which differs for other kinds."""
        return hashlib.blake2b(self.kinds.tobytes(), digest_size=16).hexdigest()

    def draw(
        self, edges: Array, destinations: IntArray, count: int, *, seed: int, step: int
    ) -> Int64Array:
        """Draw ``[n, count]`` int64 candidates, uniformly among the kind of each destination.

        ``edges`` ``[n]`` are numbers of edges, which fix the draws (with replacement) together with
        seed and step. ``destinations`` ``[n]`` are candidates.
        """
        negatives = np.empty((len(edges), count), np.int64)
        kinds = self.kinds[destinations]
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            group = self.vertices[self.offsets[kind] : self.offsets[kind + 1]]
            positions = ops.draw_negatives(edges[rows], count, len(group), seed=seed, step=step)
            negatives[rows] = group[positions]
        return negatives


def draw_candidates(
    candidates: Candidates | None,
    edges: Array,
    destinations: IntArray,
    count: int,
    *,
    num_vertices: int,
    seed: int,
    step: int,
) -> Int64Array:
    """Draw as ``Candidates.draw`` does, or among all vertices if ``candidates`` is None."""
    if candidates is None:
        return ops.draw_negatives(edges, count, num_vertices, seed=seed, step=step)
    return candidates.draw(edges, destinations, count, seed=seed, step=step)
