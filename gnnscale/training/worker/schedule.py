"""What a worker trains when: the plan that all workers agree on, and the stages that run ahead."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnscale.cache import CachePlan
from gnnscale.cache.belady import LookAheadReplay
from gnnscale.core import Array, Pipeline
from gnnscale.distributed.process_group import Group, trade_values
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.partition.nvlink import links_between
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.run.config import RunConfig
from gnnscale.run.records import NetworkStats, RunLayout
from gnnscale.sampling import Sampler
from gnnscale.training.build.cache import cache_effects, find_uncached
from gnnscale.training.drm.balance import shares_sampling
from gnnscale.training.drm.rebalancer import Rebalancer, RebalancerState
from gnnscale.training.gradient_sync import StepTotals
from gnnscale.training.pipeline.device_step import max_late
from gnnscale.training.pipeline.slices import BatchSlice, Schedule
from gnnscale.training.pipeline.stages import Stages, build_pipeline, runs_ahead
from gnnscale.training.planning.cost_estimates import PlanModel
from gnnscale.training.planning.drop_cpu import ProcessorsDropped, compare, plan_alone
from gnnscale.training.planning.profiling import PlanProfile, profile_plan
from gnnscale.training.planning.search import PlanSearch, agree_on_plan
from gnnscale.training.worker.device import WorkerDevice
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)


#: Steps that are sampled at once if the disk has their neighbours: those that several of them need
#: are read once.
_AT_ONCE = 8


def sample_at_once(
    slices: Iterator[BatchSlice], stages: Stages, *, count: int
) -> Iterator[BatchSlice]:
    """Yield ``slices`` with their samples, of which ``count`` are drawn at the same time."""
    waiting: deque[tuple[BatchSlice, Future[None]]] = deque()
    with ThreadPoolExecutor(count, "gnnscale-sample") as threads:
        for batch in slices:
            waiting.append((batch, threads.submit(stages.sample, batch)))
            if len(waiting) == count:
                yield _sampled(*waiting.popleft())
        while waiting:
            yield _sampled(*waiting.popleft())


def _sampled(batch: BatchSlice, sampling: Future[None]) -> BatchSlice:
    sampling.result()
    return batch


def look_ahead(
    slices: Iterator[BatchSlice],
    stages: Stages,
    *,
    window: int,
    expect: Callable[[Array | None], None],
    end: Callable[[], None] | None = None,
) -> Iterator[BatchSlice]:
    """Yield ``slices`` with their samples, each once the ``window`` slices after it are sampled.

    Args:
        slices: in the order of steps.
        window: slices that are sampled ahead of the one that is yielded.
        expect: takes the input vertices of every slice in this order; None if it has no seeds.
        end: is called after the last slice.
    """
    waiting: deque[BatchSlice] = deque()
    for batch in slices:
        stages.sample(batch)
        expect(stages.input_vertices(batch))
        waiting.append(batch)
        if len(waiting) > window:
            yield waiting.popleft()
    if end is not None:
        end()
    yield from waiting


def draw_ahead(
    slices: Iterator[BatchSlice], sampler: Sampler, replay: LookAheadReplay
) -> Iterator[BatchSlice]:
    """Yield ``slices`` of a device that samples by itself, each once those after it are drawn.

    The host draws the same mini-batches, of which it knows what enters the device's cache.
    """
    waiting: deque[BatchSlice] = deque()
    for batch in slices:
        vertices = None
        if len(batch.seeds):
            vertices = sampler.sample(batch.seeds, batch.step).input_vertices
        replay.expect(vertices)
        waiting.append(batch)
        if len(waiting) > replay.window:
            yield waiting.popleft()
    yield from waiting


def plan_layout(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    device: WorkerDevice,
    group: Group,
    known: list[dict[str, Any]] | None,
) -> RunLayout:
    """Let rank 0 search for a plan, which all workers profile, or go on with the one known.

    Args:
        known: the plan of a run that is resumed, as plain values; None to search.

    Raises:
        ConfigError: a device cannot hold its part.
        ProcessorsLeftOut: they do not shorten the steps.
    """
    start = time.perf_counter()
    search = None
    if group.is_rank0:
        model = PlanModel(
            config,
            data.graph,
            learning.model,
            group,
            data.order,
            sampling=data.task.sampling(config.trained_sampler, data.order),
            devices=device.devices,
            effects=cache_effects(len(device.devices), data.caches),
            # What a disk does is measured, and no part of a run that is to repeat.
            source=None
            if device.tier is None or config.runtime.deterministic
            else device.tier.effect,
        )
        search = PlanSearch(config, model, data.order, known)

    def profile(plan: DevicePlan, *, rank: int = group.rank, alone: bool = False) -> PlanProfile:
        optimizer = config.optimizer.build(learning.trained)  # thrown away
        return profile_plan(
            data.order,
            plan,
            rank=rank,
            model=learning.trained,
            backend=device.backend,
            stages=device.stages,
            step=device.rehearsal(learning.trained, optimizer, alone=alone),
        )

    plan = agree_on_plan(search, device.devices, group, profile)
    if device.alone is not None:
        whole = plan_alone(
            device.devices[device.alone],
            batch_size=config.batch_size,
            cores=config.host_threads,
        )
        rehearsed = group.broadcast_json(None if search is None else search.rehearsed_s)
        _leave_out(device, group, rehearsed, partial(profile, whole, rank=0, alone=True))
    if search is None:
        return RunLayout(plan=plan)
    layout = RunLayout(
        plan=plan,
        predicted=search.predictions,
        planning_s=time.perf_counter() - start,
        step_bytes=search.step_bytes(),
        partition=None if data.partition is None else data.partition.figures,
        cache=None if data.caches is None else data.caches.figures,
        uncached=find_uncached(config, data.caches),
        nvlink=_nvlink(device, group),
        network=None if device.rows is None else _network(device.rows, data),
    )
    _report_bytes(layout, learning)
    _report_depths(plan, config)
    return layout


def _network(rows: ShardedStore, data: TrainInputs) -> NetworkStats:
    return NetworkStats(
        num_machines=rows.num_machines,
        row_bytes=rows.row_bytes,
        id_bytes=data.graph.indices.itemsize,
    )


def _nvlink(device: WorkerDevice, group: Group) -> tuple[tuple[int, ...], ...] | None:
    """Return the NVLinks between the GPUs of a run on one machine, as its driver reports them."""
    gpus = [each.gpu for each in device.devices if each.gpu is not None]
    return links_between(gpus) if gpus and group.local_size == group.size else None


def _leave_out(
    device: WorkerDevice,
    group: Group,
    step_with_s: float | None,
    profile: Callable[[], PlanProfile],
) -> None:
    """Rehearse the accelerator alone, and leave the processors out if that is no slower.

    Args:
        step_with_s: of the plan that was chosen; None if nothing was rehearsed.
        profile: of the accelerator alone.

    Raises:
        ProcessorsLeftOut: in every worker.
    """
    if step_with_s is None or device.alone is None:
        return
    mine = profile().step_s if group.rank == device.alone else None
    step_without_s = trade_values(mine, group)[device.alone]
    found = compare(
        device.devices, device.alone, step_with_s=step_with_s, step_without_s=step_without_s
    )
    if found is not None:
        raise ProcessorsDropped(found)


def _report_depths(plan: DevicePlan, config: RunConfig) -> None:
    """Say which devices' memory has room for fewer mini-batches than may be prepared ahead."""
    for share in plan.shares:
        if share.depth is not None and share.prefetch != "none":
            log.info(
                f"{share.device.label}: its memory holds {share.depth} mini-batches of "
                f"{share.num_seeds} seeds at once, so that it prepares {share.depth} ahead at most "
                f"(runtime.prefetch_depth={config.runtime.prefetch_depth})"
            )


