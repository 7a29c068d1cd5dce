"""Dynamic resource management: decisions, pure functions of equal stage times, and their state."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gnnscale.core import STAGES, Count, StageTimes, brief, decode
from gnnscale.planner import SAMPLED_IN_TURN, DevicePlan
from gnnscale.training.drm import algorithm1, balance, task_times
from gnnscale.training.drm.damping import Damping
from gnnscale.training.drm.task_times import Move, ThreadMove
from gnnscale.training.pipeline.slices import MAX_PLANS, Schedule


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Result of ``rebalance``: the next plan, the next ``Damping``, and a log line on the move."""

    plan: DevicePlan  #: the next plan; the current plan if no move helps
    damping: Damping  #: memory for the next decision
    move: str | None = None  #: one line with bottleneck and move; None: no move
    bottleneck: str | None = None  #: longest task, by the paper's name; None: nothing measured


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

    Algorithm 1 chooses the kind of move. If it chooses ``balance_thread``, seeds move instead if
    that promises more: in the paper one CPU task serves all devices, here every worker has its own,
    so a late CPU task may result from the worker's share. Seeds also move if no thread can, for
    example on two cores, where every task has one. If an accelerator and the host can both sample
    the accelerator's mini-batches, samples move like seeds.

    ``Damping`` makes the plans converge: it has a dead band, seeds go a smaller part of their way
    after each change of direction, and a thread move is not reversed for a while. One that did not
    speed up its receiver, or slowed the step, is reversed and not repeated for a while.

    Args:
        stages: stage times of each device, in seconds.
        movable: whether seeds may move between devices; threads always may.
        counted: whether the times are of counted work, which the move's line then states.
        sampled: sampling times of each device and of the host for it; None: no device shares
            sampling.
    """
    remembered = damping.remember(sampled or [task_times.SampleTimes()] * len(plan.shares))
    parts = zip(plan.shares, stages, remembered.sampled, strict=True)
    tasks = [task_times.TaskTimes.for_device(*part).tasks() for part in parts]
    seconds = [max(times.values()) for times in tasks]
    if max(seconds) <= 0:
        return Decision(plan=plan, damping=damping)
    longest = task_times.TaskTimes.from_plan(plan, stages, remembered.sampled).tasks()
    choice = algorithm1.algorithm_1(longest)
    damping = remembered.observe(plan, seconds)
    proposals = _proposals(plan, tasks, damping, choice, movable=movable)
    bottleneck = f"{choice.bottleneck} {longest[choice.bottleneck] * 1000:.1f}"
    best = max(proposals, key=lambda proposal: proposal.promise, default=None)
    move = None if best is None or best.promise < damping.threshold else best
    return Decision(
        plan=plan if move is None else move.plan,
        damping=damping.after(move, tasks),
        move=_describe(plan, move, f"{bottleneck} ms{' by counted work' if counted else ''}"),
        bottleneck=choice.bottleneck,
    )


def _proposals(
    plan: DevicePlan,
    tasks: Sequence[Mapping[str, float]],
    damping: Damping,
    choice: algorithm1.BottleneckMove,
    *,
    movable: bool,
) -> list[Move]:
    """Return moves to choose from, or only the reversal of the last thread move if it failed."""
    if (failed := damping.failed_trade(tasks)) is not None:
        back = failed.reverse  # it saved no time
        return [Move(plan=back.apply(plan), promise=1.0, trade=back, takes_back=True)]
    thread = balance.balance_thread(
        plan,
        tasks,
        givers=choice.givers,
        bottleneck=choice.bottleneck,
        tabu_trades=[trade for trade, _ in damping.tabu_trades],
    )
    work = balance.propose_work(plan, damping) if movable else None
    sampling = balance.balance_sampling(plan, tasks, damping.sampled, gain=damping.gain)
    return [move for move in (sampling, thread, work) if move is not None]


def _describe(plan: DevicePlan, move: Move | None, bottleneck: str) -> str | None:
    """Return a log line with ``bottleneck``, a task and its time, and the move; None: no change."""
    if move is None or move.plan == plan:
        return None
    names = [share.device.label for share in plan.shares]
    if move.trade is not None:
        ends = (move.trade.giver, move.trade.receiver)
        giver, receiver = (f"{task.task} of {names[task.device]}" for task in ends)
        action = f"1 thread {'back ' if move.takes_back else ''}from {giver} to {receiver}"
    elif move.sampling_of is not None:
        count = move.plan.shares[move.sampling_of].host_samples
        device = names[move.sampling_of]
        action = f"the host samples {count} of {SAMPLED_IN_TURN} mini-batches of {device}"
    else:
        pairs = list(zip(names, move.shift, strict=True))
        givers = ", ".join(name for name, change in pairs if change < 0)
        takers = ", ".join(name for name, change in pairs if change > 0)
        moved = sum(change for change in move.shift if change > 0)
        action = f"{'1 seed' if moved == 1 else f'{moved} seeds'} from {givers} to {takers}"
    return f"{bottleneck} is the bottleneck: {action}"


#: Minimum number of steps per decision, whose median is used: one slow step moves nothing.
WINDOW = 3


@dataclass(frozen=True, kw_only=True)
class RebalancerState:
    """State of resource management after a step; ``RebalancerState()`` at the start of a run."""

    applies_from: int = 0  #: first step that runs under the last decided plan
    window: tuple[balance.BalanceInput, ...] = ()  #: steps observed since the last decision
    damping: Damping = field(default_factory=Damping)  #: memory of the last decision
    pending: tuple[tuple[int, DevicePlan], ...] = ()  #: later plans, each with its first step

    def to_values(self) -> dict[str, Any]:
        """Return the state as plain values, without devices, which are in the run's options."""
        plan = self.damping.plan
        values = asdict(replace(self, damping=replace(self.damping, plan=None), pending=()))
        values["damping"]["plan"] = None if plan is None else plan.to_values()
        values["pending"] = [[first, pending.to_values()] for first, pending in self.pending]
        return values

    @classmethod
    def from_values(cls, plan: DevicePlan, values: Any, *, step: int) -> "RebalancerState":
        """Rebuild a state from ``to_values``; ValueError if they describe no state under ``plan``.

        ``plan`` is the plan of ``step``, the first step to train. Its seed limits, which may differ
        from the limits in ``values``, apply to pending plans.
        """
        stored = decode(_StateValues, _drop_version_0_2_steps(values), source="drm")
        pending = tuple((first, _plan(plan, entry)) for first, entry in stored.pending)
        last_plan = pending[-1][1] if pending else plan
        damping = _damping(last_plan, stored.damping)
        state = cls(**{**vars(stored), "damping": damping, "pending": pending})
        state._check(plan, step)
        return state

    def _check(self, plan: DevicePlan, step: int) -> None:
        firsts = [step, *(first for first, _ in self.pending)]
        if sorted(set(firsts)) != firsts or len(firsts) > MAX_PLANS:
            raise ValueError(
                f"drm.pending: expected up to {MAX_PLANS - 1} ascending steps after {step}, got "
                f"{brief(firsts[1:])}"
            )
        num_devices, limit = len(plan.shares), max(WINDOW, SAMPLED_IN_TURN)
        steps = [step.stages for step in self.window]
        if len(steps) >= limit or any(len(stages) != num_devices for stages in steps):
            raise ValueError(
                f"drm.window: expected fewer than {limit} steps of {num_devices} devices"
            )
        seconds = [s for stages in steps for times in stages for s in asdict(times).values()]
        if min(seconds, default=0.0) < 0:
            raise ValueError(
                f"drm.window: expected seconds of at least 0, got {brief(min(seconds))}"
            )


