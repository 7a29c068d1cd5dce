"""One decision of dynamic resource management: a pure function of the stage times.

Every worker has the same times, and comes to the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnscale.plan import DevicePlan
from gnnscale.runtime.drm.algorithm1 import Choice, algorithm_1
from gnnscale.runtime.drm.balance_thread import HostTask, Trade, balance_thread
from gnnscale.runtime.drm.balance_work import balance_work, expected_seconds
from gnnscale.runtime.drm.damping import DEAD_BAND, Damping, Trial
from gnnscale.runtime.drm.task_times import TaskTimes
from gnnscale.stages import StageTimes

__all__ = ["Decision", "rebalance"]

#: Times that are so far apart are brought closer, whatever that promises: the time of a device with
#: a small share is mostly overhead, and makes it look slow.
_FAR_APART = 2 / 3


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What ``rebalance`` decides.

    Attributes:
        plan: the plan from now on; equal to the one before where nothing is to be gained.
        damping: to be handed to the next decision.
        move: what is done and why, one line; None where nothing is.
        bottleneck: the paper's name of the task that takes longest; None where nothing was
            measured.
    """

    plan: DevicePlan
    damping: Damping
    move: str | None = None
    bottleneck: str | None = None


def rebalance(
    plan: DevicePlan, stages: Sequence[StageTimes], damping: Damping, *, movable: bool = True
) -> Decision:
    """Make one decision of dynamic resource management (HyScale-GNN, section IV-A).

    Algorithm 1 chooses the move. Where it chooses ``balance_thread``, work is moved instead if that
    promises more: in the paper a CPU task serves all devices alike, here every worker has its own,
    and what one of them is late with may be a matter of its share. Work also moves where no
    thread can be taken, as on two cores, where every task has one.

    Moves settle (see ``Damping``). One that promises less than the dead band is not made; work goes
    a smaller part of its way after each change of direction; a trade of threads that did not make
    its receiver faster, or made the step slower, is taken back and not tried again for a while, and
    one that did is not reversed for a while.

    Args:
        plan: the plan in effect.
        stages: each device's times under it, of a full mini-batch.
        damping: from the decision before.
        movable: whether seeds may move between devices; threads may in any case.
    """
    pairs = zip(plan.shares, stages, strict=True)
    devices = [TaskTimes.of_device(share, times) for share, times in pairs]
    seconds = [times.longest for times in devices]
    if max(seconds) <= 0:
        return Decision(plan=plan, damping=damping)
    choice = algorithm_1(TaskTimes.of(plan, stages))
    damping = damping.observe(plan, seconds)
    trial, damping = damping.trial, replace(damping, trial=None)
    if trial is not None and not _proves_itself(trial, devices, max(seconds)):
        return _take_back(plan, devices, damping, choice, trial)
    found = None
    if choice.move == "balance_thread":
        found = balance_thread(
            plan,
            devices,
            givers=choice.givers,
            bottleneck=choice.bottleneck,
            tabu_trades=[trade for trade, _ in damping.tabu_trades],
        )
    promise = _promise_of_work(plan, damping) if movable else 0.0
    if found is not None and found[1] >= max(promise, damping.threshold):
        return _make_trade(plan, devices, damping, choice, found[0])
    if promise >= damping.threshold:
        return _move_work(plan, devices, damping, choice)
    return Decision(plan=plan, damping=damping, bottleneck=choice.bottleneck)


def _promise_of_work(plan: DevicePlan, damping: Damping) -> float:
    """The part of a step that equal times would save; all of it where a device's speed is unknown.

    It is told from the mean times under the plan, so that noise fades while nothing moves.
    """
    seconds = damping.seconds
    target = _work(plan, damping)
    if any(new and not old for old, new in zip(plan.split, target, strict=True)):
        return 1.0
    working = [each for each, count in zip(seconds, plan.split, strict=True) if count]
    if min(working) < _FAR_APART * max(working):
        return 1.0
    after = expected_seconds(plan.split, seconds, target, fixed=damping.fixed)
    return 1 - after / max(seconds)


def _work(plan: DevicePlan, damping: Damping, *, gain: float = 1.0) -> tuple[int, ...]:
    split = balance_work(
        plan.split,
        damping.seconds,
        fixed=damping.fixed,
        gain=gain,
        excluded_devices=damping.excluded_devices,
    )
    return plan.within_memory(split)


def _move_work(
    plan: DevicePlan, devices: Sequence[TaskTimes], damping: Damping, choice: Choice
) -> Decision:
    target = _work(plan, damping)
    damping = damping.steer([new - old for old, new in zip(plan.split, target, strict=True)])
    split = _work(plan, damping, gain=damping.gain)
    shift = tuple(new - old for old, new in zip(plan.split, split, strict=True))
    if not any(shift):
        return Decision(plan=plan, damping=damping, bottleneck=choice.bottleneck)
    dropped = tuple(i for i, count in enumerate(split) if plan.split[i] and not count)
    damping = replace(damping, shift=shift, excluded_devices=damping.excluded_devices + dropped)
    names = [share.device.label for share in plan.shares]
    givers = ", ".join(name for name, change in zip(names, shift, strict=True) if change < 0)
    takers = ", ".join(name for name, change in zip(names, shift, strict=True) if change > 0)
    moved = sum(change for change in shift if change > 0)
    seeds = "1 seed" if moved == 1 else f"{moved} seeds"
    return Decision(
        plan=plan.with_split(split),
        damping=damping,
        move=f"{_reason(devices, choice)}: {seeds} from {givers} to {takers}",
        bottleneck=choice.bottleneck,
    )


def _make_trade(
    plan: DevicePlan,
    devices: Sequence[TaskTimes],
    damping: Damping,
    choice: Choice,
    trade: Trade,
) -> Decision:
    lane = trade.receiver
    trial = Trial(
        trade=trade,
        step=max(times.longest for times in devices),
        receiver=devices[lane.device].tasks()[lane.task],
    )
    damping = replace(damping.forbid(trade.reverse), trial=trial)
    return Decision(
        plan=trade.apply(plan),
        damping=damping,
        move=f"{_reason(devices, choice)}: 1 thread from {_describe(plan, trade)}",
        bottleneck=choice.bottleneck,
    )


def _proves_itself(trial: Trial, devices: Sequence[TaskTimes], step: float) -> bool:
    lane = trial.trade.receiver
    faster = devices[lane.device].tasks()[lane.task] < trial.receiver
    return faster and step <= trial.step * (1 + DEAD_BAND)


def _take_back(
    plan: DevicePlan,
    devices: Sequence[TaskTimes],
    damping: Damping,
    choice: Choice,
    trial: Trial,
) -> Decision:
    back = trial.trade.reverse
    return Decision(
        plan=back.apply(plan),
        damping=damping.forbid(trial.trade),
        move=f"{_reason(devices, choice)}: 1 thread back from {_describe(plan, back)}",
        bottleneck=choice.bottleneck,
    )


def _reason(devices: Sequence[TaskTimes], choice: Choice) -> str:
    tasks = [times.tasks() for times in devices]
    longest = max(each[choice.bottleneck] for each in tasks if choice.bottleneck in each)
    return f"{choice.bottleneck} {longest * 1000:.1f} ms is the bottleneck"


def _describe(plan: DevicePlan, trade: Trade) -> str:
    def name(lane: HostTask) -> str:
        device = plan.shares[lane.device].device
        return f"{lane.task} of {device.label}"

    return f"{name(trade.giver)} to {name(trade.receiver)}"
