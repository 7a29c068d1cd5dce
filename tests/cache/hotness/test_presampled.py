from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale.cache import Presampler
from gnnscale.cache.hotness import Presampled, presample
from gnnscale.cache.hotness import degree as slices_module
from gnnscale.cache.hotness import presampled as credibility
from gnnscale.cache.hotness.presampled import DeviceReads, compared_vertices, credible


def counted_plainly(draws: Presampler, epochs: list[int], device: int) -> tuple[Any, Any]:
    rows, lists = [0] * draws.graph.num_vertices, [0] * draws.graph.num_vertices
    for epoch in epochs:
        for draw in draws.epoch(epoch):
            if draw.device != device:
                continue
            vertices = draw.batch.input_vertices.tolist()
            for vertex in vertices:
                rows[vertex] += 1
            for block in draw.batch.blocks:
                for reader in range(block.num_dst):
                    lists[vertices[reader]] += 1  # its offsets
                reading = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
                for reader, read in zip(reading.tolist(), block.indices.tolist(), strict=True):
                    start, end = draws.graph.indptr[vertices[reader] :][:2]
                    assert vertices[read] in draws.graph.indices[start:end]
                    lists[vertices[reader]] += 1
    return rows, lists


@pytest.mark.parametrize("num_threads", [1, 4])
def test_batches_are_counted_read_by_read(random_graph, make_task, num_threads) -> None:
    options = {"batch_size": 40, "fanouts": (4, 3), "num_threads": num_threads}
    task = make_task(random_graph(), [0, 0, 0], **options)
    found = presample(task.draws, [1, 5], devices=[0, 2])
    assert found.num_epochs == 2
    assert list(found.reads) == [0, 2]
    for device in (0, 2):
        rows, lists = counted_plainly(task.draws, [1, 5], device)
        assert found.rows.of(device).tolist() == rows
        assert found.lists.of(device).tolist() == lists
        assert found.rows.of(device).dtype == found.lists.of(device).dtype == np.int32
        assert found.reads[device].num_rows == sum(rows)
        assert (found.lists.total(device), found.reads[device].num_batches) == (sum(lists), 16)


def test_counts_by_hand_and_of_first_steps(graph_of, make_task, random_graph) -> None:
    # 0 reads 1 and 2, 1 reads 3. The second hop expands 0, 1 and 2: 0 and 1 read the same again.
    task = make_task(graph_of([[1, 2], [3], [], []], train=[0]), [0], fanouts=(-1, -1))
    told: list[int] = []
    found = presample(task.draws, [0], devices=[0], advance=told.append)
    assert found.rows.of(0).tolist() == [1, 1, 1, 1]
    # 4 edges and 2 visits of 0, 1 edge and 1 visit of 1, and a visit of 2, whose list is empty.
    assert found.lists.of(0).tolist() == [6, 2, 1, 0]
    reads = found.reads[0]
    assert (reads.num_rows, reads.num_seeds, reads.num_batches) == (4, 1, 1)
    assert found.lists.total(0) == 9  # 5 edges, and the offsets of 1 and of 3 lists
    assert told == [1]
    assert presample(task.draws, [], devices=[0]).rows.of(0).tolist() == [0] * 4
    task = make_task(random_graph(), [0, 0], batch_size=40, fanouts=(4, 3))
    found = presample(task.draws, [1, 2], devices=[0, 1], num_steps=3)
    steps = task.draws.steps_per_epoch
    draws = [draw for epoch in (1, 2) for draw in task.draws.epoch(epoch)]
    wanted = [
        draw.batch.input_vertices for draw in draws if draw.device == 1 and draw.step % steps < 3
    ]
    assert found.reads[1].num_batches == len(wanted) == 6 < 2 * steps
    expected = np.bincount(np.concatenate(wanted), minlength=300)
    assert np.array_equal(found.rows.of(1), expected)


def reads_of(rows: list[int], lists: list[int]) -> DeviceReads:
    return DeviceReads(rows=np.array(rows, np.int32), lists=np.array(lists, np.int32))


def test_hotness_of_several_devices_is_the_sum() -> None:
    reads = {1: reads_of([1, 2], [5, 6]), 4: reads_of([10, 20], [0, 7]), 5: reads_of([1, 1], [])}
    found = Presampled(reads=reads, num_epochs=1)
    assert found.rows.sum([1, 4]).tolist() == [11, 22]
    assert found.lists.sum([1, 4]).tolist() == [5, 13]
    assert found.rows.of(1).tolist() == [1, 2]  # adding up left it as it was
    most = 2**31 - 1
    reads = {each: reads_of([most - 1, 3, most], [1, 1, 0]) for each in range(3)}
    assert Presampled(reads=reads, num_epochs=1).rows.sum([0, 1, 2]).tolist() == [most, 9, most]


