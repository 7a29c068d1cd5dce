"""Opening of a worker's device: caches, tiered stores, backend and training step."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import torch

from gnnscale.backend import (
    Backend,
    DeviceCacheBackend,
    DeviceDrivenBackend,
    DeviceRates,
    open_backend,
)
from gnnscale.backend import feature_loading as loading
from gnnscale.backend.exchange import Exchange
from gnnscale.backend.typed_loading import open_loader
from gnnscale.cache import CachePlan
from gnnscale.core import ConfigError, decode
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group, all_gather_object
from gnnscale.features import DiskFeaturesConfig, FeatureStore, SharedFeaturesConfig
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.policies import check_dynamic_caches
from gnnscale.features.tiered.store import TieredStore
from gnnscale.features.typed_tier import TypedTieredStore
from gnnscale.graph import Graph
from gnnscale.nn.learned_embeddings import LearnedFeatureStore
from gnnscale.planner import CardRates, Cuda, Device, owns_steps, shared_collective
from gnnscale.planner.cost_model.workload import unmeasured_workload
from gnnscale.run.batch_config import tier_problem
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
from gnnscale.training.p3.split_run import SplitRun
from gnnscale.training.pipeline import DeviceDrivenStep, Stages, TrainStep, WorkerStep
from gnnscale.training.planning.cost_estimates import PlanOptions, counted_work
from gnnscale.training.planning.drop_cpu import accelerator_position
from gnnscale.training.preaggregation import open_aggregated
from gnnscale.training.worker.device import DeviceDriven, WorkerDevice, backend_inputs
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)


def plan_options(config: RunConfig) -> PlanOptions:
    """Return the options of a run that decide its device plan."""
    runtime = config.runtime
    return PlanOptions(
        batch_size=config.batch_size,
        epochs=config.epochs,
        seed=config.seed,
        num_threads=config.host_threads,
        sampler=config.training_sampler,
        loss=config.loss,
        split=config.device_plan.split,
        prefetch=runtime.prefetch,
        prefetch_depth=runtime.prefetch_depth,
        manages=runtime.drm,
        deterministic=runtime.deterministic,
        compute_dtype=runtime.compute_dtype,
        preaggregated=config.features.preaggregates,
        divides_columns=config.partitioner.divides == "columns",
    )


def open_device(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    group: Group,
    *,
    rows: ShardedStore | None = None,
    may_drop_cpu: bool = False,
) -> WorkerDevice:
    """Open the device of this worker; every worker calls this at the same time.

    ``rows`` are sharded over the machines; None: each machine has all. ``may_drop_cpu``: the run
    may continue without its CPU workers. ConfigError if the device is missing, or does not fit.
    """
    plan, graph = data.caches, data.graph
    devices = devices_with_caches(config.device_plan.parsed(), plan)
    device, split = devices[group.rank], learning.split
    host: FeatureStore
    if split is not None:
        host = split.store(graph)
    else:
        host = config.features.open(graph) if rows is None else SharedFeatures(rows)
    tier = _open_tier(config, data, learning, device, group, rows) if split is None else None
    tiered = None if tier is None else tier.store
    cache = None
    if plan is not None:
        assert not isinstance(tiered, TypedTieredStore)
        cache = open_caches(plan, graph, device, group, tier=tiered)
    store = _feature_store(data, learning, host, cache, tiered)
    loader = _open_loader(config, graph, learning, store, device)
    if not owns_steps(devices):
        _check_static_cache(cache, device)
    may_drop_cpu = may_drop_cpu and split is None
    solo_position = _solo_position(config, data, devices) if may_drop_cpu else None
    device_driven = _device_driven(config, devices, group, solo_position)
    inputs = backend_inputs(
        data, learning, loader, cache, device_driven, batch_size=config.batch_size
    )
    backend = open_backend(device, inputs)
    if plan is not None and plan.has_peers:
        _open_peer_caches(backend, cache, group)
    if not config.runtime.deterministic:
        devices = _with_measured_rates(devices, backend, graph, group)
    exchange = _open_exchange(config, graph, split, loader, devices, group)
    synchronizer = Synchronizer(
        learning.trained, backend, group, own_collective=shared_collective(devices) is not None
    )
    step = _open_step(config, data, learning, backend, synchronizer, devices, group)
    return WorkerDevice(
        devices=devices,
        group=group,
        store=host,
        cache=cache,
        tier=tier,
        rows=rows,
        replanner=None if plan is None else _open_replanner(config, data, group, plan, cache),
        backend=backend,
        stages=Stages(backend, exchange),
        synchronizer=synchronizer,
        step=step,
        solo_position=solo_position,
        has_columns=split is not None,
    )


def _open_loader(
    config: RunConfig, graph: Graph, learning: ModelState, store: FeatureStore, device: Device
) -> loading.FeatureLoader:
    """Return the loader that reads features from ``store`` at the host."""
    # Costs of a link and of a device's cache are those of input rows if vertices have types.
    aggregates = device.takes_aggregated and (device.on_host or graph.types is None)
    return open_loader(
        graph,
        learning.trained,
        num_threads=config.num_threads,
        store=store,
        aggregates=aggregates,
        compute_dtype=getattr(torch, config.runtime.compute_dtype),
    )


def _feature_store(
    data: TrainInputs,
    learning: ModelState,
    host: FeatureStore,
    cache: OpenedCache | None,
    tier: TieredStore | TypedTieredStore | None,
) -> FeatureStore:
    """Return the store that the loader reads: the first of these that the run has.

    Learned embeddings, the device's ``cache``, ``tier``, preaggregated rows, ``host``.
    """
    if data.graph.types is not None:
        if cache is not None:
            return cache.store
        return host if tier is None else tier
    if learning.trained.vertex_rows is not None:
        repeats = data.graph.has_cutoffs
        return LearnedFeatureStore(learning.trained.vertex_rows, repeats=repeats)
    if cache is not None:
        return cache.store
    if tier is not None:
        return tier
    aggregated = open_aggregated(data.artifacts, data.graph, host)
    return host if aggregated is None else aggregated


def _open_tier(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    device: Device,
    group: Group,
    rows: ShardedStore | None,
) -> OpenedTier | None:
    """Return this worker's tiered store above disk or other machines; None: the run uses none."""
    features, devices = config.features, config.device_plan.parsed()
    # Free memory decides nothing in a deterministic run.
    may_choose = not config.runtime.deterministic
    may_choose = may_choose and tier_problem(devices, config.partitioner) is None
    # A cache of several vertex types reads host memory.
    may_choose = may_choose and (data.graph.types is None or data.caches is None)
    is_required = features.reads_disk
    options = chosen_tier(features, data.graph, may_choose=may_choose)
    if rows is None and not is_required:
        # Free memory differs between workers, but all must make the same choice.
        chosen = group.largest([int(options is not None)])[0]
        options = DiskFeaturesConfig() if chosen else None
    if options is None and rows is None:
        return None
    inputs = TierInputs(
        graph=data.graph,
        sampling=data.sampling,
        order=data.order,
        workload=unmeasured_workload(data.graph, learning.model).on(device),
        group=group,
        caches=data.caches,
        split=config.device_plan.split,
        seed=config.seed,
        num_threads=config.num_threads,
        prefetch_depth=config.runtime.prefetch_depth,
        deterministic=config.runtime.deterministic,
    )
    if rows is not None:
        assert isinstance(features, SharedFeaturesConfig)
        check_dynamic_caches(data.caches)
        return open_sharded_tier(rows, features, inputs)
    assert options is not None
    if is_required:
        return open_disk_tier(options, inputs)
    return _open_tier_if_it_fits(options, inputs)


