"""A worker's device: its backend, caches, stages and training step."""

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
    DeviceDrivenBackend,
    DeviceRates,
    InferenceCapable,
    open_backend,
)
from gnnscale.backend import feature_loading as loading
from gnnscale.backend.exchange import Exchange
from gnnscale.core import ConfigError, decode
from gnnscale.core.gpu import GpuMeter
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group, all_gather_object
from gnnscale.features import DiskFeaturesConfig, FeatureStore
from gnnscale.features.multilevel import MultiLevelStore
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.policies import check_dynamic_caches
from gnnscale.features.tiered.store import TieredReader, TieredStore
from gnnscale.graph import Graph
from gnnscale.nn import TrainableModel
from gnnscale.nn.learned_embeddings import LearnedFeatureStore
from gnnscale.planner import Cuda, Device
from gnnscale.planner.cost_model.workload import unmeasured_workload
from gnnscale.planner.cuda_spec import CardRates
from gnnscale.planner.device_spec import owns_steps, shared_collective
from gnnscale.run.config import RunConfig
from gnnscale.training.build.cache import OpenedCache, devices_with_caches, open_caches
from gnnscale.training.build.replan import CacheReplanner
from gnnscale.training.build.sharded_features import SharedFeatures, open_sharded_tier
from gnnscale.training.build.tiered_features import (
    OpenedTier,
    TierInputs,
    chosen_tier,
    open_disk_tier,
)
from gnnscale.training.gradient_sync import Synchronizer
from gnnscale.training.pipeline.device_step import DeviceDrivenStep
from gnnscale.training.pipeline.stages import Stages
from gnnscale.training.pipeline.step import TrainStep, WorkerStep
from gnnscale.training.planning.cost_estimates import counted_work
from gnnscale.training.planning.drop_cpu import accelerator_position
from gnnscale.training.preaggregation import open_aggregated
from gnnscale.training.worker.backend_inputs import backend_inputs, owning_group
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WorkerDevice:
    """Device of one worker, and the objects that run training steps on it."""

    devices: tuple[Device, ...]  #: devices of all workers, by rank
    group: Group  #: the workers
    store: FeatureStore  #: features at the host, without any cache
    cache: OpenedCache | None  #: cache of this worker's device; None: no cache
    #: prefetches rows from disk or from other machines. None: all rows are in memory.
    tier: OpenedTier | None
    rows: ShardedStore | None  #: rows sharded over the machines. None: each machine has all rows.
    #: plans the caches again during the run; None: nothing is cached
    replanner: CacheReplanner | None
    backend: Backend  #: the device
    stages: Stages  #: sample, load, exchange and transfer a slice
    synchronizer: Synchronizer  #: sums gradients over all workers
    step: WorkerStep  #: propagation, synchronization and update of a slice
    #: position of the only accelerator, which may train without the CPU workers. None: CPU workers
    #: are never dropped.
    solo_position: int | None
    has_columns: bool  #: whether the device has only some columns of the features (P3)

    @classmethod
    def open(
        cls,
        config: RunConfig,
        data: TrainInputs,
        learning: ModelState,
        group: Group,
        *,
        rows: ShardedStore | None = None,
        may_drop_cpu: bool = False,
    ) -> WorkerDevice:
        """Open the device of this worker; every worker calls this at the same time.

        Args:
            rows: rows sharded over the machines. None: each machine has all rows.
            may_drop_cpu: whether the run may continue without its CPU workers.

        Raises:
            ConfigError: the device is missing, or does not fit the options.
        """
        plan, graph, order = data.caches, data.graph, data.order
        devices = devices_with_caches(config.device_plan.parsed(), plan)
        device, split = devices[group.rank], learning.split
        host = split.store(graph) if split is not None else _host_store(config, graph, rows)
        tier = _open_tier(config, data, learning, device, group, rows) if split is None else None
        tiered = None if tier is None else tier.store
        cache = None if plan is None else open_caches(plan, graph, device, group, tier=tiered)
        store = _feature_store(data, learning, host, cache, tiered)
        loader = _open_loader(config, data, learning, device, store)
        _check_dynamic_cache(cache, config, device)
        may_drop = may_drop_cpu and order.movable and split is None
        solo_position = accelerator_position(config) if may_drop else None
        owner = owning_group(config, group, solo_position)
        backend = open_backend(device, backend_inputs(config, data, learning, loader, cache, owner))
        if plan is not None and plan.has_peers:
            _open_peer_caches(backend, cache, group)
        if not config.runtime.deterministic:
            devices = _with_measured_rates(devices, backend, graph, group)
        stages = Stages(backend, _open_exchange(config, data, learning, loader, group))
        synchronizer = Synchronizer(
            learning.trained, backend, group, own_collective=shared_collective(devices) is not None
        )
        step = _open_step(config, data, learning, backend, synchronizer, devices, group)
        replanner = (
            None if plan is None else CacheReplanner(config, graph, order, group, plan, cache)
        )
        return cls(
            devices=devices,
            group=group,
            store=host,
            cache=cache,
            tier=tier,
            rows=rows,
            replanner=replanner,
            backend=backend,
            stages=stages,
            synchronizer=synchronizer,
            step=step,
            solo_position=solo_position,
            has_columns=split is not None,
        )

    @property
    def prefetcher(self) -> MultiLevelStore | TieredReader | None:
        """Reader of the rows that later steps need. None: all rows are in memory."""
        if self.tier is None:
            return None
        return (self.cache and self.cache.multilevel) or self.tier.store.rows

    @property
    def meter(self) -> GpuMeter | None:
        """Meter of this worker's GPU. None: it has none, or a lower rank has the same GPU."""
        index = self.devices[self.group.rank].gpu
        lower_ranks = [device.gpu for device in self.devices[: self.group.rank]]
        return GpuMeter.of(None if index in lower_ranks else index)

    @property
    def inference_backend(self) -> InferenceCapable | None:
        """The backend, if it computes exact rows for evaluation; None otherwise."""
        # With some columns of the features, a device cannot compute rows of the full model.
        infers = self.backend.device.infers and not self.has_columns
        return cast(InferenceCapable, self.backend) if infers else None

    def rank0_reads(self) -> AbstractContextManager[None]:
        """Let rank 0 read ``store`` within the ``with`` block; every worker enters the block.

        If rows are sharded over machines, the other workers first serve rank 0's reads, and then
        enter their block.
        """
        return nullcontext() if self.rows is None else self.rows.rank0_reads()

    def profiling_step(
        self, model: TrainableModel, optimizer: torch.optim.Optimizer, *, solo: bool = False
    ) -> WorkerStep:
        """Return the training step of a profiling run, whose ``optimizer`` is discarded.

        Args:
            model: the model that this device trains.
            optimizer: updates ``model`` during profiling.
            solo: whether this device alone trains, with device-driven steps.
        """
        if solo or owns_steps(self.devices):
            group = SINGLE_PROCESS if solo else self.group
            return DeviceDrivenStep(
                model, cast(DeviceDrivenBackend, self.backend), optimizer, group
            )
        return TrainStep(model, self.backend, self.synchronizer, optimizer)


