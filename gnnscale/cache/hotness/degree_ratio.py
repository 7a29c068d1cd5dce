"""AliGraph's measure of hotness: how often a neighbourhood is read for what it takes to keep."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.hotness.out_degree import out_degree
from gnnscale.cache.hotness.slices import slices
from gnnscale.graph import Graph

__all__ = ["degree_ratio"]


def degree_ratio(graph: Graph) -> NDArray[np.float32]:
    """Return the importance of each vertex (AliGraph, Zhu et al. 2019, section 3.2) at one hop.

    AliGraph's ``Imp(v) = D_i(v) / D_o(v)`` weighs a benefit, the vertices whose neighbourhoods
    ``v`` is in, against a cost, the size of the neighbourhood of ``v`` that is cached with it. Its
    samplers walk along out-edges, so that these are in-degree and out-degree. Here messages come
    from in-neighbours and samplers walk to these: the benefit is the number of lists that ``v`` is
    in, its out-degree, and the cost the length of its own list, its in-degree. An empty list
    counts as one entry. Takes 16 bytes a vertex.

    Returns:
        ``[num_vertices]`` float32.

    Raises:
        GraphError: as ``out_degree``.
    """
    benefit = out_degree(graph)
    ratio = np.empty(graph.num_vertices, np.float32)
    for rows in slices(graph.num_vertices):
        cost = np.diff(graph.indptr[rows.start : rows.stop + 1])
        ratio[rows] = benefit[rows] / np.maximum(cost, 1)
    return ratio
