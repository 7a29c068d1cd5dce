from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from fixture_types import Make
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnscale
from gnnscale.cache import CachePlan, CacheTask, LookAhead, LookAheadCache, NoCache, StaticCache
from gnnscale.cache import policies as look_ahead
from gnnscale.cache.belady import belady_bytes
from gnnscale.cache.hotness import degree_ratio, inclusion, out_degree, pagerank, presample, uniform
from gnnscale.cache.policies import METRICS, measure
from gnnscale.core.errors import ConfigError
from gnnscale.partition import UNREACHED, Parts
from gnnscale.sampling import NeighborSampler

CONFIGS = Path(gnnscale.__file__).parent / "configs" / "cache_planner"

#: No names of policies.
NAMES = ("../../x", "", "x" * 64, "a b")
#: Rows of 8 bytes, of vertices in 1, 2, 3, 0 and 4 lists.
LISTS = [[1, 2, 4], [2, 4], [4], [0, 1, 2, 4], []]


def policy(name: str) -> StaticCache:
    options = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    assert options.pop("_target_").endswith(".StaticCache")
    return StaticCache(**options)


#: Names of the policies whose content stays.
STATIC = sorted(path.stem for path in CONFIGS.glob("*.yaml") if ".StaticCache" in path.read_text())


def kept(plan: CachePlan) -> list[list[int]]:
    return [each.features.tolist() for each in plan.devices]


def replayed(task: CacheTask, plan: CachePlan) -> list[list[int]]:
    sampler = NeighborSampler(task.graph, fanouts=list(task.fanouts), seed=task.seed)
    content = {each.device: set(each.features.tolist()) for each in plan.devices}
    found = {each: [0] * (task.num_devices + 1) for each in task.device_at}
    for draw in (draw for epoch in range(task.num_epochs) for draw in task.draws.epoch(epoch)):
        for vertex in sampler.sample(draw.seeds, draw.step).input_vertices.tolist():
            where = [each for each in plan.clique_of(draw.device) if vertex in content[each]]
            found[draw.device][draw.device if draw.device in where else [*where, -1][0]] += 1
    return list(found.values())


def test_pagraph_keeps_rows_of_its_part_by_out_degree(graph_of: Make, make_task: Make) -> None:
    no = UNREACHED
    hops = np.array([[0, 1, no, no, 1], [1, 0, 1, 0, no]], np.uint8)
    parts = Parts(num_parts=2, owner=np.array([0, 1, 1, 1, 0], np.int16), hops=hops, num_hops=1)
    task = make_task(graph_of(LISTS), [24, 27], parts=parts)
    assert kept(policy("pagraph").plan(task)) == [[4, 1, 0], [2, 1, 0]]
    whole = policy("pagraph").plan(make_task(graph_of(LISTS), [7, 15, 24]))
    assert kept(whole) == [[], [4], [4, 2, 1]]
    assert [each.feature_bytes for each in whole.devices] == [0, 8, 24]


def test_gnnlab_keeps_the_same_rows_everywhere(graph_of, make_task, reading) -> None:
    reads = ([9, 0, 1, 2, 3], [0] * 5), ([0, 9, 3, 1, 2], [0] * 5)
    task = reading(make_task(graph_of(LISTS), [24, 24], cliques=[(0, 1)]), *reads)
    plan = policy("gnnlab").plan(task)
    assert kept(plan) == [[1, 0, 4], [1, 0, 4]]  # 9, 9, 5; of equal ones by out-degree
    assert plan.cliques == ((0,), (1,))
    assert not policy("gnnlab").shares
    # PaGraph-plus goes by what each reads itself.
    assert kept(policy("pagraph_plus").plan(task)) == [[0, 4, 3], [1, 2, 4]]


def test_quiver_deals_rows_within_a_clique(random_graph: Make, make_task: Make) -> None:
    graph = random_graph()
    budgets = [80 * each for each in (20, 20, 33, 10, 5)]
    task = make_task(graph, budgets, cliques=[(0, 1, 2), (3, 4)])
    plan = policy("quiver").plan(task)
    order = np.lexsort((np.arange(300), -task.out_degrees)).tolist()
    assert plan.cliques == ((0, 1, 2), (3, 4))
    # In turn, hottest first, as long as there is room.
    three = [order[0:60:3], order[1:60:3], order[2:60:3] + order[60:73]]
    assert kept(plan) == [*three, order[0:10:2] + order[10:15], order[1:10:2]]


