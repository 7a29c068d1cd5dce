"""Predictions of the performance model for the plans of a run, before and after profiling.

Rates of this machine are stored: they are measured once, and again after a change of the machine.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gnnscale.backend.typed_loading import open_loader
from gnnscale.cache import CachePlan
from gnnscale.core import ConfigError, busy_seconds, multiplies_bfloat16, usable_cores
from gnnscale.distributed.process_group import Group
from gnnscale.graph import Graph
from gnnscale.nn import GNN, TrainableModel
from gnnscale.nn import base as trainable
from gnnscale.nn.losses import LossConfig
from gnnscale.planner import Device, DevicePlan, device_plan, owns_steps, planner
from gnnscale.planner.cost_model.corrections import WorkCounter, correct, nominal_platform
from gnnscale.planner.cost_model.equations import BYTES_PER_PARAMETER, BatchSize, Prediction
from gnnscale.planner.cost_model.predict import Correction, Host, predict
from gnnscale.planner.cost_model.stage_work import StepBytes, step_bytes
from gnnscale.planner.cost_model.workload import (
    CacheEffect,
    SourceEffect,
    Workload,
    measure_workload,
    unmeasured_workload,
)
from gnnscale.planner.platform import Platform, estimate_file, platform_file, read_platform
from gnnscale.sampling import SamplerConfig, SeedOrder
from gnnscale.training.build.cache import cache_effects
from gnnscale.training.planning.profiling import PlanProfile, restoring

log = logging.getLogger(__name__)

#: Load by other programs above which an estimate is not stored: fraction of the cores, plus the
#: error in seconds of the system's busy clock.
_MAX_OTHERS = 0.1
_CLOCK_ERROR_S = 0.05


def this_machine() -> Platform:
    """Return the calibrated rates of this machine, or an estimate without a calibration."""
    try:
        platform = read_platform(platform_file())
    except FileNotFoundError:
        return _estimate()
    if platform.change is None:
        return platform
    log.warning(
        f"{platform_file()}: rates of another machine ({platform.change}) are ignored; "
        "run gnnscale doctor calibrate=true again"
    )
    return _estimate()


def _estimate() -> Platform:
    """Return stored or newly measured rough rates; store new ones if the machine was idle."""
    file = estimate_file()
    try:
        stored = read_platform(file)
    except (FileNotFoundError, ConfigError):
        stored = None
    if stored is not None and stored.measured_on is not None and stored.change is None:
        return stored
    # Imported late: calibration trains, and so imports most of the package.
    from gnnscale.planner.calibration.calibrate import estimate

    start, other_s = time.perf_counter(), _other_busy_seconds()
    measured = estimate()
    seconds, other_s = time.perf_counter() - start, _other_busy_seconds() - other_s
    if other_s > _MAX_OTHERS * seconds * usable_cores() + _CLOCK_ERROR_S:
        log.debug("other programs were busy: the next run estimates this machine again")
        return measured
    try:
        measured.write(file)
    except OSError as error:
        log.warning(f"{file}: {error.strerror}; the next run measures this machine again")
    return measured


def _other_busy_seconds() -> float:
    """Return the seconds for which other processes have used this process's cores so far."""
    return busy_seconds() - time.process_time()


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of a run that decide its device plan, and how the plan may change in training."""

    batch_size: int  #: seeds of a mini-batch, summed over the devices
    epochs: int
    seed: int  #: seed of the samples
    num_threads: int  #: threads that compute on the host, over the workers of a machine
    sampler: SamplerConfig  #: sampler of training
    loss: LossConfig
    split: Sequence[int] | None  #: seeds of each device; None: the performance model decides
    prefetch: str  #: kind of prefetching, or ``auto``
    prefetch_depth: int  #: mini-batches that a worker prepares ahead
    manages: bool  #: whether work moves between devices during training
    deterministic: bool  #: whether nominal rates replace measured times
    compute_dtype: str  #: type of matrix products
    preaggregated: bool  #: whether feature rows are aggregated before training
    divides_columns: bool  #: whether devices have columns of the features (P3)


def counted_work(
    options: PlanOptions,
    graph: Graph,
    model: TrainableModel,
    devices: Sequence[Device],
    caches: CachePlan | None,
    *,
    rank: int,
) -> WorkCounter | None:
    """Return the counter of device ``rank``'s work if deterministic; None: times are measured."""
    if not options.deterministic:
        return None
    effects = cache_effects(len(devices), caches)
    workloads = device_workloads(
        options, unmeasured_workload(graph, model), devices, effects, graph
    )
    return WorkCounter(workloads[rank], rank=rank, cores=options.num_threads)


