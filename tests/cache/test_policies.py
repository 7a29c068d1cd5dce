from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnscale
from gnnscale.cache import CachePlan, CacheTask, LookAhead, LookAheadCache, NoCache, StaticCache
from gnnscale.cache import policies as look_ahead
from gnnscale.cache.belady import belady_bytes
from gnnscale.cache.hotness import degree_ratio, inclusion, out_degree, pagerank, presample, uniform
from gnnscale.cache.policies import METRICS, measure
from gnnscale.core.errors import ConfigError
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


def test_no_device_has_a_cache(
    random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    planner = NoCache()
    assert not planner.caches
    assert not planner.shares
    task = make_task(random_graph(), [1000, 1000])
    assert planner.plan(task) == CachePlan(
        planner="none", cliques=(), devices=(), alphas=(), predicted=None
    )
    # Nothing was drawn for it.
    assert not {"presampled", "counted_run", "first_batches"} & set(task.__dict__)


def belady(**options: Any) -> LookAheadCache:
    return LookAheadCache(**({"name": "belady", "window": 2} | options))


def batches_of(task: CacheTask, device: int, epochs: int) -> list[tuple[int, set[int]]]:
    """Return the steps in which the device has seeds, and the rows that it reads there."""
    return [
        (draw.step, set(draw.batch.input_vertices.tolist()))
        for epoch in range(epochs)
        for draw in task.draws.epoch(epoch)
        if draw.device == device
    ]


def replayed_look_ahead(
    task: CacheTask, device: int, planner: LookAheadCache, epochs: int
) -> tuple[int, int]:
    """Serve a device's batches by the rule in plain words; return what is found, and what not."""
    batches = batches_of(task, device, task.num_epochs)
    capacity = task.device_at[device].budget_bytes // task.row_bytes
    assert planner.window
    content: set[int] = set()
    before: set[int] = set()
    num_found = num_missed = 0
    for step, batch in batches_of(task, device, epochs):
        here = content | before if planner.match else content
        num_found += len(batch & here)
        num_missed += len(batch - here)
        known = [rows for at, rows in batches if step < at <= step + planner.window]
        stays = batch & known[0] if planner.match and known else set()

        def order(
            vertex: int, known: list[set[int]] = known, stays: set[int] = stays
        ) -> tuple[int, int, int]:
            uses = [ahead for ahead, later in enumerate(known) if vertex in later]
            nearest = len(known) + 1 if vertex in stays else min(uses, default=len(known))
            return nearest, -int(task.out_degrees[vertex]), vertex

        content = set(sorted(content | batch, key=order)[:capacity])
        before = batch
    return num_found, num_missed


@given(data=st.data())
@settings(max_examples=60)
def test_hits_are_those_of_a_replay(
    tasks: Callable[..., st.SearchStrategy[CacheTask]], data: st.DataObject
) -> None:
    task = data.draw(tasks(max_budget=60))
    planner = belady(
        window=data.draw(st.integers(1, 6)),
        match=data.draw(st.booleans()),
        predicted_epochs=data.draw(st.none() | st.integers(1, 4)),
    )
    plan = planner.plan(task)
    assert plan.predicted is not None
    assert plan.exact == (len(task.devices) == 1)
    assert plan.num_epochs == min(planner.predicted_epochs or 2, task.num_epochs)
    for device, found in zip(task.device_at, plan.predicted, strict=True):
        num_found, num_missed = replayed_look_ahead(task, device, planner, plan.num_epochs)
        assert (found.rows[device], found.rows[-1]) == (num_found, num_missed)
        assert sum(found.rows) == num_found + num_missed
        assert found.link_bytes == num_missed * task.row_bytes


@pytest.mark.parametrize("match", [False, True])
def test_a_longer_window_finds_more(
    random_graph: Callable[..., Graph], make_task: Make, match: bool
) -> None:
    task = make_task(random_graph(), [80 * 40, 80 * 10], batch_size=20)
    hits = []
    for window in (1, 2, 6):
        planner = belady(window=window, match=match)
        plan = planner.plan(task)
        assert plan.predicted is not None
        for device, found in enumerate(plan.predicted):
            assert (found.rows[device], found.rows[-1]) == replayed_look_ahead(
                task, device, planner, 1
            )
        hits.append(plan.predicted[0].rows[0])
    assert hits[0] < hits[1] < hits[2]


def test_match_adds_what_the_batch_before_read(
    random_graph: Callable[..., Graph], make_task: Make
) -> None:
    task = make_task(random_graph(), [0, 0], batch_size=60)
    plan = LookAheadCache(name="match", window=1, match=True).plan(task)
    assert plan.predicted is not None
    for device, found in enumerate(plan.predicted):
        batches = [rows for _, rows in batches_of(task, device, 1)]
        shared = sum(len(a & b) for a, b in pairwise(batches))
        assert found.rows[device] == shared > 0
        assert found.rows[-1] == sum(map(len, batches)) - shared
    without = LookAheadCache(name="match", window=1).plan(task)
    assert without.predicted is not None
    assert [each.feature_hit_rate for each in without.predicted] == [0, 0]


def test_reads_over_the_link(graph_of: Callable[..., Graph], make_task: Make) -> None:
    """Without a row in the cache it reads what a plan without caches does."""
    graph = graph_of([[1, 2], [2], [], [0, 1, 2]])
    for device, lists in (({}, True), ({"samples": False}, False)):
        task = make_task(graph, [None, 0], request_bytes=4, **device)
        plan = belady(predicted_epochs=None).plan(task)
        assert plan.predicted is not None
        reads = task.counted_run.of(1)
        sampling = reads.num_list_reads if lists else 0
        assert plan.predicted[0].transactions == int(reads.rows.sum()) * 2 + sampling
        assert plan.predicted[0].lists == (0, 0, 0)


def test_what_is_planned(random_graph: Callable[..., Graph], make_task: Make) -> None:
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


def test_rows_that_may_match_are_told_beside_the_budget(
    random_graph: Callable[..., Graph], make_task: Make
) -> None:
    task = make_task(random_graph(), [0, 800], batch_size=60)
    plan = LookAheadCache(name="match", window=1, match=True).plan(task)
    for device, cache in enumerate(plan.devices):
        rows = len(task.first_batches[device].input_vertices)
        assert cache.matched_bytes == rows * 80 > 0
        assert cache.num_bytes == cache.feature_bytes + cache.matched_bytes
        assert cache.feature_bytes <= cache.budget_bytes
    # No two mini-batches in a row share more.
    largest = max(
        len(one & other)
        for device in (0, 1)
        for (_, one), (_, other) in pairwise(batches_of(task, device, 1))
    )
    assert largest * 80 <= min(cache.matched_bytes for cache in plan.devices)
    without = LookAheadCache(name="belady", window=1).plan(task)
    assert [cache.matched_bytes for cache in without.devices] == [0, 0]


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Say how much of the machine's memory is left."""

    def leave(num_bytes: int) -> None:
        machine = SimpleNamespace(memory=SimpleNamespace(available=num_bytes))
        monkeypatch.setattr(look_ahead.hardware, "find_machine", lambda: machine)

    return leave


def test_a_window_that_memory_does_not_hold_is_refused(
    random_graph: Callable[..., Graph], make_task: Make, available: Callable[[int], None]
) -> None:
    task = make_task(random_graph(), [800, 1 << 50], batch_size=60)
    needed = 5 * task.max_batch_bytes + belady_bytes(
        300, 300, window=5, batch_rows=task.max_batch_rows
    )
    planner = belady(window=5, predicted_epochs=0)
    available(2 * needed)  # each of two devices has half of it
    assert planner.plan(task).devices[1].look_ahead == LookAhead(
        window=5, num_rows=300, match=False
    )
    available(2 * needed - 2)
    with pytest.raises(
        ConfigError,
        match=r"^cache_planner.window=5: device 1 needs about .* a smaller window fits$",
    ) as caught:
        planner.plan(task)
    assert "\n" not in str(caught.value)
    belady(window=4, predicted_epochs=0).plan(task)


@pytest.mark.parametrize(
    ("batches", "window"), [(0, 1), (3.9, 1), (4, 1), (8, 2), (31, 7), (32, 8), (1000, 8)]
)
def test_a_window_of_none_is_what_a_quarter_of_the_memory_holds(
    random_graph: Callable[..., Graph],
    make_task: Make,
    available: Callable[[int], None],
    batches: float,
    window: int,
) -> None:
    task = make_task(random_graph(), [None, 800, 800], batch_size=60)
    available(int(2 * batches * task.max_batch_bytes))
    plan = belady(window=None, predicted_epochs=0).plan(task)
    assert [each.look_ahead.window for each in plan.devices if each.look_ahead] == [window] * 2


def test_a_device_that_never_has_seeds(graph_of: Callable[..., Graph], make_task: Make) -> None:
    task = make_task(graph_of([[1], [0]], train=[0]), [80, 80], batch_size=2)
    plan = belady().plan(task)
    assert plan.predicted is not None
    assert [sum(each.rows) for each in plan.predicted] == [2, 0]
    none = replace(task, devices=(), cliques=())
    assert belady().plan(none).devices == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window=0: must be at least 1 and at most 32,768"),
        ({"window": 32769}, "window=32769: must be at least 1 and at most 32,768"),
        ({"predicted_epochs": -1}, "predicted_epochs=-1: must be at least 0"),
        ({"ratio": -1.0}, "ratio=-1.0: "),
    ],
)
def test_refused_in_one_line_look_ahead(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^cache_planner.{message}") as caught:
        belady(**options)
    assert "\n" not in str(caught.value)


FANOUTS = (3, 2)


@pytest.fixture
def parted(random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask]) -> CacheTask:
    """Two devices over the first 100 and the last 200 vertices, of which every third trains."""
    graph = random_graph().with_split(train_idx=np.arange(0, 300, 3))
    parts = Parts(num_parts=2, owner=(np.arange(300) >= 100).astype(np.int16))
    return make_task(graph, [0, 0], parts=parts, fanouts=FANOUTS, batch_size=9)


