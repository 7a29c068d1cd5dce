"""``balance_work`` moves seeds, ``balance_thread`` host threads (HyScale-GNN, section IV-A)."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gnnscale.core import Count, StageTimes
from gnnscale.planner import SAMPLED_IN_TURN, DevicePlan, DeviceShare, device_plan
from gnnscale.training.drm import task_times
from gnnscale.training.drm.damping import Damping

#: Fraction of an equal share that an idle device gets, to measure its speed.
_PROBE_SHARE = 1 / 8

#: Ratio of shortest to longest time below which shares always move: a small share takes mostly
#: overhead, which makes its device look slow.
_TIME_RATIO = 2 / 3

#: The gain is halved after a change of direction, down to the minimum, and grows by the factor
#: while moves continue in one direction.
_MIN_GAIN = 0.125
_GAIN_GROWTH = 1.25

#: Lower bound of seconds per share, which avoids division by zero.
_MIN_SECONDS = 1e-6


def balance_work(
    split: Sequence[int],
    seconds: Sequence[float],
    *,
    fixed: Sequence[float] = (),
    gain: float = 1.0,
    excluded_devices: Collection[int] = (),
) -> tuple[int, ...]:
    """Return ``split`` with seeds moved so that all devices are expected to take equally long.

    A device with ``split[i]`` seeds took ``seconds[i]``. The model of a device's time is linear: a
    fixed part plus a time per seed. The paper balances the CPU against identical accelerators; this
    function also balances the devices of either side among each other, and plans with one side
    only. The speed of a device without seeds is unknown, so it gets a small share to measure it.

    ``balance_work([60, 40], [2.0, 1.0])`` returns about ``(43, 57)``: 30 and 40 seeds a second. The
    sum of seeds is unchanged.

    Args:
        fixed: part of ``seconds`` that does not depend on seeds; empty for zeros.
        gain: fraction of the way to equal times to move, above 0 and at most 1.
        excluded_devices: devices that stay without seeds.
    """
    total = sum(split)
    idle = [i for i, count in enumerate(split) if count == 0 and i not in excluded_devices]
    probe = max(1, int(_PROBE_SHARE * total / len(split)))
    remaining = total - probe * len(idle)
    if remaining < len(split):
        idle, remaining = [], total
    models = _linear_times(split, seconds, fixed)
    end = _equal_seconds(models, remaining)
    weights = [float((1 - gain) * count) for count in split]
    for i, (intercept, slope) in models.items():
        weights[i] += gain * max(end - intercept, 0.0) / slope
    parts = device_plan.apportion(weights, remaining)
    for i in idle:
        parts[i] = probe
    return tuple(parts)


def expected_seconds(
    split: Sequence[int],
    seconds: Sequence[float],
    new_split: Sequence[int],
    *,
    fixed: Sequence[float] = (),
) -> float:
    """Return the slowest device's expected seconds under ``new_split``.

    Device i took ``seconds[i]`` under ``split``; ``fixed[i]`` of them do not depend on seeds.
    """
    models = _linear_times(split, seconds, fixed).items()
    return max(intercept + slope * new_split[i] for i, (intercept, slope) in models if new_split[i])


def propose_work(plan: DevicePlan, damping: Damping) -> task_times.Move:
    """Return the move of seeds towards equal times, as far as ``damping`` goes.

    The move's promise is the fraction of a step that equal times would save, by mean times under
    the plan; it is 1 if a device gets its first seeds, or took less than 2/3 of the slowest
    device's time.
    """
    balance = partial(
        balance_work,
        plan.split,
        damping.seconds,
        fixed=damping.fixed,
        excluded_devices=damping.excluded_devices,
    )
    target = plan.within_memory(balance())
    target_shift = _shift(plan.split, target)
    gain = _gain(damping.gain, damping.shift, target_shift)
    split = plan.within_memory(balance(gain=gain))
    return task_times.Move(
        promise=_promise(plan.split, damping.seconds, target, damping.fixed),
        shift=_shift(plan.split, split),
        gain=gain,
        plan=plan.with_split(split),
    )


def _gain(gain: float, last_shift: Sequence[int], target_shift: Sequence[int]) -> float:
    """Return half ``gain`` if the target reverses the last shift of seeds, else more, up to 1."""
    alignment = sum(a * b for a, b in zip(last_shift, target_shift, strict=False))
    return max(gain / 2, _MIN_GAIN) if alignment < 0 else min(gain * _GAIN_GROWTH, 1.0)


def _promise(
    split: Sequence[int], seconds: Sequence[float], target: Sequence[int], fixed: Sequence[float]
) -> float:
    if any(new and not old for old, new in zip(split, target, strict=True)):
        return 1.0
    working = [time_s for time_s, count in zip(seconds, split, strict=True) if count]
    if min(working) < _TIME_RATIO * max(working):
        return 1.0
    return 1 - expected_seconds(split, seconds, target, fixed=fixed) / max(seconds)


def _shift(old: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    return tuple(n - o for o, n in zip(old, new, strict=True))


def _linear_times(
    split: Sequence[int], seconds: Sequence[float], fixed: Sequence[float]
) -> dict[int, tuple[float, float]]:
    """Return the fixed seconds and the seconds per seed of every device that has seeds."""
    intercepts = fixed or [0.0] * len(split)
    return {
        i: (intercept, max(time_s - intercept, _MIN_SECONDS) / count)
        for i, (count, time_s, intercept) in enumerate(zip(split, seconds, intercepts, strict=True))
        if count
    }


def _equal_seconds(models: Mapping[int, tuple[float, float]], total: int) -> float:
    """Return the time in which devices of these linear ``models`` together train ``total`` seeds.

    A device whose fixed time is longer trains none.
    """
    end = weights = done = 0.0
    for intercept, slope in sorted(models.values()):
        if weights and end <= intercept:
            break
        weights += 1 / slope
        done += intercept / slope
        end = (total + done) / weights
    return end


@dataclass(frozen=True, kw_only=True)
class BalanceInput:
    """Stage times of each device in one observed step, for resource management."""

    step: Count  #: number of the step in the run
    stages: tuple[StageTimes, ...]  #: stage times of each device, in seconds


def shares_sampling(share: DeviceShare) -> bool:
    """Whether the host can sample for a device at the same time as the device itself."""
    return share.device.takes_samples and share.prefetch == "two_stage"


def steps_to_see(plan: DevicePlan, num_steps: int) -> int:
    """Return how many steps a decision observes: ``num_steps``, or 8 with sampling in turn.

    In turn: the host samples some mini-batches of a device, which samples the others.
    """
    in_turn = any(0 < share.host_samples < SAMPLED_IN_TURN for share in plan.shares)
    return SAMPLED_IN_TURN if in_turn else num_steps


def sample_times(
    plan: DevicePlan, steps: Sequence[BalanceInput]
) -> tuple[task_times.SampleTimes, ...]:
    """Return by device the median seconds of its samples in ``steps``, and of the host's for it.

    None in the result: nothing was sampled there, or the host cannot sample for the device.
    """
    return tuple(_sample_times(share, i, steps) for i, share in enumerate(plan.shares))


def _sample_times(
    share: DeviceShare, position: int, steps: Sequence[BalanceInput]
) -> task_times.SampleTimes:
    if not shares_sampling(share):
        return task_times.SampleTimes()
    on_device: list[float] = []
    on_host: list[float] = []
    for step in steps:
        if (seconds := step.stages[position].sample) > 0:
            (on_host if share.host_samples_at(step.step) else on_device).append(seconds)
    return task_times.SampleTimes(on_device=_median(on_device), on_host=_median(on_host))


def _median(times: Sequence[float]) -> float | None:
    return statistics.median(times) if times else None


def balance_sampling(
    plan: DevicePlan,
    tasks: Sequence[Mapping[str, float]],
    sampled: Sequence[task_times.SampleTimes],
    *,
    gain: float,
) -> task_times.Move | None:
    """Choose how many of 8 mini-batches the host samples for the slowest device.

    Host and device then take equally long. A sampler whose speed is unknown first gets one of the
    8. The result is None if sampling does not limit the device, cannot be shared, or is being
    measured.

    Args:
        tasks: seconds of each device's tasks, by the paper's names.
        sampled: measured sampling times of each device.
        gain: gain for moves of seeds, returned unchanged.
    """
    longest = [max(times.values()) for times in tasks]
    slowest = longest.index(max(longest))
    share, times = plan.shares[slowest], sampled[slowest]
    bottleneck = max(tasks[slowest], key=lambda task: tasks[slowest][task])
    if not shares_sampling(share) or bottleneck not in (task_times.T_SC, task_times.T_SA):
        return None
    if times.on_host is None or times.on_device is None:
        probe = _probe(share, times)
        return None if probe is None else _move(plan, slowest, probe, promise=1.0, gain=gain)
    other_times = [
        seconds
        for task, seconds in tasks[slowest].items()
        if task not in (task_times.T_SC, task_times.T_SA)
    ]
    other_times += [seconds for i, seconds in enumerate(longest) if i != slowest]

    def step_s(host_samples: int) -> float:
        samplers = task_times.sampling_tasks(replace(share, host_samples=host_samples), times)
        return max(*samplers.values(), *other_times, 0.0)

    # Sorted by distance, so that of equally good choices the smallest change wins.
    choices = sorted(range(SAMPLED_IN_TURN + 1), key=lambda n: abs(n - share.host_samples))
    best = min(choices, key=step_s)
    promise = 1 - step_s(best) / longest[slowest]
    return _move(plan, slowest, best, promise=promise, gain=gain)


def _probe(share: DeviceShare, times: task_times.SampleTimes) -> int | None:
    """Return how many of 8 mini-batches the host should sample so that a missing time is measured.

    None: the plan measures it already.
    """
    if times.on_host is None:
        return 1 if share.host_samples == 0 else None
    return SAMPLED_IN_TURN - 1 if share.host_samples == SAMPLED_IN_TURN else None


def _move(
    plan: DevicePlan, position: int, host_samples: int, *, promise: float, gain: float
) -> task_times.Move:
    shares = list(plan.shares)
    shares[position] = replace(shares[position], host_samples=host_samples)
    moved = DevicePlan(shares=tuple(shares))
    return task_times.Move(plan=moved, promise=promise, gain=gain, sampling_of=position)


def balance_thread(
    plan: DevicePlan,
    tasks: Sequence[Mapping[str, float]],
    *,
    givers: Sequence[str],
    bottleneck: str,
    tabu_trades: Collection[task_times.ThreadMove] = (),
) -> task_times.Move | None:
    """Choose a thread of the fastest CPU task to give to the task ``bottleneck``.

    The receiver is the slowest device of the bottleneck task. The giver is the device on the same
    machine with most threads in the giving task; among equals, the one whose task takes least time.
    A task keeps at least one thread. Time is modeled as inverse to threads. If the giver would
    become as slow as the bottleneck was, the next task is tried.

    The result is None if no thread can move: without prefetching no two tasks run at the same time,
    a task with one thread per device gives none, and a device that computes itself takes none.

    Args:
        tasks: seconds of each device's tasks, by the paper's names.
        givers: names of CPU tasks, fastest first.
        tabu_trades: moves that are not allowed now.
    """
    receivers = _host_tasks(plan, tasks, bottleneck)
    if not receivers:
        return None
    receiver, slowest = max(receivers.items(), key=lambda item: item[1])
    threads = task_times.num_threads(plan.shares[receiver.device], bottleneck)
    machine = plan.shares[receiver.device].machine

    def giver_rank(item: tuple[task_times.HostTask, float]) -> tuple[int, float]:
        return task_times.num_threads(plan.shares[item[0].device], item[0].task), -item[1]

    for task in givers:
        candidates = {} if task == bottleneck else _host_tasks(plan, tasks, task)
        candidates = {
            host_task: seconds
            for host_task, seconds in candidates.items()
            if plan.shares[host_task.device].machine == machine
        }
        if not candidates:
            continue
        giver, fast = max(candidates.items(), key=giver_rank)
        spares = task_times.num_threads(plan.shares[giver.device], task)
        trade = task_times.ThreadMove(giver=giver, receiver=receiver)
        if spares < 2 or trade in tabu_trades:
            continue
        after = max(slowest * threads / (threads + 1), fast * spares / (spares - 1))
        if after < slowest:
            return task_times.Move(plan=trade.apply(plan), promise=1 - after / slowest, trade=trade)
    return None


def _host_tasks(
    plan: DevicePlan, tasks: Sequence[Mapping[str, float]], task: str
) -> dict[task_times.HostTask, float]:
    """Return the seconds of ``task`` on each device that runs it with host threads."""
    return {
        task_times.HostTask(device=i, task=task): seconds[task]
        for i, (share, seconds) in enumerate(zip(plan.shares, tasks, strict=True))
        if task in seconds and task_times.num_threads(share, task)
    }