def _open_loader(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    device: Device,
    store: FeatureStore,
) -> loading.FeatureLoader:
    return loading.FeatureLoader(
        data.graph,
        learning.trained,
        num_threads=config.num_threads,
        store=store,
        aggregates=device.takes_aggregated,
        compute_dtype=getattr(torch, config.runtime.compute_dtype),
    )


def _feature_store(
    data: TrainInputs,
    learning: ModelState,
    host: FeatureStore,
    cache: OpenedCache | None,
    tier: TieredStore | None,
) -> FeatureStore:
    """Return the store that the device reads: embeddings, cache, tiered store, or host memory."""
    if learning.trained.vertex_rows is not None:
        return LearnedFeatureStore(learning.trained.vertex_rows)
    if cache is not None:
        return cache.store
    if tier is not None:
        return tier
    aggregated = open_aggregated(data.artifacts, data.graph, host)
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
    """Return the tiered store over disk or other machines. None: all rows are in memory."""
    is_required, options = config.features.reads_disk, chosen_tier(config, data.graph)
    if rows is None and not is_required:
        # Free memory differs between workers, but all must make the same choice.
        chosen = group.largest([int(options is not None)])[0]
        options = DiskFeaturesConfig() if chosen else None
    if options is None and rows is None:
        return None
    inputs = TierInputs(
        config=config,
        graph=data.graph,
        sampling=data.task.sampling(config.training_sampler, data.order),
        order=data.order,
        workload=unmeasured_workload(data.graph, learning.model).on(device),
        group=group,
        caches=data.caches,
    )
    if rows is not None:
        check_dynamic_caches(data.caches)
        return open_sharded_tier(rows, inputs)
    assert options is not None
    if is_required:
        return open_disk_tier(options, inputs)
    return _open_tier_if_it_fits(options, inputs)


