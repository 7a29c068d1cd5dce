"""A worker's device: its backend and caches, and what becomes of a slice on it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch

from gnnscale.backend import (
    Backend,
    DeviceCacheBackend,
    DeviceRates,
    InferenceCapable,
    StepOwner,
    open_backend,
)
from gnnscale.backend import feature_loading as loading
from gnnscale.backend.exchange import Exchange
from gnnscale.core import ConfigError, decode
from gnnscale.core.gpu import GpuMeter
from gnnscale.distributed.process_group import ALONE, Group, trade_values
from gnnscale.features import DiskFeaturesConfig, FeatureStore
from gnnscale.features.multilevel import MultiLevelStore
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.policies import check_follows
from gnnscale.features.tiered.store import TieredReader, TieredStore
from gnnscale.graph import Graph
from gnnscale.nn import TrainableModel
from gnnscale.nn.learned_embeddings import LearnedFeatureStore
from gnnscale.planner import Cuda, Device
from gnnscale.planner.cost_model.corrections import WorkCounter
from gnnscale.planner.cost_model.workload import unmeasured_workload
from gnnscale.planner.device_spec import owns_steps, shared_collective
from gnnscale.planner.gpu_rates import CardRates
from gnnscale.run.config import RunConfig
from gnnscale.sampling import SeedOrder
from gnnscale.training.build.cache import OpenedCache, devices_with_caches, open_caches
from gnnscale.training.build.replan import CacheReplanner
from gnnscale.training.build.sharded_features import SharedFeatures, open_shared
from gnnscale.training.build.tiered_features import OpenedTier, chosen_tier, open_tier
from gnnscale.training.gradient_sync import Synchronizer
from gnnscale.training.pipeline.device_step import DeviceDrivenStep
from gnnscale.training.pipeline.stages import Stages
from gnnscale.training.pipeline.step import TrainStep, WorkerStep
from gnnscale.training.planning.cost_estimates import counted_work
from gnnscale.training.planning.drop_cpu import alone_position
from gnnscale.training.preaggregation import open_aggregated
from gnnscale.training.worker.backend_inputs import host_parts, owning_group
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WorkerDevice:
    """One worker's device."""

    devices: tuple[Device, ...]  #: those of all workers, in the order of ranks
    group: Group  #: the workers
    store: FeatureStore  #: the features at the host, without any cache
    cache: OpenedCache | None  #: what this worker's device keeps; None for nothing
    #: reads rows from the disk, or from other machines, ahead of their use; None for in memory
    tier: OpenedTier | None
    rows: ShardedStore | None  #: what machines divide among them; None if each has all rows
    #: keeps the caches at what the run reads; None if nothing is cached
    replanner: CacheReplanner | None
    backend: Backend  #: the device
    stages: Stages  #: what becomes of a slice before it is propagated
    synchronizer: Synchronizer  #: sums gradients over all workers
    step: WorkerStep  #: what a training step does after the stages
    #: the position of the one accelerator that may do its steps by itself once all others are left
    #: out; None if they stay
    alone: int | None
    has_columns: bool  #: whether it has some columns of the features (P3), and not all

    @classmethod
    def open(
        cls,
        config: RunConfig,
        data: TrainInputs,
        learning: ModelState,
        group: Group,
        *,
        rows: ShardedStore | None = None,
        may_leave_out: bool = False,
    ) -> WorkerDevice:
        """Open the device of this worker; all workers do so at the same time.

        Args:
            rows: what machines divide among them; None if each has all rows.
            may_leave_out: whether the run may continue without its processors.

        Raises:
            ConfigError: the device is not there, or does not fit the options.
        """
        plan, graph, order = data.caches, data.graph, data.order
        devices = devices_with_caches(config.device_plan.parsed(), plan)
        device, split = devices[group.rank], learning.split
        host = split.store(graph) if split is not None else _host_store(config, graph, rows)
        tier = None
        if split is None:
            tier = _open_tier(config, data, learning, device, group, rows)
        below = None if tier is None else tier.store
        cache = None if plan is None else open_caches(plan, graph, device, group, tier=below)
        loader = loading.FeatureLoader(
            graph,
            learning.trained,
            num_threads=config.num_threads,
            store=_store(data, learning, host, cache, below),
            aggregates=device.takes_aggregated,
            compute_dtype=getattr(torch, config.runtime.compute_dtype),
        )
        _check_follows(cache, config, device)
        alone = None
        if may_leave_out and order.movable and split is None:
            alone = alone_position(config)
        owner = owning_group(config, group, alone)
        backend = open_backend(device, host_parts(config, data, learning, loader, cache, owner))
        if plan is not None and plan.has_peers:
            _join_caches(backend, cache, group)
        if not config.runtime.deterministic:
            devices = _measured(devices, backend, graph, group)
        stages = Stages(backend, _open_exchange(config, data, learning, loader, group))
        synchronizer = Synchronizer(
            learning.trained, backend, group, own_collective=shared_collective(devices) is not None
        )
        work = counted_work(config, graph, learning.model, devices, plan, rank=group.rank)
        step = _open_step(learning, backend, synchronizer, devices, work, config, order, group)
        return cls(
            devices=devices,
            group=group,
            store=host,
            cache=cache,
            tier=tier,
            rows=rows,
            replanner=None
            if plan is None
            else CacheReplanner(config, graph, order, group, plan, cache),
            backend=backend,
            stages=stages,
            synchronizer=synchronizer,
            step=step,
            alone=alone,
            has_columns=split is not None,
        )

    @property
    def ahead(self) -> MultiLevelStore | TieredReader | None:
        """What reads rows of the steps that it expects; None if they are in memory."""
        if self.tier is None:
            return None
        return (self.cache and self.cache.stacked) or self.tier.store.rows

    @property
    def meter(self) -> GpuMeter | None:
        """What counts the energy of this worker's GPU; None if a lower rank has the same one."""
        index = self.devices[self.group.rank].gpu
        others = [each.gpu for each in self.devices[: self.group.rank]]
        return GpuMeter.of(None if index in others else index)

    @property
    def inferring(self) -> InferenceCapable | None:
        """The device, if it computes exact rows for evaluation."""
        # A device with some columns of the features computes no rows of the whole model.
        infers = self.backend.device.infers and not self.has_columns
        return cast(InferenceCapable, self.backend) if infers else None

    def rank0_reads(self) -> AbstractContextManager[None]:
        """Let rank 0 read ``store`` in the ``with`` block; every process comes here.

        If machines divide rows, the others serve it, and enter their block after it.
        """
        return nullcontext() if self.rows is None else self.rows.rank0_reads()

    def rehearsal(
        self, model: TrainableModel, optimizer: torch.optim.Optimizer, *, alone: bool = False
    ) -> WorkerStep:
        """Return what a rehearsal does with a slice; it throws ``optimizer`` away.

        Args:
            alone: whether this device does its steps by itself, and no other any.
        """
        if alone or owns_steps(self.devices):
            group = ALONE if alone else self.group
            return DeviceDrivenStep(model, cast(StepOwner, self.backend), optimizer, group)
        return TrainStep(model, self.backend, self.synchronizer, optimizer)