def test_structure_alone(parted: CacheTask) -> None:
    for devices in ([0], [0, 1]):
        assert np.array_equal(measure("out_degree", parted, devices), out_degree(parted.graph))
        assert np.array_equal(measure("degree_ratio", parted, devices), degree_ratio(parted.graph))
        assert np.array_equal(measure("random", parted, devices), uniform(300, parted.seed))


def test_walks_start_where_devices_train(parted: CacheTask) -> None:
    graph = parted.graph
    first, last = np.arange(0, 100, 3), np.arange(102, 300, 3)
    for devices, seeds in (([0], first), ([1], last), ([0, 1], graph.train_idx)):
        expected = pagerank(graph, seeds, num_threads=1)
        assert np.array_equal(measure("pagerank", parted, devices), expected)


def test_inclusion_is_of_each_devices_batches(parted: CacheTask) -> None:
    first, last = np.arange(0, 100, 3), np.arange(102, 300, 3)

    def of(seeds: Any) -> Any:
        return inclusion(parted.graph, seeds, FANOUTS, batch_size=5, num_threads=1).probability

    assert np.array_equal(measure("inclusion", parted, [0]), of(first))
    both = measure("inclusion", parted, [0, 1])
    assert np.allclose(both, of(first) + of(last))
    # A part with fewer vertices than a mini-batch has seeds trains all of them at once.
    few = replace(parted, batch_size=1000)
    assert measure("inclusion", few, [0])[first].min() == 1


