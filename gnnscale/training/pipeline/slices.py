"""The schedule: which slice of which mini-batch a worker trains, and under which plan."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from gnnscale.backend import BatchOutcome, DeviceBatch, Sample
from gnnscale.core import IntArray, StageTimes
from gnnscale.nn import Inputs
from gnnscale.planner import DevicePlan
from gnnscale.sampling import MiniBatch, SeedOrder, StepSeeds

#: Plans that are remembered; the schedule is never further ahead of the trainer.
MAX_PLANS = 8


@dataclass(kw_only=True)
class BatchSlice:
    """One worker's slice of one mini-batch, on its way through the stages.

    Attributes:
        batch, inputs, device_batch, outcome: what the stages made of them.
    """

    step: int  #: the step's number in the run, from 0
    plan: DevicePlan  #: applies to this step
    counts: tuple[int, ...]  #: seeds of each device in this step
    seeds: IntArray  #: this worker's seeds, perhaps none
    #: whether the host samples it for a device that samples others by itself
    host_samples: bool = False
    #: what the host has sampled, until the device takes it
    on_host: MiniBatch | None = None
    batch: Sample | None = None
    inputs: Inputs | None = None
    device_batch: DeviceBatch | None = None
    outcome: BatchOutcome | None = None
    stages: StageTimes = field(default_factory=StageTimes)  #: seconds in each stage
    #: ``(position in STAGES, start, end)`` on the performance counter's clock
    spans: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def num_seeds(self) -> int:
        """Seeds of the mini-batch, over all devices."""
        return sum(self.counts)

    @property
    def weight(self) -> float:
        """The slice's part of the mini-batch's seeds."""
        return len(self.seeds) / self.num_seeds


class Schedule:
    """Hands out the worker's slices in the order of steps, over all epochs.

    It owns the plan. The seeds of a step are fixed by the seed order; how they are split may be
    decided during the run. A step is handed out once its plan is committed.
    """

    def __init__(
        self,
        order: SeedOrder,
        plan: DevicePlan,
        *,
        rank: int,
        epochs: int,
        first_step: int,
        lead_steps: int | None,
        pending: Sequence[tuple[int, DevicePlan]] = (),
    ) -> None:
        """Begin with ``plan``.

        Args:
            plan: applies from ``first_step`` on.
            rank: the worker's position in the plan.
            first_step: the step to begin with, in an epoch or between two.
            lead_steps: steps handed out before the first ``commit_plan``; None if the plan
                never changes.
            pending: plans that were decided before, each with the step from which it applies.
        """
        self._order = order
        self._rank = rank
        self._last = epochs * order.steps_per_epoch
        self._first = first_step
        self._plans: list[tuple[int, DevicePlan]] = [(first_step, plan), *pending]
        self._committed = self._last if lead_steps is None else first_step + lead_steps
        self._handed_out = first_step
        self._held = False
        self._closed = False
        self._changed = threading.Condition()

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last may have fewer seeds."""
        return self._order.steps_per_epoch

    @property
    def movable(self) -> bool:
        """Whether seeds may move between devices."""
        return self._order.movable

    @property
    def plan(self) -> DevicePlan:
        """The plan that was committed last."""
        with self._changed:
            return self._plans[-1][1]

    def plan_of(self, step: int) -> DevicePlan:
        """Return the plan that applies to ``step``, which must be committed."""
        with self._changed:
            return next(plan for first, plan in reversed(self._plans) if first <= step)

    def pending_after(self, step: int) -> tuple[tuple[int, DevicePlan], ...]:
        """Return the plans that apply from later steps than ``step``, each with the first one."""
        with self._changed:
            return tuple(each for each in self._plans if each[0] > step)

    def commit_plan(self, end: int, plan: DevicePlan) -> None:
        """Let ``plan`` apply to all steps below ``end`` that were not committed before."""
        with self._changed:
            if plan != self._plans[-1][1]:
                self._plans.append((self._committed, plan))
                del self._plans[:-MAX_PLANS]
            self._committed = max(self._committed, end)
            self._changed.notify_all()

    def hold(self) -> int:
        """Hand out no more steps until ``end_at``, and return how many were handed out."""
        with self._changed:
            self._held = True
            return self._handed_out

    def end_at(self, step: int) -> None:
        """Hand out the steps below ``step``, and then no more."""
        with self._changed:
            self._last = min(self._last, step)
            self._committed = max(self._committed, self._last)
            self._held = False
            self._changed.notify_all()

    def close(self) -> None:
        """Release those that wait for a step to be committed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def slices(self) -> Iterator[BatchSlice]:
        """Yield the worker's slice of every step from the first on."""
        step = self._first
        while step < self._last:
            epoch, done = divmod(step, self.steps_per_epoch)
            for seeds in islice(self._order.epoch(epoch), done, None):
                if not self._wait_for(step):
                    return
                yield self._slice(step, seeds)
                step += 1

    def _slice(self, step: int, seeds: StepSeeds) -> BatchSlice:
        plan = self.plan_of(step)
        counts = seeds.counts or plan.counts(len(seeds.seeds))
        end = list(accumulate(counts))[self._rank]
        return BatchSlice(
            step=step,
            plan=plan,
            counts=counts,
            seeds=seeds.seeds[end - counts[self._rank] : end],
            host_samples=plan.shares[self._rank].host_samples_at(step),
        )

    def _wait_for(self, step: int) -> bool:
        """Wait until ``step`` is committed; False if it is not to be handed out."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed
                    or step >= self._last
                    or (step < self._committed and not self._held)
                )
            )
            if self._closed or step >= self._last:
                return False
            self._handed_out = step + 1
            return True
