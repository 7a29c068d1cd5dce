"""Complete sharing with local preference (Legion, Algorithm 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache.hotness import expected, presampled
from gnnscale.cache.legion.cost_model import PrefixSums
from gnnscale.cache.planner import split_by_owner
from gnnscale.cache.task import BYTES_PER_LIST, CacheTask, sizes_of_lists
from gnnscale.core import Array, Int32Array, Int64Array

#: Vertices from one sum of hotness or bytes that is kept to the next.
_EVERY = 1 << 14


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What the K devices of a clique keep."""

    vertices: list[Array]  #: of each device, hottest first
    bytes: Int64Array  #: ``[K]`` int64, the memory that these take
    #: ``[K, K]`` int64, at ``[j, k]`` what the ``j``-th device reads of the ``k``-th one's, in the
    #: epoch of pre-sampling
    reads: Int64Array


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Vertices of a clique by their hotness, as many as its memory could hold."""

    #: ``[m]`` Q_T, vertices in descending order of the reads of their lists, A_T: edges traversed,
    #: and offsets, which an empty list has, too. Lists that are never read, or larger than each
    #: device's memory, are none of them
    lists: Array
    list_bytes: PrefixSums  #: sums of the bytes of these
    list_hotness: PrefixSums  #: sums of how often these are read
    total_list_hotness: float  #: the same over all vertices
    #: ``[n]`` Q_F, vertices in descending order of their appearances in batches, A_F
    rows: Array
    row_hotness: PrefixSums  #: sums of how often these are read
    total_row_hotness: float  #: the same over all vertices

    def share_lists(
        self, task: CacheTask, clique: Sequence[int], num_lists: int, rooms: Int64Array
    ) -> Kept:
        """Return each device's lists G_T: the first ``num_lists``, as far as its bytes allow."""
        local = [_list_reads(task, [each], task.presampled) for each in clique]
        return _share(task, self.lists[:num_lists], local, rooms, **_list_bytes(task))

    def share_rows(self, task: CacheTask, clique: Sequence[int], rooms: Int64Array) -> Kept:
        """Return the rows G_F of each device, as many as its bytes allow."""
        num_rows = sum(int(room) // task.row_bytes for room in rooms)
        local = [task.presampled.rows_of(each) for each in clique]
        return _share(task, self.rows[:num_rows], local, rooms, bytes_per_vertex=task.row_bytes)


def _share(
    task: CacheTask, order: Array, local: Sequence[Int32Array], rooms: Int64Array, **sizes: Any
) -> Kept:
    """Share vertices out by local preference (Algorithm 1, step 3)."""
    shared = ops.share_out(order, local, capacities=rooms, num_threads=task.num_threads, **sizes)
    assert shared.reads is not None
    return Kept(
        vertices=split_by_owner(order, shared.member, len(rooms), num_threads=task.num_threads),
        bytes=shared.bytes,
        reads=shared.reads,
    )


def _list_bytes(task: CacheTask) -> dict[str, Any]:
    """Return what a list takes in a cache (eq. 3), as arguments of native operations."""
    return {
        "bytes_per_vertex": BYTES_PER_LIST,
        "offsets": task.graph.indptr,
        "bytes_per_entry": task.graph.indices.itemsize,
    }


def _list_reads(
    task: CacheTask,
    devices: Sequence[int],
    reads: presampled.Presampled | expected.ExpectedReads | expected.CountedReads,
) -> Array:
    """Return A_T of those of ``devices`` that sample; others read no list over their link."""
    samplers = [each for each in devices if task.device_at[each].samples]
    if not samplers:
        return np.zeros(task.graph.num_vertices, np.int32)
    return reads.sum_lists(samplers)


def candidates(
    task: CacheTask, clique: Sequence[int], reads: presampled.Presampled | expected.ExpectedReads
) -> Candidates:
    """Add up the hotness of a clique's devices, and sort by it (Algorithm 1, steps 1 and 2).

    Lists count as far as devices that sample read them over a link. Equally hot vertices come in
    the order of their out-degrees. ``reads`` decide which vertices are hot, ``task.counted`` how
    often.
    """
    budgets = [task.device_at[each].budget_bytes for each in clique]
    list_reads, appearances = _list_reads(task, clique, reads), reads.sum_rows(clique)
    lists = ops.hottest(
        list_reads,
        task.out_degrees,
        capacity=sum(budgets),
        max_bytes=max(budgets),
        only_hot=True,
        num_threads=task.num_threads,
        **_list_bytes(task),
    )
    rows = ops.hottest(
        appearances,
        task.out_degrees,
        capacity=sum(budgets),
        bytes_per_vertex=task.row_bytes,
        num_threads=task.num_threads,
    )
    falling = task.num_epochs == 1  # of these the counts that order them are exact
    if not falling:
        list_reads = _list_reads(task, clique, task.counted)
        appearances = task.counted.sum_rows(clique)
    return Candidates(
        lists=lists,
        list_bytes=_sums(
            task, lists, lambda part: sizes_of_lists(task.graph, lists[part]), **_list_bytes(task)
        ),
        list_hotness=_hotness_sums(task, lists, list_reads, falling),
        total_list_hotness=_total(list_reads),
        rows=rows,
        row_hotness=_hotness_sums(task, rows, appearances, falling),
        total_row_hotness=_total(appearances),
    )


def _hotness_sums(task: CacheTask, order: Array, hotness: Array, falling: bool) -> PrefixSums:
    return _sums(task, order, lambda part: hotness[order[part]], values=hotness, falling=falling)


def _sums(
    task: CacheTask, order: Array, numbers: Callable[[slice], Array], **of: Any
) -> PrefixSums:
    kept = ops.running_sums(order, every=_EVERY, num_threads=task.num_threads, **of)
    return PrefixSums(kept=kept, every=_EVERY, num_numbers=len(order), numbers=numbers)


def _total(hotness: Array) -> float:
    """Return the sum, exact for counts."""
    whole = np.issubdtype(hotness.dtype, np.integer)
    total: float = hotness.sum(dtype=np.int64 if whole else np.float64).item()
    return total
