import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.graph import Graph, Split
from gnnscale.sampling import SeedOrder, Shuffled, ShuffledOrder, StepSeeds
from gnnscale.sampling.seed_order import CheckedOrder, FullBatches, labeled_vertices


def check(order: SeedOrder, vertices: np.ndarray, *, epoch: int, num_devices: int) -> None:
    """Look at all steps of an epoch, which go through as they are."""
    found = list(CheckedOrder(order, vertices, num_devices=num_devices).epoch(epoch))
    for ours, theirs in zip(found, order.epoch(epoch), strict=True):
        assert np.array_equal(ours.seeds, theirs.seeds)
        assert ours.counts == theirs.counts


def seeds_of(order: ShuffledOrder, epoch: int) -> list[np.ndarray]:
    return [step.seeds for step in order.epoch(epoch)]


@pytest.mark.long
@settings(max_examples=20)
@given(st.integers(1, 200), st.integers(1, 70), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_every_vertex_is_a_seed_once_in_every_epoch(size, batch_size, seed, epoch) -> None:
    vertices = np.arange(size, dtype=np.int32) * 3
    order = ShuffledOrder(vertices, batch_size=batch_size, seed=seed)
    batches = seeds_of(order, epoch)
    assert len(batches) == order.steps_per_epoch
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert np.array_equal(np.sort(np.concatenate(batches)), vertices)
    again = seeds_of(order, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))
    check(order, vertices, epoch=epoch, num_devices=3)


def test_the_order_differs_between_epochs_and_seeds_and_is_fixed_for_good() -> None:
    def whole(seed: int, epoch: int) -> tuple[int, ...]:
        order = ShuffledOrder(np.arange(100), batch_size=7, seed=seed)
        return tuple(np.concatenate(seeds_of(order, epoch)).tolist())

    assert len({whole(seed, epoch) for seed in (0, 1) for epoch in (0, 1)}) == 4
    order = Shuffled().order(np.arange(8), batch_size=3, num_devices=2, seed=5)
    assert [batch.tolist() for batch in seeds_of(order, 2)] == [[5, 2, 3], [0, 7, 4], [1, 6]]
    assert order.movable


def test_epochs_in_turn_are_those_of_orders_by_themselves(monkeypatch: Any) -> None:
    drawn: list[tuple[int, bool]] = []
    permutation = ShuffledOrder._permutation

    def noted(self: ShuffledOrder, epoch: int) -> Any:
        drawn.append((epoch, threading.current_thread() is threading.main_thread()))
        return permutation(self, epoch)

    monkeypatch.setattr(ShuffledOrder, "_permutation", noted)
    vertices, options = np.arange(100), {"batch_size": 7, "seed": 3}
    order = ShuffledOrder(vertices, **options)
    next(order.epoch(5))  # the first step alone draws nothing ahead
    assert drawn == [(5, True)]
    found = [np.concatenate(seeds_of(order, epoch)) for epoch in (0, 1, 2, 7, 0)]
    # Of three epochs in turn, the first alone is waited for.
    assert [each for each in drawn[1:] if each[1]] == [(0, True), (7, True), (0, True)]
    monkeypatch.undo()
    for epoch, ours in zip((0, 1, 2, 7, 0), found, strict=True):
        theirs = seeds_of(ShuffledOrder(vertices, **options), epoch)
        assert np.array_equal(ours, np.concatenate(theirs))


@dataclass
class Listed:
    """An order of the steps it is given."""

    steps: list[StepSeeds]
    batch_size: int = 2
    movable: bool = True
    steps_per_epoch: int = field(init=False)

    def __post_init__(self) -> None:
        self.steps_per_epoch = len(self.steps)

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        return iter(self.steps)


def step(*seeds: int, counts: tuple[int, ...] | None = None) -> StepSeeds:
    return StepSeeds(seeds=np.array(seeds), counts=counts)


def fixed(counts: tuple[int, ...] | None) -> Listed:
    """An order whose seeds do not move, and begin with ``counts``."""
    return Listed([step(1, 2, counts=counts), step(3, counts=counts)], movable=False)


