"""Devices with some columns of the features aggregate them for each other's mini-batches (P3)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.batch import batch_from_host
from gnnscale.backend.cuda.capacity import BatchCapacity
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.backend.cuda.p3_exchange import CudaColumnExchange, PartialSums, shared_capacity
from gnnscale.backend.cuda.placement import place_graph
from gnnscale.graph import EdgeData
from gnnscale.nn import Inputs
from gnnscale.nn.device_block import Rule
from gnnscale.planner import Cuda

DEVICE = Cuda(host_driven=True, features="device", topology="device", name="card")
#: Columns of each device, of 20.
COLUMNS = ((0, 7), (7, 20))


class Meeting:
    """What the devices pass, of which each is a thread."""

    def __init__(self, size):
        self.size = size
        self.passed: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)

    def trade(self, rank, mine):
        self.passed[rank] = mine
        self.barrier.wait()
        found = list(self.passed)
        self.barrier.wait()
        return found


class Trade:
    """One device's side of a meeting."""

    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.size = meeting, rank, meeting.size

    def all_gather_into(self, into, mine):
        into.copy_(torch.stack(self.meeting.trade(self.rank, mine.clone())))

    def all_to_all_into(self, into, parts):
        every = self.meeting.trade(self.rank, parts.clone())
        into.copy_(torch.stack([each[self.rank] for each in every]))

    def largest(self, counts):
        return [max(each) for each in zip(*self.meeting.trade(self.rank, counts), strict=True)]


def on_each(work):
    meeting = Meeting(len(COLUMNS))
    with ThreadPoolExecutor(meeting.size) as pool:
        trades = [Trade(meeting, rank) for rank in range(meeting.size)]
        return list(pool.map(work, trades))


@pytest.mark.parametrize(("rule", "weighted"), [(Rule.MEAN, False), (Rule.SYMMETRIC, True)])
def test_columns_together_are_the_whole_rows(graph, host, new_model, rule, weighted):
    if weighted:
        weights = np.random.default_rng(0).random(graph.num_edges, np.float32)
        graph = replace(graph, edges=EdgeData(weights=weights))
    sampler = host(new_model(), of=graph).sampler
    # Slices of different sizes, of which one is smaller than its room.
    slices = [np.arange(0, 40, 2), np.arange(100, 107)]
    batches = [sampler.sample(seeds, 3) for seeds in slices]

    def aggregated(trade):
        first, end = COLUMNS[trade.rank]
        engine = HostEngine(DEVICE)
        placed = place_graph(
            replace(graph, features=graph.features[:, first:end]), DEVICE, engine, kept_bytes=0
        )
        mine, seeds = batches[trade.rank], slices[trade.rank]
        batch = batch_from_host(mine, seeds, engine.kernels, engine.device)
        room = BatchCapacity(
            num_vertices=(len(seeds), *(each.num_src + 5 for each in mine.blocks[::-1])),
            num_edges=tuple(each.num_edges + 9 for each in mine.blocks[::-1]),
        )
        exchange = CudaColumnExchange(
            placed,
            engine,
            trade,
            shared_capacity(room, trade),
            rule=rule,
            dtype=torch.float32,
            uses_degrees=True,
        )
        own = aggregation.load_aggregated(
            batch.input_block, placed.rows, rule, degrees_of(placed, engine, batch)
        )
        found = exchange.trade(batch, Inputs(x=own, aggregated=True, degrees=None)).parts
        assert found is not None
        return list(found)

    parts = on_each(aggregated)
    engine = HostEngine(DEVICE)
    placed = place_graph(graph, DEVICE, engine, kept_bytes=0)
    for number, (mine, seeds) in enumerate(zip(batches, slices, strict=True)):
        batch = batch_from_host(mine, seeds, engine.kernels, engine.device)
        whole = aggregation.load_aggregated(
            batch.input_block, placed.rows, rule, degrees_of(placed, engine, batch)
        )
        # [own columns | aggregated columns] of each device, if own rows are concatenated.
        halves = 2 if rule == Rule.MEAN else 1
        of_devices = [each[number].view(len(each[number]), halves, -1) for each in parts]
        joined = torch.cat(of_devices, dim=2).flatten(1)
        assert torch.equal(joined[: len(whole)], whole)
        assert not joined[len(whole) :].any()


def degrees_of(placed, engine, batch):
    vertices, count = batch.vertices, batch.num_sources
    return aggregation.degrees_of(engine.kernels, placed.topology, vertices, count)


def test_partial_products_are_summed_in_the_order_of_ranks():
    rows = {rank: [torch.full((3, 2), 10.0 * rank + peer) for peer in (0, 1)] for rank in (0, 1)}

    def summed(trade):
        sums = PartialSums(HostEngine(DEVICE), trade)
        total = sums.reduce_products(rows[trade.rank], lambda part: 2 * part)
        assert sums.pop_waited_s() == 0
        return total, sums.all_gather_gradients(torch.full((3, 2), float(trade.rank)), [3, 3])

    for rank, (total, gradients) in enumerate(on_each(summed)):
        assert torch.equal(total, torch.full((3, 2), 2 * rank + 2 * (10.0 + rank)))
        assert [each[0, 0].item() for each in gradients] == [0.0, 1.0]