def device_workloads(
    options: PlanOptions,
    workload: Workload,
    devices: Sequence[Device],
    effects: Sequence[CacheEffect],
    graph: Graph,
) -> list[Workload]:
    """Return the workload of each device, with the effect of its cache.

    A device without a cache has the effect of the arrays of ``graph`` that it holds entirely.
    """
    workload = replace(
        workload,
        preaggregated=options.preaggregated,
        compute_dtype=options.compute_dtype if multiplies_bfloat16() else "float32",
    )
    if options.divides_columns:
        workload = replace(workload, num_sharing=len(devices))
    pairs = zip(devices, effects, strict=True)
    return [
        replace(workload.on(device), cache=_memory_effect(device, effect, workload, graph))
        for device, effect in pairs
    ]


def _memory_effect(
    device: Device, effect: CacheEffect, workload: Workload, graph: Graph
) -> CacheEffect:
    """Return the cache's ``effect``; without one, that of topology or features in device memory."""
    if effect.num_bytes:
        return effect
    sizes = {"topology": graph.topology_bytes, "features": graph.feature_bytes}
    weights = BYTES_PER_PARAMETER * workload.num_weights
    is_resident = dict(zip(sizes, device.stores(**sizes, reserved=weights), strict=True))
    return CacheEffect(
        num_bytes=sum(size for name, size in sizes.items() if is_resident[name]),
        row_misses=0.0 if is_resident["features"] else 1.0,
        list_misses=0.0 if is_resident["topology"] else 1.0,
    )


#: Steps timed after a warm-up step, and the seconds after which timing ends.
_STEPS, _BUDGET_S = 3, 0.5


