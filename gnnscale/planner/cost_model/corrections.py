"""Stage times of mini-batches by counted work: no clock is read, so that they repeat exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gnnscale.core import StageTimes
from gnnscale.planner import device_plan, platform
from gnnscale.planner.cost_model import equations
from gnnscale.planner.cost_model.predict import (
    Correction,
    Host,
    device_times,
    host_seconds,
    predict,
)
from gnnscale.planner.cost_model.workload import Workload
from gnnscale.planner.device_plan import DevicePlan
from gnnscale.planner.platform import Platform

#: Rates of one core, rounded from those that ``calibrate`` found for an AMD EPYC (Zen 4). That they
#: are far off elsewhere makes a run slower, and changes nothing of its being repeatable. They are
#: part of what a repeatable run computes: other figures give other plans.
_RATES_OF_A_CORE = {
    "memory_bandwidth": 10e9,
    "cache_bandwidth": 25e9,
    "rows_per_s": 1e9,
    "memory_rows_per_s": 200e6,
    "aggregate_bandwidth": 2e9,
    "stream_bandwidth": 5e9,
    "macs_per_s": 30e9,
    "attention_per_s": 10e6,
    "sampled_edges_per_s": 60e6,
}


def nominal_platform(cores: int) -> platform.Platform:
    """Return a machine of ``cores`` alike, of which t threads do t times the work of one."""
    threads = sorted({1, cores})
    return platform.Platform(
        name=platform.NOMINAL,
        processor=platform.Processor(
            name="nominal",
            cores=cores,
            cache_bytes=32 << 20,
            threads=threads,
            rates=platform.Rates(
                **{name: [rate * n for n in threads] for name, rate in _RATES_OF_A_CORE.items()}
            ),
            layer_s=[3e-4] * len(threads),
            load_s=2e-4,
            lookups_per_s=20e6,
            update_s=3e-4,
            update_bandwidth=1e9,
            sharing=platform.Sharing(
                compute_contention=1.0,
                memory_contention=1.0,
                sync_latency_s=3e-4,
                sync_bandwidth=1e9,
            ),
        ),
    )


class WorkCounter:
    """What the mini-batches of one device take by their vertices, edges and bytes (eq. 7 to 13).

    The device has the rates of its metadata, the host nominal ones. Caches spare what their plan
    foretells: what they have found depends on when a run was resumed.
    """

    def __init__(self, workload: Workload, *, rank: int, cores: int) -> None:
        """Count the work of one device."""
        self._workload = workload
        self._rank = rank
        self._processor = nominal_platform(cores).processor

    def stage_times(
        self,
        plan: device_plan.DevicePlan,
        size: equations.BatchSize | None,
        *,
        host_samples: bool = False,
    ) -> StageTimes:
        """Return the seconds of each stage of a mini-batch under ``plan``.

        Args:
            size: None without seeds.
            host_samples: whether the host samples it, for a device that samples others by itself.
        """
        if size is None or not size.num_seeds:
            return StageTimes()
        share = replace(plan.shares[self._rank], num_seeds=int(size.num_seeds))
        machine = [each for each in plan.shares if each.machine == share.machine]
        threads = float(sum(each.host_threads for each in machine))
        host = Host(processor=self._processor, num_workers=len(plan.shares), emulates=True)
        active = dict.fromkeys(("sample", "load", "propagate"), threads)
        part = device_plan.SAMPLED_IN_TURN if host_samples else 0
        share = replace(share, host_samples=part)
        return device_times(host, share, self._workload, size, active, {}).stages


#: Rounds in which corrections settle: a stage that takes longer is longer in the others' way.
_ROUNDS = 12

#: How much longer than its device asks for a stage takes that is left to the host.
_LATE = 1.05


def correct(
    plan: DevicePlan,
    workloads: Sequence[Workload],
    platform: Platform,
    measured: Sequence[StageTimes],
    step_s: float,
) -> Correction:
    """Return the correction under which ``plan`` takes as long as it was measured to take."""
    found = Correction(host=({},) * len(plan.shares), step=1.0)
    predicted = predict(plan, workloads, platform)
    for _ in range(_ROUNDS):
        expected = host_seconds(plan, workloads, platform, found)
        each = zip(found.host, expected, measured, predicted.devices, strict=True)
        found = Correction(host=tuple(_scaled(*device) for device in each), step=1.0)
        predicted = predict(plan, workloads, platform, correction=found)
    return Correction(host=found.host, step=step_s / predicted.step_s)


def _scaled(
    before: Mapping[str, float],
    on_host: Mapping[str, float],
    measured: StageTimes,
    predicted: StageTimes,
) -> dict[str, float]:
    """One device's corrections, a round further.

    If an emulated device makes a stage last, the host took that long at most.
    """
    after = {}
    for stage, seconds in on_host.items():
        took = getattr(measured, stage)
        waits = getattr(predicted, stage) > seconds and took <= _LATE * getattr(predicted, stage)
        ratio = took / seconds if seconds > 0 and took > 0 else 1.0
        after[stage] = before.get(stage, 1.0) * (min(ratio, 1.0) if waits else ratio)
    return after