@pytest.mark.long
@pytest.mark.parametrize("name", STATIC)
def test_no_memory_and_all_memory(graph_of: Make, make_task: Make, name: str) -> None:
    for budget, num_rows in ((7, 0), (40, 5), (1 << 50, 5)):
        task = make_task(graph_of(LISTS), [budget, budget], cliques=[(0, 1)])
        plan = policy(name).plan(task)
        total = plan.predicted_total
        assert (plan.planner, plan.exact) == (name, False)  # two devices split the seeds
        assert (total.feature_hit_rate, total.topology_hit_rate) == (1 if num_rows else 0, 0)
        assert total.link_bytes == total.rows[-1] * 8
        assert sum(map(len, kept(plan))) == num_rows * (1 if policy(name).shares else 2)
        assert all(not len(each.topology) for each in plan.devices)
        assert plan.alpha is None


def test_plans_without_some_or_all_caches(random_graph: Make, make_task: Make) -> None:
    task = make_task(random_graph(), [None, 800, 1600], cliques=[(1, 2)], batch_size=90)
    for name in STATIC:
        plan = policy(name).plan(task)
        assert [each.device for each in plan.devices] == [1, 2]
        assert all(each.rows[0] == 0 for each in plan.predicted)
        assert plan.predicted[0].rows[1] > 0
    planner = NoCache()
    assert not planner.caches
    assert not planner.shares
    task = make_task(random_graph(), [1000, 1000])
    assert planner.plan(task) == CachePlan(
        planner="none", cliques=(), devices=(), alphas=(), predicted=None
    )
    # Nothing was drawn for it.
    assert not {"presampled", "run_reads", "first_batches"} & set(task.__dict__)
    # An epoch that was drawn is that of each device only if it gets just these seeds.
    graph = random_graph()
    parts = Parts(num_parts=2, owner=(np.arange(300) % 2).astype(np.int16))
    runs = [("oracle_static", 2, True), ("pagraph", 1, True), ("pagraph", 2, False)]
    for name, num_epochs, exact in runs:
        alone = make_task(graph, [800], num_epochs=num_epochs)
        two = make_task(graph, [800, 800], num_epochs=num_epochs)
        divided = make_task(graph, [800, 800], parts=parts, num_epochs=num_epochs)
        found = [policy(name).plan(each).exact for each in (alone, two, divided)]
        assert found == [exact, False, exact]


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=4)
def test_the_bound_foretells_the_run_and_no_other_is_better(tasks, data) -> None:
    task = data.draw(tasks(max_budget=60))
    plan = policy("oracle_static").plan(task)
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
            assert hits <= sum(best.predicted_total.rows[:-1])


def test_refused_in_one_line() -> None:
    for config, options, message in (
        (StaticCache, {"hotness": "heat"}, "hotness=heat: allowed are out_degree, degree_ratio, "),
        (StaticCache, {"scope": "part"}, "scope=part: allowed are device, clique, all"),
        (StaticCache, {"scope": "device", "shared": True}, "scope=device: expected clique or all"),
        (StaticCache, {"local": True}, "local=true: expected cache_planner.shared=true"),
        # A policy's name leads to no other folder.
        *(
            (StaticCache, {"name": each}, "name=.*: expected a word of at most 63")
            for each in NAMES
        ),
        (LookAheadCache, {"window": 0}, "window=0: must be at least 1 and at most 32,768"),
        (LookAheadCache, {"window": 32769}, "window=32769: must be at least 1 and at most 32,768"),
        (LookAheadCache, {"predicted_epochs": -1}, "predicted_epochs=-1: must be at least 0"),
    ):
        if config is StaticCache:
            options = {"hotness": "random", "scope": "clique"} | options
        with pytest.raises(ConfigError, match=f"^cache_planner.{message}") as caught:
            config(**{"name": "mine"} | options)
        assert "\n" not in str(caught.value)


def belady(**options: Any) -> LookAheadCache:
    return LookAheadCache(**({"name": "belady", "window": 2} | options))


def batches_of(task: CacheTask, device: int, epochs: int) -> list[tuple[int, set[int]]]:
    draws = [draw for epoch in range(epochs) for draw in task.draws.epoch(epoch)]
    return [
        (each.step, set(each.batch.input_vertices.tolist()))
        for each in draws
        if each.device == device
    ]


