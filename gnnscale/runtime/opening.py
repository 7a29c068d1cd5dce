"""How a training run is opened: graph, model and device, checkpoint, plan, and stages."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gnnscale.backend import HostParts, open_backend
from gnnscale.backend.loading import FeatureLoader
from gnnscale.core.hardware import multiplies_bfloat16, usable_cores
from gnnscale.graph import Graph
from gnnscale.model import GNN, TrainableModel
from gnnscale.ops import keep_freed_memory
from gnnscale.plan import DevicePlan
from gnnscale.plan.device import shared_collective
from gnnscale.runtime.cache.open import (
    OpenedCache,
    cache_effects,
    devices_with_caches,
    open_caches,
)
from gnnscale.runtime.cache.replan import CacheReplanner
from gnnscale.runtime.checkpoint.artefacts import (
    Artefact,
    make_of_graph,
    open_aggregated,
    open_cache_plan,
    open_graph,
    open_partition,
    open_task,
)
from gnnscale.runtime.checkpoint.file import LAST
from gnnscale.runtime.checkpoint.run_checkpoint import RunCheckpoint
from gnnscale.runtime.checkpoint.saved_run import SavedRun, foreign
from gnnscale.runtime.drm.rebalancer import Rebalancer
from gnnscale.runtime.drm.rebalancer_state import RebalancerState
from gnnscale.runtime.order import checked_order
from gnnscale.runtime.pipeline.look_ahead import look_ahead
from gnnscale.runtime.pipeline.repeatable import repeatable_operations
from gnnscale.runtime.pipeline.schedule import BatchSlice, Schedule
from gnnscale.runtime.pipeline.stages import Stages, build_pipeline
from gnnscale.runtime.pipeline.step import TrainStep
from gnnscale.runtime.planning.agreement import agree_on_plan
from gnnscale.runtime.planning.profile import PlanProfile, profile_plan
from gnnscale.runtime.planning.search import PlanSearch
from gnnscale.runtime.planning.workloads import counted_work
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.state import TrainState
from gnnscale.runtime.sync.exchange import Exchange
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.p3.split_run import SplitRun
from gnnscale.runtime.sync.synchronizer import Synchronizer
from gnnscale.runtime.telemetry.epoch_sums import EpochSums
from gnnscale.runtime.telemetry.records import best_epoch
from gnnscale.sampler import SeedOrder
from gnnscale.task.base import Task

__all__ = ["open_run"]

log = logging.getLogger(__name__)


@contextmanager
def open_run(
    config: TrainConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group,
    artefacts: Sequence[Artefact] = (),
) -> Iterator[TrainState]:
    """Open graph, model and device; take over a checkpoint; agree on a plan; start the stages.

    Args:
        config: the run's options.
        directory: run directory.
        options: ``config`` as plain values.
        group: the workers of the run.
        artefacts: what the launching process has made; empty for workers that make it themselves.
    """
    with ExitStack() as closing:
        closing.enter_context(repeatable_operations(config.runtime.deterministic))
        state = _open(config, directory, options, group, artefacts)
        # Whoever waits for the device is woken by its end.
        closing.callback(state.backend.close)
        closing.callback(state.checkpoint.close)
        saved = None
        if config.resume is not None:
            saved = _resume(state)
        elif group.is_rank0:
            state.checkpoint.begin()
        state.backend.load_state()
        _agree_on_plan(state, saved)
        _start(state, saved)
        closing.callback(state.pipeline.stop)
        closing.callback(state.schedule.close)
        try:
            yield state
            _drain(state)
        finally:
            closing.close()
            state.pipeline.close()


def _resume(state: TrainState) -> SavedRun | None:
    """Go on where the checkpoint stands."""
    split = state.split
    optimizer = state.optimizer if split is None else state.config.optimizer.build(state.model)
    saved = state.checkpoint.resume(
        state.group,
        state.model,
        optimizer,
        steps_per_epoch=state.order.steps_per_epoch,
    )
    if saved is not None:
        if split is not None:
            split.take(optimizer)
        state.best_weights, state.steps_done = saved.best_model, saved.step
        if saved.sums is not None:
            _resume_inside(state, saved, saved.sums)
        if state.group.is_rank0:
            state.history, state.unvalidated = state.checkpoint.history_of(saved)
            best = best_epoch(state.history, state.measures[0])
            if saved.sums is None and best == saved.epoch:
                state.best_weights = saved.model
        metrics = [each.valid_metric for each in state.history]
        state.metrics = state.group.broadcast_json(metrics)
    return saved


def _resume_inside(state: TrainState, saved: SavedRun, sums: EpochSums) -> None:
    """Take what this worker alone knew of an epoch; other devices begin with the first one's."""
    options = state.checkpoint.options
    if saved.config.get("device_plan") != options.get("device_plan"):
        state.resumed = replace(sums, devices=())
        return
    try:
        if {len(saved.workers), len(sums.devices)} != {state.group.size}:
            raise ValueError(f"parts of {len(saved.workers)} workers")
        part = saved.workers[state.group.rank]
        part.restore_buffers(state.trained)
    except ValueError as error:
        raise foreign(state.checkpoint.directory / LAST, str(error)) from None
    state.step.rows.update(part.rows)
    state.resumed = replace(sums, counters=part.counters)


