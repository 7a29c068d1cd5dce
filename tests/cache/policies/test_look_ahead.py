from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.cache import CacheTask, LookAhead, LookAheadCache
from gnnscale.cache.look_ahead import belady_bytes
from gnnscale.cache.policies import look_ahead
from gnnscale.config import ConfigError
from gnnscale.graph import Graph

Make = Callable[..., CacheTask]


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


def replayed(task: CacheTask, device: int, planner: LookAheadCache, epochs: int) -> tuple[int, int]:
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
        num_found, num_missed = replayed(task, device, planner, plan.num_epochs)
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
            assert (found.rows[device], found.rows[-1]) == replayed(task, device, planner, 1)
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
        monkeypatch.setattr(look_ahead, "find_machine", lambda: machine)

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
def test_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^cache_planner.{message}") as caught:
        belady(**options)
    assert "\n" not in str(caught.value)
