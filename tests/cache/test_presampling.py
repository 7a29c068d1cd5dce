from functools import partial
from typing import Any

import numpy as np
import pytest
from fixture_types import Make

from gnnscale.cache import Presampler
from gnnscale.graph import Graph
from gnnscale.planner.device_plan import apportion
from gnnscale.sampling import (
    InputFrontier,
    MiniBatch,
    NeighborSampler,
    NeighborSampling,
    SeedOrder,
    ShuffledOrder,
    TwoStageOrder,
)

FANOUTS = [3, 2]


def orders(graph: Graph) -> dict[str, SeedOrder]:
    """Return orders of three devices: one to be split, and one with counts, of uneven parts."""
    train = graph.train_idx
    parts = [train[:50], train[60:71], train[90:98]]
    return {
        "movable": ShuffledOrder(train[:100], batch_size=16, seed=5),
        "counts": TwoStageOrder(parts, batch_sizes=[5, 5, 6], seed=5),
    }


def draws_of(
    graph: Graph, order: SeedOrder, num_threads: int = 1, *, fixed: bool = False
) -> Presampler:
    return Presampler(
        graph,
        NeighborSampling(fanouts=FANOUTS),
        order,
        split=partial(apportion, [1, 2, 1]),
        fixed=fixed,
        seed=9,
        num_threads=num_threads,
    )


def as_lists(batch: MiniBatch) -> Any:
    blocks = [(block.indptr.tolist(), block.indices.tolist()) for block in batch.blocks]
    return batch.step, batch.num_seeds, batch.input_vertices.tolist(), blocks


def drawn(batches: Any) -> Any:
    return [(each.step, each.device, each.seeds.tolist(), as_lists(each.batch)) for each in batches]


def sampled_in_the_run(graph: Graph, order: SeedOrder, epoch: int) -> Any:
    sampler = NeighborSampler(graph, fanouts=FANOUTS, seed=9, num_threads=2)
    found = []
    for number, each in enumerate(order.epoch(epoch)):
        step = epoch * order.steps_per_epoch + number
        counts = each.counts or apportion([1, 2, 1], len(each.seeds))
        seeds = np.split(each.seeds, np.cumsum(counts)[:-1])
        for device, own in enumerate(seeds):
            if len(own):
                found.append((step, device, own.tolist(), as_lists(sampler.sample(own, step))))
    return found


@pytest.mark.parametrize("kind", ["movable", "counts"])
def test_an_epoch_is_what_the_run_samples(random_graph: Make, kind: str) -> None:
    graph = random_graph()
    order = orders(graph)[kind]
    # Of the order with counts the last steps give some devices no seeds.
    assert any(0 in (each.counts or ()) for each in order.epoch(0)) == (kind == "counts")
    for epoch in (0, 1, 7):
        expected = sampled_in_the_run(graph, order, epoch)
        for num_threads in (1, 3):
            assert drawn(draws_of(graph, order, num_threads).epoch(epoch)) == expected


@pytest.mark.parametrize("knows_reach", [True, False])
def test_what_is_reached_is_what_is_sampled(random_graph, monkeypatch, knows_reach) -> None:
    if not knows_reach:  # as layer-wise samplers, and those of users
        derived = type("Derived", (NeighborSampler,), {"reach": None})
        monkeypatch.setattr("gnnscale.sampling.neighbor.NeighborSampler", derived)
    graph = random_graph()
    draws = draws_of(graph, orders(graph)["movable"], num_threads=3)
    batches, reaches = list(draws.epoch(2)), list(draws.frontiers(2, devices=[0, 1, 2]))
    assert len(batches) == len(reaches)
    for batch, found in zip(batches, reaches, strict=True):
        assert (found.step, found.device) == (batch.step, batch.device)
        assert found.seeds.tolist() == batch.seeds.tolist()
        expected = InputFrontier.of(batch.batch)
        assert found.frontier.input_vertices.tolist() == expected.input_vertices.tolist()
        for mine, its in zip(found.frontier.indptrs, expected.indptrs, strict=True):
            assert mine.tolist() == its.tolist()
    assert {each.device for each in draws.frontiers(2, devices=[1])} == {1}
    steps = draws.steps_per_epoch
    first = [each.step for each in draws.frontiers(2, num_steps=2)]
    assert first == [2 * steps] * 3 + [2 * steps + 1] * 3


def test_first_steps_and_exact_draws(random_graph: Make) -> None:
    graph = random_graph()
    draws = draws_of(graph, ShuffledOrder(graph.train_idx[:9], batch_size=8, seed=5))
    # 8 seeds are 2, 4 and 2 for the devices; the last step's one seed is the second's.
    found = [(each.step, each.device) for each in draws.epoch(2)]
    assert found == [(4, 0), (4, 1), (4, 2), (5, 1)]
    assert draws.steps_per_epoch == 2
    graph = random_graph()
    for kind, order in orders(graph).items():
        draws = draws_of(graph, order)
        first = drawn(draws.first_step())
        assert first == drawn(each for each in draws.epoch(0) if not each.step)
        assert [device for _, device, *_ in first] == [0, 1, 2]
        # Seeds that may move are split in some way.
        assert draws.exact == (kind == "counts")
        assert draws_of(graph, order, fixed=True).exact