def _agree_on_plan(state: TrainState, saved: SavedRun | None) -> None:
    """Let rank 0 search, or go on with the checkpoint's plan; all workers profile it."""
    begin = time.perf_counter()
    search = None
    if state.group.is_rank0:
        known = saved and saved.plan_under(state.checkpoint.options)
        search = PlanSearch(
            state.config,
            state.graph,
            state.model,
            state.group,
            state.order,
            known or None,
            sampling=state.task.sampling(state.config.trained_sampler, state.order),
            devices=state.devices,
            effects=cache_effects(
                len(state.devices), None if state.cache_plan is None else state.cache_plan.plan
            ),
        )
    state.first_plan = agree_on_plan(search, state.devices, state.group, partial(_profile, state))
    if search is not None:
        state.predicted = search.predictions
        state.step_bytes = search.step_bytes()
        _tell_bytes(state)
        _tell_depths(state)
    state.planning_s = time.perf_counter() - begin


def _tell_depths(state: TrainState) -> None:
    """Say which devices' memory has room for fewer mini-batches than may be prepared ahead."""
    for share in state.first_plan.shares:
        if share.depth is not None and share.prefetch != "none":
            log.info(
                f"{share.device.label}: its memory holds {share.depth} mini-batches of "
                f"{share.num_seeds} seeds at once, so that it prepares {share.depth} ahead at most "
                f"(runtime.prefetch_depth={state.config.runtime.prefetch_depth})"
            )


def _tell_bytes(state: TrainState) -> None:
    """Say what a step over parts moves, and what it would with the other kind of first layer."""
    found = state.step_bytes
    if found is None or state.partition is None:
        return
    ways = {"p3": found.p3, "data_parallel": found.data_parallel}
    mine = "data_parallel" if state.split is None else "p3"
    other = "p3" if mine == "data_parallel" else "data_parallel"
    log.info(
        f"a step is expected to move {ways[mine] / 1e6:,.1f} MB ({mine}); "
        f"{ways[other] / 1e6:,.1f} MB as {other}, so that {found.cheaper} moves less"
    )


def _profile(state: TrainState, plan: DevicePlan) -> PlanProfile:
    """Train a few steps under ``plan``, with an optimizer that is thrown away."""
    return profile_plan(
        state.order,
        plan,
        rank=state.group.rank,
        model=state.trained,
        backend=state.backend,
        stages=state.stages,
        step=TrainStep(
            state.trained,
            state.backend,
            state.synchronizer,
            state.config.optimizer.build(state.trained),
        ),
    )


