"""Complete sharing with local preference (Legion, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.hotness.expected import ExpectedReads
from gnnscale.cache.hotness.presampled import Presampled
from gnnscale.cache.hotness.slices import taken
from gnnscale.cache.placement import share_out, split_by_owner
from gnnscale.cache.task import BYTES_PER_LIST, CacheTask, no_vertices

__all__ = ["Candidates", "candidates"]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Vertices of a clique by their hotness, as many as its memory could hold.

    Attributes:
        lists: ``[m]`` Q_T, vertices in descending order of edges traversed from them, A_T.
        list_hotness: ``[m]`` A_T of these.
        total_list_hotness: the sum of A_T over all vertices.
        rows: ``[n]`` Q_F, vertices in descending order of their appearances in batches, A_F.
        row_hotness: ``[n]`` A_F of these.
        total_row_hotness: the sum of A_F over all vertices.
    """

    lists: NDArray[Any]
    list_hotness: NDArray[Any]
    total_list_hotness: float
    rows: NDArray[Any]
    row_hotness: NDArray[Any]
    total_row_hotness: float

    def share_lists(
        self, task: CacheTask, clique: Sequence[int], num_lists: int, rooms: NDArray[np.int64]
    ) -> list[NDArray[Any]]:
        """Return the lists G_T of each device: the first ``num_lists``, as far as they fit.

        Args:
            task: what is planned for.
            clique: positions of the devices.
            num_lists: lists of Q_T that are to be kept.
            rooms: bytes of each device.
        """
        order = self.lists[:num_lists]
        owner = ops.share_out(
            order,
            [_edges_read(task, [each], task.presampled) for each in clique],
            capacities=rooms,
            bytes_per_vertex=BYTES_PER_LIST,
            offsets=task.graph.indptr,
            bytes_per_entry=task.graph.indices.itemsize,
            num_threads=task.num_threads,
        )
        return split_by_owner(order, owner, len(clique))

    def share_rows(
        self, task: CacheTask, clique: Sequence[int], rooms: NDArray[np.int64]
    ) -> list[NDArray[Any]]:
        """Return the rows G_F of each device, as many as fit into ``rooms`` bytes of each."""
        num_rows = sum(int(room) // task.row_bytes for room in rooms)
        return share_out(
            task,
            self.rows[:num_rows],
            [task.presampled.rows_of(each) for each in clique],
            rooms,
        )


def _edges_read(
    task: CacheTask, devices: Sequence[int], reads: Presampled | ExpectedReads
) -> NDArray[Any]:
    """Return A_T of ``devices``; one for which the host samples reads no list over its link."""
    samplers = [each for each in devices if task.device_at[each].samples]
    if not samplers:
        return np.zeros(task.graph.num_vertices, np.int32)
    return reads.sum_edges(samplers)


def candidates(
    task: CacheTask, clique: Sequence[int], reads: Presampled | ExpectedReads
) -> Candidates:
    """Add up the hotness of a clique's devices, and sort by it (Algorithm 1, steps 1 and 2).

    Lists count as far as they are read over a link, by devices that sample. Equally hot vertices
    come in the order of their out-degrees.

    Args:
        task: what is planned for.
        clique: positions of the devices.
        reads: what an epoch reads, H_T and H_F.
    """
    members = [task.device_at[each] for each in clique]
    budget = sum(member.budget_bytes for member in members)
    edges = _edges_read(task, clique, reads)
    lists = no_vertices(task.graph)
    if edges.any():
        lists = ops.hottest(
            edges,
            task.out_degrees,
            capacity=budget,
            bytes_per_vertex=BYTES_PER_LIST,
            offsets=task.graph.indptr,
            bytes_per_entry=task.graph.indices.itemsize,
            num_threads=task.num_threads,
        )
    rows_hotness = reads.sum_rows(clique)
    rows = ops.hottest(
        rows_hotness,
        task.out_degrees,
        capacity=budget,
        bytes_per_vertex=task.row_bytes,
        num_threads=task.num_threads,
    )
    return Candidates(
        lists=lists,
        list_hotness=taken(edges, lists),
        total_list_hotness=edges.sum(dtype=np.float64).item(),
        rows=rows,
        row_hotness=taken(rows_hotness, rows),
        total_row_hotness=rows_hotness.sum(dtype=np.float64).item(),
    )
