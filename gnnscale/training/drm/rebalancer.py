"""Dynamic resource management: when it decides, what it decides, and what a checkpoint keeps of it.

A decision is a pure function of the stage times, which every worker has alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gnnscale.core import STAGES, Count, StageTimes, decode, shown
from gnnscale.planner import DevicePlan
from gnnscale.planner.device_plan import SAMPLED_IN_TURN
from gnnscale.training.drm import algorithm1, task_times
from gnnscale.training.drm import balance as balance_work
from gnnscale.training.drm.balance import (
    BalanceInput,
    balance_sampling,
    balance_thread,
    sample_times,
    steps_to_see,
    take_back,
)
from gnnscale.training.drm.damping import Damping
from gnnscale.training.drm.move import Move, ThreadMove
from gnnscale.training.pipeline.slices import MAX_PLANS, Schedule


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What ``rebalance`` decides."""

    plan: DevicePlan  #: the plan from now on; equal to the one before if nothing is to be gained
    damping: Damping  #: to be handed to the next decision
    move: str | None = None  #: what is done and why, one line; None if nothing is
    #: the paper's name of the task that takes longest; None if nothing was measured
    bottleneck: str | None = None


def rebalance(
    plan: DevicePlan,
    stages: Sequence[StageTimes],
    damping: Damping,
    *,
    movable: bool = True,
    counted: bool = False,
    sampled: Sequence[task_times.SampleTimes] | None = None,
) -> Decision:
    """Make one decision of dynamic resource management (HyScale-GNN, section IV-A).

    Algorithm 1 chooses the move. If it chooses ``balance_thread``, work is moved instead if that
    promises more: in the paper a CPU task serves all devices alike, here every worker has its own,
    and what one of them is late with may be a matter of its share. Work also moves if no
    thread can be taken, as on two cores, when every task has one. If an accelerator and the host
    can both sample its mini-batches, work is sampling as well as seeds.

    Moves settle (see ``Damping``). One that promises less than the dead band is not made; work goes
    a smaller part of its way after each change of direction; a trade of threads that did not make
    its receiver faster, or made the step slower, is taken back and not tried again for a while, and
    one that did is not reversed for a while.

    Args:
        movable: whether seeds may move between devices; threads may in any case.
        counted: whether the times are those of counted work, which the move's line then states.
        sampled: how long mini-batches took that devices have sampled, and that the host has sampled
            for them; None if no device can have both.
    """
    known = damping.remember(sampled or [task_times.SampleTimes()] * len(plan.shares))
    parts = zip(plan.shares, stages, known.sampled, strict=True)
    tasks = [task_times.TaskTimes.of_device(*each).tasks() for each in parts]
    seconds = [max(each.values()) for each in tasks]
    if max(seconds) <= 0:
        return Decision(plan=plan, damping=damping)
    longest = task_times.TaskTimes.of(plan, stages, known.sampled).tasks()
    choice = algorithm1.algorithm_1(longest)
    damping = known.observe(plan, seconds)
    if (failed := damping.failed_trade(tasks)) is not None:
        proposals = [take_back(plan, failed)]
    else:
        thread = balance_thread(
            plan,
            tasks,
            givers=choice.givers,
            bottleneck=choice.bottleneck,
            tabu_trades=[trade for trade, _ in damping.tabu_trades],
        )
        work = balance_work.propose_work(plan, damping) if movable else None
        sampling = balance_sampling(plan, tasks, damping.sampled, gain=damping.gain)
        proposals = [each for each in (sampling, thread, work) if each is not None]
    bottleneck = f"{choice.bottleneck} {longest[choice.bottleneck] * 1000:.1f}"
    best = max(proposals, key=lambda each: each.promise, default=None)
    move = None if best is None or best.promise < damping.threshold else best
    return Decision(
        plan=plan if move is None else move.plan,
        damping=damping.after(move, tasks),
        move=_describe(plan, move, f"{bottleneck} ms{' by counted work' if counted else ''}"),
        bottleneck=choice.bottleneck,
    )


