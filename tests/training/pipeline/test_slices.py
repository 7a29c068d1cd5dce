import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from part_order import PartOrder
from small_plans import plan_of, share

from gnnscale.planner import Cpu, DevicePlan
from gnnscale.sampling import ShuffledOrder
from gnnscale.training.pipeline.slices import BatchSlice, Schedule


def plan(*split: int) -> DevicePlan:
    return plan_of(*(share(Cpu(name=f"cpu:{i}"), n) for i, n in enumerate(split)))


def order_of(num_train: int, batch_size: int) -> ShuffledOrder:
    return ShuffledOrder(np.arange(100, 100 + num_train), batch_size=batch_size, seed=5)


def schedule(num_train: int, split: tuple[int, ...], **options: Any) -> Schedule:
    options = {"rank": 0, "epochs": 2, "first_step": 0, "lead_steps": None} | options
    return Schedule(order_of(num_train, sum(split)), plan(*split), **options)


def global_batches(num_train: int, batch_size: int, epochs: int) -> list[list[int]]:
    order = order_of(num_train, batch_size)
    return [step.seeds.tolist() for epoch in range(epochs) for step in order.epoch(epoch)]


splits = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any).map(tuple)


@settings(max_examples=30)
@given(splits, st.integers(1, 60), st.integers(1, 3))
def test_slices_of_all_ranks_are_the_mini_batch(split, num_train, epochs) -> None:
    schedules = [schedule(num_train, split, rank=i, epochs=epochs) for i in range(len(split))]
    ranks = [list(each.slices()) for each in schedules]
    batches = global_batches(num_train, sum(split), epochs)
    assert all(len(works) == len(batches) for works in ranks)
    for step, batch in enumerate(batches):
        works = [each[step] for each in ranks]
        assert [work.step for work in works] == [step] * len(split)
        assert [seed for work in works for seed in work.seeds.tolist()] == batch
        assert sum(work.weight for work in works) == pytest.approx(1)
        for work, seeds in zip(works, split, strict=True):
            assert work.weight == len(work.seeds) / len(batch)
            assert seeds or not len(work.seeds)


@pytest.mark.long
@settings(max_examples=30)
@given(splits, st.data())
def test_slices_are_the_mini_batch_while_plans_change(split, data) -> None:
    total, lead_steps = sum(split), data.draw(st.integers(1, 4))
    schedules = [schedule(40, split, rank=i, lead_steps=lead_steps) for i in range(len(split))]
    sources = [each.slices() for each in schedules]
    for step, batch in enumerate(global_batches(40, total, 2)):
        works = [next(source) for source in sources]
        assert [seed for work in works for seed in work.seeds.tolist()] == batch
        cuts = sorted(data.draw(st.integers(0, total)) for _ in split[1:])
        new = np.diff([0, *cuts, total]).tolist()
        for each in schedules:
            each.commit_plan(step + 1 + lead_steps, plan(*new))


@pytest.mark.parametrize("first", [3, 5])
def test_a_run_that_is_resumed_begins_with_its_step(first) -> None:
    whole = list(schedule(20, (4, 4), epochs=3).slices())
    rest = list(schedule(20, (4, 4), epochs=3, first_step=first).slices())
    assert [work.step for work in rest] == list(range(first, 9))
    assert [work.seeds.tolist() for work in rest] == [w.seeds.tolist() for w in whole[first:]]


def test_a_plan_applies_from_the_step_it_is_settled_for() -> None:
    found = schedule(40, (4, 4), epochs=1, lead_steps=2)
    works = found.slices()
    sizes = [len(next(works).seeds) for _ in range(2)]
    found.commit_plan(3, plan(6, 2))  # steps 0 and 1 were settled before
    found.commit_plan(4, plan(1, 7))
    sizes += [len(next(works).seeds) for _ in range(2)]
    assert sizes == [4, 4, 6, 1]
    assert [found.plan_of(step).split[0] for step in range(4)] == [4, 4, 6, 1]
    found.commit_plan(2, plan(8, 0))  # what is settled stays
    assert found.plan_of(2).split == (6, 2)


def in_thread(works: Iterator[BatchSlice]) -> tuple[threading.Thread, list[int]]:
    steps: list[int] = []

    def consume() -> None:
        for work in works:
            steps.append(work.step)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    return thread, steps


def waits(thread: threading.Thread) -> None:
    thread.join(0.05)
    assert thread.is_alive()


def waits_after(thread: threading.Thread, steps: list[int], count: int) -> None:
    """Wait until a thread has ``count`` steps; it gets no more. A busy machine takes its time."""
    end = time.monotonic() + 30
    while len(steps) < count and time.monotonic() < end:
        thread.join(0.01)
    waits(thread)
    assert steps == list(range(count))


def ended(thread: threading.Thread) -> None:
    thread.join(30)
    assert not thread.is_alive()


def test_steps_wait_until_they_are_settled() -> None:
    found = schedule(40, (4, 4), epochs=1, lead_steps=1)
    thread, steps = in_thread(found.slices())
    for settled in (1, 3):
        found.commit_plan(settled, plan(4, 4))
        waits_after(thread, steps, settled)
    found.close()  # lets go whoever waits
    ended(thread)
    assert steps == [0, 1, 2]


def test_steps_beyond_the_end_are_not_handed_out() -> None:
    found = schedule(40, (4, 4), epochs=1, lead_steps=2)
    slices = found.slices()
    next(slices)
    assert found.hold() == 1
    thread, steps = in_thread(slices)
    waits(thread)
    found.end_at(3)
    ended(thread)
    assert steps == [1, 2]


def test_seeds_that_may_not_move_stay_on_their_device() -> None:
    order = PartOrder(np.arange(20), batch_size=6, num_devices=2, seed=0)
    for rank in range(2):
        found = Schedule(order, plan(1, 5), rank=rank, epochs=1, first_step=0, lead_steps=None)
        assert not found.movable
        slices = list(found.slices())
        assert len(slices) == order.steps_per_epoch
        assert all((each.seeds % 2 == rank).all() for each in slices)
        assert sorted(np.concatenate([each.seeds for each in slices])) == list(range(rank, 20, 2))
        assert all(each.counts == (3, 3) for each in slices[:-1])
