"""Batch schedule of a worker: the agreed plan, and the stages that run ahead of training."""

import json
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnscale.core import Pipeline
from gnnscale.distributed.process_group import all_gather_object
from gnnscale.partition.nvlink import links_between
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.run.records import NetworkStats, RunLayout
from gnnscale.training.build.cache import cache_effects
from gnnscale.training.drm.balance import shares_sampling
from gnnscale.training.drm.rebalancer import Rebalancer, RebalancerState
from gnnscale.training.gradient_sync import StepTotals
from gnnscale.training.pipeline import BatchSlice, Schedule, build_pipeline, max_late, runs_ahead
from gnnscale.training.planning.cost_estimates import PlanModel, PlanOptions
from gnnscale.training.planning.drop_cpu import ProcessorsDropped, compare, plan_solo
from gnnscale.training.planning.profiling import PlanProfile, profile_plan
from gnnscale.training.planning.search import PlanSearch, agree_on_plan
from gnnscale.training.worker.device import (
    CONCURRENT_STEPS,
    WorkerDevice,
    max_window,
    sampled_slices,
)
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)


def plan_layout(
    options: PlanOptions,
    data: TrainInputs,
    learning: ModelState,
    device: WorkerDevice,
    saved_plan: list[dict[str, Any]] | None,
) -> RunLayout:
    """Return the run's layout, with the plan that profiling chose or a checkpoint's.

    Other ranks than 0 get the plan alone. All workers call this to profile plans; ``saved_plan``
    has plain values. ConfigError if a device cannot hold its part, ProcessorsDropped if the CPU
    workers do not shorten the steps.
    """
    start, group = time.perf_counter(), device.group
    search = None
    if group.is_rank0:
        search = _open_search(options, data, learning, device, saved_plan)
    profile = partial(_profile, data, learning, device)
    plan = agree_on_plan(search, device.devices, group, partial(profile, rank=group.rank))
    if device.solo_position is not None:
        solo_plan = plan_solo(
            device.devices[device.solo_position],
            batch_size=options.batch_size,
            cores=options.num_threads,
        )
        step_s = group.broadcast_object(None if search is None else search.profiled_s)
        _drop_cpu(device, step_s, partial(profile, solo_plan, rank=0, solo=True))
    if search is None:
        return RunLayout(plan=plan)
    network, rows = None, device.rows
    if rows is not None:
        network = NetworkStats(
            num_machines=rows.num_machines,
            row_bytes=rows.row_bytes,
            id_bytes=data.graph.indices.itemsize,
        )
    layout = RunLayout(
        plan=plan,
        predicted=search.predictions,
        planning_s=time.perf_counter() - start,
        step_bytes=search.step_bytes(),
        partition=None if data.partition is None else data.partition.figures,
        cache=None if data.caches is None else data.caches.figures,
        uncached=data.uncached,
        nvlink=_nvlink(device),
        network=network,
    )
    _report_bytes(layout, learning)
    _report_depths(plan, options)
    return layout


def _open_search(
    options: PlanOptions,
    data: TrainInputs,
    learning: ModelState,
    device: WorkerDevice,
    saved_plan: list[dict[str, Any]] | None,
) -> PlanSearch:
    source = None
    if device.tier is not None and not options.deterministic:
        source = device.tier.effect  # measured, hence no part of deterministic runs
    model = PlanModel(
        options,
        data.graph,
        learning.model,
        device.group,
        data.order,
        sampling=data.sampling,
        devices=device.devices,
        effects=cache_effects(len(device.devices), data.caches),
        source=source,
    )
    return PlanSearch(model, data.order, saved_plan)


def _profile(
    data: TrainInputs,
    learning: ModelState,
    device: WorkerDevice,
    plan: DevicePlan,
    *,
    rank: int,
    solo: bool = False,
) -> PlanProfile:
    """Profile ``plan`` on this device, ``solo`` without others, by an optimizer used only here."""
    optimizer = learning.optimizer_options.build(learning.trained)
    return profile_plan(
        data.order,
        plan,
        rank=rank,
        model=learning.trained,
        backend=device.backend,
        stages=device.stages,
        step=device.profiling_step(learning.trained, optimizer, solo=solo),
    )


def _nvlink(device: WorkerDevice) -> tuple[tuple[int, ...], ...] | None:
    """Return NVLinks between each pair of GPUs; None: no GPUs, several machines, or unknown."""
    gpus = [member.gpu for member in device.devices if member.gpu is not None]
    is_one_machine = device.group.local_size == device.group.size
    return links_between(gpus) if gpus and is_one_machine else None


def _drop_cpu(
    device: WorkerDevice, step_with_s: float | None, profile: Callable[[], PlanProfile]
) -> None:
    """Profile the accelerator alone; raise ProcessorsDropped if its steps are no slower.

    ``step_with_s``: profiled time of a step with CPU workers; None: unknown, nothing happens.
    """
    position = device.solo_position
    if step_with_s is None or position is None:
        return
    step_s = profile().step_s if device.group.rank == position else None
    step_without_s = all_gather_object(step_s, device.group)[position]
    dropped = compare(
        device.devices, position, step_with_s=step_with_s, step_without_s=step_without_s
    )
    if dropped is not None:
        raise ProcessorsDropped(dropped)


def _report_depths(plan: DevicePlan, options: PlanOptions) -> None:
    """Log the devices whose memory limits the number of mini-batches prepared ahead."""
    for share in plan.shares:
        if share.depth is not None and share.prefetch != "none":
            log.info(
                f"{share.device.label}: its memory holds {share.depth} mini-batches of "
                f"{share.num_seeds} seeds, so at most {share.depth} are prepared ahead "
                f"(runtime.prefetch_depth={options.prefetch_depth})"
            )


