"""Legion: a cache of lists and rows for each clique, divided by a cost model (section 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache.base import CachePlannerConfig, feature_cache, split_by_owner, traffic
from gnnscale.cache.hotness import expected, presampled
from gnnscale.cache.legion.cost_model import CliqueCost, PrefixSums, best_num_lists, curve
from gnnscale.cache.plan import CachePlan, CacheTraffic, CurvePoint, DeviceCache
from gnnscale.cache.problem import (
    BYTES_PER_LIST,
    CacheDevice,
    CacheTask,
    no_vertices,
    sizes_of_lists,
)
from gnnscale.core import Array, Int32Array, Int64Array, check_choice, check_range

#: Vertices from one sum of hotness or bytes that is kept to the next.
_EVERY = 1 << 14


@dataclass(frozen=True, kw_only=True)
class CliqueContent:
    """What the K devices of a clique keep."""

    vertices: list[Array]  #: of each device, hottest first
    bytes: Int64Array  #: ``[K]`` int64, the memory that these take
    #: ``[K, K]`` int64, at ``[j, k]`` what the ``j``-th device reads of the ``k``-th one's, in the
    #: epoch of pre-sampling
    reads: Int64Array


@dataclass(frozen=True, kw_only=True)
class HotVertices:
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
    ) -> CliqueContent:
        """Return each device's lists G_T: the first ``num_lists``, as far as its bytes allow."""
        local = [_list_reads(task, [each], task.presampled) for each in clique]
        return _share(task, self.lists[:num_lists], local, rooms, **_list_bytes(task))

    def share_rows(
        self, task: CacheTask, clique: Sequence[int], rooms: Int64Array
    ) -> CliqueContent:
        """Return the rows G_F of each device, as many as its bytes allow."""
        num_rows = sum(int(room) // task.row_bytes for room in rooms)
        local = [task.presampled.rows_of(each) for each in clique]
        return _share(task, self.rows[:num_rows], local, rooms, bytes_per_vertex=task.row_bytes)


def _share(
    task: CacheTask, order: Array, local: Sequence[Int32Array], rooms: Int64Array, **sizes: Any
) -> CliqueContent:
    """Share vertices out by local preference (Algorithm 1, step 3)."""
    shared = ops.share_out(order, local, capacities=rooms, num_threads=task.num_threads, **sizes)
    assert shared.reads is not None
    return CliqueContent(
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
    reads: presampled.Presampled | expected.ExpectedReads | expected.AverageReads,
) -> Array:
    """Return A_T of those of ``devices`` that sample; others read no list over their link."""
    samplers = [each for each in devices if task.device_at[each].samples]
    if not samplers:
        return np.zeros(task.graph.num_vertices, np.int32)
    return reads.sum_lists(samplers)


def candidates(
    task: CacheTask, clique: Sequence[int], reads: presampled.Presampled | expected.ExpectedReads
) -> HotVertices:
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
    return HotVertices(
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


_HOTNESS = ("expected", "presampled")


@dataclass(frozen=True, kw_only=True)
class Legion(CachePlannerConfig):
    """Legion's hotness-aware unified cache (section 4.2) and automatic cache management (4.3).

    Pre-sampling counts what each device reads. A clique keeps the hottest lists and rows once, each
    on the device that reads it most. The division of its memory between lists and rows minimises
    the remaining transactions.

    Attributes:
        alpha: the part of the memory that adjacency lists get; None for the best.
        hotness: ``expected``, what the run's epochs are expected to read; or ``presampled``, what
            one epoch did, as in the paper.
    """

    alpha: float | None = None
    hotness: str = "expected"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("cache_planner.hotness", self.hotness, _HOTNESS)
        if self.alpha is not None:
            check_range("cache_planner.alpha", self.alpha, 0, 1)

    @property
    def policy(self) -> str:
        """The name in reports."""
        return "legion"

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches."""
        return True

    def plan(self, task: CacheTask) -> CachePlan:
        """Plan each clique for itself."""
        planned = [self._plan_clique(task, clique) for clique in task.cliques]
        devices = [pair for each in planned for pair in zip(each.caches, each.traffic, strict=True)]
        devices.sort(key=lambda pair: pair[0].device)
        return CachePlan(
            planner=self.policy,
            cliques=task.cliques,
            devices=tuple(cache for cache, _ in devices),
            alphas=tuple(each.alpha for each in planned),
            predicted=tuple(traffic for _, traffic in devices),
            exact=task.num_epochs == 1 and task.draws_are_exact,
            curve=_added([each.curve for each in planned]),
        )

    def _plan_clique(self, task: CacheTask, clique: Sequence[int]) -> _Planned:
        reads = task.expected if self.hotness == "expected" else task.presampled
        found = candidates(task, clique, reads)
        cost = clique_cost(task, clique, found)
        if self.alpha is None:
            num_lists = best_num_lists(cost)
        else:
            num_lists = cost.num_lists(cost.topology_bytes(self.alpha))
        lists, rows = _fill(task, clique, found, cost, num_lists)
        return _Planned(
            caches=_caches(task, clique, lists, rows),
            traffic=_predict(task, clique, lists, rows),
            alpha=float(cost.list_bytes.at(num_lists) / max(cost.budget_bytes, 1)),
            curve=curve(cost),
        )


@dataclass(frozen=True, kw_only=True)
class _Planned:
    caches: list[DeviceCache]
    traffic: list[CacheTraffic]
    alpha: float
    curve: tuple[CurvePoint, ...]


def clique_cost(task: CacheTask, clique: Sequence[int], found: HotVertices) -> CliqueCost:
    """Return the cost model of a clique whose candidates are ``found``."""
    members = [task.device_at[each] for each in clique]
    reads = task.presampled

    def sampled(member: CacheDevice) -> int:
        return reads.num_list_reads(member.position) if member.samples else 0

    def rows_read(member: CacheDevice) -> int:
        return reads.num_rows(member.position)

    return CliqueCost(
        budget_bytes=sum(member.budget_bytes for member in members),
        list_bytes=found.list_bytes,
        list_hotness=found.list_hotness,
        total_list_hotness=found.total_list_hotness,
        row_bytes=task.row_bytes,
        row_hotness=found.row_hotness,
        total_row_hotness=found.total_row_hotness,
        n_tsum=sum(map(sampled, members)),
        row_transactions=_mean(members, lambda m: m.row_transactions(task.row_bytes), rows_read),
        list_price=_mean(members, lambda m: m.list_price, sampled),
        row_price=_mean(members, lambda m: m.row_price(task.row_bytes), rows_read),
    )


def _mean(
    members: Sequence[CacheDevice],
    price: Callable[[CacheDevice], float],
    weight: Callable[[CacheDevice], int],
) -> float:
    """Return the mean price of what the members of a clique read; their links may differ."""
    prices = [price(member) for member in members]
    if len(set(prices)) == 1:
        return prices[0]
    weights = [weight(member) for member in members]
    total = sum(weights)
    if total == 0:
        return prices[0]  # of nothing
    return sum(each * part for each, part in zip(prices, weights, strict=True)) / total


def _fill(
    task: CacheTask, clique: Sequence[int], found: HotVertices, cost: CliqueCost, num_lists: int
) -> tuple[CliqueContent, CliqueContent]:
    """Fill the caches in the order of hotness: lists first, then rows into what they leave."""
    budgets = [task.device_at[each].budget_bytes for each in clique]
    # Each device keeps the same part of its memory for the rows that fit beside the lists.
    num_rows = int(cost.num_rows(cost.budget_bytes - cost.list_bytes.at(num_lists)))
    for_rows = num_rows * cost.row_bytes
    rooms = [budget - budget * for_rows // max(cost.budget_bytes, 1) for budget in budgets]
    lists = found.share_lists(task, clique, num_lists, np.array(rooms, np.int64))
    return lists, found.share_rows(task, clique, np.array(budgets, np.int64) - lists.bytes)


def _caches(
    task: CacheTask, clique: Sequence[int], lists: CliqueContent, rows: CliqueContent
) -> list[DeviceCache]:
    caches = []
    for k, each in enumerate(clique):
        cache = feature_cache(task, task.device_at[each], rows.vertices[k], no_vertices(task.graph))
        caches.append(
            replace(cache, topology=lists.vertices[k], topology_bytes=int(lists.bytes[k]))
        )
    return caches


def _predict(
    task: CacheTask, clique: Sequence[int], lists: CliqueContent, rows: CliqueContent
) -> list[CacheTraffic]:
    """Return what each device is expected to read, by place."""
    reads, found = task.counted, []
    for j, reader in enumerate(clique):
        at_rows, at_lists = {}, {}
        for k, each in enumerate(clique):
            counted = int(rows.reads[j, k])
            at_rows[each] = reads.rows_at(reader, rows.vertices[k], counted)
            if task.device_at[reader].samples:
                counted = int(lists.reads[j, k])
                at_lists[each] = reads.lists_at(reader, lists.vertices[k], counted)
        found.append(traffic(task, reader, reads, at_rows, at_lists))
    return found


def _added(curves: Sequence[tuple[CurvePoint, ...]]) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(
            alpha=points[0].alpha,
            n_t=sum(point.n_t for point in points),
            n_f=sum(point.n_f for point in points),
            n_total=sum(point.n_total for point in points),
        )
        for points in zip(*curves, strict=True)
    )