FIXED = [step(1, 2, counts=(1, 1)), step(3, counts=(0, 1))]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (Listed([step(1, 2), step(2, 3)]), "trains vertex 2 twice in epoch 1"),
        (Listed([step(1, 2)]), "never trains vertex 3 in epoch 1"),
        (Listed([step(1, 2), step(3, 4)]), "trains vertex 4, which is no training vertex"),
        (Listed([step(1, 2, 3)]), "step 0 of epoch 1: 3 seeds, batch_size is 2"),
        (Listed([step(1, 2), step(), step(3)]), "step 1 of epoch 1: 0 seeds"),
        (Listed(FIXED), "counts are for seeds that may not move, and for these alone"),
        (fixed(None), "counts are for seeds that may not move, and for these alone"),
        (fixed((2,)), "expected a count for each of 2 devices, got [2]"),
        (fixed((2, 1)), "counts [2, 1] sum to 3, there are 2 seeds"),
    ],
)
def test_orders_that_are_refused(order: Listed, message: str) -> None:
    with one_line(message, begins="seed_order=Listed: "):
        check(order, np.array([1, 2, 3]), epoch=0, num_devices=2)


def test_an_order_that_is_announced_wrongly() -> None:
    order = Listed([step(1, 2), step(3)])
    order.steps_per_epoch = 5
    with pytest.raises(ConfigError, match="2 steps in epoch 1, not 5"):
        check(order, np.array([1, 2, 3]), epoch=0, num_devices=2)
    check(replace(order, steps=FIXED, movable=False), np.array([1, 2, 3]), epoch=0, num_devices=2)
    # Any other is refused before the step that is wrong.
    order = Listed([step(3, 1), step(1, 2)])
    steps = CheckedOrder(order, np.array([1, 2, 3]), num_devices=1).epoch(6)
    assert next(steps).seeds.tolist() == [3, 1]
    with pytest.raises(ConfigError, match="trains vertex 1 twice in epoch 7"):
        next(steps)


@pytest.mark.parametrize(("size", "kept"), [(100, 14), (98, 14), (6, 0)])
def test_incomplete_mini_batches_are_dropped(size: int, kept: int) -> None:
    order = ShuffledOrder(np.arange(size), batch_size=7, seed=3)
    full = FullBatches(order)
    assert (full.steps_per_epoch, full.batch_size, full.movable) == (kept, 7, True)
    found = [np.array(seeds_of(full, epoch)).reshape(-1, 7) for epoch in (0, 1)]
    for epoch, batches in enumerate(found):
        whole = [each for each in seeds_of(order, epoch) if len(each) == 7]
        assert np.array_equal(batches, np.reshape(whole, (-1, 7)))
    dropped = [set(range(size)) - {*each.flatten().tolist()} for each in found]
    assert len(dropped[0]) == size - 7 * kept
    # The mini-batch that is dropped has other seeds in every epoch.
    assert (dropped[0] != dropped[1]) == (size == 100)


def test_an_order_whose_epochs_have_other_numbers_of_full_mini_batches() -> None:
    order = Listed([step(1, 2), step(3)])
    full = FullBatches(order)
    order.steps = [step(1), step(2), step(3)]
    with pytest.raises(ConfigError, match="expected 1 full mini-batches in every epoch, got 0 in"):
        list(full.epoch(1))
    assert list(FullBatches(order, trains=False).epoch(1)) == []


@pytest.fixture
def graph(tiny_graph: Graph) -> Graph:
    labels = np.array([0, -1, 1, 0, -1])
    split = Split(train_idx=np.array([0, 1, 2]), valid_idx=np.array([3]), test_idx=np.array([4]))
    return replace(tiny_graph, labels=labels, split=split)


def test_vertices_without_label_are_left_out(graph, caplog) -> None:
    with caplog.at_level(logging.INFO):
        assert labeled_vertices(graph, "train").tolist() == [0, 2]
    assert "1 of 3 train vertices have no label" in caplog.text
    assert labeled_vertices(graph, "valid").tolist() == [3]
    with pytest.raises(GraphError, match="none of the 1 test vertices has a label"):
        labeled_vertices(graph, "test")
    # One target of several is a label.
    targets = np.array([[1, np.nan], [np.nan, np.nan], [np.nan, 2], [3, 4], [5, 6]], np.float32)
    regression = replace(graph, labels=targets, num_classes=2, metric="rmse")
    assert labeled_vertices(regression, "train").tolist() == [0, 2]
