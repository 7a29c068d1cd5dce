"""The simulator: training on a platform, predicted (section VI-D), also of published graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gnnscale.core import MAX_SEED, STAGES, ConfigError, check_choice, check_range, mteps, shown
from gnnscale.dataset import GraphSource
from gnnscale.model import ModelConfig
from gnnscale.plan import device, device_plan, planner
from gnnscale.plan.perf.equations import BatchSize, Prediction, pipeline_seconds
from gnnscale.plan.perf.workload import KnownSlices, Workload, measure_workload
from gnnscale.plan.platform import (
    Platform,
    PlatformConfig,
    ThisGpu,
    published_platform,
    published_platforms,
)
from gnnscale.sampler import NeighborSampling, SamplerConfig, ShuffledOrder


@dataclass(frozen=True, kw_only=True)
class PublishedGraph:
    """Sizes of a graph."""

    num_vertices: int  #: |V|
    num_edges: int  #: in-neighbours of all vertices together
    num_features: int  #: f^0
    num_classes: int  #: f^L
    num_train: int  #: training vertices


#: HyScale-GNN, Table III; splits as the Open Graph Benchmark publishes them. The edges of
#: ogbn-products have no direction: each is two in-neighbours.
PUBLISHED = {
    "products": PublishedGraph(
        num_vertices=2_449_029,
        num_edges=2 * 61_859_140,
        num_features=100,
        num_classes=47,
        num_train=196_615,
    ),
    "papers100m": PublishedGraph(
        num_vertices=111_059_956,
        num_edges=1_615_685_872,
        num_features=128,
        num_classes=172,
        num_train=1_207_179,
    ),
    "mag240m": PublishedGraph(
        num_vertices=121_751_666,
        num_edges=1_297_748_926,
        num_features=756,
        num_classes=153,
        num_train=1_112_392,
    ),
}


def expected_size(graph: PublishedGraph, fanouts: Sequence[int], num_seeds: int) -> BatchSize:
    """Return the mini-batch to expect of ``num_seeds`` vertices.

    Degrees are taken to be exponentially distributed, so that a vertex keeps d(1 - exp(-k/d)) of
    its neighbours on average, with d the mean degree and k the fan-out. Sampled ends and the
    vertices above them are m draws among n vertices, which find n(1 - exp(-m/n)) different ones.

    Args:
        fanouts: from the seeds outwards; -1 for all neighbours.
    """
    degree = graph.num_edges / graph.num_vertices
    vertices, edges = [float(num_seeds)], []
    for fanout in fanouts:
        kept = degree if fanout < 0 else degree * -math.expm1(-fanout / degree)
        edges.append(vertices[-1] * kept)
        drawn = vertices[-1] + edges[-1]
        vertices.append(graph.num_vertices * -math.expm1(-drawn / graph.num_vertices))
    return BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))


def published_workload(
    graph: PublishedGraph, model: ModelConfig, fanouts: Sequence[int], *, batch_size: int
) -> Workload:
    """Return the workload of training ``model`` on ``graph``; its sampling is not timed."""
    built = model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    num_seeds = sorted({max(1, batch_size // 4**step) for step in range(6)})
    return Workload(
        slices=KnownSlices(
            num_seeds=tuple(num_seeds),
            sizes=tuple(expected_size(graph, fanouts, count) for count in num_seeds),
        ),
        layers=built.layer_costs,
        counted=built.counted,
        num_weights=sum(parameter.numel() for parameter in built.parameters()),
        num_vertices=graph.num_vertices,
        uses_degrees=built.uses_degrees,
    )


#: Accelerators of one machine, results of one simulation, and seeds of one accelerator: all of them
#: together are still a count.
_MAX_ACCELERATORS = 256
_MAX_RESULTS = 256
#: HyScale-GNN's machine with GPUs, Table II.
_A5000 = "epyc7763_a5000_x4"
_MAX_BATCH = (2**31 - 1) // (_MAX_ACCELERATORS + 1)


@dataclass(frozen=True, kw_only=True)
class SimulateConfig:
    """A simulation.

    Attributes:
        seed: fixes the slices that are sampled of a graph on this machine.
        platform: the machine.
        graph: one of ``PUBLISHED``, if no dataset is given.
        model: options of the model.
        sampler: options of the sampler.
        batch_size: seeds of each accelerator's mini-batch; of the processor's without accelerators.
        accelerators: how many to simulate, one result each.
        hybrid: whether the processor trains too, and takes a share of the mini-batch if that
            makes a step shorter.
        fused: whether the processor aggregates features while it loads them.
        prefetch: one of ``PREFETCH``, or ``auto``.
        beside: a published platform whose results stand beside; None for HyScale-GNN's A5000
            beside ``platform=this_gpu``, and for none beside others.
        dataset: a graph to sample, None for the sizes of ``graph``.
    """

    seed: int
    platform: PlatformConfig
    graph: str
    model: ModelConfig
    sampler: SamplerConfig
    batch_size: int
    accelerators: list[int]
    hybrid: bool
    fused: bool
    prefetch: str
    beside: str | None = None
    dataset: GraphSource | None = None

    def __post_init__(self) -> None:
        check_choice("graph", self.graph, PUBLISHED)
        check_choice("prefetch", self.prefetch, ("auto", *device_plan.PREFETCH))
        if self.beside is not None:
            check_choice("beside", self.beside, published_platforms())
        check_range("seed", self.seed, 0, MAX_SEED)
        check_range("batch_size", self.batch_size, 1, _MAX_BATCH)
        counts = self.accelerators
        if (
            not 1 <= len(counts) <= _MAX_RESULTS
            or not 0 <= min(counts) <= max(counts) <= _MAX_ACCELERATORS
        ):
            raise ConfigError(
                f"accelerators={shown(list(counts))}: numbers from 0 on are needed, "
                f"up to {_MAX_RESULTS}, none above {_MAX_ACCELERATORS}"
            )
        if self.sampler.num_layers != self.model.num_layers:
            raise ConfigError(
                f"sampler: picks neighbours for {self.sampler.num_layers} layers, but "
                f"model.num_layers={self.model.num_layers}; give one number per layer"
            )


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Training with some number of accelerators.

    Attributes:
        num_accelerators: how many.
        plan: the split and the threads that the planner chose.
        predicted: stage times and length of a step.
        epoch_s: seconds of an epoch.
        mteps: eq. 5.
        bottleneck: the longest stage of the slowest device.
    """

    num_accelerators: int
    plan: device_plan.DevicePlan
    predicted: Prediction
    epoch_s: float
    mteps: float
    bottleneck: str


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Results for several numbers of accelerators.

    Attributes:
        graph: the graph's name.
        model: name of the model's options class.
        platform: the platform's name.
        efficiency: the part of the platform's peak rates that was reckoned with; None if its
            rates are measured ones.
        hybrid: whether the processor trains beside the accelerators.
        results: in the order asked for.
        beside: the same on a published platform; None if not asked for.
    """

    graph: str
    model: str
    platform: str
    efficiency: device.Efficiency | None
    hybrid: bool
    results: tuple[Simulated, ...]
    beside: Scaling | None = None

    def speedup(self, result: Simulated) -> float:
        """Return how much faster than the first result an epoch is."""
        return self.results[0].epoch_s / result.epoch_s


def simulate(config: SimulateConfig) -> Scaling:
    """Predict epochs on ``config.platform`` for each number of accelerators.

    Raises:
        ConfigError: the platform has no accelerators, or no figures, or the sampler is not one
            whose mini-batches can be derived from a graph's sizes.
        GraphError: the graph store is not usable.
    """
    found = _scaling(config, config.platform.open())
    name = config.beside
    if name is None and isinstance(config.platform, ThisGpu):
        name = _A5000
    if name is None:
        return found
    return replace(found, beside=_scaling(config, published_platform(name)))


def _scaling(config: SimulateConfig, known: Platform) -> Scaling:
    platform = known.effective()
    if platform.accelerator is None and max(config.accelerators) > 0:
        raise ConfigError(
            f"accelerators={list(config.accelerators)}: {platform.name} has none; "
            "allowed is [0], or another platform"
        )
    name, num_train, workload = _workload(config, platform)
    results = tuple(
        _simulated(config, platform, workload, count, num_train) for count in config.accelerators
    )
    return Scaling(
        graph=name,
        model=type(config.model).__name__,
        platform=platform.name,
        efficiency=known.efficiency,
        hybrid=config.hybrid,
        results=results,
    )


def _workload(config: SimulateConfig, platform: Platform) -> tuple[str, int, Workload]:
    """Return the graph's name, its training vertices, and the workload of a mini-batch."""
    largest = config.batch_size
    torch.manual_seed(config.seed)
    if config.dataset is None:
        if not isinstance(config.sampler, NeighborSampling):
            raise ConfigError("sampler: without a dataset only neighbour sampling can be simulated")
        graph = PUBLISHED[config.graph]
        workload = published_workload(
            graph, config.model, config.sampler.fanouts, batch_size=largest
        )
        return config.graph, graph.num_train, workload
    opened = config.dataset.open()
    model = config.model.build(num_features=opened.num_features, num_classes=opened.num_classes)
    workload = measure_workload(
        opened,
        model,
        config.sampler,
        ShuffledOrder(opened.train_idx, batch_size=largest, seed=config.seed),
        seed=config.seed,
        cores=platform.processor.cores,
    )
    if platform.accelerator is not None:
        # Sampling times of this machine do not apply to another one.
        workload = workload.untimed()
    return opened.name, len(opened.train_idx), workload


