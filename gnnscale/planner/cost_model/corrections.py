"""Predictions by counted work instead of clocks, and corrections of predictions by measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gnnscale.core import StageTimes
from gnnscale.planner import device_plan
from gnnscale.planner.cost_model import equations, predict
from gnnscale.planner.cost_model.workload import Workload
from gnnscale.planner.device_plan import DevicePlan
from gnnscale.planner.platform import NOMINAL, Platform
from gnnscale.planner.processor import Processor, Rates, Sharing

#: Rates of one core, rounded from a calibration of an AMD EPYC (Zen 4). Deterministic runs depend
#: on them: other rates give other plans. Wrong rates only make a run slower.
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


def nominal_platform(cores: int) -> Platform:
    """Return a nominal machine: ``cores`` equal cores, with rates proportional to threads."""
    threads = sorted({1, cores})
    return Platform(
        name=NOMINAL,
        processor=Processor(
            name="nominal",
            cores=cores,
            cache_bytes=32 << 20,
            threads=threads,
            rates=Rates(
                **{name: [rate * n for n in threads] for name, rate in _RATES_OF_A_CORE.items()}
            ),
            layer_s=[3e-4] * len(threads),
            load_s=2e-4,
            lookups_per_s=20e6,
            update_s=3e-4,
            update_bandwidth=1e9,
            sharing=Sharing(
                compute_contention=1.0,
                memory_contention=1.0,
                sync_latency_s=3e-4,
                sync_bandwidth=1e9,
            ),
        ),
    )


class WorkCounter:
    """Model of one device's stage times by counted vertices, edges and bytes (eq. 7 to 13).

    The device has its own rates and the host nominal rates. Cache hits are the plan's expectation:
    counted hits would depend on when a run was resumed.
    """

    def __init__(self, workload: Workload, *, rank: int, cores: int) -> None:
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
            size: size of the mini-batch. None: no seeds.
            host_samples: whether the host samples this mini-batch for a device that samples.
        """
        if size is None or not size.num_seeds:
            return StageTimes()
        share = replace(plan.shares[self._rank], num_seeds=int(size.num_seeds))
        threads = float(sum(s.host_threads for s in plan.shares if s.machine == share.machine))
        host = predict.Host(processor=self._processor, num_workers=len(plan.shares), emulates=True)
        active = dict.fromkeys(("sample", "load", "propagate"), threads)
        part = device_plan.SAMPLED_IN_TURN if host_samples else 0
        share = replace(share, host_samples=part)
        return predict.device_times(host, share, self._workload, size, active, {}).stages


#: Rounds of the iteration: a correction changes the contention of all stages.
_ROUNDS = 12

#: A host stage counts as late above this ratio to its device's own time.
_LATE = 1.05


def correct(
    plan: DevicePlan,
    workloads: Sequence[Workload],
    platform: Platform,
    measured: Sequence[StageTimes],
    step_s: float,
) -> predict.Correction:
    """Return the correction with which the prediction of ``plan`` equals its measured times.

    ``measured`` are stage times of each device, ``step_s`` the seconds of a step.
    """
    correction = predict.Correction(host=({},) * len(plan.shares), step=1.0)
    predicted = predict.predict(plan, workloads, platform)
    for _ in range(_ROUNDS):
        expected = predict.host_seconds(plan, workloads, platform, correction)
        devices = zip(correction.host, expected, measured, predicted.devices, strict=True)
        correction = predict.Correction(
            host=tuple(_scaled(*device) for device in devices), step=1.0
        )
        predicted = predict.predict(plan, workloads, platform, correction=correction)
    return predict.Correction(host=correction.host, step=step_s / predicted.step_s)


def _scaled(
    previous: Mapping[str, float],
    on_host: Mapping[str, float],
    measured: StageTimes,
    predicted: StageTimes,
) -> dict[str, float]:
    """Return factors by host stage: ``previous``, multiplied by measured over predicted seconds.

    ``on_host`` has the seconds predicted on the host, ``predicted`` those of the device's stage.
    The factor of a stage that the device's own time hides is not increased.
    """
    scaled = {}
    for stage, seconds in on_host.items():
        took = getattr(measured, stage)
        waits = getattr(predicted, stage) > seconds and took <= _LATE * getattr(predicted, stage)
        ratio = took / seconds if seconds > 0 and took > 0 else 1.0
        scaled[stage] = previous.get(stage, 1.0) * (min(ratio, 1.0) if waits else ratio)
    return scaled