@dataclass(frozen=True, kw_only=True)
class _DampingValues(Damping):
    """``Damping`` with its plan as plain values."""

    plan: Any = None


@dataclass(frozen=True, kw_only=True)
class _StateValues:
    """``RebalancerState`` with its plans as plain values."""

    applies_from: Count
    window: tuple[balance.BalanceInput, ...]
    damping: _DampingValues
    pending: tuple[tuple[Count, Any], ...]


def _drop_version_0_2_steps(values: Any) -> Any:
    """Return ``values`` without observed steps that version 0.2 saved without step numbers."""
    window = values.get("window") if isinstance(values, dict) else None
    if not isinstance(window, list):
        return values
    return {**values, "window": [step for step in window if not isinstance(step, list)]}


def _damping(plan: DevicePlan, values: _DampingValues) -> Damping:
    """Rebuild the ``Damping`` of the last decision; ValueError: ``values`` do not fit ``plan``."""
    last_plan = None if values.plan is None else _plan(plan, values.plan)
    damping = Damping(**{**vars(values), "plan": last_plan})
    num_devices = len(plan.shares)
    if {len(damping.seconds), len(damping.fixed)} != {0 if last_plan is None else num_devices}:
        raise ValueError(f"drm.damping.seconds: expected values of {num_devices} devices")
    for name in ("shift", "sampled"):
        if len(getattr(damping, name)) not in (0, num_devices):
            raise ValueError(f"drm.damping.{name}: expected values of {num_devices} devices")
    if not set(damping.excluded_devices) <= set(range(num_devices)):
        raise ValueError(f"drm.damping.excluded_devices: expected positions below {num_devices}")
    if damping.trial is not None:
        _check_trade(damping.trial.trade, plan)
    return damping


