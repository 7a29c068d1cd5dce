"""Times of the types of vertices and edges of a graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnscale.core import Int64Array, IntArray
from gnnscale.graph import NO_TIME, GraphSchema, TimeUnit
from gnnscale.graph.time_order import edge_times


@dataclass(frozen=True, kw_only=True)
class TypedTimes:
    """Times of the vertices and edges of a graph with types, in one unit."""

    unit: TimeUnit
    #: by vertex type ``[num_vertices]`` times from which vertices are known. None: always
    vertices: Sequence[Int64Array | None]
    #: by edge type ``[num_edges]`` own times of edges in their order. None: they have none
    edges: Sequence[Int64Array | None]

    def of_edges(self, schema: GraphSchema, number: int, src: IntArray) -> Int64Array | None:
        """Return the time ``[num_edges]`` from which each edge of a type is known. None: always.

        ``src`` are the sources of edge type ``number``, counted from 0 in their type.
        """
        return edge_times(self.edges[number], self.vertices[int(schema.sources[number])], src)

    def of_all_vertices(self, schema: GraphSchema) -> Int64Array | None:
        """Return the times of all vertices ``[num_vertices]``. None: no type has times."""
        if all(times is None for times in self.vertices):
            return None
        result = np.full(schema.num_vertices, NO_TIME)
        for number, times in enumerate(self.vertices):
            if times is not None:
                result[schema.vertices(number)] = times
        return result
