from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.cache import CachePlan, CacheTraffic, CurvePoint, DeviceCache, LookAhead
from gnnscale.cache.cache_plan import BatchBytes
from gnnscale.cache.storage.checks import check_plan_figures
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph

FILE = Path("cache_plan.json")
NONE = np.empty(0, np.int32)
CACHE = DeviceCache(
    device=1,
    name="a",
    budget_bytes=100,
    features=np.array([4, 1], np.int32),
    topology=np.array([2], np.int32),
    feature_bytes=16,
    topology_bytes=16,
)
AHEAD = dataclasses.replace(
    CACHE,
    features=NONE,
    topology=NONE,
    topology_bytes=0,
    feature_bytes=24,
    look_ahead=LookAhead(window=2, num_rows=3, match=True),
)
TOLD = CacheTraffic(rows=(0, 2, 3), lists=(0, 0, 1), transactions=4, link_bytes=24)
PLAN = CachePlan(
    planner="legion",
    cliques=((1,),),
    devices=(CACHE,),
    alphas=(0.5,),
    predicted=(TOLD,),
    curve=(CurvePoint(alpha=0.5, n_t=1, n_f=2, n_total=3),),
)


def plan_of(**fields: Any) -> CachePlan:
    """The plan with fields of its one cache, of its traffic, or its own changed."""
    cache, told = fields.pop("cache", {}), fields.pop("told", None)
    found = dataclasses.replace(PLAN, **fields)
    if told is not None:
        found = dataclasses.replace(found, predicted=(dataclasses.replace(TOLD, **told),))
    changed = tuple(dataclasses.replace(each, **cache) for each in found.devices)
    return dataclasses.replace(found, devices=changed)


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        plan_of(devices=(AHEAD,)),
        plan_of(predicted=None, curve=(), alphas=(None,)),
        plan_of(devices=(), cliques=(), alphas=(), predicted=None),
        # A plan for more devices than have a cache.
        plan_of(told={"rows": (0, 2, 0, 3), "lists": (0, 0, 0, 1)}),
    ],
)
def test_what_is_as_it_should_be(tiny_graph: Graph, plan: CachePlan) -> None:
    check_plan_figures(FILE, plan, tiny_graph, seconds=1.5)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (plan_of(planner="a\nb"), r"'a\\\\nb' is no line of up to 1000 characters"),
        (plan_of(notes=("x" * 1001,)), "is no line of up to 1000 characters"),
        (plan_of(cache={"name": "\x1b"}), r"is no line of up to 1000 characters"),
        (
            plan_of(cache={"feature_bytes": 8}),
            "devices.1.feature_bytes is 8, but what it keeps takes 16",
        ),
        (
            plan_of(cache={"topology_bytes": 0}),
            "devices.1.topology_bytes is 0, but what it keeps takes 16",
        ),
        (
            plan_of(devices=(AHEAD,), cache={"feature_bytes": 0}),
            "devices.1.feature_bytes is 0, but what it keeps takes 24",
        ),
        (plan_of(cache={"budget_bytes": -1}), "devices.1.budget_bytes is -1, allowed is a number"),
        (
            plan_of(
                devices=(AHEAD,),
                cache={
                    "look_ahead": LookAhead(window=1, num_rows=6, match=False),
                    "feature_bytes": 48,
                },
            ),
            "devices.1.look_ahead.num_rows is 6, allowed is a number from 0 to 5",
        ),
        (
            plan_of(
                devices=(AHEAD,),
                cache={"look_ahead": LookAhead(window=1 << 16, num_rows=3, match=False)},
            ),
            "devices.1.look_ahead.window is 65536, allowed is a number from 0 to 32768",
        ),
        (
            plan_of(devices=(AHEAD,), cache={"matched_bytes": 41}),
            "devices.1.matched_bytes is 41, allowed is a number from 0 to 40",
        ),
        (
            plan_of(cache={"matched_bytes": 1}),
            "devices.1.matched_bytes is 1, allowed is a number from 0 to 0",
        ),
        (
            plan_of(cache={"batch_bytes": BatchBytes(cached=1, aggregated=-1)}),
            "devices.1.batch_bytes.aggregated is -1",
        ),
        (plan_of(alphas=(1.5,)), "alpha is 1.5, allowed is a number from 0 to 1"),
        (plan_of(num_epochs=-1), "predicted.num_epochs is -1"),
        (plan_of(told={"rows": ()}), r"reads at \[0, 3\] places"),
        (plan_of(told={"rows": (2, 3), "lists": (0, 1)}), r"reads at \[2\] places, .* 3 at least"),
        (plan_of(told={"rows": (9, -1, 3)}), "predicted.devices.rows is -1"),
        (
            plan_of(told={"lists": (0, 0, 1 << 60)}),
            "predicted.devices.lists is 1152921504606846976",
        ),
        (plan_of(told={"transactions": -4}), "predicted.devices.transactions is -4"),
        (plan_of(told={"link_bytes": 1 << 61}), "predicted.devices.link_bytes is"),
        (
            plan_of(curve=(CurvePoint(alpha=-0.5, n_t=1, n_f=2, n_total=3),)),
            "curve.alpha is -0.5",
        ),
        (
            plan_of(curve=(CurvePoint(alpha=0.5, n_t=1, n_f=1e300, n_total=3),)),
            "curve.n_f is 1e[+]300",
        ),
    ],
)
def test_what_no_plan_can_say(tiny_graph: Graph, plan: CachePlan, said: str) -> None:
    with pytest.raises(GraphError, match=rf"^cache_plan\.json: .*{said}") as error:
        check_plan_figures(FILE, plan, tiny_graph, seconds=1.5)
    assert str(error.value).isprintable()


def test_devices_that_disagree_on_the_places(tiny_graph: Graph) -> None:
    more = dataclasses.replace(TOLD, rows=(0, 0, 0, 5), lists=(0, 0, 0, 1))
    caches = (dataclasses.replace(CACHE, device=0), CACHE)
    plan = plan_of(
        devices=caches, cliques=((0,), (1,)), alphas=(None, None), predicted=(TOLD, more)
    )
    with pytest.raises(GraphError, match=r"reads at \[4\] places"):
        check_plan_figures(FILE, plan, tiny_graph, seconds=1.5)


def test_a_time_that_never_passed(tiny_graph: Graph) -> None:
    with pytest.raises(GraphError, match="seconds is -1"):
        check_plan_figures(FILE, PLAN, tiny_graph, seconds=-1)