def _start(state: TrainState, saved: SavedRun | None) -> None:
    """Let the stages run ahead, from the first step that is not done."""
    plan = state.first_plan
    share, depth = plan.shares[state.group.rank], state.config.runtime.prefetch_depth
    ahead = any(each.prefetch != "none" for each in plan.shares)
    lead_steps = (depth + 1 if ahead else 1) + _window(state)
    manages = state.config.runtime.drm and (len(plan.shares) > 1 or ahead)
    kept = _kept_management(state, saved) if manages and saved is not None else RebalancerState()
    state.schedule = Schedule(
        state.order,
        plan,
        rank=state.group.rank,
        epochs=state.config.epochs,
        first_step=state.steps_done,
        lead_steps=lead_steps if manages else None,
        pending=kept.pending,
    )
    if manages:
        state.rebalancer = Rebalancer(
            state.schedule,
            first_step=state.steps_done,
            lead_steps=lead_steps,
            counted=state.config.runtime.deterministic,
            state=kept,
        )
    state.backend.set_threads(share.threads)
    state.pipeline = build_pipeline(
        state.stages,
        _slices(state),
        prefetch=share.prefetch,
        has_link=not share.device.on_host,
        limit=depth if share.depth is None else min(depth, share.depth),
    )
    state.group.barrier()


def _kept_management(state: TrainState, saved: SavedRun) -> RebalancerState:
    """Return where resource management stood when the checkpoint was written."""
    values = saved.management_under(state.checkpoint.options)
    if values is None:
        if state.group.is_rank0 and saved.plan_under(state.checkpoint.options) is not None:
            log.info("resume: the checkpoint has no resource management, which begins anew")
        return RebalancerState()
    try:
        return RebalancerState.from_values(state.first_plan, values, step=saved.step)
    except ValueError as error:
        raise foreign(state.checkpoint.directory / LAST, str(error)) from None


def _slices(state: TrainState) -> Iterator[BatchSlice]:
    """Return the worker's slices; drawn ahead where its cache follows the batches to come."""
    cache = None if state.cache is None else state.cache.look_ahead
    if cache is None:
        return state.schedule.slices()
    return look_ahead(
        state.schedule.slices(), state.stages, window=cache.window, expect=cache.expect
    )


def _window(state: TrainState) -> int:
    """Return the most steps that any worker draws ahead, the same in every process."""
    if state.cache_plan is None:
        return 0
    policies = (each.look_ahead for each in state.cache_plan.plan.devices)
    return max((each.window for each in policies if each is not None), default=0)


def _drain(state: TrainState) -> None:
    """Let every device come as far as the furthest: it may wait for the others' rows."""
    if not state.stages.exchanges:
        return
    state.stages.end()
    held = state.group.gather(json.dumps(state.schedule.hold()).encode())
    state.schedule.end_at(state.group.broadcast_json(max(map(json.loads, held), default=0)))
    for _ in state.pipeline:
        pass


def _open(
    config: TrainConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group,
    artefacts: Sequence[Artefact],
) -> TrainState:
    """Open everything that does not depend on a plan."""
    if group.is_rank0:
        _warn_of_threads(config)
        _tell_mode(config)
    torch.set_num_threads(config.host_threads)
    keep_freed_memory()
    graph = open_graph(artefacts) if artefacts else _prepare_and_open(config, group)
    made = artefacts or _make_of_graph(config, graph, group)
    partition, cache_plan = open_partition(made, graph), open_cache_plan(made, graph)
    plan = None if cache_plan is None else cache_plan.plan
    devices = devices_with_caches(config.device_plan.parsed(), plan)
    task = open_task(config, made, graph)
    graph = task.graph
    order = checked_order(config, task.seeds, None if partition is None else partition.parts)
    torch.manual_seed(config.seed)
    model = task.build(config.model)
    columns = None if partition is None or group.size == 1 else partition.parts.columns
    split = None
    if columns is not None:
        assert isinstance(model, GNN)
        split = SplitRun(model, columns, group)
    trained = model if split is None else split.model
    host = config.features.open(graph) if split is None else split.store(graph)
    device = devices[group.rank]
    cache = None if plan is None else open_caches(plan, graph, device, group)
    ready = open_aggregated(made, graph, host)
    loader = FeatureLoader(
        graph,
        trained,
        num_threads=config.num_threads,
        store=(host if ready is None else ready) if cache is None else cache.store,
        aggregates=device.takes_aggregated,
        compute_dtype=getattr(torch, config.runtime.compute_dtype),
    )
    backend = open_backend(device, _host_parts(config, task, order, trained, loader, cache))
    exchange = _open_exchange(config, split, loader, graph, group)
    collective = shared_collective(devices)
    synchronizer = Synchronizer(trained, backend, group, own_collective=collective is not None)
    optimizer = config.optimizer.build(trained)
    return TrainState(
        config=config,
        group=group,
        graph=graph,
        task=task,
        measures=task.measures,
        store=host,
        order=order,
        devices=devices,
        cache_plan=cache_plan,
        cache=cache,
        replanner=None
        if plan is None
        else CacheReplanner(config, graph, order, group, plan, cache),
        model=model,
        trained=trained,
        partition=None if partition is None else partition.figures,
        split=None if split is None else split.weights(optimizer),
        backend=backend,
        stages=Stages(backend, exchange),
        synchronizer=synchronizer,
        optimizer=optimizer,
        step=TrainStep(
            trained,
            backend,
            synchronizer,
            optimizer,
            clip_norm=config.runtime.clip_norm,
            work=counted_work(config, graph, model, devices, plan, rank=group.rank),
            accumulate=config.runtime.accumulate,
            steps_per_epoch=order.steps_per_epoch,
        ),
        checkpoint=RunCheckpoint(
            directory=directory,
            config=config,
            options=options,
            graph=graph,
            metric=task.measures[0],
            partition=None if order.movable or partition is None else partition.content,
        ),
    )