def _store(
    data: TrainInputs,
    learning: ModelState,
    host: FeatureStore,
    cache: OpenedCache | None,
    tier: TieredStore | None,
) -> FeatureStore:
    """Return where the device reads features: learned or aggregated rows, its cache, the host's."""
    if learning.trained.vertex_rows is not None:
        return LearnedFeatureStore(learning.trained.vertex_rows)
    if cache is not None:
        return cache.store
    if tier is not None:
        return tier
    aggregated = open_aggregated(data.made, data.graph, host)
    return host if aggregated is None else aggregated


def _host_store(config: RunConfig, graph: Graph, rows: ShardedStore | None) -> FeatureStore:
    return config.features.open(graph) if rows is None else SharedFeatures(rows)


def _open_tier(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    device: Device,
    group: Group,
    rows: ShardedStore | None,
) -> OpenedTier | None:
    """Return what reads rows from the disk or other machines; None if they are read in memory."""
    asked, options = config.features.reads_disk, chosen_tier(config, data.graph)
    if rows is None and not asked:
        # What is available differs between workers; they all do the same.
        chosen = group.largest([int(options is not None)])[0]
        options = DiskFeaturesConfig() if chosen else None
    if options is None and rows is None:
        return None
    sampling = data.task.sampling(config.trained_sampler, data.order)
    known = unmeasured_workload(data.graph, learning.model).on(device)
    run: dict[str, Any] = {
        "sampling": sampling,
        "order": data.order,
        "workload": known,
        "group": group,
        "caches": data.caches,
    }
    if rows is not None:
        check_follows(data.caches)
        return open_shared(rows, config, data.task.graph, **run)
    assert options is not None
    if asked:
        return open_tier(options, config, data.task.graph, **run)
    return _open_tier_if_it_fits(options, config, data.task.graph, **run)


