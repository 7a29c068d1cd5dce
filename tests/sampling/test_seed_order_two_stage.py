import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.sampling.seed_order import CheckedOrder, TwoStageOrder, two_stage_schedule


def of_parts(*parts: int) -> list[list[tuple[int, int]]]:
    """Return a step in which each device trains one seed, of one of these parts."""
    return [[(part, 1)] for part in parts]


def test_the_example_of_figure_5() -> None:
    # Parts of 5, 3 and 4 mini-batches, of one seed each. Part 1 is empty after the third step.
    steps = list(two_stage_schedule([5, 3, 4], [1, 1, 1]))
    assert steps == [*[of_parts(0, 1, 2)] * 3, of_parts(0, 0, 2)]


def test_extra_mini_batches_come_in_turn_from_the_parts_that_have_some() -> None:
    steps = list(two_stage_schedule([9, 9, 1, 1], [1, 1, 1, 1]))
    # Two idle devices, two parts: each gives one.
    assert steps == [of_parts(0, 1, 2, 3), *[of_parts(0, 1, 0, 1)] * 4]


def test_the_turn_continues_from_step_to_step() -> None:
    steps = list(two_stage_schedule([9, 9, 1], [1, 1, 1]))
    assert [step[2] for step in steps[:-1]] == of_parts(2, 0, 1, 0, 1, 0)
    # One seed is left, which its own device trains.
    assert sorted(steps[-1]) == [[], [], [(1, 1)]]


def test_a_part_that_its_own_device_empties_is_passed_over() -> None:
    # Part 0 comes first in turn, and device 0 takes its last seed.
    assert next(iter(two_stage_schedule([1, 3, 0], [1, 1, 1]))) == of_parts(0, 1, 1)


def test_what_a_part_lacks_comes_from_the_others() -> None:
    # Without that, the third step would have 5 seeds, and a fourth one.
    steps = list(two_stage_schedule([13, 9], [4, 4]))
    assert steps == [[[(0, 4)], [(1, 4)]], [[(0, 4)], [(1, 4)]], [[(0, 4)], [(1, 1), (0, 1)]]]


parts_and_batches = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=6
)


@settings(max_examples=20)
@given(parts_and_batches, st.integers(0, 2**40), st.integers(0, 5))
def test_every_vertex_is_trained_once_and_nobody_is_idle_before_the_end(sizes, seed, epoch) -> None:
    counts, batch_sizes = map(list, zip(*sizes, strict=True))
    if not any(counts):
        counts[0] = 1
    train_idx = np.random.default_rng(0).permutation(1000)[: sum(counts)]
    parts = np.split(train_idx, np.cumsum(counts)[:-1])
    order = TwoStageOrder(parts, batch_sizes=batch_sizes, seed=seed)
    # Refuses a vertex that is trained twice or never, and counts that are none.
    steps = list(CheckedOrder(order, train_idx, num_devices=len(counts)).epoch(epoch))
    assert all(step.counts == tuple(batch_sizes) for step in steps[:-1])
    again = [step.seeds.tolist() for step in order.epoch(epoch)]
    assert again == [step.seeds.tolist() for step in steps]
    # A device begins with the seeds of its own part.
    first, offset = steps[0], 0
    for part, size in zip(parts, first.counts or (), strict=True):
        own = min(size, len(part))
        assert set(first.seeds[offset : offset + own]) <= set(part)
        offset += size


def test_epochs_parts_and_seeds_are_shuffled_apart() -> None:
    part = np.arange(50)

    def first(seed: int, epoch: int) -> list[list[int]]:
        order = TwoStageOrder([part, part + 50], batch_sizes=[50, 50], seed=seed)
        seeds = next(order.epoch(epoch)).seeds
        return [seeds[:50].tolist(), (seeds[50:] - 50).tolist()]

    every = [each for pair in ((0, 0), (0, 1), (1, 0)) for each in first(*pair)]
    assert len({tuple(each) for each in every}) == 6
    assert all(sorted(each) == part.tolist() for each in every)


@pytest.mark.parametrize("batch_sizes", [[4], [4, 0], [1, 1, 1]])
def test_every_device_needs_a_mini_batch(batch_sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="batch_sizes"):
        TwoStageOrder([np.arange(3), np.arange(3)], batch_sizes=batch_sizes, seed=0)
