"""Simulator: predicted training on a platform for several numbers of accelerators.

Its tasks are of a graph store, or of a published graph's sizes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gnnscale.cache.hotness.degree import out_degree
from gnnscale.core import MAX_SEED, ConfigError, brief, check_choice, check_range, mteps
from gnnscale.data import GraphSource
from gnnscale.nn import ModelConfig
from gnnscale.planner import device_plan
from gnnscale.planner.cost_model import BatchSize, KnownSlices, Workload, measure_workload
from gnnscale.planner.cost_model.hitgnn import ComputeDesign
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.graphs import PUBLISHED, Degrees, PublishedGraph
from gnnscale.planner.platform import (
    Platform,
    PlatformConfig,
    ThisGpu,
    published_platform,
    published_platforms,
)
from gnnscale.planner.simulator import hitgnn, hyscale
from gnnscale.planner.simulator.hyscale import ScalingCurve, SimulatedRun
from gnnscale.sampling import NeighborSampling, SamplerConfig, ShuffledOrder

#: Number of slice sizes to derive for a published graph, each four times the next smaller.
_NUM_SLICES = 6


@dataclass(frozen=True, kw_only=True)
class SimulatedTask:
    """Sizes of a graph and work of its mini-batches, for a simulated training run."""

    name: str  #: name of the graph
    num_vertices: int
    num_train: int  #: training vertices
    degrees: Degrees | None  #: exact degrees. None: only mean and skew are known
    workload: Workload  #: untimed for published graphs and other machines

    def size(self, num_seeds: float) -> BatchSize:
        """Return expected sizes of a mini-batch of ``num_seeds`` seeds, rounded to at least one."""
        return self.workload.size(max(round(num_seeds), 1))


def published_task(
    name: str, graph: PublishedGraph, model: ModelConfig, sampler: SamplerConfig, *, batch_size: int
) -> SimulatedTask:
    """Return the task of training on a graph of published sizes; ``name`` is the graph's name.

    ConfigError: ``sampler`` is not ``NeighborSampling``.
    """
    if not isinstance(sampler, NeighborSampling):
        raise ConfigError("sampler: expected neighbor sampling without a dataset")
    return SimulatedTask(
        name=name,
        num_vertices=graph.num_vertices,
        num_train=graph.num_train,
        degrees=graph.exact_degrees,
        workload=published_workload(graph, model, sampler.fanouts, batch_size=batch_size),
    )


def published_workload(
    graph: PublishedGraph, model: ModelConfig, fanouts: Sequence[int], *, batch_size: int
) -> Workload:
    """Return the expected work of training ``model`` on ``graph``, without times of sampling."""
    built = model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    num_seeds = sorted({max(1, batch_size // 4**step) for step in range(_NUM_SLICES)})
    return Workload(
        slices=KnownSlices(
            num_seeds=tuple(num_seeds),
            sizes=tuple(graph.size(fanouts, count) for count in num_seeds),
        ),
        layers=built.layer_costs,
        counted=built.counted,
        num_weights=sum(parameter.numel() for parameter in built.parameters()),
        num_vertices=graph.num_vertices,
        uses_degrees=built.uses_degrees,
    )


def measured_task(
    source: GraphSource,
    model: ModelConfig,
    sampler: SamplerConfig,
    *,
    batch_size: int,
    seed: int,
    cores: int,
    same_machine: bool,
) -> SimulatedTask:
    """Return the task of training on a graph store, by sampling some of its mini-batches.

    ``same_machine``: the simulated machine is this one; only then are sampling times kept. Raises
    GraphError if the graph store is not usable.
    """
    graph = model.graph_read(source.open())
    graph.refuse_types("a simulation")
    graph.check_features()
    torch.manual_seed(seed)
    workload = measure_workload(
        graph,
        model.build(
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            num_edge_features=graph.num_edge_features,
        ),
        sampler,
        ShuffledOrder(graph.train_idx, batch_size=batch_size, seed=seed),
        seed=seed,
        cores=cores,
    )
    return SimulatedTask(
        name=graph.name,
        num_vertices=graph.num_vertices,
        num_train=len(graph.train_idx),
        degrees=Degrees.from_arrays(np.diff(graph.indptr), out_degree(graph)),
        workload=workload if same_machine else workload.untimed(),
    )


#: Limits of the options, whose product still fits into an int64 count.
_MAX_ACCELERATORS = 256
_MAX_RESULTS = 256
#: HyScale-GNN's machine with GPUs, Table II.
_A5000 = "epyc7763_a5000_x4"
_MAX_BATCH = (2**31 - 1) // (_MAX_ACCELERATORS + 1)
#: HyScale-GNN, and the algorithms of HitGNN's Table I.
SYSTEMS = ("hyscale", *hitgnn.ALGORITHMS)
#: Vertices of an epoch.
EPOCHS = ("auto", "training", "all")


@dataclass(frozen=True, kw_only=True)
class SimulateConfig:
    """Options of a simulation.

    Attributes:
        seed: seed of the sampling of a dataset.
        platform: the machine.
        system: one of ``SYSTEMS``. ``hyscale`` overlaps stages and may train on the processor too.
            The cards of HitGNN's systems fetch missing rows while they aggregate.
        board: FPGA card of HitGNN's systems.
        design: n and m of a card of HitGNN's systems.
        graph: one of ``PUBLISHED``, used without a dataset.
        degrees: .npy file of the published graph's degrees: ``[num_vertices]`` integers, or two
            rows of in-degrees and out-degrees. None: a published skew.
        model: options of the model.
        sampler: options of the sampler.
        batch_size: seeds of each accelerator's mini-batch, or of the processor's without
            accelerators.
        accelerators: numbers of accelerators to simulate, with a result each.
        epoch: one of ``EPOCHS``: ``training`` vertices as in HyScale-GNN, ``all`` vertices as in
            HitGNN, or ``auto`` for the system's own definition.
        hybrid: whether the processor trains a share of the mini-batch too if that shortens a step.
        fused: whether the processor aggregates features while it loads them.
        prefetch: one of ``PREFETCH``, or ``auto``.
        balance: HitGNN's workload balancing (WB, section V-A).
        direct: HitGNN's data communication (DC, section V-B): missing rows come from host memory
            instead of another card.
        beside: published platform for comparison. None: HyScale-GNN's A5000 platform with
            ``platform=this_gpu``, otherwise no comparison.
        dataset: graph to sample. None: the sizes of ``graph``.
    """

    seed: int
    platform: PlatformConfig
    system: str
    board: Board
    design: ComputeDesign
    graph: str
    model: ModelConfig
    sampler: SamplerConfig
    batch_size: int
    accelerators: list[int]
    epoch: str
    hybrid: bool
    fused: bool
    prefetch: str
    balance: bool
    direct: bool
    degrees: Path | None = None
    beside: str | None = None
    dataset: GraphSource | None = None

    def __post_init__(self) -> None:
        check_choice("system", self.system, SYSTEMS)
        check_choice("graph", self.graph, PUBLISHED)
        check_choice("epoch", self.epoch, EPOCHS)
        check_choice("prefetch", self.prefetch, ("auto", *device_plan.PREFETCH))
        if self.beside is not None:
            check_choice("beside", self.beside, published_platforms())
        check_range("seed", self.seed, 0, MAX_SEED)
        check_range("batch_size", self.batch_size, 1, _MAX_BATCH)
        counts, fewest = self.accelerators, int(not self.of_hyscale)
        if (
            not 1 <= len(counts) <= _MAX_RESULTS
            or not fewest <= min(counts) <= max(counts) <= _MAX_ACCELERATORS
        ):
            raise ConfigError(
                f"accelerators={brief(list(counts))}: expected 1 to {_MAX_RESULTS} numbers from "
                f"{fewest} to {_MAX_ACCELERATORS}"
            )
        self.sampler.check_layers(self.model.num_layers)

    @property
    def of_hyscale(self) -> bool:
        """Whether the system is HyScale-GNN; otherwise it is one of HitGNN's."""
        return self.system == "hyscale"

    def epoch_vertices(self, task: SimulatedTask) -> int:
        """Return the number of seeds of an epoch: training vertices or all, by ``epoch``."""
        trains = self.of_hyscale if self.epoch == "auto" else self.epoch == "training"
        return task.num_train if trains else task.num_vertices


