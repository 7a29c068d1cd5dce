"""Legion: a cache of lists and rows for each clique, divided by a cost model (section 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnscale.cache.cache_plan import CachePlan, CacheTraffic, CurvePoint, DeviceCache
from gnnscale.cache.legion.cost_model import CliqueCost, best_num_lists, curve
from gnnscale.cache.legion.cslp import Candidates, Kept, candidates
from gnnscale.cache.planner import CachePlannerConfig, feature_cache, traffic
from gnnscale.cache.task import CacheDevice, CacheTask, no_vertices
from gnnscale.core import check_choice, check_range

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


def clique_cost(task: CacheTask, clique: Sequence[int], found: Candidates) -> CliqueCost:
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
    task: CacheTask, clique: Sequence[int], found: Candidates, cost: CliqueCost, num_lists: int
) -> tuple[Kept, Kept]:
    """Fill the caches in the order of hotness: lists first, then rows into what they leave."""
    budgets = [task.device_at[each].budget_bytes for each in clique]
    # Each device keeps the same part of its memory for the rows that fit beside the lists.
    num_rows = int(cost.num_rows(cost.budget_bytes - cost.list_bytes.at(num_lists)))
    for_rows = num_rows * cost.row_bytes
    rooms = [budget - budget * for_rows // max(cost.budget_bytes, 1) for budget in budgets]
    lists = found.share_lists(task, clique, num_lists, np.array(rooms, np.int64))
    return lists, found.share_rows(task, clique, np.array(budgets, np.int64) - lists.bytes)


def _caches(task: CacheTask, clique: Sequence[int], lists: Kept, rows: Kept) -> list[DeviceCache]:
    caches = []
    for k, each in enumerate(clique):
        cache = feature_cache(task, task.device_at[each], rows.vertices[k], no_vertices(task.graph))
        caches.append(
            replace(cache, topology=lists.vertices[k], topology_bytes=int(lists.bytes[k]))
        )
    return caches


def _predict(task: CacheTask, clique: Sequence[int], lists: Kept, rows: Kept) -> list[CacheTraffic]:
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
