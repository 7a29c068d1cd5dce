from dataclasses import dataclass

import pytest

from gnnscale.cache import CachePlan, CachePlannerConfig, CacheTask
from gnnscale.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Nothing(CachePlannerConfig):
    @property
    def policy(self) -> str:
        return "nothing"

    def plan(self, task: CacheTask) -> CachePlan:
        raise NotImplementedError


def test_options_of_all_policies() -> None:
    for options, uses_free_memory in (
        ({"reserve": 0.0}, True),
        ({"reserve": 0.99, "store": "/plans/mine"}, True),
        ({"budget_bytes": 0}, False),
        ({"ratio": 0.0}, False),
    ):
        planner = Nothing(**options)
        assert planner.caches
        assert not planner.shares
        assert planner.uses_free_memory == uses_free_memory
    for options, message in (
        ({"budget_bytes": -1}, "budget_bytes=-1: must be at least 0 and at most"),
        ({"budget_bytes": (1 << 50) + 1}, "budget_bytes=1125899906842625: must be at least 0 and"),
        ({"ratio": float("nan")}, "ratio=nan: expected a finite number of at least 0"),
        ({"ratio": 0.1, "budget_bytes": 5}, "ratio=0.1: expected null, .*budget_bytes=5"),
        ({"reserve": float("nan")}, "reserve=nan: expected a number from 0 to below 1"),
        ({"store": ""}, "store=: expected a path"),
        ({"store": "a\0b"}, "store=a.*b: expected a path"),
    ):
        with pytest.raises(ConfigError, match=f"^cache_planner.{message}") as caught:
            Nothing(**options)
        assert "\n" not in str(caught.value)