def _report_bytes(layout: RunLayout, learning: ModelState) -> None:
    """Say what a step over parts moves, and what it would with the other kind of first layer."""
    found = layout.step_bytes
    if found is None or layout.partition is None:
        return
    ways = {"p3": found.p3, "data_parallel": found.data_parallel}
    mine, other = ("p3", "data_parallel") if learning.split else ("data_parallel", "p3")
    log.info(
        f"a step is expected to move {ways[mine] / 1e6:,.1f} MB ({mine}); "
        f"{ways[other] / 1e6:,.1f} MB as {other}, so that {found.cheaper} moves less"
    )


@dataclass(frozen=True, kw_only=True)
class BatchSchedule:
    """The slices of one worker, in the order of steps, and who decides how large they are."""

    device: WorkerDevice  #: the worker's device
    group: Group  #: the workers
    slices: Schedule  #: which slice of which mini-batch is trained, and under which plan
    pipeline: Pipeline[BatchSlice]  #: slices that are sampled, loaded and transferred ahead of time
    rebalancer: Rebalancer | None  #: dynamic resource management; None without

    @classmethod
    def open(
        cls,
        config: RunConfig,
        data: TrainInputs,
        device: WorkerDevice,
        group: Group,
        plan: DevicePlan,
        *,
        first_step: int,
        kept: RebalancerState,
    ) -> BatchSchedule:
        """Let the stages run ahead, from ``first_step`` under ``plan``."""
        share, depth = plan.shares[group.rank], config.runtime.prefetch_depth
        lead_steps = (depth + 1 if runs_ahead(plan) else 1) + max_late(plan)
        if device.ahead is not None:
            lead_steps += max(group.largest([device.ahead.lead]))
        else:
            lead_steps += _window(data.caches)
        if data.graph.lists is not None:
            lead_steps += _AT_ONCE - 1
        managed = manages(config, plan)
        slices = Schedule(
            data.order,
            plan,
            rank=group.rank,
            epochs=config.epochs,
            first_step=first_step,
            lead_steps=lead_steps if managed else None,
            pending=kept.pending,
        )
        rebalancer = None
        if managed:
            rebalancer = Rebalancer(
                slices,
                first_step=first_step,
                lead_steps=lead_steps,
                counted=config.runtime.deterministic,
                state=kept,
            )
        device.backend.set_threads(share.threads)
        pipeline = build_pipeline(
            device.stages,
            _sampled_ahead(slices, device, config, data),
            prefetch=share.prefetch,
            draws_ahead=device.cache is not None and device.cache.replay is not None,
            has_link=not share.device.on_host,
            limit=depth if share.depth is None else min(depth, share.depth),
            shares_sampling=managed and shares_sampling(share),
        )
        group.barrier()
        return cls(
            device=device, group=group, slices=slices, pipeline=pipeline, rebalancer=rebalancer
        )

    def rebalance(self, batch: BatchSlice, totals: StepTotals, *, full: bool) -> str | None:
        """Return what resource management decides after a step, ``full`` with all its seeds."""
        if self.rebalancer is None:
            return None
        decision = self.rebalancer.observe(batch.step, totals.managed, full=full)
        ahead = self.slices.plan_of(batch.step + 1).shares[self.group.rank].threads
        if ahead != batch.plan.shares[self.group.rank].threads:
            self.device.backend.set_threads(ahead)
        return decision

    def management(self, step: int) -> dict[str, Any] | None:
        """Return where resource management stands after ``step`` steps; None without."""
        return None if self.rebalancer is None else self.rebalancer.state(step).to_values()

    def paused(self) -> AbstractContextManager[None]:
        """Begin no stage of later steps within the ``with`` block, which no epoch's time counts.

        Devices that trade rows go on, and so do those that share a pool of rows: one that waits for
        another's would count that as its own.
        """
        shares_pool = self.device.tier is not None and self.group.local_size > 1
        trades = self.device.stages.exchanges or self.device.rows is not None
        return nullcontext() if trades or shares_pool else self.pipeline.paused()

    def drain(self) -> None:
        """Let every device come as far as the furthest: it may wait for the others' rows."""
        if not self.device.stages.exchanges:
            return
        self.device.stages.end()
        held = self.group.gather(json.dumps(self.slices.hold()).encode())
        self.slices.end_at(self.group.broadcast_json(max(map(json.loads, held), default=0)))
        for _ in self.pipeline:
            pass

    def leave_rows(self) -> None:
        """Take part in the exchanges of rows that other machines have begun, and end."""
        if self.device.rows is None:
            return
        self.slices.close()
        self.pipeline.stop()
        self.device.rows.close()  # which a stage may wait for
        self.pipeline.close()


