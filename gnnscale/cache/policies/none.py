"""No cache: every row and every list is read at the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnscale.cache.cache_plan import CachePlan
from gnnscale.cache.planner import CachePlannerConfig
from gnnscale.cache.task import CacheTask

__all__ = ["NoCache"]


@dataclass(frozen=True, kw_only=True)
class NoCache(CachePlannerConfig):
    """No device has a cache."""

    caches: ClassVar[bool] = False

    @property
    def policy(self) -> str:
        """What reports call it."""
        return "none"

    def plan(self, task: CacheTask) -> CachePlan:
        """Return the plan of no cache."""
        return CachePlan(planner=self.policy, cliques=(), devices=(), alphas=(), predicted=None)
