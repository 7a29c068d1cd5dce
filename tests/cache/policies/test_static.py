from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnscale
from gnnscale.cache import CachePlan, CacheTask, StaticCache
from gnnscale.cache.hotness.metrics import METRICS
from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition import UNREACHED, Parts
from gnnscale.sampler import NeighborSampler

Make = Callable[..., CacheTask]

CONFIGS = Path(gnnscale.__file__).parent / "configs" / "cache_planner"
#: Rows of 8 bytes, of vertices in 1, 2, 3, 0 and 4 lists.
LISTS = [[1, 2, 4], [2, 4], [4], [0, 1, 2, 4], []]


def policy(name: str) -> StaticCache:
    """Return a policy as its file of configuration says."""
    options = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    assert options.pop("_target_").endswith(".StaticCache")
    return StaticCache(**options)


#: Names of the policies whose content stays.
STATIC = sorted(path.stem for path in CONFIGS.glob("*.yaml") if ".StaticCache" in path.read_text())


def kept(plan: CachePlan) -> list[list[int]]:
    return [each.features.tolist() for each in plan.devices]


def replayed(task: CacheTask, plan: CachePlan) -> list[list[int]]:
    """Sample the run step by step, and count at which device each row is read, the host last."""
    assert task.fanouts
    sampler = NeighborSampler(task.graph, fanouts=list(task.fanouts), seed=task.seed)
    content = {each.device: set(each.features.tolist()) for each in plan.devices}
    found = {each: [0] * (task.num_devices + 1) for each in task.device_at}
    for epoch in range(task.num_epochs):
        for draw in task.draws.epoch(epoch):
            for vertex in sampler.sample(draw.seeds, draw.step).input_vertices.tolist():
                where = [each for each in plan.clique_of(draw.device) if vertex in content[each]]
                own = draw.device if draw.device in where else None
                found[draw.device][own if own is not None else [*where, -1][0]] += 1
    return list(found.values())


def rows_at_devices(plan: CachePlan) -> int:
    assert plan.predicted_total
    return sum(plan.predicted_total.rows[:-1])


def test_pagraph_keeps_rows_of_its_part_by_out_degree(
    graph_of: Callable[..., Graph], make_task: Make
) -> None:
    no = UNREACHED
    hops = np.array([[0, 1, no, no, 1], [1, 0, 1, 0, no]], np.uint8)
    owner = np.array([0, 1, 1, 1, 0], np.int16)
    parts = Parts(num_parts=2, owner=owner, hops=hops, num_hops=1)
    task = make_task(graph_of(LISTS), [24, 27], parts=parts)
    assert kept(policy("pagraph").plan(task)) == [[4, 1, 0], [2, 1, 0]]
    whole = replace(task, parts=None)
    assert kept(policy("pagraph").plan(whole)) == [[4, 2, 1], [4, 2, 1]]


def test_gnnlab_keeps_the_same_rows_everywhere(
    graph_of: Callable[..., Graph], make_task: Make, reading: Make
) -> None:
    reads = ([9, 0, 1, 2, 3], [0] * 5), ([0, 9, 3, 1, 2], [0] * 5)
    task = reading(make_task(graph_of(LISTS), [24, 24], cliques=[(0, 1)]), *reads)
    plan = policy("gnnlab").plan(task)
    assert kept(plan) == [[1, 0, 4], [1, 0, 4]]  # 9, 9, 5; of equal ones by out-degree
    assert plan.cliques == ((0,), (1,))
    assert not policy("gnnlab").shares
    # PaGraph-plus goes by what each reads itself.
    assert kept(policy("pagraph_plus").plan(task)) == [[0, 4, 3], [1, 2, 4]]


def test_quiver_deals_rows_within_a_clique(
    random_graph: Callable[..., Graph], make_task: Make
) -> None:
    graph = random_graph()
    budgets = [80 * each for each in (20, 20, 33, 10, 5)]
    task = make_task(graph, budgets, cliques=[(0, 1, 2), (3, 4)])
    plan = policy("quiver").plan(task)
    order = np.lexsort((np.arange(300), -task.out_degrees)).tolist()
    for clique, num_rows in (((0, 1, 2), 73), ((3, 4), 15)):
        assert plan.clique_of(clique[0]) == clique
        rows = [row for each in clique for row in plan.of(each).features.tolist()]
        assert sorted(rows) == sorted(order[:num_rows])  # each row once, and the hottest
    # In turn, hottest first, as long as there is room.
    assert plan.of(0).features.tolist() == order[0:60:3]
    assert plan.of(1).features.tolist() == order[1:60:3]
    assert plan.of(2).features.tolist() == order[2:60:3] + order[60:73]
    assert plan.of(4).features.tolist() == order[1:10:2]


def test_the_best_of_a_run_lies_where_it_is_read_most(
    random_graph: Callable[..., Graph], make_task: Make
) -> None:
    task = make_task(random_graph(), [80 * 9, 80 * 30], cliques=[(0, 1)], batch_size=40)
    plan = policy("oracle_static").plan(task)
    counts = [task.counted_run.rows_of(each) for each in (0, 1)]
    rows = np.concatenate([each.features for each in plan.devices])
    assert len(np.unique(rows)) == len(rows) == 39
    others = np.setdiff1d(np.arange(300), rows)
    assert (counts[0] + counts[1])[rows].min() >= (counts[0] + counts[1])[others].max()
    # The first has less room than rows it reads most: what it keeps it does read most.
    first = plan.of(0).features
    assert len(first) == 9
    assert (counts[0][first] >= counts[1][first]).all()
    assert plan.num_epochs == task.num_epochs


