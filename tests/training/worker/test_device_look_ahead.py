import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from small_plans import plan_of, share

from gnnscale.sampling import MiniBatch
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.stages import Stages
from gnnscale.training.worker.device import look_ahead, sample_concurrently


class Drawing:
    """A device of which batches are drawn and nothing else; notes the steps."""

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def sample(self, seeds: Any, step: int) -> MiniBatch:
        self.drawn.append(step)
        return MiniBatch(
            seed=0, step=step, num_seeds=len(seeds), input_vertices=seeds + 10 * step, blocks=()
        )

    def on_host(self, batch: MiniBatch) -> MiniBatch:
        return batch


def slices(sizes: Sequence[int]) -> Iterator[BatchSlice]:
    for step, size in enumerate(sizes):
        plan, seeds = plan_of(share(num_seeds=4)), np.arange(size)
        yield BatchSlice(step=step, plan=plan, counts=(size, 1), seeds=seeds)


def run(sizes: Sequence[int], window: int) -> tuple[Iterator[BatchSlice], Drawing, list[Any]]:
    device: Any = Drawing()
    told: list[Any] = []
    found = look_ahead(slices(sizes), Stages(device), window=window, expect=told.append)
    return found, device, told


def test_each_slice_comes_once_its_window_is_sampled() -> None:
    found, device, told = run([2, 2, 2, 2, 2], window=2)
    seen = [(batch.step, len(device.drawn), len(told)) for batch in found]
    assert seen == [(0, 3, 3), (1, 4, 4), (2, 5, 5), (3, 5, 5), (4, 5, 5)]
    # Nothing is drawn twice, nor out of order.
    assert device.drawn == [0, 1, 2, 3, 4]
    assert [each.tolist() for each in told] == [[10 * step, 10 * step + 1] for step in range(5)]
    # The array that is expected is the one that is loaded.
    found, _, told = run([2, 3, 1], window=1)
    for batch, vertices in zip(found, told, strict=True):
        assert batch.batch.input_vertices is vertices


def test_slices_without_seeds_keep_their_place() -> None:
    found, device, told = run([2, 0, 0, 1], window=1)
    steps = [(batch.step, batch.batch is None, len(told)) for batch in found]
    assert steps == [(0, False, 2), (1, True, 3), (2, True, 4), (3, False, 4)]
    assert device.drawn == [0, 3]
    assert [each is None for each in told] == [False, True, True, False]


@pytest.mark.parametrize("window", [0, 1, 4, 100])
def test_every_slice_comes_through(window) -> None:
    found, _, told = run([1] * 4, window=window)
    assert [batch.step for batch in found] == [0, 1, 2, 3]
    assert len(told) == 4
    assert list(run([], window)[0]) == []


class Meeting(Drawing):
    """A device that draws a batch only while two others are drawn as well."""

    def __init__(self) -> None:
        super().__init__()
        self.all_there = threading.Barrier(3, timeout=20)

    def sample(self, seeds: Any, step: int) -> MiniBatch:
        self.all_there.wait()
        return super().sample(seeds, step)


def test_several_slices_are_sampled_at_once() -> None:
    device: Any = Meeting()
    found = list(sample_concurrently(slices([1] * 6), Stages(device), count=3))
    assert [each.step for each in found] == list(range(6))
    assert [each.batch.step for each in found] == list(range(6))
    assert sorted(device.drawn) == list(range(6))


def test_slices_are_taken_no_further_ahead_than_they_are_sampled() -> None:
    taken: list[int] = []

    def noting() -> Iterator[BatchSlice]:
        for each in slices([1, 0, 1, 1, 1]):
            taken.append(each.step)
            yield each

    device: Any = Drawing()
    found = sample_concurrently(noting(), Stages(device), count=2)
    assert [(each.step, len(taken)) for each in found] == [(0, 2), (1, 3), (2, 4), (3, 5), (4, 5)]
    assert sorted(device.drawn) == [0, 2, 3, 4]


def test_a_slice_that_cannot_be_sampled_raises_in_its_turn() -> None:
    class Failing(Drawing):
        def sample(self, seeds: Any, step: int) -> MiniBatch:
            if step == 1:
                raise OSError("the file ends")
            return super().sample(seeds, step)

    device: Any = Failing()
    found = sample_concurrently(slices([1] * 3), Stages(device), count=3)
    assert next(found).step == 0
    with pytest.raises(OSError, match="the file ends"):
        next(found)