def manages(config: RunConfig, plan: DevicePlan) -> bool:
    """Return whether resource management has anything to decide under ``plan``."""
    if any(each.prefetch == BY_DEVICE for each in plan.shares):
        return False
    return config.runtime.drm and (len(plan.shares) > 1 or runs_ahead(plan))


def _sampled_ahead(
    slices: Schedule, device: WorkerDevice, config: RunConfig, data: TrainInputs
) -> Iterator[BatchSlice]:
    """Return the worker's slices; drawn ahead if its cache follows the batches to come.

    Or if the disk has their neighbours, or their rows.
    """
    opened = device.cache
    drawn = slices.slices()
    if data.graph.lists is not None:
        drawn = sample_at_once(drawn, device.stages, count=_AT_ONCE)
    if opened is not None and opened.replay is not None:
        sampling = data.task.sampling(config.trained_sampler, data.order)
        sampler = sampling.sampler(
            data.task.graph, seed=config.seed, num_threads=config.num_threads
        )
        return draw_ahead(drawn, sampler, opened.replay)
    if device.ahead is not None:
        ahead = device.ahead
        return look_ahead(
            drawn, device.stages, window=ahead.lead, expect=ahead.expect, end=ahead.end
        )
    cache = None if opened is None else opened.look_ahead
    if cache is None:
        return drawn
    return look_ahead(drawn, device.stages, window=cache.window, expect=cache.expect)


def _window(plan: CachePlan | None) -> int:
    """Return the most steps that any worker draws ahead, the same in every process."""
    policies = () if plan is None else (each.look_ahead for each in plan.devices)
    return max((each.window for each in policies if each is not None), default=0)