def replayed_look_ahead(
    task: CacheTask, device: int, planner: LookAheadCache, epochs: int
) -> tuple[int, int]:
    batches = batches_of(task, device, task.num_epochs)
    capacity = task.device_at[device].budget_bytes // task.row_bytes
    content: set[int] = set()
    before: set[int] = set()
    num_found = num_missed = 0
    for step, batch in batches_of(task, device, epochs):
        here = content | before if planner.match else content
        num_found, num_missed = num_found + len(batch & here), num_missed + len(batch - here)
        known = [rows for at, rows in batches if step < at <= step + planner.window]
        stays = batch & known[0] if planner.match and known else set()
        ranks = {}
        for vertex in content | batch:
            uses = [ahead for ahead, later in enumerate(known) if vertex in later]
            nearest = len(known) + 1 if vertex in stays else min(uses, default=len(known))
            ranks[vertex] = nearest, -int(task.out_degrees[vertex]), vertex
        content = set(sorted(ranks, key=ranks.__getitem__)[:capacity])
        before = batch
    return num_found, num_missed


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=30)
def test_hits_are_those_of_a_replay(tasks: Make, data: st.DataObject) -> None:
    task = data.draw(tasks(max_budget=60))
    planner = belady(
        window=data.draw(st.integers(1, 6)),
        match=data.draw(st.booleans()),
        predicted_epochs=data.draw(st.none() | st.integers(1, 4)),
    )
    plan = planner.plan(task)
    assert plan.exact == (len(task.devices) == 1)
    assert plan.num_epochs == min(planner.predicted_epochs or 2, task.num_epochs)
    for device, found in zip(task.device_at, plan.predicted, strict=True):
        reads = replayed_look_ahead(task, device, planner, plan.num_epochs)
        assert (found.rows[device], found.rows[-1]) == reads
        assert sum(found.rows) == sum(reads)
        assert found.link_bytes == reads[-1] * task.row_bytes


def test_what_look_ahead_caches_hold_and_read(random_graph, make_task, graph_of) -> None:
    task = make_task(random_graph(), [None, 800, 1 << 50], cliques=[(1, 2)])
    plan = belady(predicted_epochs=0).plan(task)
    assert (plan.planner, plan.cliques, plan.alpha) == ("belady", ((1,), (2,)), None)
    assert (plan.predicted, plan.num_epochs) == (None, 0)
    first, second = plan.devices
    assert first.look_ahead == LookAhead(window=2, num_rows=10, match=False)
    assert (first.feature_bytes, first.topology_bytes, len(first.features)) == (800, 0, 0)
    # No more rows than there are vertices, however much memory there is.
    assert second.look_ahead == LookAhead(window=2, num_rows=300, match=False)
    assert second.feature_bytes == 300 * 80
    for samples in (True, False):
        task = make_task(graph_of(LISTS), [None, 0], request_bytes=4, samples=samples)
        plan = belady(predicted_epochs=None).plan(task)
        reads = task.run_reads.reads[1]
        sampling = reads.num_list_reads if samples else 0
        assert plan.predicted[0].transactions == int(reads.rows.sum()) * 2 + sampling
        assert plan.predicted[0].lists == (0, 0, 0)
    task = make_task(graph_of([[1], [0]], train=[0]), [80, 80], batch_size=2)
    plan = belady().plan(task)
    assert [sum(each.rows) for each in plan.predicted] == [2, 0]
    none = replace(task, devices=(), cliques=())
    assert belady().plan(none).devices == ()


def test_match_adds_what_the_batch_before_read(random_graph: Make, make_task: Make) -> None:
    task = make_task(random_graph(), [0, 800], batch_size=60)
    plan = LookAheadCache(name="match", window=1, match=True).plan(task)
    for device, (cache, found) in enumerate(zip(plan.devices, plan.predicted, strict=True)):
        batches = [rows for _, rows in batches_of(task, device, 1)]
        shared = [len(a & b) for a, b in pairwise(batches)]
        if device == 0:  # without any other row
            assert found.rows[device] == sum(shared) > 0
            assert found.rows[-1] == sum(map(len, batches)) - sum(shared)
        # Rows that may match are told beside the budget.
        rows = len(task.first_batches[device].input_vertices)
        assert cache.matched_bytes == rows * 80 > 0
        assert cache.num_bytes == cache.feature_bytes + cache.matched_bytes
        assert cache.feature_bytes <= cache.budget_bytes
        # No two mini-batches in a row share more.
        assert max(shared) * 80 <= cache.matched_bytes
    without = LookAheadCache(name="match", window=1).plan(task)
    assert without.predicted[0].feature_hit_rate == 0
    assert [cache.matched_bytes for cache in without.devices] == [0, 0]


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Make:
    def leave(num_bytes: int) -> None:
        machine = SimpleNamespace(memory=SimpleNamespace(available=num_bytes))
        monkeypatch.setattr(look_ahead.hardware, "find_machine", lambda: machine)

    return leave


