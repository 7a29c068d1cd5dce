"""One of several processes that train a split model, held against the whole one."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.data import from_arrays
from gnnscale.distributed.heartbeat import CURRENT_ACTIVITIES
from gnnscale.distributed.process_group import Group, join
from gnnscale.graph import Graph
from gnnscale.nn import GCN, GNN, GraphSAGE, ModelConfig
from gnnscale.nn.base import seed_loss
from gnnscale.nn.optim import Adam, OptimizerConfig, Sgd
from gnnscale.nn.optim.update_rules import optimizer_state
from gnnscale.sampling import MiniBatch, NeighborSampler
from gnnscale.training.p3.split_model import PARTIAL_BYTES
from gnnscale.training.p3.split_run import SplitRun

#: Features that do not divide evenly.
WIDTH = 11


def some_graph() -> Graph:
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, 200, (2, 1500))
    features = generator.standard_normal((200, WIDTH), np.float32)
    labels = generator.integers(0, 5, 200)
    return from_arrays((src, dst), features, labels, train_idx=np.arange(200), num_classes=5)


def slices(graph: Graph, size: int) -> list[MiniBatch]:
    """Mini-batches of all devices; the second device has no seeds."""
    sampler = NeighborSampler(graph, fanouts=[4, 3], seed=1)
    seeds = np.arange(60, dtype=graph.indices.dtype)
    cuts = [*[0, 25, 25, *range(30, 30 + size)][:size], 60]
    return [sampler.sample(seeds[a:b], 7) for a, b in itertools.pairwise(cuts)]


def whole_step(
    graph: Graph, model: GNN, optimizer: torch.optim.Optimizer, batches: list[MiniBatch]
) -> list[torch.Tensor]:
    """Train one step of the whole model over all slices, and return each one's logits."""
    loader = FeatureLoader(graph, model, num_threads=1)
    found = []
    for batch in batches:
        logits = model(batch, loader.load(batch))
        (seed_loss(graph, logits, batch.seeds) * batch.num_seeds / 60).backward()
        found.append(logits.detach())
    optimizer.step()
    optimizer.zero_grad()
    return found


def check(group: Group, config: ModelConfig, update: OptimizerConfig) -> None:
    graph, size = some_graph(), group.size
    batches = slices(graph, size)
    torch.manual_seed(3)
    known = config.build(num_features=WIDTH, num_classes=5)
    torch.manual_seed(3)
    whole = config.build(num_features=WIDTH, num_classes=5)
    bounds = [WIDTH * part // size for part in range(size + 1)]
    columns = list(itertools.pairwise(bounds))
    split = SplitRun(whole, columns, group)
    known_optimizer, optimizer = update.build(known), update.build(split.model)
    weights = split.weights(optimizer)
    store = split.store(graph)
    loader = FeatureLoader(graph, split.model, num_threads=1, store=store)
    exchange = split.exchange(loader)
    mine = batches[group.rank]

    first, end = columns[group.rank]
    weight: Any = whole.layer(0).linear.weight
    assert split.model.own_weight.numel() * WIDTH == weight.numel() * (end - first)
    assert len(split.model.shared_parameters) == len(list(whole.parameters())) - 1
    for _ in range(3):
        logits = whole_step(graph, known, known_optimizer, batches)
        inputs = exchange.trade(mine, loader.load(mine))
        found = split.model(mine, inputs)
        torch.testing.assert_close(found, logits[group.rank], rtol=1e-5, atol=1e-6)
        (seed_loss(graph, found, mine.seeds) * mine.num_seeds / 60).backward()
        for parameter in split.model.shared_parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            group.sum(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        check_traffic(inputs.traffic, batches, group, whole.widths[1])
    assert split.model.pop_waited_s() > 0
    assert split.model.pop_waited_s() == 0

    # Joined, the weights and the optimizer's state are those of the whole model.
    weights.join()
    close(whole.state_dict(), known.state_dict())
    expected = optimizer_state(known_optimizer)
    assert weights.state.keys() == expected.keys()
    for number, kept in weights.state.items():
        close(kept, expected[number])

    # What is taken is what was joined.
    own = split.model.own_weight.detach().clone()
    state = optimizer_state(optimizer)
    whole_optimizer = update.build(whole)
    whole_optimizer.load_state_dict(whole_optimizer.state_dict() | {"state": weights.state})
    with torch.no_grad():
        split.model.own_weight.fill_(float("nan"))
    weights.restore(whole_optimizer)
    assert torch.equal(split.model.own_weight, own)
    for number, kept in optimizer_state(optimizer).items():
        assert all(torch.equal(value, state[number][name]) for name, value in kept.items())
    assert not CURRENT_ACTIVITIES


def check_traffic(traffic: Any, batches: list[MiniBatch], group: Group, hidden: int) -> None:
    """What a device receives: blocks, partial products of its rows, gradients of the others'."""
    others = [batch for rank, batch in enumerate(batches) if rank != group.rank]
    rows = (group.size - 1) * batches[group.rank].blocks[0].num_dst
    rows += sum(batch.blocks[0].num_dst for batch in others)
    assert traffic.rows.peer_bytes == rows * hidden * PARTIAL_BYTES
    blocks = [batch.blocks[0] for batch in others]
    numbers = sum(6 + each.num_src + each.num_dst + each.num_edges for each in blocks)
    assert traffic.lists.peer_bytes == 4 * numbers
    assert traffic.link_bytes == 0


def close(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)


def run(rank: int, size: int, meeting: Path) -> None:
    torch.set_num_threads(1)
    with join(rank, size, meeting, backend="cpu:gloo") as group:
        check(group, GraphSAGE(hidden=8, dropout=0.5), Adam(lr=0.01, weight_decay=1e-3))
        check(group, GCN(hidden=8, dropout=0.5, norm="layer"), Sgd(lr=0.1, momentum=0.9))
        check(group, GCN(hidden=8, num_layers=2), Sgd(lr=0.1))
