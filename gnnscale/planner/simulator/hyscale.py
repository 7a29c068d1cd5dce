"""HyScale-GNN's simulator (section VI-D): a processor and accelerators that train together."""

from dataclasses import dataclass, replace

from gnnscale.core import STAGES, mteps
from gnnscale.planner import device_plan, planner
from gnnscale.planner.cost_model import Prediction, Workload, pipeline_seconds
from gnnscale.planner.device_plan import DevicePlan
from gnnscale.planner.device_spec import Accelerator, Efficiency
from gnnscale.planner.platform import Platform


@dataclass(frozen=True, kw_only=True)
class SimulatedPlan:
    """Device plan of a simulated step: split of the seeds, threads, and predicted stage times."""

    plan: DevicePlan  #: the split and the threads
    predicted: Prediction


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """Predicted times and throughput of training with a certain number of accelerators."""

    num_accelerators: int  #: number of accelerators
    step_s: float  #: seconds of a step
    epoch_s: float  #: seconds of an epoch
    mteps: float  #: million traversed edges per second (HyScale-GNN, eq. 5)
    nvtps: float  #: vertices of all layers per second (HitGNN, eq. 3)
    bandwidth_efficiency: float  #: ``nvtps`` per GB/s of all memories (HitGNN, section VII-D)
    energy_j: float | None  #: joules of an epoch on the accelerators. None: their power is unknown
    bottleneck: str  #: longest stage of the slowest device
    #: split, threads and stage times. None: HitGNN's systems have no planner
    planned: SimulatedPlan | None = None


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """Simulated runs for several numbers of accelerators."""

    graph: str  #: name of the graph
    model: str  #: name of the model's options class
    platform: str  #: name of the platform
    system: str  #: the simulated system, ``hyscale`` or one of HitGNN's
    #: reached fractions of the platform's peak rates. None: the rates are effective
    efficiency: Efficiency | None
    hybrid: bool  #: whether the processor trains next to the accelerators
    results: tuple[SimulatedRun, ...]  #: runs in the order of the option ``accelerators``
    #: results of a published platform for comparison. None: no comparison
    comparison: "ScalingCurve | None" = None
    measured: bool = False  #: whether the platform's rates were measured on a machine

    def speedup(self, result: SimulatedRun) -> float:
        """Return the epoch time of the first of ``results``, divided by that of ``result``."""
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
    """Return predicted training with ``num_accelerators``, by the planner's split and threads.

    A step has ``batch_size`` seeds per accelerator, or for the processor alone; an epoch has
    ``num_vertices`` seeds. ``hybrid``: the processor takes a share of a step's seeds if that
    shortens the step. ``fused``: the processor aggregates features while it loads them.
    """
    devices = platform.devices(num_accelerators)
    if num_accelerators and not hybrid:
        devices = devices[1:]
    seeds = batch_size * max(num_accelerators, 1)
    splits: list[list[int] | None] = [None]
    if num_accelerators and hybrid:
        # An idle processor may be faster if loading uses all of the memory bandwidth.
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
        key=lambda candidate: candidate[1].step_s,
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
    """Return the summed bytes per second of host memory and the accelerators' memories."""
    accelerators = platform.devices(num_accelerators)[1:]
    rates = (card.memory_bandwidth for card in accelerators if isinstance(card, Accelerator))
    return platform.listed_bandwidth + sum(rates)


def _bottleneck(plan: device_plan.DevicePlan, predicted: Prediction) -> str:
    """Return the longest stage's name of the device that is slowest apart from synchronization."""
    pairs = list(zip(predicted.devices, plan.shares, strict=True))
    slowest, _ = max(
        pairs, key=lambda pair: pipeline_seconds(replace(pair[0], sync=0.0), pair[1].prefetch)
    )
    return max((getattr(slowest, stage), stage) for stage in STAGES)[1]
