from dataclasses import dataclass
from typing import Any

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


@pytest.mark.parametrize(
    ("options", "uses_free_memory"),
    [
        ({"reserve": 0.0}, True),
        ({"reserve": 0.99, "store": "/plans/mine"}, True),
        ({"budget_bytes": 0}, False),
        ({"ratio": 0.0}, False),
    ],
)
def test_allowed(options: dict[str, Any], uses_free_memory: bool) -> None:
    planner = Nothing(**options)
    assert planner.caches
    assert not planner.shares
    assert planner.uses_free_memory == uses_free_memory


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget_bytes": -1}, "budget_bytes=-1: must be at least 0 and at most"),
        ({"budget_bytes": (1 << 50) + 1}, "budget_bytes=1125899906842625: must be at least 0 and"),
        ({"ratio": float("nan")}, "ratio=nan: expected a finite number of at least 0"),
        ({"ratio": 0.1, "budget_bytes": 5}, "ratio=0.1: expected null, .*budget_bytes=5"),
        ({"reserve": float("nan")}, "reserve=nan: expected a number from 0 to below 1"),
        ({"store": ""}, "store=: expected a path"),
        ({"store": "a\0b"}, "store=a.*b: expected a path"),
    ],
)
def test_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^cache_planner.{message}") as caught:
        Nothing(**options)
    assert "\n" not in str(caught.value)
