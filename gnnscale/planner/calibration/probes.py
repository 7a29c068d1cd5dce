"""Probes: single kernels, short training runs and sampling, timed with their amounts of work."""

import mmap
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from gnnscale import ops
from gnnscale.core import Float32Array, Float64Array
from gnnscale.data import from_arrays
from gnnscale.features import HostFeatures
from gnnscale.graph import FEATURE_DTYPES, Graph
from gnnscale.nn import GAT, GCN, GIN, GNN, GraphSAGE, options
from gnnscale.nn.optim.update_rules import PlainAdam
from gnnscale.ops.products import multiply, torch_threads, weight_gradient
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.workload import (
    KnownSlices,
    Workload,
    other_data,
    unmeasured_workload,
)
from gnnscale.sampling import MiniBatch, NeighborSampler

_SEED = 0


def median_seconds(work: Callable[[int], object], repeats: int) -> float:
    """Return the median seconds of ``work(1)`` to ``work(repeats)``, after a first ``work(0)``."""
    times = []
    for number in range(repeats + 1):
        start = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def rows_seconds(
    table: Float32Array, num_rows: int, *, threads: int, repeats: int, cold: bool
) -> float:
    """Return median seconds of summing random rows of ``table`` by tens; ``cold``: out of cache."""
    generator = np.random.default_rng(_SEED)
    ids = [generator.integers(0, len(table), num_rows).astype(np.int32) for _ in range(repeats + 1)]
    indptr = np.arange(0, num_rows + 1, 10, dtype=np.int64)
    indices = np.zeros(num_rows, np.int32)
    out = torch.empty(len(indptr) - 1, table.shape[1])
    times = []
    for row_ids in ids:
        if cold and not ops.flush_cache_lines(table.reshape(-1).view(np.uint8)):
            other_data().sum()
        start = time.perf_counter()
        ops.aggregate(
            (table, "float32"),
            indptr,
            indices,
            ids=row_ids,
            ids_per_edge=True,
            out=out,
            num_threads=threads,
        )
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def mapped(num_values: int) -> Float32Array:
    """Return ``num_values`` float32 ones in new memory of small pages, like a mapped file's."""
    pages = mmap.mmap(-1, 4 * num_values)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    values: Float32Array = np.frombuffer(pages, np.float32)
    values.fill(1)
    return values


def time_products(
    width: int, num_rows: int, *, threads: int, repeats: int, dtype: torch.dtype = torch.float32
) -> float:
    """Return the seconds of a product with a square matrix of ``width``, the mean of two kinds.

    The products are the forward product of ``num_rows`` rows and the product for the weights'
    gradient, which libraries compute at different rates.
    """
    rows, weight = (torch.rand(count, width).to(dtype) for count in (num_rows, width))
    out = rows @ weight
    with torch_threads(threads):
        forward = median_seconds(lambda _: multiply(rows, weight.t()), repeats)
        return (forward + median_seconds(lambda _: weight_gradient(rows, out), repeats)) / 2


def time_operands(
    num_rows: int, width: int, num_outputs: int, *, threads: int, repeats: int
) -> float:
    """Return the median seconds of a weight gradient, bound by reads if ``num_outputs`` are few."""
    rows, grad = (torch.ones(num_rows, count) for count in (width, num_outputs))
    with torch_threads(threads):
        return median_seconds(lambda _: weight_gradient(rows, grad), repeats)


#: Index of synchronization among the timed stages.
_SYNC = 2
#: Ratio of the mean degrees of the dense and the sparse graph.
_DENSITY = 8


@dataclass(frozen=True)
class StepProbe:
    """Model and mini-batch size of a timed training step."""

    architecture: type[options.LayeredModel]  #: options class of the model
    widths: tuple[int, int, int]  #: f^0, hidden width, f^L
    fanouts: tuple[int, ...]  #: from the seeds outwards
    num_seeds: int  #: |V^L|
    host_aggregates: bool = True  #: whether the first layer is aggregated while it is loaded
    dense: bool = False  #: whether the dense graph of ``probe_graphs`` is used
    stored: str = "float32"  #: stored type of features, one of ``FEATURE_DTYPES``

    def build(self) -> GNN:
        """Build the model, with a layer for each of ``fanouts``."""
        width, hidden, num_classes = self.widths
        config = self.architecture(hidden=hidden, num_layers=len(self.fanouts))
        return config.build(num_features=width, num_classes=num_classes)

    @property
    def row_bytes(self) -> int:
        """Bytes of a feature row."""
        return self.widths[0] * FEATURE_DTYPES[self.stored].itemsize


