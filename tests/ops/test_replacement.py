from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gnnscale import ops


def replacement_of(
    num_vertices: int, capacity: int, *, match: bool = False
) -> ops.NativeReplacement:
    return ops.NativeReplacement(np.zeros(num_vertices, np.int32), capacity=capacity, match=match)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_step_by_hand(dtype: type[np.integer]) -> None:
    replacement = replacement_of(4, 1, match=True)
    for batch in ([0, 1], [2, 0], [1, 2]):
        replacement.expect(np.array(batch, dtype), num_threads=1)
    found = [replacement.advance(num_threads=1) for _ in range(2)]
    # 0 is read by the next batch as well, and so leaves the slot to 1.
    assert [each.tolist() for each in found[0][3:]] == [[1], [0]]
    assert found[1][:3] == (0, 1, 1)
    assert replacement.look_up(num_threads=1).tolist() == [0, 1]
    assert replacement.slots.tolist() == [2, 0, 1, -1]


def test_arrays_are_copied_and_may_have_gaps() -> None:
    replacement = replacement_of(6, 6)
    vertices = np.arange(6)
    replacement.expect(vertices[::2], num_threads=1)
    vertices[:] = 99
    replacement.advance(num_threads=1)
    assert replacement.slots.tolist() == [0, -1, 1, -1, 2, -1]


@pytest.mark.parametrize("match", [False, True])
def test_the_number_of_threads_changes_nothing(match: bool) -> None:
    generator = np.random.default_rng(0)
    priority = generator.integers(0, 50, 100_000).astype(np.int32)
    batches = [generator.permutation(100_000)[:30_000] for _ in range(12)]
    answers = []
    for threads in (1, 3):
        replacement = ops.NativeReplacement(priority, capacity=9000, match=match)
        for batch in batches:
            replacement.expect(batch, num_threads=threads)
        served = [replacement.advance(num_threads=threads) for _ in batches]
        flat = [np.hstack([counts, each, slots]) for *counts, each, slots in served]
        answers.append(np.concatenate([*flat, replacement.slots]).tolist())
    assert answers[0] == answers[1]


def test_threads_of_the_caller_take_turns() -> None:
    replacement = replacement_of(50_000, 5000)
    generator = np.random.default_rng(0)
    batches = [generator.permutation(50_000)[:20_000] for _ in range(40)]

    def serve(batch: np.ndarray) -> int:
        replacement.expect(batch, num_threads=2)
        hits, previous, misses, *_ = replacement.advance(num_threads=2)
        return hits + previous + misses

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(serve, batches)) == [20_000] * 40
    cached = replacement.slots[replacement.slots >= 0]
    assert sorted(cached.tolist()) == list(range(5000))
