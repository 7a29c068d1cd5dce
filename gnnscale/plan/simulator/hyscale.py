"""HyScale-GNN's simulator (section VI-D): a processor and accelerators that train together."""

from __future__ import annotations

from dataclasses import replace

from gnnscale.core import STAGES, mteps
from gnnscale.plan import device_plan, planner
from gnnscale.plan.device import Accelerator
from gnnscale.plan.perf.equations import Prediction, pipeline_seconds
from gnnscale.plan.perf.workload import Workload
from gnnscale.plan.platform import Platform
from gnnscale.plan.simulator.records import Planned, Simulated


def simulate_step(
    platform: Platform,
    workload: Workload,
    num_accelerators: int,
    *,
    batch_size: int,
    num_vertices: int,
    hybrid: bool,
    fused: bool,
    prefetch: str,
) -> Simulated:
    """Predict epochs with ``num_accelerators``, the split and the threads as the planner has them.

    Args:
        platform: with effective rates.
        batch_size: seeds of each accelerator's mini-batch; of the processor's without accelerators.
        num_vertices: seeds of an epoch.
        hybrid: whether the processor trains too, if that makes a step shorter.
        fused: whether the processor aggregates features while it loads them.
        prefetch: one of ``PREFETCH``, or ``auto``.
    """
    devices = platform.devices(num_accelerators)
    if num_accelerators and not hybrid:
        devices = devices[1:]
    seeds = batch_size * max(num_accelerators, 1)
    splits: list[list[int] | None] = [None]
    if num_accelerators and hybrid:
        # If loading for the accelerators takes all of the memory, the processor had better rest.
        splits.append([0, *device_plan.apportion([1] * num_accelerators, seeds)])
    plan, predicted = min(
        (
            planner.plan_devices(
                devices,
                batch_size=seeds,
                cores=platform.processor.cores,
                prefetch=prefetch,
                split=split,
                workloads=[replace(workload, host_aggregates=fused)] * len(devices),
                platform=platform,
                emulates=False,
            )[0]
            for split in splits
        ),
        key=lambda found: found[1].step_s,
    )
    sizes = [workload.size(share.num_seeds) for share in plan.shares]
    nvtps = sum(size.num_vertices for size in sizes) / predicted.step_s
    return Simulated(
        num_accelerators=num_accelerators,
        step_s=predicted.step_s,
        epoch_s=num_vertices / seeds * predicted.step_s,
        mteps=mteps(predicted.num_edges, predicted.step_s),
        nvtps=nvtps,
        bandwidth_efficiency=nvtps / (_bandwidth(platform, num_accelerators) / 1e9),
        energy_j=None,
        bottleneck=_bottleneck(plan, predicted),
        planned=Planned(plan=plan, predicted=predicted),
    )


def _bandwidth(platform: Platform, num_accelerators: int) -> float:
    """Return the bytes per second of the memories of the host and the accelerators."""
    accelerators = platform.devices(num_accelerators)[1:]
    own = (each.memory_bandwidth for each in accelerators if isinstance(each, Accelerator))
    return platform.listed_bandwidth + sum(own)


def _bottleneck(plan: device_plan.DevicePlan, predicted: Prediction) -> str:
    """The longest stage of the device that the others wait for."""
    pairs = list(zip(predicted.devices, plan.shares, strict=True))
    slowest, _ = max(
        pairs, key=lambda pair: pipeline_seconds(replace(pair[0], sync=0.0), pair[1].prefetch)
    )
    return max((getattr(slowest, stage), stage) for stage in STAGES)[1]
