"""Caches whose content stays: a metric of hotness, and who keeps what (PaGraph to Quiver).

Each published design is one choice of the three options, and so a file of configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gnnscale.cache.cache_plan import CachePlan, DeviceCache
from gnnscale.cache.hotness.metrics import EXACT, METRICS, measure
from gnnscale.cache.placement import deal, feature_cache, hottest_rows, predict_traffic, share_out
from gnnscale.cache.planner import CachePlannerConfig
from gnnscale.cache.task import CacheTask
from gnnscale.config import ConfigError, check_choice

__all__ = ["SCOPES", "StaticCache"]

#: Whose reads make a vertex hot: the device's own, its clique's, or those of all devices.
SCOPES = ("device", "clique", "all")


@dataclass(frozen=True, kw_only=True)
class StaticCache(CachePlannerConfig):
    """Feature rows of the hottest vertices, chosen before training.

    Attributes:
        name: what reports call the policy.
        hotness: one of ``METRICS``.
        scope: one of ``SCOPES``.
        shared: whether a clique keeps each row once: devices read each other's caches. Otherwise
            each device keeps the hottest rows itself.
        local: whether a shared row lies on the device that reads it most; otherwise rows are dealt
            in turn.
    """

    name: str
    hotness: str
    scope: str
    shared: bool = False
    local: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("cache_planner.hotness", self.hotness, METRICS)
        check_choice("cache_planner.scope", self.scope, SCOPES)
        if self.shared and self.scope == "device":
            raise ConfigError(
                "cache_planner.scope=device: devices that share rows need one order of them; "
                "allowed with shared=true are clique, all"
            )
        if self.local and not self.shared:
            raise ConfigError("cache_planner.local=true: needs cache_planner.shared=true")

    @property
    def policy(self) -> str:
        """What reports call it."""
        return self.name

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches."""
        return self.shared

    def plan(self, task: CacheTask) -> CachePlan:
        """Give each device, or each clique, the hottest rows that fit."""
        exact = self.hotness == EXACT
        cliques = task.cliques if self.shared else tuple((each,) for each in task.device_at)
        caches = [cache for clique in cliques for cache in self._caches(task, clique)]
        caches.sort(key=lambda cache: cache.device)
        reads = task.counted_run if exact else task.foretold
        return CachePlan(
            planner=self.policy,
            cliques=cliques,
            devices=tuple(caches),
            alphas=(None,) * len(cliques),
            predicted=predict_traffic(task, caches, cliques, reads),
            num_epochs=task.num_epochs if exact else 1,
            exact=(exact or task.num_epochs == 1) and task.draws_are_exact,
        )

    def _caches(self, task: CacheTask, clique: Sequence[int]) -> list[DeviceCache]:
        """Return the caches of the devices of a clique."""
        members = [task.device_at[each] for each in clique]
        rooms = [member.budget_bytes // task.row_bytes for member in members]
        order = hottest_rows(task, self._hotness(task, clique), sum(rooms))
        if self.local:
            local = [measure(self.hotness, task, [each]) for each in clique]
            capacities = [room * task.row_bytes for room in rooms]
            kept = share_out(task, order, local, capacities)
        else:
            kept = deal(order, rooms)
        none = order[:0]
        return [
            feature_cache(task, member, rows, none)
            for member, rows in zip(members, kept, strict=True)
        ]

    def _hotness(self, task: CacheTask, clique: Sequence[int]) -> NDArray[Any]:
        whose = list(task.device_at) if self.scope == "all" else clique
        return measure(self.hotness, task, whose)