def _host_parts(
    config: TrainConfig,
    task: Task,
    order: SeedOrder,
    model: TrainableModel,
    loader: FeatureLoader,
    cache: OpenedCache | None,
) -> HostParts:
    """Return what the device is opened with."""
    sampler = task.sampling(config.trained_sampler, order).sampler(
        task.graph, seed=config.seed, num_threads=config.num_threads
    )
    parts = HostParts(
        graph=task.graph,
        model=model,
        objective=task.objective,
        sampler=sampler,
        loader=loader,
    )
    if cache is None:
        return parts
    return replace(parts, lists=cache.lists, cache_bytes=cache.num_bytes, counters=cache.counters)


def _open_exchange(
    config: TrainConfig, split: SplitRun | None, loader: FeatureLoader, graph: Graph, group: Group
) -> Exchange | None:
    """Return what devices trade between loading and transfer: P3's, the user's, or nothing."""
    if split is not None:
        return split.exchange(loader)
    if config.exchange is None:
        return None
    return config.exchange.open(group.with_own_connections(), graph)


def _prepare_and_open(config: TrainConfig, group: Group) -> Graph:
    """Open the store; one process of each machine prepares it where it is missing."""
    if group.local_rank == 0:
        graph = config.dataset.open()
    group.barrier()
    return graph if group.local_rank == 0 else config.dataset.open()


def _make_of_graph(config: TrainConfig, graph: Graph, group: Group) -> Sequence[Artefact]:
    """Return what a run needs of the graph; one process of each machine makes what is missing."""
    if not config.needs_more_than_graph:
        return ()
    if group.local_rank == 0:
        made = make_of_graph(config, graph)
    group.barrier()
    return made if group.local_rank == 0 else make_of_graph(config, graph)


def _tell_mode(config: TrainConfig) -> None:
    if config.runtime.deterministic:
        log.info(
            "runtime.deterministic=true: the plan follows nominal rates, without calibration and "
            "rehearsal, and resource management counts work in place of seconds"
        )
    if config.runtime.compute_dtype == "bfloat16":
        if multiplies_bfloat16():
            told = "products by the processor's instructions for it"
        else:
            told = "float32 in its place, as torch has no fast products of it on this processor"
        log.info(f"runtime.compute_dtype=bfloat16: {told}")


def _warn_of_threads(config: TrainConfig) -> None:
    cores = usable_cores()
    workers = len(config.device_plan.devices)
    if config.num_threads > cores:
        log.warning(
            f"num_threads={config.num_threads}: this process may use {cores} cores; "
            "more threads than cores are slower"
        )
    elif workers > config.num_threads:
        log.warning(
            f"device_plan has {workers} workers, which need a thread each, and there are "
            f"{config.num_threads} threads (num_threads) on {cores} cores; they take turns"
        )
