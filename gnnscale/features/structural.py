"""Features computed from a graph's structure: degrees, and random projections of neighborhoods."""

import numpy as np

from gnnscale import ops
from gnnscale.core import Float32Array, Int64Array, track
from gnnscale.core.artifact.npy import row_slices
from gnnscale.graph import Graph

#: Stream id of the random numbers of projections.
_STREAM = 0x0FA5


def degree_rows(graph: Graph) -> Float32Array:
    """Return ``[num_vertices, 2]`` float32: log(1 + in-degree), and log(1 + out-degree)."""
    incoming: Int64Array = np.diff(graph.indptr)
    outgoing = np.zeros(graph.num_vertices, np.int64)
    with ops.naming_graph(graph.path or graph.name):
        ops.count_in_degrees(graph.indices, outgoing)
    rows: Float32Array = np.log1p(np.stack([incoming, outgoing], axis=1).astype(np.float32))
    return rows


def projected_rows(
    graph: Graph, *, dim: int, hops: int, seed: int, num_threads: int
) -> Float32Array:
    """Return the sum of randomly projected neighborhoods, ``[num_vertices, dim]``: FastRP.

    Every vertex has a sparse random row, a function of ``seed`` and its id: each element is 1 or -1
    with probability 1/6 each, else 0. Each hop replaces a row by the mean over the vertex's
    in-neighbors, weighted if edges have weights, and scales it to a mean square of 1. The result is
    the sum of the rows after each hop.

    Chen et al. (CIKM 2019) weight hops and scale random rows by degrees, with factors tuned for
    each graph; here all hops have weight 1. A graph has at most 2^31 vertices.
    """
    rows = _random_rows(graph.num_vertices, dim, seed)
    total = np.zeros_like(rows)
    averaged = np.empty_like(rows)
    scale = _inverse_sums(graph)
    with track("projecting neighborhoods", total=hops, unit="hops") as advance:
        for _ in range(hops):
            ops.aggregate(
                (rows, "float32"),
                graph.indptr,
                graph.indices,
                weights=graph.edge_weights,
                dst_scale=scale,
                out=(averaged, "float32"),  # type: ignore[arg-type] # no torch is needed
                num_threads=num_threads,
            )
            _normalize(averaged)
            total += averaged
            rows, averaged = averaged, rows
            advance(1)
    return total


def _random_rows(num_vertices: int, dim: int, seed: int) -> Float32Array:
    generator = np.random.Generator(np.random.Philox([seed, _STREAM]))
    rows = np.empty((num_vertices, dim), np.float32)
    for part in row_slices(num_vertices, 4 * dim):
        generator.random(out=rows[part], dtype=np.float32)
        uniform = rows[part]
        uniform[...] = (uniform < 1 / 6).astype(np.float32) - (uniform >= 5 / 6)
    return rows


def _inverse_sums(graph: Graph) -> Float32Array:
    """Return 1 / in-degree of each vertex, or 1 / sum of edge weights; 0 without in-edges."""
    sums = graph.weight_sums
    if sums is None:
        sums = np.diff(graph.indptr).astype(np.float32)
    inverse = np.zeros_like(sums)
    np.divide(np.float32(1), sums, out=inverse, where=sums > 0)
    return inverse


def _normalize(rows: Float32Array) -> None:
    """Scale each row in place to a mean square of 1; a row of zeros is unchanged."""
    for part in row_slices(len(rows), rows.shape[1] * 4):
        squares = np.einsum("ij,ij->i", rows[part], rows[part]) / np.float32(rows.shape[1])
        factors = np.zeros_like(squares)
        np.divide(np.float32(1), np.sqrt(squares), out=factors, where=squares > 0)
        rows[part] *= factors[:, None]