def _simulated(
    config: SimulateConfig,
    platform: Platform,
    workload: Workload,
    num_accelerators: int,
    num_train: int,
) -> Simulated:
    devices = platform.devices(num_accelerators)
    if num_accelerators and not config.hybrid:
        devices = devices[1:]
    batch_size = config.batch_size * max(num_accelerators, 1)
    splits: list[list[int] | None] = [None]
    if num_accelerators and config.hybrid:
        # If loading for the accelerators takes all of the memory, the processor had better rest.
        splits.append([0, *device_plan.apportion([1] * num_accelerators, batch_size)])
    plan, predicted = min(
        (
            planner.plan_devices(
                devices,
                batch_size=batch_size,
                cores=platform.processor.cores,
                prefetch=config.prefetch,
                split=split,
                workloads=[replace(workload, host_aggregates=config.fused)] * len(devices),
                platform=platform,
                emulates=False,
            )[0]
            for split in splits
        ),
        key=lambda found: found[1].step_s,
    )
    return Simulated(
        num_accelerators=num_accelerators,
        plan=plan,
        predicted=predicted,
        epoch_s=math.ceil(num_train / batch_size) * predicted.step_s,
        mteps=mteps(predicted.num_edges, predicted.step_s),
        bottleneck=_bottleneck(plan, predicted),
    )


def _bottleneck(plan: device_plan.DevicePlan, predicted: Prediction) -> str:
    """The longest stage of the device that the others wait for."""
    pairs = list(zip(predicted.devices, plan.shares, strict=True))
    slowest, _ = max(
        pairs, key=lambda pair: pipeline_seconds(replace(pair[0], sync=0.0), pair[1].prefetch)
    )
    return max((getattr(slowest, stage), stage) for stage in STAGES)[1]
