"""Caches of graphs with types: rows of several widths under one budget, and all lists together."""

from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from best_replacement import most_found
from fixture_types import Make
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from typed_graphs import random_lists, shop, typed_graph

import gnnscale
from gnnscale.cache import CachePlan, CacheTask, Legion, LookAheadCache, StaticCache, read_plan
from gnnscale.cache.build import make_plan
from gnnscale.cache.hotness import inclusion
from gnnscale.cache.legion.cost_model import best_num_lists
from gnnscale.cache.legion.legion import candidates, clique_cost
from gnnscale.cache.problem import feature_bytes, list_bytes, row_types
from gnnscale.core.errors import GraphError
from gnnscale.features.cached import CachedAdjacency, rank_slots
from gnnscale.graph import FeatureMatrix, Graph, GraphSchema, TypedFeatures
from gnnscale.sampling import TypedSampler

CONFIGS = Path(gnnscale.__file__).parent / "configs" / "cache_planner"
#: Policies that choose rows before training.
STATIC = sorted(path.stem for path in CONFIGS.glob("*.yaml") if ".StaticCache" in path.read_text())


def policy(name: str, **options: Any) -> StaticCache:
    values = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    del values["_target_"]
    return StaticCache(**values | options)


def with_rows(graph: Graph, widths: list[int], learned: tuple[int, ...] = ()) -> Graph:
    """Return the graph with float32 rows of these widths by type, some of them learned."""
    matrices = [
        FeatureMatrix(
            rows=np.zeros((size.num_vertices, width), np.float32), dtype="float32", width=width
        )
        if width
        else None
        for size, width in zip(graph.schema.vertex_types, widths, strict=True)
    ]
    features: Any = TypedFeatures(matrices, learned=learned)
    return replace(graph, features=features)


def test_rows_and_lists_of_each_type() -> None:
    graph = shop(num_users=6, num_items=4)
    assert [(t.name, t.row_bytes, t.is_cached) for t in row_types(graph)] == [
        *(("tag", 4, True), ("user", 0, False), ("item", 20, True))
    ]
    learned = with_rows(graph, [1, 3, 2], learned=(1,))
    assert [(t.row_bytes, t.is_cached) for t in row_types(learned)] == [
        *((4, True), (12, False), (8, True))
    ]
    # Tags 0 to 8, users 9 to 14, items 15 to 18.
    assert feature_bytes(graph, np.array([18, 9, 0, 8, 15])) == 2 * 4 + 2 * 20
    lists = [graph.schema.lists_of(np.array([v])) for v in range(graph.num_vertices)]
    sizes = [
        8 * int(number) + 4 * int(graph.indptr[first + number] - graph.indptr[first])
        for (first,), (number,) in lists
    ]
    assert [int(number) for _, (number,) in lists] == [0] * 9 + [2] * 10
    assert [list_bytes(graph, np.array([v])) for v in range(graph.num_vertices)] == sizes


@st.composite
def read_tasks(draw: st.DrawFn, make_task: Make, reading: Make) -> CacheTask:
    """A device, with a budget, that reads rows of three types and lists so many times."""
    schema = GraphSchema.of(
        {"a": draw(st.integers(1, 3)), "b": draw(st.integers(0, 3)), "c": draw(st.integers(1, 3))},
        [("a", "x", "b"), ("b", "y", "a"), ("c", "z", "a"), ("a", "w", "a")],
    )
    lists = random_lists(schema, np.random.default_rng(draw(st.integers(0, 99))), 1.5)
    widths = draw(st.lists(st.integers(0, 4), min_size=3, max_size=3))
    graph = with_rows(typed_graph(schema, lists), widths, draw(st.sampled_from([(), (0,)])))
    graph = graph.with_split(train_idx=np.arange(1))
    task = make_task(
        replace(graph, labels=np.zeros(graph.num_vertices, np.int64)),
        [draw(st.integers(0, 90))],
        batch_size=1,
        num_epochs=1,
        request_bytes=draw(st.sampled_from([1, 6, 8])),
        overhead_bytes=draw(st.sampled_from([0, 5])),
    )
    counts = st.lists(st.integers(0, 9), min_size=graph.num_vertices, max_size=graph.num_vertices)
    return reading(task, (draw(counts), draw(counts)))


