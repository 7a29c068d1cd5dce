from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fixture_types import Make
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.cache import CachePlan, CacheTask, Legion
from gnnscale.cache.legion.cost_model import curve
from gnnscale.cache.legion.legion import candidates, clique_cost
from gnnscale.cache.problem import list_bytes
from gnnscale.core.errors import ConfigError
from gnnscale.features.cached import CachedAdjacency

#: Lists of 16, 12, 8 and 20 bytes; rows of 8.
LISTS = [[1, 2], [2], [], [0, 1, 2]]
READS = ([5, 1, 7, 0], [4, 3, 0, 9]), ([5, 2, 1, 6], [6, 0, 0, 2])


@pytest.fixture
def two(graph_of: Make, make_task: Make, reading: Make) -> Make:
    def make(*budgets: int, cliques: Sequence[Sequence[int]] = ((0, 1),), **device: Any) -> Any:
        return reading(make_task(graph_of(LISTS), budgets, cliques=cliques, **device), *READS)

    return make


def kept(plan: CachePlan) -> list[tuple[list[int], list[int]]]:
    return [(each.topology.tolist(), each.features.tolist()) for each in plan.devices]


def test_the_model_of_a_clique(two: Make) -> None:
    task = two(60, 40, request_bytes=4, overhead_bytes=1)
    cost = clique_cost(task, [0, 1], candidates(task, [0, 1], task.presampled))
    assert cost.budget_bytes == 100
    assert (cost.total_list_hotness, cost.total_row_hotness) == (24, 27)
    assert cost.n_tsum == 24  # reads of all lists
    assert (cost.row_bytes, cost.row_transactions) == (8, 2)
    assert (cost.list_price, cost.row_price) == (5, 2 * 4 + 1)


def test_divisions_by_hand(two: Make, reading: Make) -> None:
    task = two(40, 40)
    plan = Legion(alpha=0.45).plan(task)
    # 36 of 80 bytes: lists 3 and 0. All rows take 32, for which each device keeps 16 of its 40.
    assert kept(plan) == [([3], [2]), ([0], [0, 3, 1])]
    assert (plan.alphas, plan.alpha) == ((0.45,), 0.45)
    assert [each.rows for each in plan.predicted] == [(7, 6, 0), (1, 13, 0)]
    assert [each.lists for each in plan.predicted] == [(9, 4, 3), (2, 6, 0)]
    assert (plan.planner, plan.cliques) == ("legion", ((0, 1),))
    assert (plan.exact, plan.num_epochs) == (False, 1)
    assert kept(Legion(alpha=0.0).plan(two(40, 40))) == [([], [0, 2]), ([], [3, 1])]
    everything = Legion(alpha=1.0).plan(two(44, 44))
    assert sorted(v for lists, _ in kept(everything) for v in lists) == [0, 1, 3]
    # Nobody reads list 2; its memory goes to rows.
    assert sorted(v for _, rows in kept(everything) for v in rows) == [0, 1, 2, 3]
    assert kept(Legion().plan(two(0, 0))) == [([], []), ([], [])]
    assert Legion().plan(two(0, 0)).alpha == 0
    assert kept(Legion().plan(two(7, 7))) == [([], []), ([], [])]
    # With room for everything each list and row is where it is read most.
    assert kept(Legion().plan(two(1 << 50, 1 << 50))) == [([3, 1], [2]), ([0], [0, 3, 1])]
    plan = Legion(alpha=0.5).plan(two(0, 100))
    assert kept(plan)[0] == ([], [])
    assert kept(plan)[1] == ([3, 0, 1], [0, 2, 3, 1])
    assert plan.alphas == (0.48,)
    # Device 0 alone reads lists, and has room for both of them, but then hardly for rows.
    task = reading(two(40, 40), READS[0], (READS[1][0], [0, 0, 0, 0]))
    assert [lists for lists, _ in kept(Legion(alpha=0.45).plan(task))] == [[3], [0]]


def with_link(task: CacheTask, **link: int) -> CacheTask:
    changed = replace(task, devices=(task.devices[0], replace(task.devices[1], **link)))
    for name in ("presampled", "expected", "counted"):
        changed.__dict__[name] = getattr(task, name)
    return changed


def test_links_that_differ(two: Make, reading: Make) -> None:
    """Of 27 rows device 0 reads 13 and device 1 reads 14; of 24 reads of lists 16."""
    task = with_link(two(40, 40, request_bytes=4), request_bytes=8, overhead_bytes=3)
    cost = clique_cost(task, [0, 1], candidates(task, [0, 1], task.presampled))
    assert cost.row_transactions == pytest.approx((2 * 13 + 1 * 14) / 27)
    assert cost.row_price == pytest.approx((8 * 13 + 11 * 14) / 27)
    assert cost.list_price == pytest.approx((4 * 16 + 11 * 8) / 24)
    nothing = ([0] * 4, [0] * 4)
    idle = with_link(reading(two(40, 40), nothing, nothing), request_bytes=8)
    assert clique_cost(idle, [0, 1], candidates(idle, [0, 1], idle.presampled)).list_price == 64
    assert Legion().plan(idle).alpha == 0