#: Every rate dominates the time of some probes. The last probes have a trainer's mini-batches of
#: 1,024 seeds, whose rows exceed any core's cache. Probes on the dense graph read most rows
#: repeatedly, and so from the cache.
STEP_PROBES = (
    StepProbe(GraphSAGE, (32, 16, 8), (5, 5), 64),
    StepProbe(GraphSAGE, (64, 128, 32), (10, 10), 256),
    StepProbe(GCN, (128, 64, 40), (15, 5), 512),
    StepProbe(GAT, (64, 64, 8), (8, 4), 128),
    StepProbe(GraphSAGE, (64, 32, 32), (10, 10), 1024),
    StepProbe(GraphSAGE, (128, 256, 64), (15, 5), 512),
    StepProbe(GraphSAGE, (64, 64, 16), (8, 4, 4), 256, dense=True),
    StepProbe(GCN, (128, 128, 40), (15, 5), 1024, host_aggregates=False),
    StepProbe(GCN, (512, 32, 8), (10, 5), 256),
    StepProbe(GIN, (64, 128, 16), (10, 5), 512),
    StepProbe(GAT, (64, 128, 16), (5, 5), 512),
    StepProbe(GraphSAGE, (32, 8, 8), (10, 10), 2048),
    StepProbe(GCN, (64, 256, 32), (20, 5), 512, dense=True),
    StepProbe(GraphSAGE, (96, 192, 48), (20, 10), 1024),
    StepProbe(GCN, (200, 96, 24), (12, 8), 1024, dense=True),
    StepProbe(GIN, (48, 96, 24), (8, 8), 1024),
    StepProbe(GraphSAGE, (256, 160, 24), (12, 12), 1024, dense=True),
    StepProbe(GAT, (96, 96, 24), (6, 6), 1024),
    StepProbe(GCN, (1500, 48, 8), (12, 6), 384, stored="uint8"),
    StepProbe(GraphSAGE, (4000, 32, 8), (8, 6), 256, stored="uint8", dense=True),
)
#: Probes of an estimate: few, with narrow and wide features, real row reuse, and mini-batches whose
#: activations exceed any core's cache.
ESTIMATE_PROBES = (
    StepProbe(GraphSAGE, (32, 16, 8), (5, 5), 64),
    StepProbe(GAT, (64, 64, 8), (8, 4), 128),
    StepProbe(GCN, (128, 64, 40), (15, 5), 512),
    StepProbe(GraphSAGE, (64, 160, 32), (12, 10), 1024),
    StepProbe(GraphSAGE, (16, 256, 8), (8, 8), 1024),
    StepProbe(GCN, (96, 128, 24), (12, 8), 1024, dense=True),
    StepProbe(GCN, (1500, 48, 8), (12, 6), 384, stored="uint8"),
    StepProbe(GraphSAGE, (4000, 32, 8), (8, 6), 256, stored="uint8", dense=True),
)


def probe_graph(num_vertices: int, num_edges: int) -> Graph:
    """Return a random graph of ``num_edges`` undirected edges, with hubs and one feature."""
    src, dst = ops.rmat_edges(num_vertices, num_edges, 0.5, 0.2, 0.2, _SEED, 1)
    return from_arrays(
        (np.concatenate([src, dst]), np.concatenate([dst, src])),
        np.zeros((num_vertices, 1), np.float32),
        train_idx=np.arange(num_vertices),
        labels=np.zeros(num_vertices, np.int64),
        num_classes=2,
        name="probe",
    )


