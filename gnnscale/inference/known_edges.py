"""Known edges of vertices, which a ranking or a list of partners leaves out."""

from collections.abc import Iterable, Iterator

import numpy as np

from gnnscale.core import Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.run.tasks.edge_structure import edges_of_type
from gnnscale.run.tasks.links import LinkTask

#: Whether lists of partners have known neighbors.
KNOWN = ("include", "exclude")


def known_pairs(graph: Graph, task: object, edge_type: int = 0) -> Iterator[IntArray]:
    """Yield the edges of a type as pairs ``[n, 2]``, with those that ``task`` holds out.

    ``task`` is the run's task, or None for the edges of ``graph`` alone. A graph without types has
    the edge type 0.
    """
    for src, dst in edges_of_type(graph, edge_type, "looking for known edges"):
        yield np.stack([src, dst], axis=1)
    if isinstance(task, LinkTask):
        yield from task.held_out_pairs


class KnownTargets:
    """Targets of known edges, by source."""

    def __init__(self, sources: IntArray, pairs: Iterable[IntArray], *, num_vertices: int) -> None:
        """Collect the targets of ``sources`` ``[s]`` from arrays ``pairs`` ``[n, 2]`` of edges.

        Memory grows with the edges of ``sources`` and with one array of pairs.
        """
        is_needed = np.zeros(num_vertices, np.bool_)
        is_needed[sources] = True
        chosen = [np.empty((0, 2), sources.dtype)]
        for part in pairs:
            chosen.append(np.asarray(part[is_needed[part[:, 0]]], sources.dtype))
        edges = np.concatenate(chosen)
        self.num_pairs = len(edges)  #: known edges of the sources, copies included
        self._targets = edges[np.argsort(edges[:, 0], kind="stable"), 1]
        self._counts = np.bincount(edges[:, 0], minlength=num_vertices)
        self._ends = np.cumsum(self._counts)

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
        is_candidate = candidates[columns] == targets
        return rows[is_candidate], columns[is_candidate]