@pytest.mark.parametrize("name", STATIC)
def test_no_memory_and_all_memory(
    graph_of: Callable[..., Graph], make_task: Make, name: str
) -> None:
    for budget, num_rows in ((0, 0), (7, 0), (40, 5), (41, 5), (1 << 50, 5)):
        task = make_task(graph_of(LISTS), [budget, budget], cliques=[(0, 1)])
        plan = policy(name).plan(task)
        total = plan.predicted_total
        assert total is not None
        assert (plan.planner, plan.exact) == (name, False)  # two devices split the seeds
        assert total.feature_hit_rate == (1 if num_rows else 0)
        assert total.topology_hit_rate == 0
        assert total.link_bytes == total.rows[-1] * 8
        shared = policy(name).shares
        assert sum(map(len, kept(plan))) == num_rows * (1 if shared else 2)
        assert all(not len(each.topology) for each in plan.devices)
        assert plan.alpha is None


def test_a_budget_of_less_than_a_row(graph_of: Callable[..., Graph], make_task: Make) -> None:
    task = make_task(graph_of(LISTS), [7, 15, 24])
    assert kept(policy("pagraph").plan(task)) == [[], [4], [4, 2, 1]]
    assert [each.feature_bytes for each in policy("pagraph").plan(task).devices] == [0, 8, 24]


@pytest.mark.parametrize("name", STATIC)
def test_positions_without_a_cache_are_left_out(
    random_graph: Callable[..., Graph], make_task: Make, name: str
) -> None:
    task = make_task(random_graph(), [None, 800, 1600], cliques=[(1, 2)], batch_size=90)
    plan = policy(name).plan(task)
    assert [each.device for each in plan.devices] == [1, 2]
    assert plan.predicted is not None
    assert all(each.rows[0] == 0 for each in plan.predicted)
    assert plan.predicted[0].rows[1] > 0


@given(data=st.data())
@settings(max_examples=15)
def test_the_bound_foretells_the_run_and_no_other_is_better(
    tasks: Callable[..., st.SearchStrategy[CacheTask]], data: st.DataObject
) -> None:
    task = data.draw(tasks(max_budget=60))
    bound = policy("oracle_static")
    plan = bound.plan(task)
    assert plan.predicted
    assert [list(each.rows) for each in plan.predicted] == replayed(task, plan)
    alone = StaticCache(name="alone", hotness="exact", scope="device").plan(task)
    for hotness in METRICS:
        for best, scope, sharing in (
            (plan, "clique", {"shared": True, "local": True}),
            (plan, "all", {"shared": True}),
            (alone, "device", {}),
            (alone, "all", {}),
        ):
            other = StaticCache(name="other", hotness=hotness, scope=scope, **sharing).plan(task)
            hits = sum(sum(rows[:-1]) for rows in replayed(task, other))
            assert hits <= rows_at_devices(best)


def options_of(**given: Any) -> dict[str, Any]:
    return {"name": "mine", "hotness": "random", "scope": "clique"} | given


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hotness": "heat"}, "hotness=heat: allowed are out_degree, degree_ratio, pagerank,"),
        ({"scope": "part"}, "scope=part: allowed are device, clique, all"),
        (
            {"scope": "device", "shared": True},
            "scope=device: devices that share rows need one order of them; allowed with "
            "shared=true are clique, all",
        ),
        ({"local": True}, "local=true: needs cache_planner.shared=true"),
        ({"budget_bytes": -1}, "budget_bytes=-1: "),
    ],
)
def test_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^cache_planner.{message}") as caught:
        StaticCache(**options_of(**options))
    assert "\n" not in str(caught.value)


def test_the_metric_must_go_with_the_sampler(
    graph_of: Callable[..., Graph], make_task: Make
) -> None:
    task = replace(make_task(graph_of(LISTS), [8]), fanouts=None)
    with pytest.raises(ConfigError, match=r"^cache_planner.hotness=inclusion: "):
        policy("inclusion").plan(task)


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "x" * 64, "a b"])
def test_a_policys_name_leads_to_no_other_folder(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^cache_planner\.name=.*: must be a word of at most 63"):
        StaticCache(name=name, hotness="exact", scope="device")


def test_what_is_foretold_is_exact_where_the_split_is(
    random_graph: Callable[..., Graph], make_task: Make
) -> None:
    """An epoch that was drawn is that of each device only if it gets just these seeds."""
    for name, num_epochs, exact in (
        ("oracle_static", 2, True),
        ("pagraph", 1, True),
        ("pagraph", 2, False),
    ):
        alone = make_task(random_graph(), [800], num_epochs=num_epochs)
        assert policy(name).plan(alone).exact == exact
        two = make_task(random_graph(), [800, 800], num_epochs=num_epochs)
        assert not policy(name).plan(two).exact
        parts = Parts(num_parts=2, owner=(np.arange(300) % 2).astype(np.int16))
        divided = make_task(random_graph(), [800, 800], parts=parts, num_epochs=num_epochs)
        assert policy(name).plan(divided).exact == exact
