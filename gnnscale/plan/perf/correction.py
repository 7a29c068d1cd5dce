"""What a rehearsal teaches the performance model: rates that hold for this run, here and now.

Rates of a platform are those of other models, measured at another time. A few mini-batches of the
run itself, on all devices at once, measure their error.
"""

from collections.abc import Mapping, Sequence

from gnnscale.core import StageTimes
from gnnscale.plan.device_plan import DevicePlan
from gnnscale.plan.perf.predict import Correction, host_seconds, predict
from gnnscale.plan.perf.workload import Workload
from gnnscale.plan.platform import Platform

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
