"""Table of a graph's types of vertices and edges, for the log."""

from collections.abc import Sequence

from gnnscale.data.time_ranges import time_ranges
from gnnscale.graph import Graph, TypedFeatures


def type_table(graph: Graph) -> list[str]:
    """Return aligned lines on the types of ``graph``, one for each type of vertices and of edges.

    Lines of vertex types have the number of vertices and the features, lines of edge types the
    number of edges, the mean in-degree of a destination, and features if the edges have any. In a
    graph with times, all have the range of theirs.
    """
    ranges = {name: f", {text}" for name, text in time_ranges(graph).items()}
    schema, features, by_type = graph.schema, graph.features, graph.edges.by_type
    matrices = features.matrices if isinstance(features, TypedFeatures) else ()
    vertices = [
        (
            vertex_type.name,
            f"{vertex_type.num_vertices:,} vertices",
            ("no features" if matrix is None else f"{matrix.width:,} features, {matrix.dtype}")
            + ranges.get(vertex_type.name, ""),
        )
        for vertex_type, matrix in zip(schema.vertex_types, matrices, strict=True)
    ]
    edges = []
    for number, edge_type in enumerate(schema.edge_types):
        rows = schema.rows(number)
        starts, ends = graph.indptr[:-1][rows], graph.indptr[1:][rows]
        count = int((ends - starts).sum())
        mean = f"{count / max(len(starts), 1):,.1f} per {edge_type.destination}"
        matrix = None if by_type is None else by_type.matrices[number]
        more = "" if matrix is None else f", {matrix.width:,} features, {matrix.dtype}"
        more += ranges.get(str(edge_type), "")
        edges.append((str(edge_type), f"{count:,} edges", mean + more))
    return [*_aligned(vertices), *_aligned(edges)]


def _aligned(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return rows as texts, in columns: names to the left, numbers to the right."""
    name, count = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    return [f"{row[0]:<{name}}  {row[1]:>{count}}  {row[2]}" for row in rows]