def test_windows_are_what_memory_holds(random_graph, make_task, available) -> None:
    task = make_task(random_graph(), [800, 1 << 50], batch_size=60)
    rows = belady_bytes(300, 300, window=5, batch_rows=task.max_batch_rows)
    needed = 2 * (5 * task.max_batch_bytes + rows)  # each of two devices has half of it
    planner = belady(window=5, predicted_epochs=0)
    available(needed)
    ahead = LookAhead(window=5, num_rows=300, match=False)
    assert planner.plan(task).devices[1].look_ahead == ahead
    available(needed - 2)
    message = r"^cache_planner.window=5: expected about .* emulated:1, .* a smaller window fits$"
    with pytest.raises(ConfigError, match=message) as caught:
        planner.plan(task)
    assert "\n" not in str(caught.value)
    belady(window=4, predicted_epochs=0).plan(task)
    task = make_task(random_graph(), [None, 800, 800], batch_size=60)
    for batches, window in ((0, 1), (4, 1), (8, 2), (31, 7), (1000, 8)):
        available(2 * batches * task.max_batch_bytes)
        plan = belady(window=None, predicted_epochs=0).plan(task)
        found = [each.look_ahead.window for each in plan.devices if each.look_ahead]
        assert found == [window] * 2


#: Training vertices of the two parts.
FIRST, LAST = np.arange(0, 100, 3), np.arange(102, 300, 3)


@pytest.fixture
def parted(random_graph: Make, make_task: Make) -> CacheTask:
    """Two devices over the first 100 and the last 200 vertices, of which every third trains."""
    graph = random_graph().with_split(train_idx=np.arange(0, 300, 3))
    parts = Parts(num_parts=2, owner=(np.arange(300) >= 100).astype(np.int16))
    return make_task(graph, [0, 0], parts=parts, fanouts=(3, 2), batch_size=9)


def test_structure_alone(parted: CacheTask) -> None:
    for devices in ([0], [0, 1]):
        assert np.array_equal(measure("out_degree", parted, devices), out_degree(parted.graph))
        assert np.array_equal(measure("degree_ratio", parted, devices), degree_ratio(parted.graph))
        assert np.array_equal(measure("random", parted, devices), uniform(300, parted.seed))


def test_walks_start_where_devices_train(parted: CacheTask) -> None:
    graph = parted.graph
    for devices, seeds in (([0], FIRST), ([1], LAST), ([0, 1], graph.train_idx)):
        expected = pagerank(graph, seeds, num_threads=1)
        assert np.array_equal(measure("pagerank", parted, devices), expected)


def test_inclusion_is_of_each_devices_batches(parted: CacheTask) -> None:
    def of(seeds: Any) -> Any:
        return inclusion(parted.graph, seeds, (3, 2), batch_size=5, num_threads=1).probability

    assert np.array_equal(measure("inclusion", parted, [0]), of(FIRST))
    assert np.allclose(measure("inclusion", parted, [0, 1]), of(FIRST) + of(LAST))
    # A part with fewer vertices than a mini-batch has seeds trains all of them at once.
    assert measure("inclusion", replace(parted, batch_size=1000), [0])[FIRST].min() == 1
    with pytest.raises(ConfigError, match=r"hotness=inclusion: .*neighbor or full"):
        measure("inclusion", replace(parted, fanouts=None), [0])


def test_reads_are_added_up(parted: CacheTask) -> None:
    first = presample(parted.draws, [0], devices=[0, 1])
    run = presample(parted.draws, [0, 1], devices=[0, 1])
    for devices in ([0], [1], [0, 1]):
        assert np.array_equal(measure("presampled", parted, devices), first.rows.sum(devices))
        expected = parted.expected.rows.sum(devices)
        assert np.array_equal(measure("expected", parted, devices), expected)
        assert np.array_equal(measure("exact", parted, devices), run.rows.sum(devices))
    assert not np.array_equal(run.rows.sum([0]), first.rows.sum([0]))


def test_parts_of_a_graph(graph_of: Make, make_task: Make) -> None:
    graph = graph_of([[2], [2, 3], [3], []])
    no = UNREACHED
    hops = np.array([[0, no, 1, no], [no, 0, 1, 1]], np.uint8)
    parts = Parts(num_parts=2, owner=np.array([0, 1, 0, 1], np.int16), hops=hops, num_hops=1)
    task = make_task(graph, [0, 0], parts=parts)
    for name in ("out_degree", "degree_ratio"):
        for devices, expected in (([0], [0, 0, 2, 0]), ([1], [0, 0, 2, 2]), ([0, 1], [0, 0, 2, 2])):
            assert measure(name, task, devices).tolist() == expected
    graph = graph_of([[1], [2], [0], [1]], train=[0, 2])
    parts = Parts(num_parts=2, owner=np.array([0, 1, 0, 1], np.int16))
    task = make_task(graph, [0, 0], parts=parts, batch_size=2)
    assert task.train_vertices([1]).tolist() == [0, 2]
    for name in METRICS:
        found = measure(name, task, [1])
        assert found.shape == (4,)
        assert found.any()
