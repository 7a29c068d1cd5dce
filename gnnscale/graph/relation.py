"""Edge type whose edges are predicted, together with the edge types that are its reverse."""

from dataclasses import dataclass

import numpy as np

from gnnscale.core import Int64Array
from gnnscale.graph.topology import Topology


@dataclass(frozen=True)
class Relation:
    """Number of an edge type, and of the edge types that have the same edges in reverse.

    Numbers are positions in ``schema.edge_types``. A graph without types has the edge type 0.
    """

    edge_type: int = 0
    reverses: tuple[int, ...] = ()

    def turns(self) -> list[tuple[int, bool]]:
        """Return all its edge types, each with whether its edges are reversed."""
        return [(self.edge_type, False), *((number, True) for number in self.reverses)]


def in_degrees(graph: Topology, edge_type: int) -> Int64Array:
    """Return the in-degree of each vertex by an edge type, ``[num_vertices]``; 0 of other types."""
    schema = graph.types
    if schema is None:
        return np.diff(graph.indptr)
    rows, indptr = schema.rows(edge_type), np.asarray(graph.indptr)
    degrees = np.zeros(schema.num_vertices, np.int64)
    lengths = np.diff(indptr[rows.start : rows.stop + 1])
    degrees[schema.vertices(int(schema.destinations[edge_type]))] = lengths[:: rows.step]
    return degrees