def _check_trade(trade: ThreadMove, plan: DevicePlan) -> None:
    """Raise ValueError if ``plan`` lacks a task of ``trade``, which then could not be reversed."""
    for end in (trade.giver, trade.receiver):
        device, tasks = end.device, dict[str, float]()
        if 0 <= device < len(plan.shares) and end.task in task_times.CPU_TASKS:
            share = plan.shares[device]
            tasks = task_times.TaskTimes.for_device(share, StageTimes()).tasks()
        if end.task not in tasks:
            raise ValueError(f"drm.damping.trial: device {brief(device)} has no {brief(end.task)}")
    trade.reverse.apply(plan)


def _plan(plan: DevicePlan, values: Any) -> DevicePlan:
    """Return the plan in ``values``, with the devices, seed limits and depths of ``plan``.

    Its split is changed to fit these limits. ValueError: ``values`` are no plan for the devices, or
    differ from ``plan`` in batch size, prefetching or machines.
    """
    stored = DevicePlan.from_values([share.device for share in plan.shares], values)
    if stored.batch_size != plan.batch_size:
        raise ValueError(f"drm: expected plans of {plan.batch_size} seeds, got {stored.batch_size}")
    pairs = list(zip(stored.shares, plan.shares, strict=True))
    if any((old.prefetch, old.machine) != (new.prefetch, new.machine) for old, new in pairs):
        raise ValueError("drm: expected plans with unchanged prefetching and machines")
    shares = tuple(replace(old, max_seeds=new.max_seeds, depth=new.depth) for old, new in pairs)
    stored = DevicePlan(shares=shares)
    return stored.with_split(stored.within_memory(stored.split))


#: First steps of a run, whose times are ignored: memory is touched for the first time.
_WARM_UP = 2
_INITIAL_STATE = RebalancerState()


class Rebalancer:
    """Controller that makes a decision every few steps, and commits the plans of later steps.

    Mini-batches of the next steps are already being prepared when a step ends. A decision after
    step s therefore applies from step s + ``lead_steps`` on, and the next decision uses only later
    steps. Every process observes equal times, and commits equal plans.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        first_step: int,
        lead_steps: int,
        counted: bool = False,
        state: RebalancerState = _INITIAL_STATE,
    ) -> None:
        """Start with the plans of ``schedule``, and with ``state`` before ``first_step``.

        ``counted``: times are of counted work, and observed from the first step on; measured times
        are observed after a warm-up of 2 steps.
        """
        self._schedule = schedule
        self._lead_steps = lead_steps
        self._counted = counted
        warm_up = 0 if counted else _WARM_UP
        self._applies_from = max(first_step + warm_up, state.applies_from)
        self._window: list[balance.BalanceInput] = [*state.window]
        self._damping = state.damping

    def state(self, step: int) -> RebalancerState:
        """Return the state to save before ``step``, the next step to observe."""
        return RebalancerState(
            applies_from=self._applies_from,
            window=tuple(self._window),
            damping=self._damping,
            pending=self._schedule.pending_after(step),
        )

    def observe(self, step: int, stages: Sequence[StageTimes], *, full: bool) -> str | None:
        """Record the stage times of a ``full`` step, decide after enough steps, commit a plan.

        The plan, changed or not, applies up to step ``step + lead_steps``. The result is the log
        line of a move, or None.
        """
        if full and step >= self._applies_from:
            self._window.append(balance.BalanceInput(step=step, stages=tuple(stages)))
        plan, move = self._schedule.plan, None
        if len(self._window) >= balance.steps_to_see(plan, WINDOW):
            decision = rebalance(
                plan,
                medians([observed.stages for observed in self._window]),
                self._damping,
                movable=self._schedule.movable,
                counted=self._counted,
                sampled=balance.sample_times(plan, self._window),
            )
            self._window.clear()
            self._damping, move = decision.damping, decision.move
            if decision.plan != plan:
                plan, self._applies_from = decision.plan, step + self._lead_steps + 1
        self._schedule.commit_plan(step + 1 + self._lead_steps, plan)
        return move


def medians(steps: Sequence[Sequence[StageTimes]]) -> tuple[StageTimes, ...]:
    """Return each device's median time in each stage over ``steps``, in seconds."""
    return tuple(
        StageTimes(**{name: statistics.median(getattr(t, name) for t in times) for name in STAGES})
        for times in zip(*steps, strict=True)
    )
