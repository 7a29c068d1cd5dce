"""Features that follow from a graph's structure: degrees, and projections of neighbourhoods."""

from __future__ import annotations

import numpy as np

from gnnscale import ops
from gnnscale.core import Float32Array, Int64Array, track
from gnnscale.core.artifact.npy import row_slices
from gnnscale.graph import Graph

#: Tag of the random numbers of projections.
_STREAM = 0x0FA5


def degree_rows(graph: Graph) -> Float32Array:
    """Return ``[num_vertices, 2]`` float32: log(1 + in-degree), and log(1 + out-degree)."""
    incoming: Int64Array = np.diff(graph.indptr)
    outgoing = np.zeros(graph.num_vertices, np.int64)
    with ops.naming_graph(graph.path or graph.name):
        ops.count_in_degrees(graph.indices, outgoing)
    rows = np.stack([incoming, outgoing], axis=1).astype(np.float32)
    found: Float32Array = np.log1p(rows)
    return found


def projected_rows(
    graph: Graph, *, dim: int, hops: int, seed: int, num_threads: int
) -> Float32Array:
    """Return the sum of randomly projected neighbourhoods: FastRP (Chen et al., CIKM 2019).

    Every vertex has a sparse random row: each element is 1 or -1 with probability 1/6 each, else
    0. These are averaged over in-neighbours once for each hop, by weight if edges have weights, and
    the rows after each hop, scaled to a mean square of 1, are added up. The paper weights hops
    and scales random rows by degrees, with factors tuned for each graph; here all count alike.
    Vertices with similar neighbourhoods have similar rows.

    Args:
        graph: at most 2^31 vertices.
        dim: length of a row.
        hops: neighbourhoods that count.
        seed: fixes the random rows; the row of a vertex depends on its id alone.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[num_vertices, dim]`` float32.
    """
    rows = _random_rows(graph.num_vertices, dim, seed)
    total = np.zeros_like(rows)
    above = np.empty_like(rows)
    scale = _inverse_sums(graph)
    with track("projecting neighbourhoods", total=hops, unit="hops") as advance:
        for _ in range(hops):
            ops.aggregate(
                (rows, "float32"),
                graph.indptr,
                graph.indices,
                weights=graph.edge_weights,
                dst_scale=scale,
                out=(above, "float32"),  # type: ignore[arg-type] # no torch is needed
                num_threads=num_threads,
            )
            _normalise(above)
            total += above
            rows, above = above, rows
            advance(1)
    return total


def _random_rows(num_vertices: int, dim: int, seed: int) -> Float32Array:
    generator = np.random.Generator(np.random.Philox([seed, _STREAM]))
    rows = np.empty((num_vertices, dim), np.float32)
    for part in row_slices(num_vertices, 4 * dim):
        generator.random(out=rows[part], dtype=np.float32)
        drawn = rows[part]
        drawn[...] = (drawn < 1 / 6).astype(np.float32) - (drawn >= 5 / 6)
    return rows


def _inverse_sums(graph: Graph) -> Float32Array:
    """Return one over the number of each vertex's in-neighbours, or the sum of their weights."""
    sums = graph.weight_sums
    if sums is None:
        sums = np.diff(graph.indptr).astype(np.float32)
    inverse = np.zeros_like(sums)
    np.divide(np.float32(1), sums, out=inverse, where=sums > 0)
    return inverse


def _normalise(rows: Float32Array) -> None:
    """Scale each row to a mean square of 1; a row of zeros stays."""
    for part in row_slices(len(rows), rows.shape[1] * 4):
        squares = np.einsum("ij,ij->i", rows[part], rows[part]) / np.float32(rows.shape[1])
        factors = np.zeros_like(squares)
        np.divide(np.float32(1), np.sqrt(squares), out=factors, where=squares > 0)
        rows[part] *= factors[:, None]
