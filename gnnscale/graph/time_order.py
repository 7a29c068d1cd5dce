"""Order of in-neighbor lists by the times of their edges."""

from collections.abc import Iterator, Sequence

import numpy as np

from gnnscale.core import Array, Int64Array, IntArray
from gnnscale.graph.schema import GraphSchema
from gnnscale.graph.times import NO_TIME

#: Edges, and lists, that are checked at a time, and that are sorted in the caches.
_SLICE, _SORTED = 1 << 20, 1 << 16


def list_slices(indptr: Int64Array, size: int | None = None) -> Iterator[tuple[int, Int64Array]]:
    """Yield ``(first list, offsets)`` of consecutive lists of ``indptr``, in bounded memory.

    The lists of a slice have at most ``size`` edges (None: 2^20), or are one list; ``offsets``
    ``[n + 1]`` are those of ``indptr``.
    """
    size, first, last = size or _SLICE, 0, len(indptr) - 1
    while first < last:
        upper = min(first + size, last)
        ends = np.asarray(indptr[first : upper + 1])
        count = int(np.searchsorted(ends, ends[0] + size, side="right")) - 1
        yield first, ends[: max(count, 1) + 1]
        first += max(count, 1)


def sort_by_time(indptr: Int64Array, times: Int64Array, arrays: Sequence[Array]) -> None:
    """Sort each list of ``indptr`` by the times of its edges, in place; the sort is stable.

    Memory is about 40 bytes for each of 2^16 edges or, if it is longer, of a list.

    Args:
        indptr: ``[num_lists + 1]`` offsets of the lists.
        times: ``[num_edges]`` times of the edges, sorted too.
        arrays: further arrays ``[num_edges, ...]`` of the edges, sorted like ``times``.
    """
    for _, ends in list_slices(indptr, _SORTED):
        part = slice(int(ends[0]), int(ends[-1]))
        order = _order(times[part], np.diff(ends))
        if order is None:
            continue
        for array in (times, *arrays):
            array[part] = array[part][order]


def _order(times: Array, lengths: IntArray) -> IntArray | None:
    """Return the order of edges by list and time. None: they are in it.

    ``lengths`` are those of the lists, one after the other, with ``times`` ``[num_edges]``.
    """
    lists = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    if not ((times[1:] < times[:-1]) & (lists[1:] == lists[:-1])).any():
        return None
    present = times[times != NO_TIME]  # lists that lack times are among others
    low, span = int(present.min()), int(present.max()) - int(present.min()) + 1
    if span * len(lengths) > np.iinfo(np.int64).max:
        by_both: IntArray = np.lexsort((times, lists))
        return by_both
    # One key of 64 bits sorts ten times as fast as two.
    keys = np.maximum(times, low) - low + lists * np.int64(span)
    order: IntArray = np.argsort(keys, kind="stable")
    return order


def edge_times(
    edge_own: Int64Array | None, source_times: Int64Array | None, sources: IntArray
) -> Int64Array | None:
    """Return the time ``[num_edges]`` from which each edge is known. None: at all times.

    Args:
        edge_own: ``[num_edges]`` the edges' own times. None: they have none.
        source_times: times of the vertices that ``sources`` count. None: they have none.
        sources: ``[num_edges]`` source of each edge.
    """
    if source_times is None:
        return edge_own
    times = source_times[sources]
    return times if edge_own is None else np.maximum(edge_own, times, out=times)


def order_problem(
    indptr: Int64Array, indices: IntArray | None, times: Int64Array, schema: GraphSchema
) -> str | None:
    """Return a message on the first list that is out of order. None: all are in order.

    A list ascends by time; all its edges have times, or none. With ``indices``, sources ascend
    among equal times.
    """
    for first, ends in list_slices(indptr):
        part = slice(int(ends[0]), int(ends[-1]))
        ids = None if indices is None else np.asarray(indices[part])
        edge, problem = _slice_problem(np.asarray(times[part]), ids, ends)
        if problem:
            row = first + int(np.searchsorted(ends, part.start + edge, side="right")) - 1
            of = "" if schema.is_homogeneous else f" by {_edge_type(schema, row)}"
            vertex = int(schema.vertex_of(np.array([row]))[0])
            return f"the neighbors of vertex {vertex}{of} {problem}"
    return None


def _edge_type(schema: GraphSchema, row: int) -> str:
    return str(schema.edge_types[int(schema.edge_type_of(np.array([row]))[0])])


def _slice_problem(times: Array, ids: Array | None, ends: Int64Array) -> tuple[int, str]:
    """Return the first edge of a slice of lists that is out of order, and the reason, or ``""``."""
    starts = np.zeros(len(times) + 1, np.bool_)
    starts[ends - ends[0]] = True
    joined = ~starts[1:-1]  # edges that follow another in their list
    checks = [
        ("have times in part", (times[1:] == NO_TIME) != (times[:-1] == NO_TIME)),
        ("are not sorted by time", times[1:] < times[:-1]),
    ]
    if ids is not None:
        falls = (times[1:] == times[:-1]) & (ids[1:] < ids[:-1])
        checks.append(("of one time are not sorted", falls))
    for reason, wrong in checks:
        wrong &= joined
        if wrong.any():
            return int(wrong.argmax()) + 1, reason
    return 0, ""


def degrees_between(
    indptr: Int64Array, times: Int64Array, vertices: IntArray, intervals: Int64Array
) -> Int64Array:
    """Return how many edges to each of ``vertices`` ``[n]`` have times in an interval, ``[n]``.

    Args:
        indptr: ``[num_vertices + 1]`` offsets of the lists, which ascend by time.
        times: ``[num_edges]`` times of the edges; those of ``NO_TIME`` are in every interval.
        vertices: vertex ids.
        intervals: ``[2, n]`` lowest and highest time.
    """
    first = np.asarray(indptr[vertices], np.int64)
    last = np.asarray(indptr[np.asarray(vertices, np.int64) + 1], np.int64)
    low, high = intervals
    degrees: Int64Array = _first_at(times, first, last, high, strictly=True)
    degrees -= _first_at(times, first, last, low, strictly=False)
    filled = np.flatnonzero(last > first)
    always = filled[times[first[filled]] == NO_TIME]
    degrees[always] = last[always] - first[always]
    return degrees


def _first_at(
    times: Int64Array, first: Int64Array, last: Int64Array, bounds: Int64Array, *, strictly: bool
) -> Int64Array:
    """Return in each part ``[first, last)`` of ``times`` the first position of a bound or later.

    ``strictly``: of later times alone.
    """
    low: Int64Array = first.copy()
    high = last.copy()
    searching = np.flatnonzero(low < high)
    while len(searching):
        middle = (low[searching] + high[searching]) // 2
        values, limits = times[middle], bounds[searching]
        is_before = values <= limits if strictly else values < limits
        low[searching[is_before]] = middle[is_before] + 1
        high[searching[~is_before]] = middle[~is_before]
        searching = searching[low[searching] < high[searching]]
    return low
