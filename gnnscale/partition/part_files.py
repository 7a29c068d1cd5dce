"""Files of a part's store: values of listed edges, rows with holes, and copies of arrays."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gnnscale.core import Array, track
from gnnscale.core.artifact import npy
from gnnscale.core.sorted_sets import distinct
from gnnscale.core.types import BoolArray
from gnnscale.graph import Graph

_SLICE_EDGES = 1 << 22
_PAGE_BYTES = 4096


def listed_values(graph: Graph, values: Array, listed: BoolArray, activity: str) -> Iterator[Array]:
    """Yield in slices the ``values`` ``[num_edges]`` of edges to vertices in mask ``listed``."""
    graph = graph.without_types()
    with track(activity, graph.num_edges, "edges") as advance:
        first = 0
        while first < graph.num_vertices:
            begin = graph.indptr[first]
            last = int(np.searchsorted(graph.indptr, begin + _SLICE_EDGES, side="right")) - 1
            last = max(last, first + 1)  # a list may be longer than a slice
            entries = values[begin : graph.indptr[last]]
            yield entries[np.repeat(listed[first:last], np.diff(graph.indptr[first : last + 1]))]
            advance(len(entries))
            first = last


def write_features(
    path: Path, rows: Array, present: BoolArray, activity: str, unit: str
) -> npy.ArrayEntry:
    """Write ``rows`` to a .npy file, with holes, which read as zeros, outside mask ``present``.

    ``activity`` and ``unit`` name the progress.
    """
    row_bytes, crc32 = rows[:1].nbytes, 0
    page = max(1, _PAGE_BYTES // max(1, row_bytes))  # rows
    with path.open("wb") as file, track(activity, len(rows), unit) as advance:
        npy.write_header(file, rows.shape, rows.dtype)
        start = file.tell()
        for part in npy.row_slices(len(rows), row_bytes):
            present_rows = np.flatnonzero(present[part])
            slice_rows = np.zeros((part.stop - part.start, *rows.shape[1:]), rows.dtype)
            slice_rows[present_rows] = rows[part][present_rows]
            crc32 = zlib.crc32(slice_rows.reshape(-1).view(np.uint8).data, crc32)
            # Adjacent pages are written together; holes below a page save nothing.
            pages = distinct(present_rows // page)
            for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
                if len(run):
                    first, last = int(run[0]) * page, (int(run[-1]) + 1) * page
                    file.seek(start + (part.start + first) * row_bytes)
                    file.write(slice_rows[first:last].reshape(-1).view(np.uint8).data)
            advance(len(slice_rows))
        file.truncate(start + rows.nbytes)
    return npy.ArrayEntry(
        shape=rows.shape, dtype=str(rows.dtype), bytes=start + rows.nbytes, crc32=crc32
    )


def copy_array(file: Path, array: Array, activity: str) -> npy.ArrayEntry:
    """Write ``array`` to the .npy ``file`` slice by slice, showing progress; return its entry."""
    row_bytes = array[:1].nbytes
    with track(activity, array.nbytes, "bytes") as advance:

        def slices() -> Iterator[Array]:
            for part in npy.row_slices(len(array), row_bytes):
                yield array[part]
                advance((part.stop - part.start) * row_bytes)

        return npy.write_rows(file, slices(), array.dtype, array.shape[1:])
