from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale.cache import LookAhead
from gnnscale.cache.look_ahead import count_hits
from gnnscale.cache.store.look_ahead import LookAheadFeatures
from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.stages import Access, Traffic

Batch = NDArray[Any]


def opened(host: HostFeatures, num_rows: int, window: int, match: bool) -> LookAheadFeatures:
    policy = LookAhead(window=window, num_rows=num_rows, match=match)
    return LookAheadFeatures(host, policy, priority=priorities(host.num_rows))


def priorities(num_vertices: int) -> NDArray[np.int32]:
    return (np.arange(num_vertices, dtype=np.int32) * 7) % 5


def served(
    store: LookAheadFeatures, batches: Sequence[Batch | None], ahead: int
) -> Iterator[tuple[Batch, torch.Tensor, Traffic]]:
    """Gather ``batches``, each once the ``ahead`` steps after it were told of."""
    for step in range(len(batches) + ahead):
        if step < len(batches):
            store.expect(batches[step])
        batch = batches[step - ahead] if step >= ahead else None
        if batch is not None:
            yield batch, *store.gather(batch, dtype=torch.float32, num_threads=1)


def random_batches(num_vertices: int, number: int, size: int) -> list[Batch]:
    generator = np.random.default_rng(3)
    return [generator.permutation(num_vertices)[:size].astype(np.int32) for _ in range(number)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("match", [False, True])
def test_rows_are_those_of_the_host_bit_for_bit(
    random_graph: Callable[..., Graph], stored: torch.dtype, dtype: torch.dtype, match: bool
) -> None:
    host = HostFeatures.of(random_graph(dtype=stored))
    store = opened(host, 40, 2, match)
    batches = random_batches(300, 12, 90)
    for batch in batches[:3]:
        store.expect(batch)
    hits = 0
    for step, batch in enumerate(batches):
        expected, _ = host.gather(batch, dtype=dtype, num_threads=1)
        found, traffic = store.gather(batch, dtype=dtype, num_threads=1 + step % 2)
        assert found.dtype == dtype
        assert torch.equal(found, expected)
        access = traffic.rows
        assert access.hits + access.misses == 90
        assert access == Access(
            hits=access.hits, misses=access.misses, host_bytes=access.misses * host.row_bytes
        )
        hits += access.hits
        if step + 3 < len(batches):
            store.expect(batches[step + 3])
    assert hits > 40


@given(
    st.lists(st.none() | st.sets(st.integers(0, 9), min_size=1), max_size=12),
    st.integers(0, 10),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 3),
)
def test_hits_are_those_of_a_replay(
    sets: list[set[int] | None], num_rows: int, window: int, match: bool, further: int
) -> None:
    # How far beyond the window the batches are told of plays no part.
    steps = [None if each is None else np.array(sorted(each), np.int64) for each in sets]
    batches = [each for each in steps if each is not None]
    rows = np.arange(10, dtype=np.float32)[:, None]
    store = opened(HostFeatures(rows, "float32"), num_rows, window, match)
    hits = misses = 0
    for batch, found, traffic in served(store, steps, window + further):
        assert found[:, 0].tolist() == batch.tolist()
        hits += traffic.rows.hits
        misses += traffic.rows.misses
    if None in sets:
        # Fewer batches are known where some steps have none; values are right all the same.
        return
    counts = count_hits(
        batches,
        num_vertices=10,
        capacity=num_rows,
        window=window,
        priority=priorities(10),
        match=match,
        num_threads=1,
    )
    assert hits == counts.num_hits + counts.num_previous
    assert misses == counts.num_misses


def test_rows_in_the_cache_are_copies() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    store = opened(HostFeatures(rows, "float32"), 1, 1, match=False)
    batches = [np.array([0, 1]), np.array([1, 2]), np.array([1])]
    answers = served(store, batches, 1)
    next(answers)  # row 1 is read again soonest, and kept
    rows[:] = -1
    _, found, traffic = next(answers)
    assert found.tolist() == [[2, 3], [-1, -1]]
    assert traffic.rows == Access(hits=1, misses=1, host_bytes=8)
    # It has stayed in its slot.
    _, found, _ = next(answers)
    assert found.tolist() == [[2, 3]]


def test_a_match_keeps_the_batch_before() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    store = opened(HostFeatures(rows, "float32"), 0, 1, match=True)
    answers = served(store, [np.array([0, 1]), np.array([1, 2]), np.array([0, 2])], 1)
    next(answers)
    rows[:] = -1
    _, found, traffic = next(answers)
    assert found.tolist() == [[2, 3], [-1, -1]]
    assert traffic.rows == Access(hits=1, misses=1, host_bytes=8)
    # Row 0 was in the batch before that one, and is gone.
    _, _, traffic = next(answers)
    assert traffic.rows == Access(hits=1, misses=1, host_bytes=8)


def test_what_is_not_expected_is_read_at_the_host_and_changes_nothing() -> None:
    rows = np.arange(40, dtype=np.float32)[:, None]
    host = HostFeatures(rows, "float32")
    batches = random_batches(40, 10, 12)
    plain, disturbed = opened(host, 8, 2, match=True), opened(host, 8, 2, match=True)
    strange = np.arange(20)
    expected = [traffic for _, _, traffic in served(plain, batches, 2)]
    found = []
    assert disturbed.gather(strange, dtype=torch.float32, num_threads=1)[1].rows.hit_rate is None
    for _, _, traffic in served(disturbed, batches, 2):
        found.append(traffic)
        # Equal to what comes next, and yet not it.
        for other in (strange, batches[min(len(found), 9)].copy()):
            values, read = disturbed.gather(other, dtype=torch.float32, num_threads=1)
            assert values[:, 0].tolist() == other.tolist()
            assert read == Traffic(rows=Access(host_bytes=4 * len(other)))
    assert found == expected


def test_steps_that_read_nothing_count_in_the_window() -> None:
    rows = np.arange(3, dtype=np.float32)[:, None]
    # Of rows that are not seen to be read again row 1 is kept, which has the higher priority.
    one, two = np.array([0, 1]), np.array([0])
    for steps, hits in (([one, two], 1), ([one, None, two], 1), ([one, None, None, two], 0)):
        store = opened(HostFeatures(rows, "float32"), 1, 2, match=False)
        answers = [traffic.rows for _, _, traffic in served(store, steps, 2)]
        assert [each.hits for each in answers] == [0, hits]


def test_a_cache_has_the_shape_of_its_host() -> None:
    store = opened(HostFeatures(np.zeros((7, 3), np.float32), "float32"), 2, 4, match=False)
    assert (store.num_rows, store.width, store.row_bytes, store.window) == (7, 3, 12, 4)