def _open_tier_if_it_fits(options: DiskFeaturesConfig, inputs: TierInputs) -> OpenedTier | None:
    """Return a tiered store that no option requires.

    None: some worker lacks memory for it; the reason is logged, and rows are read from a mapped
    file.
    """
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
    """Return a device-driven training step if the devices can own steps, else a host-driven one."""
    full_model, caches = learning.model, data.caches
    common: dict[str, Any] = {
        "work": counted_work(
            plan_options(config), data.graph, full_model, devices, caches, rank=group.rank
        ),
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
    """Return the devices, GPUs with rates measured by their workers; every worker calls this."""
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


def _check_static_cache(cache: OpenedCache | None, device: Device) -> None:
    """Raise ConfigError if the device fills a dynamic cache: host-driven steps support none."""
    if cache is not None and cache.replay is not None:
        raise ConfigError(
            f"cache_planner: expected a static policy, got a dynamic cache on {device.label}; "
            "next to a CPU worker, GPUs have static caches only"
        )


def _solo_position(config: RunConfig, data: TrainInputs, devices: Sequence[Device]) -> int | None:
    """Return the position of the accelerator that may train alone; None: CPU workers stay."""
    is_fixed = config.device_plan.split is not None or config.exchange is not None
    # Measured times, which decide, do not repeat.
    if is_fixed or config.runtime.deterministic or not data.order.movable:
        return None
    return accelerator_position(devices)


def _open_exchange(
    config: RunConfig,
    graph: Graph,
    split: SplitRun | None,
    loader: loading.FeatureLoader,
    devices: Sequence[Device],
    group: Group,
) -> Exchange | None:
    """Return the exchange of rows, or with P3 of blocks; None: the host exchanges nothing."""
    if split is not None:
        # Devices with device-driven steps exchange data themselves.
        return None if owns_steps(devices) else split.exchange(loader)
    if config.exchange is None:
        return None
    return config.exchange.open(group.new_group(), graph)


def _device_driven(
    config: RunConfig, devices: Sequence[Device], group: Group, solo_position: int | None
) -> DeviceDriven | None:
    """Return group and options of this worker's device-driven steps; None: host-driven steps.

    The device at ``solo_position`` is prepared to train alone, next to CPU workers.
    """
    if not owns_steps(devices):
        if solo_position != group.rank:
            return None
        group = SINGLE_PROCESS
    return DeviceDriven(
        group=group,
        optimizer=config.optimizer,
        clip_norm=config.runtime.clip_norm,
        split=config.device_plan.split,
        over_gloo=shared_collective(devices) == "cpu:gloo",
    )


def _open_replanner(
    config: RunConfig, data: TrainInputs, group: Group, plan: CachePlan, cache: OpenedCache | None
) -> CacheReplanner | None:
    """Return the replanner of caches; None: some device holds rows in its memory for good."""
    if any(device.holds_rows for device in config.device_plan.parsed()):
        return None
    return CacheReplanner(
        data.graph,
        data.sampling,
        data.order,
        group,
        plan,
        cache,
        epochs=config.epochs,
        seed=config.seed,
        num_threads=config.num_threads,
    )


def _open_peer_caches(backend: Backend, cache: OpenedCache | None, group: Group) -> None:
    """Map the memory of the peers in this device's clique; every worker calls this."""
    holder = None
    if cache is not None and cache.clique is not None:
        holder = cast(DeviceCacheBackend, backend)
    addresses = all_gather_object(None if holder is None else holder.cache_address, group)
    if holder is not None and cache is not None and cache.clique is not None:
        holder.open_peers([addresses[position] for position in cache.clique.positions])
