import dataclasses
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixture_types import Make
from small_tasks import small_task

from gnnscale.cache import (
    PICTURE_FILE,
    CachePlannerConfig,
    CacheTask,
    Legion,
    LookAheadCache,
    NoCache,
    StaticCache,
    make_plan,
    read_plan,
)
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph

DEGREE = StaticCache(name="pagraph", hotness="out_degree", scope="device")
SHARED = StaticCache(name="quiver", hotness="presampled", scope="clique", shared=True)
AHEAD = LookAheadCache(name="belady", window=2)


@pytest.fixture
def task(tiny_graph: Graph) -> CacheTask:
    """Two devices, with room for two rows and one."""
    return small_task(tiny_graph, [16, 8])


def make(planner: CachePlannerConfig, task: CacheTask, **options: Any) -> Path:
    return make_plan(planner, task, **{"partition": None, "run": {"sampler": "any"}, **options})


@pytest.mark.parametrize("planner", [DEGREE, Legion(), AHEAD, NoCache()])
def test_a_plan_is_made_once(planner: CachePlannerConfig, task: CacheTask, home: Path) -> None:
    path = make(planner, task)
    assert path.parent == home / "cache_plans"
    found = read_plan(path, task.graph)
    assert found.plan.planner == planner.policy
    assert found.seconds >= 0
    before = (path / "cache_plan.json").stat()
    assert make(planner, task) == path
    assert os.path.samestat((path / "cache_plan.json").stat(), before)
    (path / PICTURE_FILE).write_text("<svg/>")
    assert make(planner, task, force=True) == path
    assert not os.path.samestat((path / "cache_plan.json").stat(), before)
    assert read_plan(path, task.graph).content == found.content
    # The picture was of the plan before.
    assert not (path / PICTURE_FILE).exists()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_stored_plan_is_the_planned_one(task: CacheTask, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        path = make(DEGREE, task)
        make(DEGREE, task)
    assert caplog.messages == [f"planning the caches of 2 devices in {path}"]
    plan = read_plan(path, task.graph).plan
    # Vertex 3 is in two lists, and each of the others in one.
    assert [cache.features.tolist() for cache in plan.devices] == [[3, 0], [3]]


#: What the plan that lies there was made with, what is wanted now, and what differs.
DIFFERENT: list[tuple[CachePlannerConfig, dict[str, Any], str]] = [
    (dataclasses.replace(DEGREE, hotness="pagerank"), {}, "cache_planner.hotness=out_degree, now "),
    (AHEAD, {}, "planner=gnnscale.cache.policies.StaticCache, now "),
    (DEGREE, {"seed": 1}, "seed=0, now seed=1"),
    (DEGREE, {"run": {}}, "sampler=any, now sampler=None"),
    (DEGREE, {"cliques": [[0, 1]]}, r"cliques=\[\[0\], \[1\]\], now cliques=\[\[0, 1\]\]"),
    (DEGREE, {"budgets": [16, 16]}, "devices="),
]


@pytest.mark.long
@pytest.mark.parametrize(("planner", "changes", "said"), DIFFERENT)
def test_a_plan_made_with_other_options_is_refused(task, tmp_path, planner, changes, said) -> None:
    store = str(tmp_path / "mine")
    path = make(dataclasses.replace(DEGREE, store=store), task)
    run = changes.pop("run", {"sampler": "any"})
    other = small_task(task.graph, **{"budgets": [16, 8], **changes})
    with pytest.raises(GraphError, match=rf"^{path}: made with {said}") as error:
        make(dataclasses.replace(planner, store=store), other, run=run)
    assert str(error.value).endswith(
        "name another cache_planner.store, or run gnnscale plan-cache with force=true"
    )
    assert str(error.value).isprintable()
    make(dataclasses.replace(planner, store=store), other, run=run, force=True)
    assert read_plan(path, task.graph).plan.planner == planner.policy


@pytest.fixture
def mine(tmp_path: Path) -> StaticCache:
    return dataclasses.replace(DEGREE, store=str(tmp_path / "mine"))


def test_plans_of_other_data_are_refused(task, mine, random_graph) -> None:
    make(mine, task)
    graph = random_graph(num_features=2)
    with pytest.raises(GraphError, match=r"is a cache plan of tiny \(5 .*, not of graph \(300 "):
        make(mine, small_task(graph, [16, 8]))
    message = "expected a plan for the partition ab, got one for a graph without parts"
    with pytest.raises(GraphError, match=message):
        make(mine, task, partition="ab")
    make(mine, task, partition="ab", force=True)
    message = "expected a plan for the partition cd, got one for the partition ab"
    with pytest.raises(GraphError, match=message):
        make(mine, task, partition="cd")


def test_plans_do_not_depend_on_threads(random_graph: Make) -> None:
    graph = random_graph()
    run = {"batch_size": 32, "cliques": [[0, 1]], "samples": True}
    tasks = [small_task(graph, [1600, 800], num_threads=threads, **run) for threads in (1, 2)]
    for planner in (SHARED, Legion(), AHEAD):
        found = [planner.plan(task) for task in tasks]
        assert found[0].predicted == found[1].predicted
        for one, other in zip(found[0].devices, found[1].devices, strict=True):
            assert np.array_equal(one.features, other.features)
            assert np.array_equal(one.topology, other.topology)
