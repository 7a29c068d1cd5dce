"""Graphs of the benchmarks with times: R-MAT edges, with times at random."""

from pathlib import Path
from typing import Any

import numpy as np

#: Times are uniform below this number.
NUM_TIMES = 1_000_000
#: Edges whose times are sorted at a time.
_EDGES = 1 << 23


def timed_lists(indptr: Any, indices: Any) -> tuple[Any, Any]:
    """Return sources and times of the lists, sorted by time and then by source."""
    generator = np.random.default_rng(0)
    sources, times = np.empty(len(indices), indices.dtype), np.empty(len(indices), np.int64)
    first, num_lists = 0, len(indptr) - 1
    while first < num_lists:
        fitting = int(np.searchsorted(indptr, indptr[first] + _EDGES, side="right")) - 1
        last = min(max(fitting, first + 1), num_lists)
        part = slice(int(indptr[first]), int(indptr[last]))
        lists = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        drawn = generator.integers(0, NUM_TIMES, len(lists))
        # Entries of a list ascend by source, and the sort is stable.
        order = np.argsort(lists * NUM_TIMES + drawn, kind="stable")
        sources[part], times[part] = np.asarray(indices[part])[order], drawn[order]
        first = last
    return sources, times


def rmat_lists(num_vertices: int, num_edges: int) -> tuple[Any, Any]:
    """Return offsets and sources of lists of R-MAT edges, sorted by source."""
    from gnnscale import ops

    src, dst = ops.rmat_edges(num_vertices, num_edges, 0.57, 0.19, 0.19, 0, 2)
    order = np.argsort(dst.astype(np.int64) * num_vertices + src)
    indptr = np.searchsorted(dst[order], np.arange(num_vertices + 1))
    return indptr, src[order].astype(np.int32)


def write(folder: Path, indptr: Any, indices: Any) -> None:
    sources, times = timed_lists(indptr, indices)
    arrays = {"indptr": np.asarray(indptr), "indices": sources, "times": times}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def read(folder: Path) -> Any:
    """Return the graph of ``write``, whose arrays are mapped as those of a store."""
    indptr, indices, times = (
        np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices", "times")
    )
    return timed_graph(indptr, indices, times)


def timed_graph(indptr: Any, indices: Any, times: Any, schema: Any = None) -> Any:
    from dataclasses import replace

    from gnnscale.data import from_arrays
    from gnnscale.graph import GraphTimes

    num_vertices = len(indptr) - 1 if schema is None else schema.num_vertices
    none = np.empty(0, np.int64)
    bare = from_arrays((none, none), np.zeros((num_vertices, 1), np.float32))
    known = GraphTimes(unit="s", edges=times)
    return replace(bare, indptr=indptr, indices=indices, types=schema, times=known)