class PlanModel:
    """Performance model of one run (section V), which proposes plans and predicts step times."""

    def __init__(
        self,
        options: PlanOptions,
        graph: Graph,
        model: TrainableModel,
        group: Group,
        order: SeedOrder,
        *,
        sampling: SamplerConfig,
        devices: Sequence[Device],
        effects: Sequence[CacheEffect],
        source: SourceEffect | None = None,
    ) -> None:
        """Measure the workload of mini-batches; ConfigError if a device cannot hold fixed seeds.

        Rates are from ``gnnscale doctor calibrate=true``, or else from a quick estimate; nominal
        with ``runtime.deterministic``.

        Args:
            group: the workers, possibly on several machines of the same kind.
            effects: memory and hit rates of each device's cache.
            source: cost of rows outside host memory. None: all rows are in memory.
        """
        self.devices = tuple(devices)
        self.options = options
        self._group = group
        nominal = options.deterministic
        self._platform = nominal_platform(options.num_threads) if nominal else this_machine()
        workload = _workload(
            options, graph, model, order, sampling, self._platform, len(self.devices)
        )
        if source is not None:
            workload = replace(workload, source=source)
        #: Whether a few steps represent the run: not while a tiered store still fills.
        self.is_steady = source is None
        self._workloads = device_workloads(options, workload, self.devices, effects, graph)
        self._first = model.layer(0) if isinstance(model, GNN) else None
        self._id_bytes = graph.indices.itemsize
        first_step = next(iter(order.epoch(0)))
        #: Seeds of each device, if an option or the seed order fixes them.
        self._split = options.split or (
            first_step.counts and device_plan.apportion(first_step.counts, options.batch_size)
        )
        if self._split is None and owns_steps(self.devices):
            # Device-driven steps need equal devices, whose buffers have a fixed capacity.
            self._split = device_plan.apportion([1] * len(self.devices), options.batch_size)
        if first_step.counts is not None:
            counts = zip(*(step.counts or () for step in order.epoch(0)), strict=True)
            max_counts, size = [max(device_counts) for device_counts in counts], options.batch_size
            planner.check_parts(self.devices, self._workloads, max_counts, batch_size=size)

    def proposals(self, correction: Correction | None) -> list[tuple[DevicePlan, Prediction]]:
        """Return plans with predictions, fastest first; ``correction`` None: by the rates alone."""
        options, group = self.options, self._group
        return planner.plan_devices(
            self.devices,
            batch_size=options.batch_size,
            cores=options.num_threads * -(-group.size // group.local_size),
            prefetch=options.prefetch,
            split=self._split,
            workloads=self._workloads,
            platform=self._platform,
            in_flight=self._in_flight,
            per_machine=group.local_size,
            correction=correction,
        )

    def predict(self, plan: DevicePlan, correction: Correction | None = None) -> Prediction:
        """Return the prediction of ``plan`` by the rates; ``correction`` None: not corrected."""
        return predict(plan, self._workloads, self._platform, correction=correction)

    def correction(
        self, plan: DevicePlan, profiles: Sequence[PlanProfile], step_s: float
    ) -> Correction:
        """Return the correction of the rates by workers' profiles of ``plan`` and its step time."""
        stages = [profile.stages for profile in profiles]
        return correct(plan, self._workloads, self._platform, stages, step_s)

    def within_limits(self, plan: DevicePlan) -> DevicePlan:
        """Return ``plan`` with the seed limits and depths that the devices' memory allows.

        ConfigError: a device's memory is too small.
        """
        limits = planner.seed_limits(
            self.devices,
            self._workloads,
            self._in_flight,
            batch_size=plan.batch_size,
            split=plan.split,
        )
        pairs = zip(plan.shares, limits, strict=True)
        shares = tuple(replace(share, max_seeds=limit) for share, limit in pairs)
        return planner.with_depths(DevicePlan(shares=shares), self._workloads, self._in_flight)

    def step_bytes(self, plan: DevicePlan) -> StepBytes | None:
        """Return the bytes that a step of ``plan`` moves with data parallelism and with P3.

        None: there is one device, or the first layer is preaggregated or cannot be split.
        """
        first = self._first
        preaggregated = self.options.preaggregated
        if preaggregated or first is None or not first.splits_columns or len(self.devices) < 2:
            return None
        pairs = zip(self._workloads, plan.split, strict=True)
        # Weights without biases, which P3 splits as W¹.
        num_first_weights = sum(p.numel() for p in first.parameters() if p.dim() > 1)
        return step_bytes(
            [workload.size(num_seeds) for workload, num_seeds in pairs],
            widths=self._workloads[0].widths,
            feature_bytes=self._workloads[0].feature_bytes,
            num_first_weights=num_first_weights,
            id_bytes=self._id_bytes,
        )

    @property
    def _in_flight(self) -> int:
        """Number of mini-batches that a device holds at the same time, by ``prefetch_depth``."""
        return 1 if self.options.prefetch == "none" else self.options.prefetch_depth + 1


def _workload(
    options: PlanOptions,
    graph: Graph,
    model: TrainableModel,
    order: SeedOrder,
    sampling: SamplerConfig,
    platform: Platform,
    num_devices: int,
) -> Workload:
    """Return the workload of a mini-batch, without measured times if the run is deterministic."""
    workload = measure_workload(
        graph,
        model,
        sampling,
        order,
        seed=options.seed,
        cores=options.num_threads,
        num_steps=0 if options.deterministic else options.epochs * order.steps_per_epoch,
    )
    if options.deterministic:
        return workload.untimed()
    if workload.counted is not None:
        return with_measured_step(
            workload, options, graph, model, order, sampling, platform, num_devices=num_devices
        )
    return workload


def with_measured_step(
    workload: Workload,
    options: PlanOptions,
    graph: Graph,
    model: TrainableModel,
    order: SeedOrder,
    sampling: SamplerConfig,
    platform: Platform,
    *,
    num_devices: int,
) -> Workload:
    """Return ``workload`` with the ratio of measured to predicted time of a step.

    A slice of one device's size is propagated forward and backward a few times, after which weights
    and random state are restored. Profiling corrects the remaining error.
    """
    assert workload.counted is not None
    count = max(1, options.batch_size // num_devices)
    seeds = next(iter(order.epoch(0))).seeds[:count]
    threads = options.num_threads
    sampler = sampling.sampler(graph, seed=options.seed, num_threads=threads)
    batch = sampler.sample(seeds, 0)
    inputs = open_loader(graph, model, num_threads=threads).load(batch)
    objective: trainable.Objective = (
        trainable.vertex_objective(graph, options.loss)
        if graph.rows is None
        else trainable.row_objective(graph.rows, options.loss)
    )
    seconds: list[float] = []
    with restoring(model):
        for _ in range(1 + _STEPS):
            start = time.perf_counter()
            objective(model(batch, inputs), batch).backward()  # type: ignore[no-untyped-call]
            model.zero_grad(set_to_none=True)
            seconds.append(time.perf_counter() - start)
            if sum(seconds) > _BUDGET_S and len(seconds) > 1:
                break
    host = Host(processor=platform.processor, num_workers=1, emulates=False)
    active = torch.get_num_threads()
    expected = host.propagate(workload, BatchSize.of(batch), active, active)
    factor = min(seconds[1:]) / expected
    return replace(workload, counted=replace(workload.counted, host_factor=factor))