def saved(task: CacheTask, vertices: Any) -> float:
    """Return the link bytes of all reads of the rows of ``vertices``."""
    reads, device = task.presampled.rows.of(0), task.devices[0]
    by_type = [(t, t.of(np.asarray(vertices, np.int64))) for t in task.row_types]
    return sum(device.row_price(t.row_bytes) * int(reads[ids].sum()) for t, ids in by_type)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_save_the_most_link_bytes(make_task, reading, data) -> None:
    task = data.draw(read_tasks(make_task, reading))
    (cache,) = policy("gnnlab").plan(task).devices
    graph, budget = task.graph, task.devices[0].budget_bytes
    cacheable = [
        v for t in task.row_types if t.is_cached for v in range(graph.num_vertices)[t.vertices]
    ]
    sizes = {v: feature_bytes(graph, np.array([v])) for v in cacheable}
    content = cache.features.tolist()
    assert cache.feature_bytes == sum(sizes[v] for v in content) <= budget
    # Best of all choices that take no more bytes.
    best = max(
        saved(task, chosen)
        for count in range(len(cacheable) + 1)
        for chosen in combinations(cacheable, count)
        if sum(sizes[v] for v in chosen) <= cache.feature_bytes
    )
    assert saved(task, content) == pytest.approx(best)
    # The next row in order does not fit.
    order = [v for v in cacheable if v not in content and sizes[v] <= budget]

    def key(v: int) -> tuple[float, int, int]:
        return -saved(task, [v]) / sizes[v], -int(task.out_degrees[v]), v

    if order:
        following = min(order, key=key)
        assert cache.feature_bytes + sizes[following] > budget
        assert not content or key(content[-1]) < key(following)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_lists_and_rows_divide_memory_at_the_lowest_price(make_task, reading, data) -> None:
    task = data.draw(read_tasks(make_task, reading))
    hot = candidates(task, (0,), task.presampled)
    cost = clique_cost(task, (0,), hot)
    device, reads = task.devices[0], task.presampled
    total = saved(task, [v for t in task.row_types if t.is_cached for v in range(99)[t.vertices]])
    prices = []
    for count in range(len(hot.lists) + 1):
        left = device.budget_bytes - list_bytes(task.graph, hot.lists[:count])
        if left < 0:
            break
        num_rows = sum(
            feature_bytes(task.graph, hot.rows[: n + 1]) <= left for n in range(len(hot.rows))
        )
        missed = reads.lists.total(0) - reads.lists.at(0, hot.lists[:count])
        prices.append(device.list_price * missed + total - saved(task, hot.rows[:num_rows]))
        listed, rows = cost.list_hotness.at(count), cost.row_hotness.at(num_rows)
        assert cost.num_rows(left) == num_rows
        assert cost.price(listed, rows) == pytest.approx(prices[-1])
    assert prices[best_num_lists(cost)] == pytest.approx(min(prices))
    (cache,) = Legion().plan(task).devices
    assert cache.num_bytes <= device.budget_bytes
    assert cache.topology_bytes == list_bytes(task.graph, cache.topology)


def shop_task(make_task: Make, budgets: list[int], **options: Any) -> CacheTask:
    graph = with_rows(shop(num_users=60, num_items=40), [3, 16, 5], learned=(1,))
    options = {"cliques": [(0, 1)], "batch_size": 9, "fanouts": (3, 2), "num_threads": 2} | options
    return make_task(graph, budgets, **options)


