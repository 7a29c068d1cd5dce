"""Sources of the rows that caches copy: a tiered store, or the rows of each type in host memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache import row_types
from gnnscale.core import Array
from gnnscale.features import HostFeatures
from gnnscale.features.tiered.store import TieredReader
from gnnscale.features.typed import TypedStore
from gnnscale.graph import Graph, TypedFeatures


@dataclass(frozen=True, kw_only=True)
class CachedRowSource:
    """Source of the rows that caches copy, in their stored type: of all vertices, or of a type."""

    width: int  #: elements of a row
    dtype: np.dtype[Any]  #: the NumPy type of an element
    read: Callable[[Array, Array], None]  #: copies the row of ``vertices[i]`` to ``rows[i]``
    vertices: slice  #: ids of the vertices; ``read`` counts them from 0
    vertex_type: int = 0  #: position of their type in the schema; 0 without types

    @classmethod
    def of(cls, graph: Graph, vertex_type: int = 0) -> "CachedRowSource":
        """Return a source of the feature rows of ``graph``; with types, of one vertex type."""
        features: object = graph.features
        matrix, vertices = graph.features, slice(0, graph.num_vertices)
        if isinstance(features, TypedFeatures):
            stored_matrix = features.matrices[vertex_type]
            assert stored_matrix is not None
            matrix, vertices = stored_matrix.rows, graph.schema.vertices(vertex_type)

        def copy(vertices: Array, rows: Array) -> None:
            if len(vertices):
                stored = host_rows(graph, vertex_type).stored
                slots = np.arange(len(vertices), dtype=np.int64)
                ops.copy_rows(stored, vertices, (rows, stored[1]), slots, num_threads=1)

        width, dtype = int(matrix.shape[1]), matrix.dtype
        return cls(width=width, dtype=dtype, read=copy, vertices=vertices, vertex_type=vertex_type)

    def in_order(self, vertices: Array) -> Array:
        """Return those of ``vertices`` with rows here, counted from 0, in the order of a cache."""
        first, end = self.vertices.start, self.vertices.stop
        ids = np.sort(vertices)
        ids = ids[np.searchsorted(ids, first) : np.searchsorted(ids, end)]
        return ids - first if first else ids


def row_sources(graph: Graph, tier: TieredReader | None) -> list[CachedRowSource]:
    """Return the sources of rows that caches copy: ``tier``, or the rows of each type in memory."""
    whole = slice(0, graph.num_vertices)
    if tier is not None:
        width, dtype = tier.source.width, tier.source.dtype
        return [CachedRowSource(width=width, dtype=dtype, read=tier.read, vertices=whole)]
    types = enumerate(row_types(graph))
    return [CachedRowSource.of(graph, number) for number, rows in types if rows.is_cached]


def host_rows(graph: Graph, vertex_type: int) -> HostFeatures:
    """Return the rows of a vertex type in host memory; without types, those of all vertices."""
    if graph.types is None:
        return HostFeatures.of(graph)
    store = TypedStore.of(graph).stores[vertex_type]
    assert isinstance(store, HostFeatures)
    return store
