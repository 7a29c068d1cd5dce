"""PaGraph's measure of hotness: how many vertices may read a vertex."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.hotness.slices import slices
from gnnscale.config import MAX_COUNT
from gnnscale.graph import Graph, GraphError

__all__ = ["out_degree"]


def out_degree(graph: Graph) -> NDArray[np.int32]:
    """Count the neighbour lists that each vertex is in (PaGraph, Lin et al. 2020, section 3.1).

    A neighbour sampler that takes neighbours uniformly is the likelier to come across a vertex
    the more lists it is in. Takes 12 bytes a vertex.

    Returns:
        ``[num_vertices]`` int32, at most 2^31 - 1; a vertex listed twice counts twice.

    Raises:
        GraphError: the topology holds an id that is none.
    """
    counts = np.zeros(graph.num_vertices, np.int64)
    for part in slices(graph.num_edges):
        try:
            ops.count_in_degrees(graph.indices[part], counts)
        except ValueError as error:
            _, _, found = str(error).partition("dst: ")
            raise GraphError(f"{graph.path or graph.name}: damaged, indices hold {found}") from None
    return np.minimum(counts, MAX_COUNT, out=counts).astype(np.int32)
