"""The device plan that a run begins with."""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from gnnscale.graph import Graph
from gnnscale.hardware import usable_cores
from gnnscale.model import GNN
from gnnscale.plan import Device, DevicePlan, DeviceShare, Threads
from gnnscale.plan.calibrate import estimate
from gnnscale.plan.perf_model import Prediction
from gnnscale.plan.planner import plan_devices, predict
from gnnscale.plan.platform import Platform, ThisMachine, platform_file
from gnnscale.plan.present import at_present, time_probes
from gnnscale.plan.workload import measure_workload
from gnnscale.runtime.group import Group
from gnnscale.runtime.settings import TrainConfig

__all__ = ["initial_plan", "plan_from", "plan_values", "present_platform"]


def initial_plan(
    config: TrainConfig,
    graph: Graph,
    model: GNN,
    group: Group,
    known: Sequence[dict[str, Any]] | None,
    platform: Platform,
) -> tuple[DevicePlan, Prediction]:
    """Let the performance model choose split, threads and prefetching (section V).

    Args:
        config: the run's options, which may fix the split and the kind of prefetching.
        graph: the graph.
        model: the model, for its sizes.
        group: the workers, which may be spread over several machines of the same kind.
        known: the plan of a run that is resumed, as plain values: nothing is left to choose.
        platform: this machine's rates.

    Returns:
        The plan, and what the model says of it.
    """
    devices = config.device_plan.parsed()
    machines = -(-group.size // group.local_size)
    threads = min(config.num_threads, usable_cores())
    workload = measure_workload(
        graph,
        model,
        config.sampler,
        batch_size=config.batch_size,
        seed=config.seed,
        fused=config.runtime.fused,
        cores=threads,
    )
    if known is not None:
        plan = plan_from(devices, known)
        return plan, predict(plan, workload, platform)
    return plan_devices(
        devices,
        batch_size=config.batch_size,
        cores=threads * machines,
        prefetch=config.runtime.prefetch,
        split=config.device_plan.split,
        workload=workload,
        platform=platform,
        in_flight=config.runtime.prefetch_depth + 1,
        per_machine=group.local_size,
    )


def present_platform(config: TrainConfig, group: Group) -> Platform | None:
    """Find out how fast this machine is now, with all workers at work; every worker takes part.

    The rates are those of ``gnnscale doctor --calibrate``, or a quick estimate without; probes tell
    how much slower or faster the host is at present.

    Returns:
        The platform where the group is led, None elsewhere.
    """
    threads = max(1, min(config.num_threads, usable_cores()) // group.local_size)
    platform = _this_machine() if group.leads else None
    group.barrier()
    steps = _time_probes(threads) if group.size == 1 else time_probes(threads)
    mine = [(step.load_s, step.propagate_s) for step in steps]
    every = [json.loads(each) for each in group.gather(json.dumps(mine).encode())]
    if platform is None:
        return None
    typical = [
        replace(
            step,
            load_s=statistics.median(worker[i][0] for worker in every),
            propagate_s=statistics.median(worker[i][1] for worker in every),
        )
        for i, step in enumerate(steps)
    ]
    return at_present(platform, typical, threads=threads, workers=group.local_size)


@functools.cache
def _this_machine() -> Platform:
    return ThisMachine().open() if platform_file().exists() else estimate()


_time_probes = functools.cache(time_probes)


def plan_values(plan: DevicePlan) -> list[dict[str, Any]]:
    """Return a plan as plain values; the devices themselves are in the options."""
    return [
        {
            "num_seeds": share.num_seeds,
            "threads": asdict(share.threads),
            "prefetch": share.prefetch,
            "most_seeds": share.most_seeds,
            "machine": share.machine,
        }
        for share in plan.shares
    ]


def plan_from(devices: Sequence[Device], values: Sequence[dict[str, Any]]) -> DevicePlan:
    """Rebuild a plan from ``plan_values``."""
    return DevicePlan(
        shares=tuple(
            DeviceShare(
                device=device,
                **(dict(each) | {"threads": Threads(**each["threads"])}),
            )
            for device, each in zip(devices, values, strict=True)
        )
    )
