"""HyScale-GNN's simulator (section VI-D): a processor and accelerators that train together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnscale.core import STAGES, mteps
from gnnscale.planner import device_plan, planner
from gnnscale.planner.cost_model.equations import Prediction, pipeline_seconds
from gnnscale.planner.cost_model.workload import Workload
from gnnscale.planner.device_plan import DevicePlan
from gnnscale.planner.device_spec import Accelerator, Efficiency
from gnnscale.planner.platform import Platform


@dataclass(frozen=True, kw_only=True)
class SimulatedPlan:
    """What the planner chose for a step, and the stage times that follow."""

    plan: DevicePlan  #: the split and the threads
    predicted: Prediction


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """Training with some number of accelerators.

    Attributes:
        num_accelerators: how many.
        step_s: seconds of a step.
        epoch_s: seconds of an epoch.
        mteps: HyScale-GNN, eq. 5.
        nvtps: vertices of all layers per second, HitGNN, eq. 3.
        bandwidth_efficiency: ``nvtps`` over all memories' bytes per second, in GB (HitGNN, section
            VII-D).
        energy_j: joules of an epoch, of the accelerators; None if their power is not known.
        bottleneck: what takes longest of the slowest device's step.
        planned: the split, the threads and the stage times; None without a planner.
    """

    num_accelerators: int
    step_s: float
    epoch_s: float
    mteps: float
    nvtps: float
    bandwidth_efficiency: float
    energy_j: float | None
    bottleneck: str
    planned: SimulatedPlan | None = None


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """Results for several numbers of accelerators.

    Attributes:
        graph: the graph's name.
        model: name of the model's options class.
        platform: the platform's name.
        system: the published system that is simulated, ``hyscale`` or one of HitGNN's.
        efficiency: the part of the platform's peak rates that was reckoned with; None if its
            rates count in full.
        hybrid: whether the processor trains beside the accelerators.
        results: in the order asked for.
        beside: the same on a published platform; None if not asked for.
        measured: whether a machine measured the platform's rates, and no document states them.
    """

    graph: str
    model: str
    platform: str
    system: str
    efficiency: Efficiency | None
    hybrid: bool
    results: tuple[SimulatedRun, ...]
    beside: ScalingCurve | None = None
    measured: bool = False

    def speedup(self, result: SimulatedRun) -> float:
        """Return how much faster than the first result an epoch is."""
        return self.results[0].epoch_s / result.epoch_s


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
) -> SimulatedRun:
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
    return SimulatedRun(
        num_accelerators=num_accelerators,
        step_s=predicted.step_s,
        epoch_s=num_vertices / seeds * predicted.step_s,
        mteps=mteps(predicted.num_edges, predicted.step_s),
        nvtps=nvtps,
        bandwidth_efficiency=nvtps / (_bandwidth(platform, num_accelerators) / 1e9),
        energy_j=None,
        bottleneck=_bottleneck(plan, predicted),
        planned=SimulatedPlan(plan=plan, predicted=predicted),
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
