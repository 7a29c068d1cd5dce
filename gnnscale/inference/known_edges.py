"""Known edges of vertices, which a ranking or a list of partners leaves out."""

from collections.abc import Iterable

import numpy as np

from gnnscale.core import Array, Int64Array, IntArray


class KnownTargets:
    """Targets of known edges, by source."""

    def __init__(self, sources: IntArray, pairs: Iterable[IntArray], *, num_vertices: int) -> None:
        """Collect the targets of ``sources`` ``[s]`` from arrays ``pairs`` ``[n, 2]`` of edges.

        Memory grows with the edges of ``sources`` and with one array of pairs.
        """
        is_needed = np.zeros(num_vertices, np.bool_)
        is_needed[sources] = True
        empty = np.empty((0, 2), sources.dtype)
        needed = [np.asarray(each)[is_needed[each[:, 0]]] for each in pairs]
        edges = np.concatenate([empty, *needed])
        self._targets = edges[np.argsort(edges[:, 0], kind="stable"), 1]
        counts = np.bincount(edges[:, 0], minlength=num_vertices)
        self._ends = np.cumsum(counts)
        self._counts = counts

    def positions(self, sources: IntArray, candidates: Array) -> tuple[Int64Array, Int64Array]:
        """Return rows and columns ``[n]`` of known pairs in a matrix ``[s, m]``.

        Its rows are ``sources`` ``[s]``, its columns the ascending ``candidates`` ``[m]``.
        """
        counts = self._counts[sources]
        rows = np.repeat(np.arange(len(sources)), counts)
        skipped = np.cumsum(counts) - counts
        first = self._ends[sources] - counts - skipped
        targets = self._targets[np.arange(len(rows)) + np.repeat(first, counts)]
        columns = np.minimum(np.searchsorted(candidates, targets), len(candidates) - 1)
        found = candidates[columns] == targets
        return rows[found], columns[found]