def counted(task: CacheTask, plan: CachePlan) -> list[tuple[Any, ...]]:
    """Sample the run, and count each device's rows and lists by source, and its link's bytes."""
    sampler = TypedSampler(task.graph, fanouts=list(task.fanouts), seed=task.seed)
    topology = rank_slots(task.graph.num_vertices, [each.topology for each in plan.devices])
    row_bytes = [t.row_bytes for t in task.row_types]
    found = {each: [[0, 0, 0], [0, 0, 0], 0, 0] for each in task.device_at}
    for draw in (draw for epoch in range(task.num_epochs) for draw in task.draws.epoch(epoch)):
        batch, own = sampler.sample(draw.seeds, draw.step), draw.device
        rows, lists, _, _ = found[own]
        types = task.graph.schema.type_of(batch.input_vertices)
        for vertex, number in zip(batch.input_vertices.tolist(), types.tolist(), strict=True):
            owners = [each.device for each in plan.devices if vertex in each.features]
            if task.row_types[number].is_cached:
                rows[owners[0] if owners else -1] += 1
            if not owners:
                found[own][2] += row_bytes[number]
                found[own][3] += -(-row_bytes[number] // task.devices[own].request_bytes)
        counter = CachedAdjacency(topology, num_members=2, own=own, request_bytes=1)
        access = counter.read(batch)
        counts = (access.hits, access.peer_hits, access.misses)
        for source, count in zip((own, 1 - own, -1), counts, strict=True):
            lists[source] += count
    return [tuple(map(tuple, each[:2])) + tuple(each[2:]) for each in found.values()]


@pytest.mark.parametrize("name", ["oracle_static", "quiver", "legion"])
def test_traffic_is_as_predicted(make_task, name) -> None:
    task = shop_task(make_task, [400, 300], num_epochs=1, request_bytes=16)
    plan = Legion(alpha=0.3).plan(task) if name == "legion" else policy(name).plan(task)
    predicted = [
        (each.rows, each.lists, each.link_bytes, each.transactions - each.lists[-1])
        for each in plan.predicted
    ]
    assert predicted == counted(task, plan)
    for each in plan.predicted:
        assert [part.name for part in each.types] == ["tag", "user", "item"]
        assert each.types[1].rows[:2] == (0, 0)
        cached = [part.rows for part in each.types if part.name != "user"]
        assert tuple(map(sum, zip(*cached, strict=True))) == each.rows
        assert each.read_bytes[-1] == each.link_bytes
    assert all(len(each.features) for each in plan.devices)
    total = plan.predicted_total
    assert sum(part.row_bytes * part.rows[-1] for part in total.types) == total.link_bytes


#: Policies with classes of their own.
OTHERS: dict[str, Any] = {
    "legion": Legion,
    "belady": partial(LookAheadCache, name="belady", match=True),
}


@pytest.mark.parametrize("name", [*STATIC, *OTHERS])
def test_every_policy_plans(make_task, tmp_path, name) -> None:
    task = shop_task(make_task, [300, 250], num_epochs=2)
    store = str(tmp_path / "p")
    planner = OTHERS[name](store=store) if name in OTHERS else policy(name, store=store)
    path = make_plan(planner, task, partition=None, run={})
    plan, planned = read_plan(path, task.graph).plan, planner.plan(task)
    assert plan.predicted == planned.predicted
    ahead = [cache.look_ahead for cache in plan.devices]
    assert ahead == [cache.look_ahead for cache in planned.devices]
    assert [each is not None for each in ahead] == [name == "belady"] * 2
    learned = task.row_types[1]
    for cache, budget in zip(plan.devices, (300, 250), strict=True):
        assert budget - 20 < cache.num_bytes - cache.matched_bytes <= budget
        assert not len(learned.of(cache.features))
    # With rows of users, which caches may have, there is another plan.
    stored = replace(task, graph=with_rows(task.graph, [3, 16, 5]))
    with one_line("bytes of rows", error=GraphError):
        make_plan(planner, stored, partition=None, run={})


@pytest.mark.parametrize("name", ["pagraph", "pagerank", "aligraph"])
def test_one_type_is_planned_as_none(graph_of, make_task, name) -> None:
    graph = graph_of([[1, 2, 4], [2, 4], [4], [0, 1, 2, 4], []])
    features: Any = TypedFeatures([FeatureMatrix(rows=graph.features, dtype="float32", width=2)])
    one_type = replace(graph, types=graph.schema, features=features)
    plans = [policy(name).plan(make_task(each, [24, 16])) for each in (graph, one_type)]
    contents = [[cache.features.tolist() for cache in plan.devices] for plan in plans]
    assert contents[0] == contents[1]


def test_reads_of_lists_by_fan_outs_of_edge_types(random_graph: Make) -> None:
    schema = GraphSchema.of({"u": 1, "i": 3}, [("i", "x", "u"), ("i", "y", "u"), ("u", "z", "i")])
    graph = typed_graph(schema, {(0, 0): [1, 2], (1, 0): [3], (2, 1): [0]})
    options: Any = {"batch_size": 1, "num_threads": 1}
    found = inclusion(graph, np.array([0]), [(1, 1, 0)], **options)
    np.testing.assert_allclose(found.probability, [1, 0.5, 0.5, 1])
    np.testing.assert_allclose(
        found.neighborhoods, [3, 0, 0, 0]
    )  # offsets, and a neighbor of each list
    found = inclusion(graph, np.array([0]), [(2, 0, 1), (0, 0, 1)], **options)
    np.testing.assert_allclose(found.probability, [1, 1, 1, 0])
    np.testing.assert_allclose(found.neighborhoods, [3 + 1, 2, 1, 0])
    whole = random_graph()
    one_type = replace(whole, types=whole.schema)
    for fanouts in ([3, 2], [-1, 1]):
        expected, found = (
            inclusion(each, np.arange(50), fanouts, **options) for each in (whole, one_type)
        )
        np.testing.assert_array_equal(found.probability, expected.probability)
        np.testing.assert_array_equal(found.neighborhoods, expected.lists)


@st.composite
def looking_ahead(draw: st.DrawFn, make_task: Make) -> CacheTask:
    """A device that reads rows of three types in few steps."""
    schema = GraphSchema.of(
        {"a": draw(st.integers(1, 4)), "b": draw(st.integers(0, 4)), "c": draw(st.integers(1, 4))},
        [("b", "y", "a"), ("c", "z", "a"), ("c", "w", "b")],
    )
    lists = random_lists(schema, np.random.default_rng(draw(st.integers(0, 99))), 1.5)
    widths = draw(st.lists(st.integers(0, 3), min_size=3, max_size=3))
    graph = with_rows(typed_graph(schema, lists), widths, draw(st.sampled_from([(), (0,)])))
    graph = graph.with_split(train_idx=np.arange(schema.vertex_types[0].num_vertices))
    return make_task(
        replace(graph, labels=np.zeros(graph.num_vertices, np.int64)),
        [draw(st.integers(0, 60))],
        **{"batch_size": draw(st.integers(1, 2)), "num_epochs": 1, "request_bytes": 6},
        **{"samples": False, "loads": True},
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans())
def test_no_replacement_finds_more_of_a_type(make_task, data, match) -> None:
    task = data.draw(looking_ahead(make_task))
    plan = LookAheadCache(name="belady", window=9, match=match).plan(task)
    (cache,), (predicted,) = plan.devices, plan.predicted
    (static,) = policy("gnnlab").plan(task).predicted
    batches = [draw.batch.input_vertices for draw in task.draws.epoch(0)]
    rows, link_bytes, requests = [0, 0], 0, 0
    types = [t for t in task.row_types if t.row_bytes]
    for t, entry, known in zip(types, predicted.types, static.types, strict=True):
        capacity = cache.look_ahead.rows_by_type[task.row_types.index(t)]
        read = [t.of(batch).tolist() for batch in batches if len(t.of(batch))]
        hits = most_found(read, capacity, match=match) if t.is_cached else 0
        misses = sum(map(len, read)) - hits
        assert (entry.name, entry.row_bytes, entry.rows) == (t.name, t.row_bytes, (hits, misses))
        # The rows of a static cache are there from the start.
        assert hits >= known.rows[0] - capacity
        rows = [rows[0] + hits * t.is_cached, rows[1] + misses * t.is_cached]
        link_bytes += misses * t.row_bytes
        requests += misses * -(-t.row_bytes // 6)
    if types:
        assert (list(predicted.rows), predicted.link_bytes) == (rows, link_bytes)
        assert predicted.transactions == requests
    assert cache.feature_bytes <= cache.budget_bytes


def test_memory_is_divided_by_the_reads_of_types(make_task: Make) -> None:
    task = shop_task(make_task, [300, 0], num_epochs=2)
    first, second = LookAheadCache(name="b", match=True, predicted_epochs=0).plan(task).devices
    static = policy("gnnlab", scope="device").plan(task).devices[0].features
    counts = tuple(len(t.of(static)) for t in task.row_types)
    assert first.look_ahead.type_rows == counts
    assert counts[1] == 0 < min(counts[0], counts[2])
    assert first.feature_bytes == counts[0] * 12 + counts[2] * 20
    assert second.look_ahead.type_rows == (0, 0, 0)
    read = [t.of(task.first_batches[0].input_vertices) for t in task.row_types]
    assert first.matched_bytes == len(read[0]) * 12 + len(read[2]) * 20
