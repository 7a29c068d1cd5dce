from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from best_replacement import most_found
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.cache.belady import Belady, HitCounts, belady_bytes

Batches = list[list[int]]


def batch_lists(num_vertices: int, max_steps: int) -> st.SearchStrategy[Batches]:
    vertices = st.integers(0, num_vertices - 1)
    return st.lists(st.lists(vertices, unique=True, max_size=num_vertices), max_size=max_steps)


def arrays(batches: Batches) -> Iterable[Any]:
    return (np.array(batch, np.int64) for batch in batches)


def kept(
    batches: Batches, step: int, content: set[int], rule: dict[str, Any], priority: list[int]
) -> set[int]:
    known = batches[step + 1 : step + 1 + rule["window"]]
    shared = set(batches[step]) & set(known[0]) if rule["match"] and known else set()

    def order(vertex: int) -> tuple[int, int, int]:
        uses = [ahead for ahead, batch in enumerate(known) if vertex in batch]
        nearest = uses[0] if uses else len(known)
        return (len(known) + 1 if vertex in shared else nearest, -priority[vertex], vertex)

    return set(sorted(content | set(batches[step]), key=order)[: rule["capacity"]])


@settings(max_examples=100)
@given(batch_lists(6, 5), st.integers(0, 3), st.booleans(), st.data())
def test_no_replacement_finds_more(batches, capacity, match, data) -> None:
    priority = data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    options: dict[str, Any] = {"window": len(batches), "priority": np.array(priority, np.int32)}
    belady = Belady(6, capacity, match=match, num_threads=1, **options)
    for batch in arrays(batches):
        belady.expect(batch)
    counts = sum((belady.advance().counts for _ in batches), HitCounts())
    assert counts.num_hits + counts.num_previous == most_found(batches, capacity, match=match)
    assert counts.num_previous == 0 or match


@pytest.mark.long
@settings(max_examples=60)
@given(batch_lists(12, 10), st.integers(0, 12), st.integers(0, 11), st.booleans(), st.data())
def test_it_keeps_what_the_rule_says(batches, capacity, window, match, data) -> None:
    rule = {"capacity": capacity, "window": window, "match": match}
    numbers = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 2)
    priority = data.draw(st.lists(numbers, min_size=12, max_size=12))
    belady = Belady(12, priority=np.array(priority, np.int32), num_threads=2, **rule)
    cached = np.full(capacity, -1)  # the vertex whose row is in each slot
    content: set[int] = set()
    previous: list[int] = []
    to_come = arrays(batches)
    for batch in islice(to_come, window + 1):
        belady.expect(batch)
    for step, batch in enumerate(batches):
        places = belady.look_up()
        assert places.tolist() == belady.slots[batch].tolist()
        rows = [*cached, *previous]
        found = [(vertex, place) for vertex, place in zip(batch, places, strict=True) if place >= 0]
        assert [rows[place] for _, place in found] == [vertex for vertex, _ in found]
        replaced = belady.advance()
        held = set(previous) - content
        assert replaced.counts == HitCounts(
            num_hits=len(content & set(batch)),
            num_previous=len(held & set(batch)),
            num_misses=len(set(batch) - content - held),
        )
        content = kept(batches, step, content, rule, priority)
        cached[replaced.slots] = np.array(batch, np.int64)[replaced.positions]
        assert sorted(cached[cached >= 0]) == sorted(content)
        previous = batch if match else []
        for batch_to_come in islice(to_come, 1):
            belady.expect(batch_to_come)


def belady_of(**given: Any) -> Belady:
    options: dict[str, Any] = {"window": 1, "priority": np.zeros(4, np.int32), "num_threads": 1}
    return Belady(4, **({"capacity": 2} | options | given))


def test_expected_batches_slots_and_forecasts() -> None:
    belady = belady_of(window=1)
    for vertex in (0, 1):
        belady.expect(np.array([vertex]))
    with pytest.raises(ValueError, match="vertices: expected at most 2 unserved batches, "):
        belady.expect(np.array([2]))
    belady.advance()
    belady.expect(np.array([0]))
    assert belady.num_expected == 2
    belady = belady_of()
    for call in (belady.look_up, belady.advance):
        with pytest.raises(ValueError, match="vertices: no batch is expected"):
            call()
    with pytest.raises(ValueError, match="vertices: "):
        belady.expect(np.array([1, 1]))
    assert belady.num_expected == 0
    belady = belady_of()
    slots = belady.slots
    with pytest.raises(ValueError, match="read-only"):
        slots[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        slots.flags.writeable = True
    belady.expect(np.array([3]))
    belady.advance()
    del belady
    assert slots.tolist() == [-1, -1, -1, 0]
    belady = belady_of(window=2)
    for batch in ([0, 1, 2], [1, 2, 3], [0, 1, 3]):
        belady.expect(np.array(batch))
    assert belady.num_bytes == belady_bytes(4, 2, window=2, batch_rows=3)
    belady.advance()
    assert belady.num_bytes < belady_bytes(4, 2, window=2, batch_rows=3)
    counts = HitCounts(num_hits=1, num_previous=2, num_misses=3) + HitCounts(num_hits=2)
    assert counts == HitCounts(num_hits=3, num_previous=2, num_misses=3)
    assert counts.hit_rate == 5 / 8
    assert HitCounts().hit_rate is None


@pytest.mark.parametrize(
    "option", [{"window": -1}, {"capacity": 5}, {"capacity": -1}, {"priority": np.int32([0] * 3)}]
)
def test_options_that_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(option))}[:=]"):
        belady_of(**option)
