"""Legion: a cache of lists and rows for each clique, divided by a cost model (section 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.cache_plan import CachePlan, CurvePoint, DeviceCache
from gnnscale.cache.hotness.slices import prefix_sums
from gnnscale.cache.legion.cost_model import CliqueCost
from gnnscale.cache.legion.cslp import Candidates, candidates
from gnnscale.cache.legion.search import best_num_lists, curve
from gnnscale.cache.placement import feature_cache, predict_traffic
from gnnscale.cache.planner import CachePlannerConfig
from gnnscale.cache.task import CacheTask
from gnnscale.config import check_choice, check_range

__all__ = ["Legion"]

_HOTNESS = ("expected", "presampled")


@dataclass(frozen=True, kw_only=True)
class Legion(CachePlannerConfig):
    """Legion's hotness-aware unified cache (section 4.2) and automatic cache management (4.3).

    Pre-sampling counts what each device reads. A clique keeps the hottest lists and rows once,
    each on the device that reads it most. How its memory is divided between lists and rows is
    decided by the transactions that are left.

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
        """What reports call it."""
        return "legion"

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches."""
        return True

    def plan(self, task: CacheTask) -> CachePlan:
        """Plan each clique for itself."""
        planned = [self._plan_clique(task, clique) for clique in task.cliques]
        caches = sorted((c for each in planned for c in each.caches), key=lambda c: c.device)
        return CachePlan(
            planner=self.policy,
            cliques=task.cliques,
            devices=tuple(caches),
            alphas=tuple(each.alpha for each in planned),
            predicted=predict_traffic(task, caches, task.cliques, task.expected),
            exact=task.num_epochs == 1,
            curve=_added([each.curve for each in planned]),
        )

    def _plan_clique(self, task: CacheTask, clique: Sequence[int]) -> _Planned:
        reads = task.expected if self.hotness == "expected" else task.presampled
        found = candidates(task, clique, reads)
        cost = clique_cost(task, clique, found)
        if self.alpha is None:
            num_lists = best_num_lists(cost)
        else:
            num_lists = int(cost.num_lists(cost.topology_bytes(self.alpha)))
        return _Planned(
            caches=_fill(task, clique, found, cost, num_lists),
            alpha=float(cost.list_bytes[num_lists] / max(cost.budget_bytes, 1)),
            curve=curve(cost),
        )


@dataclass(frozen=True, kw_only=True)
class _Planned:
    caches: list[DeviceCache]
    alpha: float
    curve: tuple[CurvePoint, ...]


def clique_cost(task: CacheTask, clique: Sequence[int], found: Candidates) -> CliqueCost:
    """Return the cost model of a clique whose candidates are ``found``."""
    members = [task.device_at[each] for each in clique]
    first = members[0]
    return CliqueCost(
        budget_bytes=sum(member.budget_bytes for member in members),
        list_bytes=prefix_sums(
            len(found.lists), lambda part: task.sizes_of_lists(found.lists[part])
        ),
        list_hotness=_sums(found.list_hotness),
        total_list_hotness=found.total_list_hotness,
        row_bytes=task.row_bytes,
        row_hotness=_sums(found.row_hotness),
        total_row_hotness=found.total_row_hotness,
        n_tsum=sum(task.presampled.transactions_of(m.position) for m in members if m.samples),
        row_transactions=first.row_transactions(task.row_bytes),
        list_price=first.list_price,
        row_price=first.row_price(task.row_bytes),
    )


def _sums(hotness: NDArray[Any]) -> NDArray[Any]:
    return prefix_sums(len(hotness), lambda part: hotness[part], hotness.dtype)


def _fill(
    task: CacheTask,
    clique: Sequence[int],
    found: Candidates,
    cost: CliqueCost,
    num_lists: int,
) -> list[DeviceCache]:
    """Fill the caches in the order of hotness: lists first, then rows into what they leave."""
    members = [task.device_at[each] for each in clique]
    budgets = [member.budget_bytes for member in members]
    # Each device keeps the same part of its memory for the rows that fit beside the lists.
    num_rows = int(cost.num_rows(cost.budget_bytes - cost.list_bytes[num_lists]))
    for_rows = num_rows * cost.row_bytes
    rooms = [budget - budget * for_rows // max(cost.budget_bytes, 1) for budget in budgets]
    lists = found.share_lists(task, clique, num_lists, np.array(rooms, np.int64))
    used = np.array([task.list_bytes(each) for each in lists], np.int64)
    rows = found.share_rows(task, clique, np.array(budgets, np.int64) - used)
    return [
        feature_cache(task, member, features, topology)
        for member, features, topology in zip(members, rows, lists, strict=True)
    ]


def _added(curves: Sequence[tuple[CurvePoint, ...]]) -> tuple[CurvePoint, ...]:
    """Add up the curves of all cliques, point by point."""
    return tuple(
        CurvePoint(
            alpha=points[0].alpha,
            n_t=sum(point.n_t for point in points),
            n_f=sum(point.n_f for point in points),
            n_total=sum(point.n_total for point in points),
        )
        for points in zip(*curves, strict=True)
    )
