"""Ends of the edges that a run predicts: their vertex types, and ids of vertices within those."""

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, IntArray, check_choice, pyarrow
from gnnscale.data.tables.selection import find_pairs, select_vertices
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.inference.known_edges import KNOWN, KnownTargets, known_pairs
from gnnscale.run.tasks.base import Task

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class LinkEnds:
    """Vertices at which edges of one edge type start and end.

    In a graph without types, these are all vertices.
    """

    graph: Graph
    edge_type: int = 0  #: position of the edge type in the schema

    @cached_property
    def user_ids(self) -> "pyarrow.Array | None":
        """The user's ids of all vertices; None: they count from 0, within each type."""
        return read_ids(self.graph)

    @property
    def types(self) -> tuple[str, str] | None:
        """Names of source and destination type; None: vertices have no types."""
        if self.graph.types is None:
            return None
        edges = self.graph.types.edge_types[self.edge_type]
        return edges.source, edges.destination

    def sources(self, selection: Any) -> IntArray:
        """Return the vertices that ``selection``, as of ``find_vertices``, names among sources."""
        vertices = self._select(selection, 0, "vertices")
        if vertices is None:
            return np.arange(self.graph.num_vertices, dtype=self.graph.indices.dtype)
        return vertices

    def candidates(self, selection: Any) -> IntArray | None:
        """Return the vertices that ``selection`` names among destinations.

        None: all vertices of the graph.
        """
        return self._select(selection, 1, "candidates")

    def pairs(self, selection: Any) -> IntArray:
        """Return the pairs ``[n, 2]`` that ``selection``, as of ``find_pairs``, names."""
        return find_pairs(selection, self.graph, self.user_ids, types=self.types)

    def numbers(self, vertices: IntArray, end: int | slice = slice(2)) -> IntArray:
        """Return vertices at an end (0: sources, 1: destinations) as ``user_ids`` index them.

        Without the user's ids, these are numbers within the type. ``vertices`` are pairs ``[n, 2]``
        unless one ``end`` is chosen.
        """
        schema = self.graph.types
        if schema is None or self.user_ids is not None:
            return vertices
        types = np.array([schema.sources[self.edge_type], schema.destinations[self.edge_type]])
        numbers: IntArray = vertices - schema.first_vertices[types[end]]
        return numbers

    def _select(self, selection: Any, end: int, option: str) -> IntArray | None:
        """Return the selected vertices at an end of the edges; ConfigError: of another type."""
        name = None if self.types is None else self.types[end]
        selected = select_vertices(selection, self.graph, self.user_ids, name, option=option)
        if name is not None:
            number = self.graph.vertex_types.index(name)
            if selected.span.start != self.graph.schema.vertices(number).start:
                chosen = self.graph.schema.type_of(np.array([selected.span.start]))[0]
                raise ConfigError(
                    f"{option}: expected vertices of type {name} at this end of edges of type "
                    f"{self.graph.schema.edge_types[self.edge_type]}, got vertices of type "
                    f"{self.graph.vertex_types[int(chosen)]}"
                )
        return selected.vertices_of(self.graph)


def find_candidates(
    selection: Any,
    ends: LinkEnds,
    vertices: IntArray,
    top: int,
    *,
    default: IntArray | None = None,
    option: str = "top",
) -> IntArray | None:
    """Return the possible partners of ``vertices`` in ascending order; None: all vertices.

    ``selection`` names candidates in a form of ``find_vertices``, whose errors it may raise; None
    means ``default``, or without it all destinations. A vertex is not its own partner.
    ConfigError, which names ``option``: one of ``vertices`` may have fewer than ``top`` candidates.
    """
    candidates = default
    if selection is not None or default is None:
        candidates = ends.candidates(selection)
    count = ends.graph.num_vertices if candidates is None else len(candidates)
    overlaps = candidates is None or bool(np.isin(vertices, candidates).any())
    if top > count - overlaps:
        hint = "; a candidate is not its own partner" if overlaps else ""
        raise ConfigError(
            f"{option}={top}: expected at most {count - overlaps} of {count} candidates{hint}"
        )
    return None if candidates is None else np.sort(candidates)


def find_known(
    choice: str, ends: LinkEnds, vertices: IntArray, task: Task | None
) -> KnownTargets | None:
    """Return the known edges of ``vertices``, which ``exclude`` leaves out; ``include``: None.

    ``task`` is the run's task over the graph, whose held-out edges are known too; None: another
    graph. ConfigError: ``choice`` is not in ``KNOWN``.
    """
    check_choice("known", choice, KNOWN)
    if choice == "include":
        return None
    pairs = known_pairs(ends.graph, task, ends.edge_type)
    targets = KnownTargets(vertices, pairs, num_vertices=ends.graph.num_vertices)
    _LOG.info(
        f"known=exclude: {targets.num_pairs:,} edges from {len(vertices):,} vertices are left out"
    )
    return targets
