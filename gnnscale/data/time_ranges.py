"""Ranges of the times of a graph, as dates, for people."""

import numpy as np

from gnnscale.core import Int64Array
from gnnscale.graph import DATE_CODES, NO_TIME, Graph, TimeUnit

#: Vertices and edges that are known at all times.
ALWAYS = "always"


def time_ranges(graph: Graph) -> dict[str, str]:
    """Return by type of vertices and edges the first and last time, as dates in UTC.

    An example is ``2001-03-04 to 2010-01-01``; ``always`` stands for no times. The keys of a graph
    without types are ``vertices`` and ``edges``. Empty: the graph has no times.
    """
    times = graph.times
    if times is None:
        return {}
    schema, ranges = graph.schema, {}
    for number, vertices in enumerate(schema.vertex_types):
        of_type = None if times.vertices is None else times.vertices[schema.vertices(number)]
        name = "vertices" if graph.types is None else vertices.name
        ranges[name] = _range(of_type, of_type, times.unit)
    for number, edges in enumerate(schema.edge_types):
        rows = schema.rows(number)
        starts, ends = graph.indptr[:-1][rows], graph.indptr[1:][rows]
        filled = starts < ends
        first, last = times.edges[starts[filled]], times.edges[ends[filled] - 1]
        name = "edges" if graph.types is None else str(edges)
        ranges[name] = _range(first, last, times.unit)
    return ranges


def _range(first: Int64Array | None, last: Int64Array | None, unit: TimeUnit) -> str:
    """Return the range from the least of ``first`` to the greatest of ``last``."""
    if first is None or last is None or not len(first) or first[0] == NO_TIME:
        return ALWAYS
    ends = [_text(int(first.min()), unit), _text(int(last.max()), unit)]
    return " to ".join(ends if ends[0] != ends[1] else ends[:1])


def _text(time: int, unit: TimeUnit) -> str:
    """Return the day of a time, or a step as a number."""
    if unit == "step":
        return f"step {time:,}"
    return str(np.array(time).astype(f"datetime64[{DATE_CODES[unit]}]").astype("datetime64[D]"))
