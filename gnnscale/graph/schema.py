"""Schema of a graph: its types of vertices and edges, and where their ids and lists lie."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import le

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, IntArray, brief

#: Names of the types of a graph whose vertices and edges have no types.
ONLY_VERTEX, ONLY_RELATION = "vertex", "edge"
#: Largest numbers of types: a model has parameters for each.
MAX_VERTEX_TYPES, MAX_EDGE_TYPES = 256, 1024
#: Largest number of characters of a name; that of an edge type has three names.
_MAX_NAME = 600


@dataclass(frozen=True)
class VertexType:
    """Name of a vertex type, and the number of its vertices."""

    name: str
    num_vertices: int


@dataclass(frozen=True)
class EdgeType:
    """Edge type: edges by ``relation`` from vertices of type ``source`` to ``destination``."""

    source: str
    relation: str
    destination: str

    @property
    def triple(self) -> tuple[str, str, str]:
        """Names of source type, relation and destination type."""
        return self.source, self.relation, self.destination

    def __str__(self) -> str:
        """Return the three names, with ``-`` between them: ``user-buys-item``."""
        return f"{self.source}-{self.relation}-{self.destination}"


@dataclass(frozen=True)
class GraphSchema:
    """Types of a graph's vertices and edges.

    Ids of a vertex type are contiguous, in the order of ``vertex_types``. A vertex has one
    adjacency list for each edge type that ends at its type, one after the other in the order of
    ``edge_types``: its rows. The row of vertex ``v`` of type ``t`` and the ``k``-th of ``t``'s
    ``n`` edge types is ``first_rows[t] + (v - first_vertices[t]) * n + k``. A graph without types
    has one type of each, and row ``v`` is the list of vertex ``v``.

    Example:
        >>> schema = GraphSchema.of({"user": 3, "item": 2}, [("user", "buys", "item")])
        >>> schema.num_vertices, schema.num_rows, str(schema.edge_types[0])
        (5, 2, 'user-buys-item')
    """

    vertex_types: tuple[VertexType, ...]
    edge_types: tuple[EdgeType, ...]

    def __post_init__(self) -> None:
        _check_names("vertex type", [vertices.name for vertices in self.vertex_types])
        _check_names("edge type", [str(edges) for edges in self.edge_types])
        _check_number("vertex types", len(self.vertex_types), MAX_VERTEX_TYPES)
        _check_number("edge types", len(self.edge_types), MAX_EDGE_TYPES)
        names = [vertices.name for vertices in self.vertex_types]
        for edges in self.edge_types:
            for end in (edges.source, edges.destination):
                if end not in names:
                    raise GraphError(
                        f"edge type {edges}: {end!r} is no vertex type, allowed are "
                        f"{', '.join(names)}"
                    )

    @classmethod
    def of(cls, num_vertices: dict[str, int], edge_types: Iterable[Sequence[str]]) -> GraphSchema:
        """Return the schema of numbers of vertices by type, and of triples of names.

        GraphError: a triple names an unknown type, or a type appears twice.
        """
        return cls(
            tuple(VertexType(name, number) for name, number in num_vertices.items()),
            tuple(EdgeType(*names) for names in edge_types),
        )

    @classmethod
    def homogeneous(cls, num_vertices: int) -> GraphSchema:
        """Return the schema of a graph of ``num_vertices`` without types."""
        return cls.of({ONLY_VERTEX: num_vertices}, [(ONLY_VERTEX, ONLY_RELATION, ONLY_VERTEX)])

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one vertex type, and one edge type."""
        return len(self.vertex_types) == len(self.edge_types) == 1

    @cached_property
    def first_vertices(self) -> Int64Array:
        """``[num_vertex_types + 1]`` first id of each vertex type; last, the number of vertices."""
        return _offsets([vertices.num_vertices for vertices in self.vertex_types])

    @cached_property
    def first_rows(self) -> Int64Array:
        """``[num_vertex_types + 1]`` first row of each vertex type; last, the number of rows."""
        strides = np.bincount(self.destinations, minlength=len(self.vertex_types))
        return _offsets(
            [
                vertices.num_vertices * int(stride)
                for vertices, stride in zip(self.vertex_types, strides, strict=True)
            ]
        )

    @cached_property
    def sources(self) -> IntArray:
        """``[num_edge_types]`` number of each edge type's source type."""
        return self._type_numbers("source")

    @cached_property
    def destinations(self) -> IntArray:
        """``[num_edge_types]`` number of each edge type's destination type."""
        return self._type_numbers("destination")

    @property
    def num_vertices(self) -> int:
        """Number of vertices of all types."""
        return int(self.first_vertices[-1])

    @property
    def num_rows(self) -> int:
        """Number of adjacency lists."""
        return int(self.first_rows[-1])

    def vertices(self, vertex_type: int) -> slice:
        """Return the ids of the vertices of type ``vertex_types[vertex_type]``."""
        first, end = self.first_vertices[vertex_type : vertex_type + 2]
        return slice(int(first), int(end))

    def rows(self, edge_type: int) -> slice:
        """Return the rows of ``edge_types[edge_type]``, one for each vertex of its destination."""
        destination = int(self.destinations[edge_type])
        same = np.flatnonzero(self.destinations == destination)
        position = int(np.searchsorted(same, edge_type))
        first, end = (int(row) for row in self.first_rows[destination : destination + 2])
        return slice(first + position, end, len(same))

    def rows_of(self, edge_type: int, vertices: Array) -> IntArray:
        """Return the row of each of ``vertices`` ``[n]``, which are of the destination type."""
        rows = self.rows(edge_type)
        first = int(self.first_vertices[int(self.destinations[edge_type])])
        numbers: IntArray = rows.start + (vertices - first) * rows.step
        return numbers

    def joins_one_type(self, edge_type: int) -> bool:
        """Whether source and destination type of ``edge_types[edge_type]`` are the same."""
        return bool(self.sources[edge_type] == self.destinations[edge_type])

    def type_of(self, vertices: Array) -> IntArray:
        """Return the number of the type of each of ``vertices`` ``[n]``, which are valid ids."""
        numbers: IntArray = np.searchsorted(self.first_vertices, vertices, side="right") - 1
        return numbers

    def split(self, vertices: Array) -> list[Array]:
        """Return for each vertex type its vertices, counted from 0, among the ids ``vertices``.

        Those of a type are together, and types in their order, as in a mini-batch.
        """
        firsts = self.first_vertices[:-1].tolist()
        ends = [bisect_left(vertices, True, key=partial(le, first)) for first in firsts[1:]]
        bounds = [0, *ends, len(vertices)]
        return [
            vertices[start:end] - first if first else vertices[start:end]
            for start, end, first in zip(bounds[:-1], bounds[1:], firsts, strict=True)
        ]

    def edge_type_of(self, rows: Array) -> IntArray:
        """Return the number of the edge type of each of ``rows`` ``[n]``, which are valid."""
        types = np.searchsorted(self.first_rows, rows, side="right") - 1
        strides = np.bincount(self.destinations, minlength=len(self.vertex_types))
        # Edge types in the order of their destination types, as rows of a vertex are.
        order = np.argsort(self.destinations, kind="stable")
        firsts = np.concatenate([[0], np.cumsum(strides)])
        positions = (rows - self.first_rows[types]) % np.maximum(strides[types], 1)
        numbers: IntArray = order[firsts[types] + positions]
        return numbers

    def vertex_of(self, rows: Array) -> IntArray:
        """Return the vertex whose lists each of ``rows`` ``[n]``, which are valid, is one of."""
        types = np.searchsorted(self.first_rows, rows, side="right") - 1
        strides = np.bincount(self.destinations, minlength=len(self.vertex_types))
        offsets = (rows - self.first_rows[types]) // np.maximum(strides[types], 1)
        ids: IntArray = self.first_vertices[types] + offsets
        return ids

    def edge_types_at(self, indptr: Array, first: int, count: int) -> IntArray:
        """Return the edge types ``[count]`` of the edges from position ``first`` of all lists on.

        ``indptr`` ``[num_rows + 1]`` are the offsets of the lists.
        """
        row = int(np.searchsorted(indptr, first, side="right")) - 1
        end = int(np.searchsorted(indptr, first + count, side="left"))
        ends = np.clip(indptr[row : end + 1], first, first + count)
        return np.repeat(self.edge_type_of(np.arange(row, end)), np.diff(ends))

    def vertex_offsets(self, indptr: Int64Array) -> Int64Array:
        """Return where the neighbors of each vertex begin, over all edge types that end at it.

        ``indptr`` ``[num_rows + 1]`` has the offsets of the lists; those of a vertex lie one after
        the other. The result is ``[num_vertices + 1]``, offsets into the same ``indices``.
        """
        offsets = np.full(self.num_vertices + 1, indptr[-1], np.int64)
        strides = np.bincount(self.destinations, minlength=len(self.vertex_types))
        for number, stride in enumerate(strides.tolist()):
            first, end = self.first_rows[number : number + 2]
            firsts = indptr[first:end:stride] if stride else indptr[first]
            offsets[self.vertices(number)] = firsts
        return offsets

    def lists_of(self, vertices: Array) -> tuple[IntArray, IntArray]:
        """Return the first row of each of ``vertices`` ``[n]``, and the number of its rows."""
        types = self.type_of(vertices)
        numbers: IntArray = np.bincount(self.destinations, minlength=len(self.vertex_types))[types]
        first: IntArray = self.first_rows[types] + (vertices - self.first_vertices[types]) * numbers
        return first, numbers

    def wrong_source(self, first_row: int, lengths: Array, ids: Array) -> int | None:
        """Return the position in ``ids`` of the first source of a type that its list does not hold.

        ``ids`` are the sources in the lists of ``lengths`` from ``first_row`` on. None: all are
        right.
        """
        rows = np.arange(first_row, first_row + len(lengths))
        sources = np.repeat(self.sources[self.edge_type_of(rows)], lengths)
        wrong = (ids < self.first_vertices[sources]) | (ids >= self.first_vertices[sources + 1])
        return int(wrong.argmax()) if wrong.any() else None

    @cached_property
    def native(self) -> tuple[list[tuple[int, int]], list[tuple[int, int, int, int]]]:
        """Types as native code takes them.

        For each vertex type its first id and number of vertices; for each edge type the numbers of
        its source and destination type, and offset and stride: the row of ``v`` is
        ``v * stride + offset``.
        """
        vertices = [
            (int(first), vertex_type.num_vertices)
            for first, vertex_type in zip(self.first_vertices, self.vertex_types, strict=False)
        ]
        edges = []
        for number, (source, destination) in enumerate(
            zip(self.sources.tolist(), self.destinations.tolist(), strict=True)
        ):
            rows = self.rows(number)
            offset = rows.start - vertices[destination][0] * rows.step
            edges.append((source, destination, offset, rows.step))
        return vertices, edges

    def _type_numbers(self, end: str) -> IntArray:
        numbers = {vertices.name: number for number, vertices in enumerate(self.vertex_types)}
        return np.array([numbers[getattr(edges, end)] for edges in self.edge_types], dtype=np.int64)


def _offsets(sizes: Sequence[int]) -> Int64Array:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _check_names(kind: str, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
            raise GraphError(
                f"{kind} {brief(repr(name))}: allowed are printable names of 1 to {_MAX_NAME} "
                "characters"
            )
        if name in names[:number]:
            raise GraphError(f"{kind} {name}: appears twice, allowed are distinct types")


def _check_number(kind: str, number: int, maximum: int) -> None:
    if not 1 <= number <= maximum:
        raise GraphError(f"{number} {kind}: allowed are 1 to {maximum}")