def test_inclusion_needs_fanouts(parted: CacheTask) -> None:
    with pytest.raises(ConfigError, match=r"hotness=inclusion: .*neighbor and full alone"):
        measure("inclusion", replace(parted, fanouts=None), [0])


def test_reads_are_added_up(parted: CacheTask) -> None:
    first = presample(parted.draws, [0], devices=[0, 1])
    run = presample(parted.draws, [0, 1], devices=[0, 1])
    for devices in ([0], [1], [0, 1]):
        assert np.array_equal(measure("presampled", parted, devices), first.sum_rows(devices))
        expected = parted.expected.sum_rows(devices)
        assert np.array_equal(measure("expected", parted, devices), expected)
        assert np.array_equal(measure("exact", parted, devices), run.sum_rows(devices))
    assert not np.array_equal(run.sum_rows([0]), first.sum_rows([0]))


def test_what_parts_do_not_have_is_cold(
    graph_of: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    graph = graph_of([[2], [2, 3], [3], []])
    no = UNREACHED
    hops = np.array([[0, no, 1, no], [no, 0, 1, 1]], np.uint8)
    owner = np.array([0, 1, 0, 1], np.int16)
    parts = Parts(num_parts=2, owner=owner, hops=hops, num_hops=1)
    task = make_task(graph, [0, 0], parts=parts)
    assert measure("out_degree", task, [0]).tolist() == [0, 0, 2, 0]
    assert measure("out_degree", task, [1]).tolist() == [0, 0, 2, 2]
    assert measure("out_degree", task, [0, 1]).tolist() == [0, 0, 2, 2]
    assert measure("degree_ratio", task, [0]).tolist() == [0, 0, 2, 0]
    assert measure("degree_ratio", task, [1]).tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("name", METRICS)
def test_a_part_without_training_vertices_helps_the_others(
    graph_of: Callable[..., Graph], make_task: Callable[..., CacheTask], name: str
) -> None:
    graph = graph_of([[1], [2], [0], [1]], train=[0, 2])
    parts = Parts(num_parts=2, owner=np.array([0, 1, 0, 1], np.int16))
    task = make_task(graph, [0, 0], parts=parts, batch_size=2)
    assert task.train_vertices([1]).tolist() == [0, 2]
    assert measure(name, task, [1]).shape == (4,)
    assert measure(name, task, [1]).any()