def simulate(config: SimulateConfig, *, graph: PublishedGraph | None = None) -> ScalingCurve:
    """Return predicted runs on ``config.platform``, one per number of accelerators.

    Runs on another platform are in ``comparison`` of the result. ``graph`` replaces the published
    graph. Raises ConfigError if the platform lacks requested accelerators or rates,
    the sampler's mini-batches do not follow from graph sizes, or the kernels do not support the
    model; GraphError if the graph store is not usable.
    """
    curve = _scaling(config, config.platform.open(), graph)
    name = config.beside
    if name is None and isinstance(config.platform, ThisGpu):
        name = _A5000
    if name is None:
        return curve
    return replace(curve, comparison=_scaling(config, published_platform(name), graph))


def _scaling(config: SimulateConfig, peak: Platform, graph: PublishedGraph | None) -> ScalingCurve:
    platform = peak.effective()
    if platform.accelerator is None and max(config.accelerators) > 0:
        raise ConfigError(
            f"accelerators={list(config.accelerators)}: expected [0], since {platform.name} has "
            "none; platform=NAME selects another"
        )
    task = _task(config, platform, graph)
    one = _by_hyscale if config.of_hyscale else _by_hitgnn
    return ScalingCurve(
        graph=task.name,
        model=type(config.model).__name__,
        platform=platform.name if config.of_hyscale else _label(config, platform),
        system=config.system,
        efficiency=peak.efficiency,
        hybrid=config.hybrid and config.of_hyscale,
        results=tuple(one(config, peak, task, count) for count in config.accelerators),
        measured=peak.measured_on is not None,
    )


