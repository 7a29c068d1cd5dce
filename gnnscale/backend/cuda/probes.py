"""Micro-benchmarks of a GPU: short runs of the kernels of a training step."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.block import CudaBlock
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.engine import CudaEngine, Engine
from gnnscale.backend.cuda.row_gather import RowGather
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.core import track
from gnnscale.nn.device_block import Rule
from gnnscale.planner import CardRates, Cuda
from gnnscale.sampling import NeighborSampling

#: Row sizes in bytes of the measured reads over the link.
WIDTHS = (64, 256, 512, 2048)
#: In-edges of each destination of the aggregated block.
_NEIGHBORS = 10
#: Approximate operations of a step, here of GraphSAGE with two layers.
_OPERATIONS = 100
_FANOUTS = [25, 10]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Sizes of the measured work, and number of runs, by which a GPU's rates are measured."""

    table_bytes: int = 1 << 28  #: bytes of the feature table, more than any hardware cache
    ids: int = 1 << 16  #: rows of a gather
    width: int = 256  #: columns of aggregation and products
    vertices: int = 1 << 20  #: vertices of the sampled graph
    degree: int = 25  #: in-edges of each of its vertices
    seeds: int = 1024  #: seeds of a sample
    rounds: int = 5  #: measured runs, of which the median counts


def measure(engine: Engine, effort: Effort | None = None) -> CardRates:
    """Return the rates of a GPU, measured by its clock in a few seconds."""
    how = effort or Effort()
    clock = _Clock(engine, how.rounds)
    with track(f"measuring {engine.device}"):
        rates = CardRates(
            macs_per_s=_products(clock, how),
            memory_bandwidth=_aggregation(clock, how),
            copy_bandwidth=_copy(clock, how),
            link=tuple((float(width), _rows(clock, how, width)) for width in WIDTHS),
            sampled_edges_per_s=_sampling(clock, how),
            launch_s=_launches(clock),
        )
    clock.close()
    return rates


def measure_card(device: Cuda) -> CardRates:
    """Return the measured rates of the GPU of ``device``, and free the memory used."""
    engine = CudaEngine(replace(device, memory_bytes=None), limits=False)
    try:
        return measure(engine)
    finally:
        engine.close()
        torch.cuda.empty_cache()


class _Clock:
    """Timer of work on a stream: the median of several runs after two warm-up runs."""

    def __init__(self, engine: Engine, rounds: int) -> None:
        self.engine = engine
        self._rounds = rounds
        self._stream = engine.stream()

    def seconds(self, work: Callable[[], object]) -> float:
        self.engine.synchronize()
        return self._median(lambda: self._stream.run(work))

    def recorded_seconds(self, work: Callable[[], object]) -> float:
        """Return the median seconds of replaying ``work``, which is recorded once."""
        self.engine.synchronize()
        self._stream.run(work)
        return self._median(self._stream.capture(work).replay)

    def _median(self, queue: Callable[[], None]) -> float:
        times = []
        for _ in range(2 + self._rounds):
            start = self._stream.mark()
            queue()
            after = self._stream.mark()
            after.wait()
            times.append(after.seconds_since(start))
        return max(statistics.median(times[2:]), 1e-9)

    def close(self) -> None:
        self._stream.close()


def _random(shape: tuple[int, ...], engine: Engine) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(shape, generator=generator).to(engine.device)


def _products(clock: _Clock, how: Effort) -> float:
    x, right = (_random((rows, how.width), clock.engine) for rows in (how.ids, how.width))
    return how.ids * how.width**2 / clock.seconds(lambda: x @ right)


def _aggregation(clock: _Clock, how: Effort) -> float:
    """Return the bytes of rows aggregated per second: means of ten neighbors in device memory."""
    engine = clock.engine
    num_dst, num_edges = how.ids // _NEIGHBORS, how.ids // _NEIGHBORS * _NEIGHBORS
    table = _random((how.table_bytes // 4 // how.width, how.width), engine)
    generator = torch.Generator().manual_seed(2)
    vertices = torch.randint(0, len(table), (num_dst + num_edges,), generator=generator)
    numbers = torch.arange(num_dst, num_dst + num_edges, dtype=torch.int32)
    block = CudaBlock(
        indptr=torch.arange(0, num_edges + 1, _NEIGHBORS).to(engine.device),
        indices=numbers.to(engine.device),
        num_src=num_dst + num_edges,
        kernels=engine.kernels,
        vertices=vertices.to(engine.device),
        num_vertices=torch.tensor([num_dst, num_dst + num_edges]).to(engine.device),
        num_used=torch.tensor([num_edges]).to(engine.device),
        step=torch.zeros(1, dtype=torch.int64).to(engine.device),
    )
    moved = (num_edges + num_dst) * how.width * 4
    seconds = clock.seconds(lambda: aggregation.load_aggregated(block, table, Rule.MEAN, None))
    return moved / seconds


def _copy(clock: _Clock, how: Effort) -> float:
    size = how.table_bytes // 4
    source = clock.engine.pinned(size, torch.float32)
    target = torch.empty(size, device=clock.engine.device)
    return how.table_bytes / clock.seconds(lambda: target.copy_(source, non_blocking=True))


def _rows(clock: _Clock, how: Effort, row_bytes: int) -> float:
    """Return the bytes read per second from random rows in host memory."""
    engine, width = clock.engine, row_bytes // 4
    num_rows = max(how.table_bytes // row_bytes, 1)
    table = engine.reached(np.ones((num_rows, width), np.float32), torch.float32)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, num_rows, (how.ids,), generator=generator).to(engine.device)
    count = torch.tensor([how.ids]).to(engine.device)
    gather = RowGather(table, engine.kernels, max_ids=how.ids)
    return how.ids * row_bytes / clock.seconds(lambda: gather.gather(ids, count))


def _sampling(clock: _Clock, how: Effort) -> float:
    """Return the edges sampled per second by two hops in device memory."""
    engine, num_edges = clock.engine, how.vertices * how.degree
    generator = torch.Generator().manual_seed(4)
    graph = DeviceGraph(
        name="probe",
        indptr=torch.arange(0, num_edges + 1, how.degree).to(engine.device),
        indices=torch.randint(
            0, how.vertices, (num_edges,), generator=generator, dtype=torch.int32
        ).to(engine.device),
    )
    sampler = CudaSampler(
        graph,
        engine.kernels,
        NeighborSampling(fanouts=_FANOUTS),
        seed=0,
        max_seeds=how.seeds,
        device=engine.device,
    )
    seeds = torch.randperm(how.vertices, generator=generator)[: how.seeds].to(engine.device)
    engine.synchronize()
    sizes = sampler.sample(seeds, 0).sizes()
    return sum(sizes.num_edges) / clock.seconds(lambda: sampler.sample(seeds, 0))


def _launches(clock: _Clock) -> float:
    """Return the seconds of replaying as many empty kernel launches as a training step has."""
    times = torch.zeros(6, dtype=torch.int64, device=clock.engine.device)

    def work() -> None:
        for _ in range(_OPERATIONS):
            clock.engine.kernels.launch("step_time", times, np.int32(2), grid=1)

    return clock.recorded_seconds(work)