def probe_graphs(num_vertices: int, num_edges: int) -> tuple[Graph, Graph]:
    """Return two random graphs of ``num_edges``: sparse of ``num_vertices``, dense of an eighth.

    A probe uses ``graphs[probe.dense]``.
    """
    sparse, dense = num_vertices, max(num_vertices // _DENSITY, 1)
    return probe_graph(sparse, num_edges), probe_graph(dense, num_edges)


def table_bytes(num_vertices: int, probes: Sequence[StepProbe]) -> int:
    """Return the bytes of the largest feature matrix of ``probes``.

    ``num_vertices`` are those of the sparse graph; the dense graph has an eighth.
    """
    dense = max(num_vertices // _DENSITY, 1)
    return max((dense if probe.dense else num_vertices) * probe.row_bytes for probe in probes)


def probe_table(graph: Graph, probes: Sequence[StepProbe]) -> Float32Array:
    """Return memory for the feature rows of any of ``probes``; ``graph`` is the sparse graph."""
    return mapped(-(-table_bytes(graph.num_vertices, probes) // 4))


def time_sampling(graph: Graph, *, threads: int, repeats: int) -> tuple[float, float]:
    """Sample mini-batches; return their mean number of edges, and median seconds per mini-batch."""
    sampler = NeighborSampler(graph, fanouts=[15, 10], num_threads=threads)
    order = np.random.default_rng(_SEED).permutation(graph.train_idx)
    edges: list[int] = []

    def work(number: int) -> None:
        seeds = order[number * 512 % (len(order) - 1024) :][:1024]
        edges.append(sampler.sample(seeds, number).num_edges)

    seconds = median_seconds(work, repeats)
    return statistics.fmean(edges), seconds


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Times of a training step on the host, with its workload."""

    workload: Workload  #: workload of the probe
    size: BatchSize  #: size of the mini-batch
    load_s: float  #: seconds of loading
    propagate_s: float  #: seconds of forward and backward propagation
    #: seconds of the all-reduce with another process, waiting included; 0 in a single process
    sync_s: float
    update_s: float  #: seconds of gathering gradients and of the optimizer's step

    @property
    def step_s(self) -> float:
        """Seconds of all timed stages."""
        return self.load_s + self.propagate_s + self.sync_s + self.update_s


def time_steps(
    probe: StepProbe,
    graph: Graph,
    *,
    threads: int,
    repeats: int,
    table: Float32Array | None = None,
    summing: Callable[[torch.Tensor], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> StepTimes:
    """Return a step's stage times, medians over a few steps that train as a run does.

    Args:
        repeats: measured steps, after one warm-up step.
        table: memory for the feature rows, large enough for the graph. None: allocated here.
        summing: sums gradients with another training process. None: a single process.
    """
    trainer = _Trainer(probe, graph, table, threads)
    sampler = NeighborSampler(graph, fanouts=list(probe.fanouts), num_threads=threads)
    order = np.random.default_rng(_SEED).permutation(graph.train_idx)
    times = []
    with torch_threads(threads):
        for step in range(repeats + 1):
            seeds = order[step * probe.num_seeds % (len(order) - probe.num_seeds) :]
            batch = sampler.sample(seeds[: probe.num_seeds], step)
            times.append(trainer.train(batch, summing=summing, clock=clock))
    seconds = _stage_seconds(np.array(times[1:]), synchronizes=summing is not None)
    load_s, propagate_s, sync_s, update_s = seconds.tolist()
    size = BatchSize.of(batch)
    workload = replace(
        unmeasured_workload(graph, trainer.model),
        slices=KnownSlices(num_seeds=(probe.num_seeds,), sizes=(size,)),
        host_aggregates=probe.host_aggregates,
        feature_bytes=FEATURE_DTYPES[probe.stored].itemsize,
    )
    return StepTimes(
        workload=workload,
        size=size,
        load_s=load_s,
        propagate_s=propagate_s,
        sync_s=sync_s,
        update_s=update_s,
    )


class _Trainer:
    """Trainer of a probe's model on feature rows in memory."""

    def __init__(
        self, probe: StepProbe, graph: Graph, table: Float32Array | None, threads: int
    ) -> None:
        self.model = probe.build()
        self._probe = probe
        self._threads = threads
        self._optimizer = PlainAdam(self.model.parameters(), fused=True)
        num_bytes = graph.num_vertices * probe.row_bytes
        memory = (mapped(-(-num_bytes // 4)) if table is None else table).view(np.uint8)
        rows = memory[:num_bytes].view(FEATURE_DTYPES[probe.stored])
        self._features = HostFeatures(rows.reshape(-1, probe.widths[0]), probe.stored)
        self._degrees = np.diff(graph.indptr).astype(np.float32)
        self._labels = torch.zeros(probe.num_seeds, dtype=torch.int64)
        self._bucket = torch.zeros(sum(weights.numel() for weights in self.model.parameters()))

    def train(
        self,
        batch: MiniBatch,
        *,
        summing: Callable[[torch.Tensor], object] | None,
        clock: Callable[[], float],
    ) -> Float64Array:
        """Train a step and return the seconds of loading, propagation, sync and update."""
        model, ends = self.model, [clock()]
        inputs = model.load(
            self._features,
            batch,
            self._degrees[batch.input_vertices] if model.uses_degrees else None,
            aggregates=self._probe.host_aggregates,
            dtype=torch.float32,
            num_threads=self._threads,
        )
        ends.append(clock())
        loss = functional.cross_entropy(model(batch, inputs), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        ends.append(clock())
        if summing is not None:
            summing(self._bucket)
        ends.append(clock())
        _gather_gradients(model, self._bucket)
        self._optimizer.step()
        self._optimizer.zero_grad()
        ends.append(clock())
        return np.diff(ends)


def _stage_seconds(times: Float64Array, *, synchronizes: bool) -> Float64Array:
    """Return median stage times ``[stages]``, made to add up to the median step of ``times``.

    ``times`` are ``[steps, stages]``. If the step ``synchronizes``, that stage gets the difference,
    otherwise all stages are scaled.
    """
    stages: Float64Array = np.median(times, axis=0)
    step_s = float(np.median(times.sum(axis=1)))
    stages[_SYNC] = 0.0
    if synchronizes:
        stages[_SYNC] = max(step_s - stages.sum(), 0.0)
    else:
        stages *= step_s / stages.sum()
    return stages


def _gather_gradients(model: GNN, bucket: torch.Tensor) -> None:
    """Copy all gradients into ``bucket``, and replace each by its view there, as workers do."""
    parameters = list(model.parameters())
    parts = torch.split(bucket, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        gradient = part.view(parameter.shape)
        if parameter.grad is not None:
            gradient.copy_(parameter.grad)
        parameter.grad = gradient