def _task(
    config: SimulateConfig, platform: Platform, graph: PublishedGraph | None
) -> SimulatedTask:
    if config.dataset is None:
        published = graph or PUBLISHED[config.graph]
        if graph is None and config.degrees is not None:
            degrees = Degrees.from_npy(config.degrees, published.num_vertices)
            published = replace(published, exact_degrees=degrees)
        return published_task(
            config.graph, published, config.model, config.sampler, batch_size=config.batch_size
        )
    return measured_task(
        config.dataset,
        config.model,
        config.sampler,
        batch_size=config.batch_size,
        seed=config.seed,
        cores=platform.processor.cores,
        same_machine=platform.accelerator is None,
    )


def _by_hyscale(
    config: SimulateConfig, peak: Platform, task: SimulatedTask, count: int
) -> SimulatedRun:
    return hyscale.simulate_step(
        peak.effective(),
        task.workload,
        count,
        batch_size=config.batch_size,
        num_vertices=config.epoch_vertices(task),
        hybrid=config.hybrid,
        fused=config.fused,
        prefetch=config.prefetch,
    )


def _label(config: SimulateConfig, platform: Platform) -> str:
    card = f"{config.board.name} of ({config.design.n}, {config.design.m})"
    return f"{platform.processor.name} + {card}"


def _by_hitgnn(
    config: SimulateConfig, peak: Platform, task: SimulatedTask, count: int
) -> SimulatedRun:
    platform = peak.effective()
    if not isinstance(config.sampler, NeighborSampling):
        raise ConfigError(f"sampler: expected neighbor sampling with system={config.system}")
    if peak.efficiency is None:
        raise ConfigError(f"platform.efficiency: required with system={config.system}")
    machine = hitgnn.SimulatedMachine(
        board=config.board,
        design=config.design,
        num_cards=count,
        host_bandwidth=platform.processor.rates.memory_bandwidth[-1],
        listed_bandwidth=peak.listed_bandwidth,
        efficiency=peak.efficiency,
    )
    size = task.workload.size(config.batch_size)
    local = hitgnn.local_share(
        config.system, task.degrees, config.sampler.fanouts, config.batch_size, count
    )
    step = hitgnn.step(
        machine,
        hitgnn.layer_sizes(size, task.workload.layers),
        algorithm=config.system,
        local=local,
        direct=config.direct,
    )
    num_batches = math.ceil(config.epoch_vertices(task) / config.batch_size)
    counts = hitgnn.part_batches(num_batches, count)
    epoch_s = hitgnn.epoch_steps(counts, balanced=config.balance) * step.seconds
    per_second = num_batches / epoch_s
    nvtps = size.num_vertices * per_second
    return SimulatedRun(
        num_accelerators=count,
        step_s=step.seconds,
        epoch_s=epoch_s,
        mteps=mteps(size.num_edges * per_second, 1.0),
        nvtps=nvtps,
        bandwidth_efficiency=nvtps / (machine.bandwidth / 1e9),
        energy_j=machine.watts * epoch_s,
        bottleneck=step.bottleneck,
    )
