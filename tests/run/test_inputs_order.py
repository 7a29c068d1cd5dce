from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from part_order import Forgetful

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition import P3, Hash
from gnnscale.run.commands import PlanCacheConfig
from gnnscale.run.config import RunConfig
from gnnscale.run.inputs import checked_order
from gnnscale.sampling import SeedOrder, ShuffledOrder
from gnnscale.sampling.seed_order import labeled_vertices

Settings = Callable[..., RunConfig]


@pytest.fixture
def graph(random_graph: Any) -> Graph:
    return random_graph()


def seeds_of(order: SeedOrder, epoch: int = 0) -> list[list[int]]:
    return [step.seeds.tolist() for step in order.epoch(epoch)]


def trained(graph: Graph) -> Any:
    return labeled_vertices(graph, "train")


def test_the_order_of_a_whole_graph_is_the_users(settings: Settings, graph: Graph) -> None:
    order = checked_order(settings("seed=3"), trained(graph), None)
    wanted = ShuffledOrder(graph.train_idx, batch_size=64, seed=3)
    for epoch in (0, 5):
        assert seeds_of(order, epoch) == seeds_of(wanted, epoch)
    assert all(step.counts is None for step in order.epoch(0))
    assert order.movable
    parts = P3().assign(graph, num_parts=2, num_hops=2, num_threads=1)
    config = settings("device_plan=cpu_x2")
    orders = [checked_order(config, trained(graph), each) for each in (parts, None)]
    assert seeds_of(orders[0]) == seeds_of(orders[1])
    train = settings("seed=4")
    names = ("seed", "epochs", "batch_size", "num_threads", "dataset", "model", "sampler")
    shared = {name: getattr(train, name) for name in (*names, "runtime", "device_plan")}
    orders = [
        checked_order(each, trained(graph), None) for each in (PlanCacheConfig(**shared), train)
    ]
    assert seeds_of(orders[0]) == seeds_of(orders[1])


@pytest.mark.parametrize(("split", "counts"), [("null", [32, 32]), ("[40,24]", [40, 24])])
def test_devices_have_seeds_of_their_own_parts(settings, graph, split, counts) -> None:
    parts = Hash().assign(graph, num_parts=2, num_hops=2, num_threads=1)
    config = settings("device_plan=cpu_x2", f"device_plan.split={split}")
    order = checked_order(config, trained(graph), parts)
    assert not order.movable
    steps = list(order.epoch(0))
    assert list(steps[0].counts or ()) == counts
    assert sorted(np.concatenate([step.seeds for step in steps])) == graph.train_idx.tolist()
    assert parts.owner is not None
    # Of their own parts, as long as these have any left.
    assert parts.owner[steps[0].seeds].tolist() == [0] * counts[0] + [1] * counts[1]


@pytest.mark.parametrize("parted", [False, True])
def test_incomplete_mini_batches_are_dropped(settings, graph, parted) -> None:
    plan = "device_plan=cpu_x2"
    parts = Hash().assign(graph, num_parts=2, num_hops=2, num_threads=1) if parted else None
    whole, full = (
        checked_order(settings(plan, f"drop_last={drops}"), trained(graph), parts)
        for drops in ("false", "true")
    )
    assert (whole.steps_per_epoch, full.steps_per_epoch) == (5, 4)
    for epoch in (0, 3):
        assert seeds_of(full, epoch) == seeds_of(whole, epoch)[:4]


def test_orders_that_are_refused(settings: Settings, graph: Graph) -> None:
    with pytest.raises(ConfigError) as error:
        checked_order(settings("batch_size=301", "drop_last=true"), trained(graph), None)
    assert str(error.value) == (
        "drop_last=true: expected a full mini-batch in an epoch, got batch_size=301 for 300 "
        "training seeds; lower batch_size, or set drop_last=false"
    )
    config = replace(settings(), seed_order=Forgetful())
    with pytest.raises(ConfigError, match=r"^seed_order=PartOrder: .* epoch 1"):
        checked_order(config, trained(graph), None)
