"""``balance_work(T_SC, T_SA)`` (HyScale-GNN, section IV-A): sampling moves to or from the host.

Of eight mini-batches of an accelerator that samples by itself, the host samples some. Both pick the
same neighbours, so that no loss changes with it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gnnscale.core import Count, StageTimes
from gnnscale.plan import DevicePlan, DeviceShare
from gnnscale.plan.device_plan import SAMPLED_IN_TURN
from gnnscale.runtime.drm.move import Move
from gnnscale.runtime.drm.task_times import T_SA, T_SC, SampleTimes, sampling_tasks


@dataclass(frozen=True, kw_only=True)
class SeenStep:
    """A step as resource management sees it."""

    step: Count  #: its number in the run
    stages: tuple[StageTimes, ...]  #: each device's


def shares_sampling(share: DeviceShare) -> bool:
    """Whether the host may sample for a device that samples by itself, both at the same time."""
    return share.device.takes_samples and share.prefetch == "two_stage"


def steps_to_see(plan: DevicePlan, num_steps: int) -> int:
    """Return how many steps show what they take under ``plan``: ``num_steps``, or a whole turn."""
    in_turn = any(0 < share.host_samples < SAMPLED_IN_TURN for share in plan.shares)
    return SAMPLED_IN_TURN if in_turn else num_steps


def sample_times(plan: DevicePlan, steps: Sequence[SeenStep]) -> tuple[SampleTimes, ...]:
    """Return the median seconds of mini-batches that each device, and the host, has sampled."""
    return tuple(_sample_times(share, i, steps) for i, share in enumerate(plan.shares))


def _sample_times(share: DeviceShare, position: int, steps: Sequence[SeenStep]) -> SampleTimes:
    if not shares_sampling(share):
        return SampleTimes()
    found: dict[bool, list[float]] = {False: [], True: []}
    for each in steps:
        if (seconds := each.stages[position].sample) > 0:
            found[share.host_samples_at(each.step)].append(seconds)
    on_device, on_host = (statistics.median(each) if each else None for each in found.values())
    return SampleTimes(on_device=on_device, on_host=on_host)


def balance_sampling(
    plan: DevicePlan,
    tasks: Sequence[Mapping[str, float]],
    sampled: Sequence[SampleTimes],
    *,
    gain: float,
) -> Move | None:
    """Let the host sample so many mini-batches that both samplers are done at the same time.

    It does so for the device whose step takes longest, if that is for sampling. How long the host
    takes for such a mini-batch is found out with one in eight.

    Args:
        tasks: seconds of each device's tasks, by the paper's names.
        sampled: what is known of each device's mini-batches.
        gain: of moves of seeds, which this leaves as it is.

    Returns:
        The move, which promises a part of the step; None if there is none.
    """
    longest = [max(each.values()) for each in tasks]
    slowest = longest.index(max(longest))
    share, known = plan.shares[slowest], sampled[slowest]
    bottleneck = max(tasks[slowest], key=lambda task: tasks[slowest][task])
    if not shares_sampling(share) or bottleneck not in (T_SC, T_SA):
        return None
    if known.on_host is None or known.on_device is None:
        probe = _probe(share, known)
        return None if probe is None else _move(plan, slowest, probe, promise=1.0, gain=gain)
    rest = [each for task, each in tasks[slowest].items() if task not in (T_SC, T_SA)]
    rest += [seconds for i, seconds in enumerate(longest) if i != slowest]

    def step_s(host_samples: int) -> float:
        times = sampling_tasks(replace(share, host_samples=host_samples), known)
        return max(*times.values(), *rest, 0.0)

    # Of equally good ones the one that moves least.
    choices = sorted(range(SAMPLED_IN_TURN + 1), key=lambda n: abs(n - share.host_samples))
    best = min(choices, key=step_s)
    promise = 1 - step_s(best) / longest[slowest]
    return _move(plan, slowest, best, promise=promise, gain=gain)


def _probe(share: DeviceShare, known: SampleTimes) -> int | None:
    """Return how many mini-batches the host samples to find out how fast that is."""
    if known.on_host is None:
        return 1 if share.host_samples == 0 else None
    return SAMPLED_IN_TURN - 1 if share.host_samples == SAMPLED_IN_TURN else None


def _move(
    plan: DevicePlan, position: int, host_samples: int, *, promise: float, gain: float
) -> Move:
    shares = list(plan.shares)
    shares[position] = replace(shares[position], host_samples=host_samples)
    moved = DevicePlan(shares=tuple(shares))
    return Move(plan=moved, promise=promise, gain=gain, sampling_of=position)