def _describe(plan: DevicePlan, move: Move | None, bottleneck: str) -> str | None:
    """Say in one line what is done and why."""
    if move is None or move.plan == plan:
        return None
    names = [share.device.label for share in plan.shares]
    if move.trade is not None:
        ends = (move.trade.giver, move.trade.receiver)
        giver, receiver = (f"{each.task} of {names[each.device]}" for each in ends)
        what = f"1 thread {'back ' if move.takes_back else ''}from {giver} to {receiver}"
    elif move.sampling_of is not None:
        count = move.plan.shares[move.sampling_of].host_samples
        whose = names[move.sampling_of]
        what = f"the host samples {count} of {SAMPLED_IN_TURN} mini-batches of {whose}"
    else:
        pairs = list(zip(names, move.shift, strict=True))
        givers = ", ".join(name for name, change in pairs if change < 0)
        takers = ", ".join(name for name, change in pairs if change > 0)
        moved = sum(change for change in move.shift if change > 0)
        what = f"{'1 seed' if moved == 1 else f'{moved} seeds'} from {givers} to {takers}"
    return f"{bottleneck} is the bottleneck: {what}"


#: Steps whose median is looked at, at least; one slow step is no reason to move work.
WINDOW = 3


@dataclass(frozen=True, kw_only=True)
class RebalancerState:
    """Where resource management stands after a step; ``RebalancerState()`` to begin with."""

    applies_from: int = 0  #: the first step whose times are those of the plan decided last
    #: the steps since the last decision
    window: tuple[BalanceInput, ...] = ()
    damping: Damping = field(default_factory=Damping)  #: what the last decision left
    #: plans that were decided and do not apply yet, each with its first step
    pending: tuple[tuple[int, DevicePlan], ...] = ()

    def to_values(self) -> dict[str, Any]:
        """Return plain values; the devices themselves are in the run's options."""
        plan = self.damping.plan
        values = asdict(replace(self, damping=replace(self.damping, plan=None), pending=()))
        values["damping"]["plan"] = None if plan is None else plan.to_values()
        values["pending"] = [[first, each.to_values()] for first, each in self.pending]
        return values

    @classmethod
    def from_values(cls, plan: DevicePlan, values: Any, *, step: int) -> RebalancerState:
        """Rebuild a state from ``to_values``.

        Args:
            plan: applies to ``step``. Its devices may hold more or fewer seeds than when the
                values were kept; plans to come go no further than that.

        Raises:
            ValueError: the values are not those of a state under ``plan``.
        """
        found = decode(_StateValues, _of_this_form(values), source="drm")
        pending = tuple((first, _plan(plan, each)) for first, each in found.pending)
        last = pending[-1][1] if pending else plan
        damping = _damping(last, found.damping)
        state = cls(**{**vars(found), "damping": damping, "pending": pending})
        state._check(plan, step)
        return state

    def _check(self, plan: DevicePlan, step: int) -> None:
        firsts = [step, *(first for first, _ in self.pending)]
        if sorted(set(firsts)) != firsts or len(firsts) > MAX_PLANS:
            raise ValueError(f"drm.pending: plans from steps {shown(firsts[1:])} on, after {step}")
        num_devices, most = len(plan.shares), max(WINDOW, SAMPLED_IN_TURN)
        seen = [each.stages for each in self.window]
        if len(seen) >= most or any(len(each) != num_devices for each in seen):
            raise ValueError(f"drm.window: not fewer than {most} steps of all devices")
        seconds = [s for each in seen for times in each for s in asdict(times).values()]
        if min(seconds, default=0.0) < 0:
            raise ValueError(f"drm.window: {shown(min(seconds))} seconds")


@dataclass(frozen=True, kw_only=True)
class _DampingValues(Damping):
    """``Damping`` with its plan as plain values."""

    plan: Any = None


@dataclass(frozen=True, kw_only=True)
class _StateValues:
    """``RebalancerState`` with its plans as plain values."""

    applies_from: Count
    window: tuple[BalanceInput, ...]
    damping: _DampingValues
    pending: tuple[tuple[Count, Any], ...]


def _of_this_form(values: Any) -> Any:
    """Leave out steps as version 0.2 kept them, without their numbers: the next ones do as well."""
    window = values.get("window") if isinstance(values, dict) else None
    if not isinstance(window, list):
        return values
    return {**values, "window": [each for each in window if not isinstance(each, list)]}