@pytest.fixture(autouse=True, scope="module")
def _small_slices() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices_module, "_SLICE_ENTRIES", 1000)
        yield


def floats(values: Any) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def counted(rng: np.random.Generator, rate: Any, batches: int = 1) -> tuple[Any, Any]:
    """Count an epoch, and its first half; ``batches`` read a vertex together, or none of them."""
    halves = [batches * rng.poisson(rate / 2 / batches) for _ in range(2)]
    return sum(halves).astype(np.int32), halves[0].astype(np.int32)  # type: ignore[attr-defined]


def test_credible_counts_by_hand() -> None:
    # Too few counts to tell octaves apart: 24 were counted where 12 were expected, so m = 8.
    counts, half = np.array([12, 4, 8], np.int32), np.array([8, 1, 3], np.int32)
    found = credible(counts, floats([4, 4, 4]), half, 0.5)
    # In common (8 - 4)(4 - 4) + (1 - 4)(3 - 4) + (3 - 4)(5 - 4) = 2, over 3 * 8² / 4: t = 1 / 24.
    # Of 4² + 4² = 32, t leaves 32 - 3 * 8² / 24 = 24, over 3 * 8: s = 1.
    weight = (8 / 24) / (8 / 24 + 1)
    assert found.tolist() == pytest.approx([8 + 4 * weight, 8 - 4 * weight, 8])
    counts, expected = np.array([3, 5, 0], np.int32), floats([0, 5, 0])
    found = credible(counts, expected, counts // 2, 0.5)
    assert found[0] > 0
    assert found[2] == 0
    none = np.zeros(3, np.int32)
    assert credible(none, expected, none, 0.5).tolist() == [0, 0, 0]
    # Twice what was expected in the octave of 2 to 4, half of it from 32 to 64.
    rng = np.random.default_rng(0)
    expected = np.repeat(floats([2, 32]) * np.sqrt(np.float32(2)), 1000)
    rate = np.repeat(np.array([4, 16]) * np.sqrt(2), 1000)
    counts, half = counted(rng, rate)
    assert np.abs(credible(counts, expected, half, 0.5) / rate - 1).mean() < 0.05
    rng = np.random.default_rng(0)
    half = rng.integers(0, 100, 5000).astype(np.int32)
    found = credible(2 * half, floats(rng.uniform(1, 100, 5000)), half, 0.5)
    assert np.allclose(found, 2 * half, rtol=0.02, atol=0.5)


@pytest.mark.parametrize(("error", "batches"), [(0.05, 4), (0.3, 1), (1.0, 4)])
def test_the_estimate_is_better_than_either(error: float, batches: int) -> None:
    """True rates are off the model by a factor, counts are off these by chance."""
    rng = np.random.default_rng(1)
    expected = rng.pareto(1.2, 50_000) + 0.2
    rate = expected * rng.gamma(1 / error**2, error**2, len(expected))
    counts, half = counted(rng, rate, batches)
    found = credible(counts, floats(3 * expected), half, 0.5)
    off = [np.abs(each - rate).sum() for each in (found, counts, expected)]
    assert off[0] < 1.01 * min(off[1:])
    # What the hottest add up to is not exaggerated, as their counts do.
    hottest = np.argsort(-found)[:2000]
    assert found[hottest].sum() == pytest.approx(rate[hottest].sum(), rel=0.02)


means = st.just(0.0) | st.floats(2.0**-40, 2.0**40, width=32)
numbers = st.tuples(st.integers(0, 2**20), st.floats(0, 1), means)


@settings(max_examples=50)
@given(st.lists(numbers, min_size=1, max_size=40), st.floats(0, 1))
def test_nothing_breaks_and_the_total_stays(found, share) -> None:
    counts = np.array([count for count, _, _ in found], np.int32)
    half = np.array([int(part * count) for count, part, _ in found], np.int32)
    estimate = credible(counts, floats([mean for _, _, mean in found]), half, share)
    assert estimate.dtype == np.float32
    assert (estimate >= 0).all()
    assert estimate.sum(dtype=np.float64) == pytest.approx(counts.sum(), rel=1e-4)


def test_some_vertices_tell_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    rate = rng.uniform(1, 20, 20_001)
    counts, half = counted(rng, rate)
    whole = credible(counts, floats(rate), half, 0.5)
    monkeypatch.setattr(credibility, "_MAX_COMPARED", 5000)
    assert compared_vertices(5000) == slice(None, None, 1)
    assert compared_vertices(20_001) == slice(None, None, 5)
    assert compared_vertices(0) == slice(None, None, 1)
    assert np.abs(credible(counts, floats(rate), half[::5], 0.5) / whole - 1).mean() < 0.02