def _open_tier_if_it_fits(
    options: DiskFeaturesConfig, config: RunConfig, graph: Graph, *, group: Group, **run: Any
) -> OpenedTier | None:
    """Return the tier that a run chose by itself; None if any worker lacks memory for it."""
    tier, problem = None, ""
    try:
        tier = open_tier(options, config, graph, group=group, **run)
    except ConfigError as error:
        problem = str(error)
    if group.largest([len(problem)])[0] == 0:
        return tier
    if tier is not None:
        tier.store.rows.close()
    if problem:
        log.warning(f"{problem}; until then each step waits for the rows of the mapped file")
    return None


def _open_step(
    learning: ModelState,
    backend: Backend,
    synchronizer: Synchronizer,
    devices: Sequence[Device],
    work: WorkCounter | None,
    config: RunConfig,
    order: SeedOrder,
    group: Group,
) -> WorkerStep:
    """Return what a training step does after the stages: the device all of it, or the host."""
    common: dict[str, Any] = {
        "work": work,
        "accumulate": config.runtime.accumulate,
        "steps_per_epoch": order.steps_per_epoch,
    }
    model, optimizer = learning.trained, learning.optimizer
    if owns_steps(devices):
        return DeviceDrivenStep(model, cast(StepOwner, backend), optimizer, group, **common)
    clip_norm = config.runtime.clip_norm
    return TrainStep(model, backend, synchronizer, optimizer, clip_norm=clip_norm, **common)


def _measured(
    devices: tuple[Device, ...], backend: Backend, graph: Graph, group: Group
) -> tuple[Device, ...]:
    """Return the devices with the rates of their cards; every worker calls this at once."""
    if all(each.gpu is None for each in devices):
        return devices
    rated = devices[group.rank].gpu is not None
    every = trade_values(asdict(cast(DeviceRates, backend).rates()) if rated else None, group)
    row_bytes = graph.feature_bytes // max(graph.num_vertices, 1)
    return tuple(
        decode(CardRates, rates, source="rates").of(cast(Cuda, device), row_bytes=row_bytes)
        if rates is not None
        else device
        for device, rates in zip(devices, every, strict=True)
    )


def _check_follows(cache: OpenedCache | None, config: RunConfig, device: Device) -> None:
    """Refuse rows that follow the batches if the host does not start whole steps of the device."""
    follows = cache is not None and cache.replay is not None
    if follows and not owns_steps(config.device_plan.parsed()):
        raise ConfigError(
            f"cache_planner: the rows of {device.label} follow the batches only if GPUs do whole "
            "steps by themselves; beside a processor, policies whose rows stay do"
        )


def _join_caches(backend: Backend, cache: OpenedCache | None, group: Group) -> None:
    """Let devices of a clique read each other's memory; every worker calls this at once."""
    holder = None
    if cache is not None and cache.kept is not None:
        holder = cast(DeviceCacheBackend, backend)
    every = trade_values(None if holder is None else holder.cache_address, group)
    if holder is not None and cache is not None and cache.kept is not None:
        holder.open_peers([every[position] for position in cache.kept.positions])


def _open_exchange(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    loader: loading.FeatureLoader,
    group: Group,
) -> Exchange | None:
    """Return what devices trade between loading and transfer: P3's, the user's, or nothing."""
    if learning.split is not None:
        # Devices that own their steps trade by themselves.
        owns = owns_steps(config.device_plan.parsed())
        return None if owns else learning.split.exchange(loader)
    if config.exchange is None:
        return None
    return config.exchange.open(group.with_own_connections(), data.graph)