def _damping(plan: DevicePlan, values: _DampingValues) -> Damping:
    """Rebuild what the last decision left, and make sure that the next one can read it."""
    known = None if values.plan is None else _plan(plan, values.plan)
    damping = Damping(**{**vars(values), "plan": known})
    num_devices = len(plan.shares)
    if {len(damping.seconds), len(damping.fixed)} != {0 if known is None else num_devices}:
        raise ValueError(f"drm.damping.seconds: not of {num_devices} devices")
    if len(damping.shift) not in (0, num_devices):
        raise ValueError(f"drm.damping.shift: not of {num_devices} devices")
    if len(damping.sampled) not in (0, num_devices):
        raise ValueError(f"drm.damping.sampled: not of {num_devices} devices")
    if not set(damping.excluded_devices) <= set(range(num_devices)):
        raise ValueError(f"drm.damping.excluded_devices: there are {num_devices} devices")
    if damping.trial is not None:
        _check_trade(damping.trial.trade, plan)
    return damping


def _check_trade(trade: ThreadMove, plan: DevicePlan) -> None:
    """Refuse a trade of threads that could not be taken back under ``plan``."""
    for end in (trade.giver, trade.receiver):
        device, tasks = end.device, dict[str, float]()
        if 0 <= device < len(plan.shares) and end.task in task_times.CPU_TASKS:
            share = plan.shares[device]
            tasks = task_times.TaskTimes.of_device(share, StageTimes()).tasks()
        if end.task not in tasks:
            raise ValueError(f"drm.damping.trial: no {shown(end.task)} of device {shown(device)}")
    trade.reverse.apply(plan)


def _plan(plan: DevicePlan, values: Any) -> DevicePlan:
    """Rebuild a plan of the devices and the mini-batch of ``plan``, within their memory."""
    found = DevicePlan.from_values([share.device for share in plan.shares], values)
    if found.batch_size != plan.batch_size:
        raise ValueError(f"drm: a plan shares out {found.batch_size} seeds")
    pairs = list(zip(found.shares, plan.shares, strict=True))
    if any((old.prefetch, old.machine) != (new.prefetch, new.machine) for old, new in pairs):
        raise ValueError("drm: a plan prefetches in another way")
    shares = tuple(replace(old, max_seeds=new.max_seeds, depth=new.depth) for old, new in pairs)
    found = DevicePlan(shares=shares)
    return found.with_split(found.within_memory(found.split))


#: First steps whose times are not used: memory is touched for the first time.
_WARM_UP = 2
_BEGINNING = RebalancerState()


class Rebalancer:
    """Asks Algorithm 1 every few steps, and settles the plans of the steps to come.

    Batches of the next steps are on their way when a step ends, so what is decided after step s
    applies from step s + ``lead_steps`` on, and is not reconsidered before those steps report.
    Every process does this with the same times and comes to the same plans.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        first_step: int,
        lead_steps: int,
        counted: bool = False,
        state: RebalancerState = _BEGINNING,
    ) -> None:
        """Begin with the schedule's plans.

        Args:
            counted: whether times are those of counted work: they are right from the first step on.
            state: of resource management before ``first_step``.
        """
        self._schedule = schedule
        self._lead_steps = lead_steps
        self._counted = counted
        warm_up = 0 if counted else _WARM_UP
        self._applies_from = max(first_step + warm_up, state.applies_from)
        self._window: list[BalanceInput] = [*state.window]
        self._damping = state.damping

    def state(self, step: int) -> RebalancerState:
        """Return where resource management stands before ``step``, the one to be observed next."""
        return RebalancerState(
            applies_from=self._applies_from,
            window=tuple(self._window),
            damping=self._damping,
            pending=self._schedule.pending_after(step),
        )

    def observe(self, step: int, stages: Sequence[StageTimes], *, full: bool) -> str | None:
        """Take note of a ``full`` step, and return what is decided after it, if anything."""
        if full and step >= self._applies_from:
            self._window.append(BalanceInput(step=step, stages=tuple(stages)))
        plan, move = self._schedule.plan, None
        if len(self._window) >= steps_to_see(plan, WINDOW):
            decision = rebalance(
                plan,
                medians([each.stages for each in self._window]),
                self._damping,
                movable=self._schedule.movable,
                counted=self._counted,
                sampled=sample_times(plan, self._window),
            )
            self._window.clear()
            self._damping, move = decision.damping, decision.move
            if decision.plan != plan:
                plan, self._applies_from = decision.plan, step + self._lead_steps + 1
        self._schedule.commit_plan(step + 1 + self._lead_steps, plan)
        return move


def medians(steps: Sequence[Sequence[StageTimes]]) -> tuple[StageTimes, ...]:
    """Return each device's median time in each stage over ``steps``."""
    return tuple(
        StageTimes(**{name: statistics.median(getattr(t, name) for t in times) for name in STAGES})
        for times in zip(*steps, strict=True)
    )