def _open_tier_if_it_fits(options: DiskFeaturesConfig, inputs: TierInputs) -> OpenedTier | None:
    """Return a tiered store that no option requires. None: some worker lacks memory for it."""
    tier, problem = None, ""
    try:
        tier = open_disk_tier(options, inputs)
    except ConfigError as error:
        problem = str(error)
    if inputs.group.largest([len(problem)])[0] == 0:
        return tier
    if tier is not None:
        tier.store.rows.close()
    if problem:
        log.warning(f"{problem}; until then each step waits for the rows of the mapped file")
    return None


def _open_step(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    backend: Backend,
    synchronizer: Synchronizer,
    devices: Sequence[Device],
    group: Group,
) -> WorkerStep:
    """Return the device-driven or host-driven training step."""
    full_model, caches = learning.model, data.caches
    common: dict[str, Any] = {
        "work": counted_work(config, data.graph, full_model, devices, caches, rank=group.rank),
        "accumulate": config.runtime.accumulate,
        "steps_per_epoch": data.order.steps_per_epoch,
    }
    model, optimizer = learning.trained, learning.optimizer
    if owns_steps(devices):
        return DeviceDrivenStep(
            model, cast(DeviceDrivenBackend, backend), optimizer, group, **common
        )
    clip_norm = config.runtime.clip_norm
    return TrainStep(model, backend, synchronizer, optimizer, clip_norm=clip_norm, **common)


def _with_measured_rates(
    devices: tuple[Device, ...], backend: Backend, graph: Graph, group: Group
) -> tuple[Device, ...]:
    """Return the devices with the measured rates of their GPUs; every worker calls this."""
    if all(device.gpu is None for device in devices):
        return devices
    has_gpu = devices[group.rank].gpu is not None
    own_rates = asdict(cast(DeviceRates, backend).rates()) if has_gpu else None
    rates_by_rank = all_gather_object(own_rates, group)
    row_bytes = graph.feature_bytes // max(graph.num_vertices, 1)
    return tuple(
        decode(CardRates, rates, source="rates").of(cast(Cuda, device), row_bytes=row_bytes)
        if rates is not None
        else device
        for device, rates in zip(devices, rates_by_rank, strict=True)
    )


def _check_dynamic_cache(cache: OpenedCache | None, config: RunConfig, device: Device) -> None:
    """Raise if the cache is dynamic and the steps of its device are host-driven."""
    is_dynamic = cache is not None and cache.replay is not None
    if is_dynamic and not owns_steps(config.device_plan.parsed()):
        raise ConfigError(
            f"cache_planner: expected a static policy, got a dynamic cache on {device.label}; "
            "next to a CPU worker, GPUs have static caches only"
        )


def _open_peer_caches(backend: Backend, cache: OpenedCache | None, group: Group) -> None:
    """Map the memory of the peers in this device's clique; every worker calls this."""
    holder = None
    if cache is not None and cache.clique is not None:
        holder = cast(DeviceCacheBackend, backend)
    addresses = all_gather_object(None if holder is None else holder.cache_address, group)
    if holder is not None and cache is not None and cache.clique is not None:
        holder.open_peers([addresses[position] for position in cache.clique.positions])


def _open_exchange(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    loader: loading.FeatureLoader,
    group: Group,
) -> Exchange | None:
    """Return the exchange between loading and transfer: P3's, the user's, or None."""
    if learning.split is not None:
        # With device-driven steps, the devices exchange data themselves.
        owns = owns_steps(config.device_plan.parsed())
        return None if owns else learning.split.exchange(loader)
    if config.exchange is None:
        return None
    return config.exchange.open(group.new_group(), data.graph)