def test_where_the_host_samples_there_are_no_lists(two: Make) -> None:
    task = two(40, 40, samples=False)
    for planner in (Legion(), Legion(alpha=1.0)):
        plan = planner.plan(task)
        assert kept(plan) == [([], [0, 2]), ([], [3, 1])]
        assert plan.alphas == (0,)
        assert {point.n_t for point in plan.curve} == {0}


def test_plans_of_several_cliques(two: Make) -> None:
    task = two(40, 60, cliques=((0,), (1,)))
    plan = Legion().plan(task)
    curves = [
        curve(clique_cost(task, each, candidates(task, each, task.presampled)))
        for each in ([0], [1])
    ]
    for found, first, second in zip(plan.curve, *curves, strict=True):
        assert found.alpha == first.alpha
        for name in ("n_t", "n_f", "n_total"):
            assert getattr(found, name) == getattr(first, name) + getattr(second, name)
    assert len(plan.alphas) == 2
    # Without lists all 24 reads of them are at the host.
    assert plan.curve[0].n_t == 24
    # Lists 3 and 0 of device 0 leave 4 of 40 bytes, so that it reads all 13 rows. All lists that
    # device 1 reads leave 24 of 60, for 3 rows; it reads the other one once.
    assert plan.curve[100].n_f == 13 + 1
    plans = [Legion().plan(two(40, 40, cliques=each)) for each in (((1,), (0,)), ((0,), (1,)))]
    assert [each.device for each in plans[0].devices] == [0, 1]
    assert plans[0].of(1).features.tolist() == plans[1].of(1).features.tolist()


@pytest.mark.long
@settings(max_examples=20)
@given(data=st.data())
def test_a_clique_keeps_what_its_memory_holds_and_nothing_twice(tasks, data) -> None:
    task = data.draw(tasks())
    plan = Legion(alpha=data.draw(st.none() | st.floats(0, 1))).plan(task)
    for clique in plan.cliques:
        caches = [plan.of(each) for each in clique]
        for vertices in ([c.features for c in caches], [c.topology for c in caches]):
            together = np.concatenate(vertices)
            assert len(np.unique(together)) == len(together)
    for cache in plan.devices:
        assert cache.feature_bytes == len(cache.features) * task.row_bytes
        assert cache.topology_bytes == list_bytes(task.graph, cache.topology)
        assert cache.num_bytes <= cache.budget_bytes
        # What lists leave is filled with rows.
        left = cache.budget_bytes - cache.num_bytes
        clique = plan.clique_of(cache.device)
        num_kept = sum(len(plan.of(each).features) for each in clique)
        assert left < task.row_bytes or num_kept == task.graph.num_vertices


@pytest.mark.parametrize("alpha", [-0.01, 1.01, float("nan")])
def test_alpha_is_a_part(alpha: float) -> None:
    assert Legion().shares
    with pytest.raises(ConfigError, match=f"^cache_planner.alpha={alpha}: must be at least 0 and"):
        Legion(alpha=alpha)


def test_it_goes_by_what_is_expected_unless_counts_are_asked_for(two, monkeypatch) -> None:
    task, asked = two(40, 40), []

    def watched(task: CacheTask, clique: Any, reads: Any) -> Any:
        asked.append(reads)
        return candidates(task, clique, reads)

    monkeypatch.setattr("gnnscale.cache.legion.legion.candidates", watched)
    Legion().plan(task)
    Legion(hotness="presampled").plan(task)
    expected, presampled = asked
    assert expected is task.expected
    assert presampled is task.presampled


@pytest.mark.long
@settings(max_examples=20)
@given(data=st.data())
def test_transactions_are_those_of_a_replay(tasks: Make, data: st.DataObject) -> None:
    """Of a run of one epoch: each device's batches, read as a run with these caches reads them."""
    task = replace(data.draw(tasks()), num_epochs=1)
    plan = Legion(alpha=data.draw(st.none() | st.floats(0, 1))).plan(task)
    for cache, told in zip(plan.devices, plan.predicted, strict=True):
        clique = plan.clique_of(cache.device)
        places = np.full(task.graph.num_vertices, -1, np.int32)
        for number, each in enumerate(clique):
            places[plan.of(each).topology] = number
        lists = CachedAdjacency(places, num_members=len(clique), own=0, request_bytes=64)
        rows = np.concatenate([plan.of(each).features for each in clique])
        reads = 0
        for draw in task.draws.epoch(0, devices=[cache.device]):
            reads += lists.read(draw.batch).link_requests
            reads += len(np.setdiff1d(draw.batch.input_vertices, rows))
        assert told.transactions == reads
    assert sum(each.transactions for each in plan.predicted) == pytest.approx(
        sum(told.lists[-1] + told.rows[-1] for told in plan.predicted)
    )