def _report_bytes(layout: RunLayout, learning: ModelState) -> None:
    """Log the bytes that a step moves with P3 and with data parallelism."""
    step_bytes = layout.step_bytes
    if step_bytes is None or layout.partition is None:
        return
    megabytes = {"p3": step_bytes.p3 / 1e6, "data_parallel": step_bytes.data_parallel / 1e6}
    chosen, other = ("p3", "data_parallel") if learning.split else ("data_parallel", "p3")
    log.info(
        f"a step is expected to move {megabytes[chosen]:,.1f} MB ({chosen}); "
        f"{megabytes[other]:,.1f} MB as {other}, so that {step_bytes.cheaper} moves less"
    )


@dataclass(frozen=True, kw_only=True)
class BatchSchedule:
    """Schedule of the slices of one worker, and the resource management that sizes them."""

    device: WorkerDevice  #: the worker's device
    slices: Schedule  #: slices and plans in the order of steps
    pipeline: Pipeline[BatchSlice]  #: stages that prepare slices ahead of training
    rebalancer: Rebalancer | None  #: dynamic resource management; None: the plan is fixed

    @classmethod
    def open(
        cls,
        options: PlanOptions,
        data: TrainInputs,
        device: WorkerDevice,
        plan: DevicePlan,
        *,
        first_step: int,
        management: RebalancerState,
    ) -> "BatchSchedule":
        """Start to prepare slices from ``first_step``, counted over all epochs from 0, on."""
        rank, depth = device.group.rank, options.prefetch_depth
        share, lead_steps = plan.shares[rank], _lead_steps(options, data, device, plan)
        managed = manages(options, plan)
        slices = Schedule(
            data.order,
            plan,
            rank=rank,
            epochs=options.epochs,
            first_step=first_step,
            lead_steps=lead_steps if managed else None,
            pending=management.pending,
        )
        rebalancer = None
        if managed:
            rebalancer = Rebalancer(
                slices,
                first_step=first_step,
                lead_steps=lead_steps,
                counted=options.deterministic,
                state=management,
            )
        device.backend.set_threads(share.threads)
        pipeline = build_pipeline(
            device.stages,
            sampled_slices(slices, device, data),
            prefetch=share.prefetch,
            draws_ahead=device.cache is not None and device.cache.replay is not None,
            has_link=not share.device.on_host,
            limit=depth if share.depth is None else min(depth, share.depth),
            shares_sampling=managed and shares_sampling(share),
        )
        device.group.barrier()
        return cls(device=device, slices=slices, pipeline=pipeline, rebalancer=rebalancer)

    def rebalance(self, batch: BatchSlice, totals: StepTotals, *, full: bool) -> str | None:
        """Let resource management observe a step, and set threads of the next step's plan.

        ``full``: the mini-batch was full. The result is the log line of a move, or None.
        """
        if self.rebalancer is None:
            return None
        decision = self.rebalancer.observe(batch.step, totals.managed, full=full)
        rank = self.device.group.rank
        threads = self.slices.plan_of(batch.step + 1).shares[rank].threads
        if threads != batch.plan.shares[rank].threads:
            self.device.backend.set_threads(threads)
        return decision

    def management(self, step: int) -> dict[str, Any] | None:
        """Return resource management's state, to save after ``step`` steps; None: fixed plan."""
        return None if self.rebalancer is None else self.rebalancer.state(step).to_values()

    def paused(self) -> AbstractContextManager[None]:
        """Start no stage of later steps within the ``with`` block, which no epoch's time includes.

        The stages continue if workers exchange rows, or share a buffer of rows: a paused stage
        would block the others.
        """
        shares_pool = self.device.tier is not None and self.device.group.local_size > 1
        exchanges = self.device.stages.exchanges or self.device.rows is not None
        return nullcontext() if exchanges or shares_pool else self.pipeline.paused()

    def drain(self) -> None:
        """If workers exchange rows, run the stages up to the furthest step that a worker has begun.

        Otherwise a worker would wait for rows of a worker that has ended. Other runs return at
        once.
        """
        if not self.device.stages.exchanges:
            return
        self.device.stages.end()
        group = self.device.group
        positions = group.gather(json.dumps(self.slices.hold()).encode())
        self.slices.end_at(group.broadcast_object(max(map(json.loads, positions), default=0)))
        for _ in self.pipeline:
            pass

    def leave_rows(self) -> None:
        """End the stages and the sharded store, if any, after serving reads that peers started."""
        if self.device.rows is None:
            return
        self.slices.close()
        self.pipeline.stop()
        self.device.rows.close()  # unblocks a stage that waits for rows
        self.pipeline.close()


def manages(options: PlanOptions, plan: DevicePlan) -> bool:
    """Return whether resource management is enabled and has something to move under ``plan``."""
    if any(share.prefetch == BY_DEVICE for share in plan.shares):
        return False
    return options.manages and (len(plan.shares) > 1 or runs_ahead(plan))


def _lead_steps(
    options: PlanOptions, data: TrainInputs, device: WorkerDevice, plan: DevicePlan
) -> int:
    """Return how many steps are prepared ahead, and so have fixed plans; equal in all processes."""
    steps = (options.prefetch_depth + 1 if runs_ahead(plan) else 1) + max_late(plan)
    if device.prefetcher is not None:
        steps += max(device.group.largest([device.prefetcher.lead]))
    else:
        steps += max_window(data.caches)
    return steps if data.graph.lists is None else steps + CONCURRENT_STEPS - 1
