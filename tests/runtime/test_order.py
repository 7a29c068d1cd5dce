from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.options.config import typed
from gnnscale.partition import P3, Hash, Parts
from gnnscale.runtime.command_options import PlanCacheConfig
from gnnscale.runtime.order import checked_order
from gnnscale.runtime.settings import TrainConfig
from gnnscale.sampler import SeedOrder, SeedOrderConfig, ShuffledOrder, StepSeeds
from gnnscale.sampler.seed_order import labelled_vertices

Settings = Callable[..., TrainConfig]


def seeds_of(order: SeedOrder, epoch: int = 0) -> list[list[int]]:
    return [step.seeds.tolist() for step in order.epoch(epoch)]


def trained(graph: Graph) -> Any:
    return labelled_vertices(graph, "train")


def parts_of(graph: Graph, num_parts: int) -> Parts:
    return Hash().assign(graph, num_parts=num_parts, num_hops=2, num_threads=1)


def test_the_order_of_a_whole_graph_is_the_users(
    settings: Settings, random_graph: Callable[..., Graph]
) -> None:
    graph = random_graph()
    order = checked_order(settings("seed=3"), trained(graph), None)
    wanted = ShuffledOrder(graph.train_idx, batch_size=64, seed=3)
    for epoch in (0, 5):
        assert seeds_of(order, epoch) == seeds_of(wanted, epoch)
    assert all(step.counts is None for step in order.epoch(0))
    assert order.movable


def test_columns_leave_the_order_as_it_is(
    settings: Settings, random_graph: Callable[..., Graph]
) -> None:
    graph = random_graph()
    parts = P3().assign(graph, num_parts=2, num_hops=2, num_threads=1)
    config = settings("device_plan=cpu_x2")
    assert seeds_of(checked_order(config, trained(graph), parts)) == seeds_of(
        checked_order(config, trained(graph), None)
    )


@pytest.mark.parametrize(("split", "counts"), [("null", [32, 32]), ("[40,24]", [40, 24])])
def test_over_parts_every_device_has_its_own_seeds(
    settings: Settings, random_graph: Callable[..., Graph], split: str, counts: list[int]
) -> None:
    graph = random_graph()
    parts = parts_of(graph, 2)
    config = settings("device_plan=cpu_x2", f"device_plan.split={split}")
    order = checked_order(config, trained(graph), parts)
    assert not order.movable
    steps = list(order.epoch(0))
    assert list(steps[0].counts or ()) == counts
    assert sorted(np.concatenate([step.seeds for step in steps])) == graph.train_idx.tolist()
    assert parts.owner is not None
    # Of their own parts, as long as these have any left.
    assert parts.owner[steps[0].seeds].tolist() == [0] * counts[0] + [1] * counts[1]


def test_planning_and_training_have_one_order(
    options: Callable[..., DictConfig], random_graph: Callable[..., Graph]
) -> None:
    graph = random_graph()
    train = typed(options("seed=4"), TrainConfig)
    names = ("seed", "epochs", "batch_size", "num_threads", "dataset", "model", "sampler")
    planned = PlanCacheConfig(
        **{name: getattr(train, name) for name in (*names, "runtime", "device_plan")}
    )
    assert seeds_of(checked_order(planned, trained(graph), None)) == seeds_of(
        checked_order(train, trained(graph), None)
    )


@dataclass(frozen=True, kw_only=True)
class Half(SeedOrderConfig):
    """Trains half of the vertices."""

    def order(self, train_idx: Any, **options: Any) -> Any:
        class HalfOrder:
            movable, batch_size, steps_per_epoch = True, 64, 1

            def epoch(self, epoch: int) -> Any:
                yield StepSeeds(seeds=train_idx[::2])

        return HalfOrder()


def test_an_order_that_leaves_vertices_out_is_refused_at_once(
    settings: Settings, random_graph: Callable[..., Graph]
) -> None:
    config = replace(settings(), seed_order=Half())
    with pytest.raises(ConfigError, match=r"^seed_order=HalfOrder: .* epoch 1"):
        checked_order(config, trained(random_graph(num_vertices=100)), None)
