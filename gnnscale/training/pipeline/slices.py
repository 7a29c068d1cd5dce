"""Schedule of a worker's slices of mini-batches, and of the device plans that apply to them."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from gnnscale.backend import BatchOutcome, DeviceBatch, Sample
from gnnscale.core import IntArray, StageTimes
from gnnscale.nn import Inputs
from gnnscale.planner import DevicePlan
from gnnscale.sampling import MiniBatch, SeedOrder, StepSeeds

#: Number of remembered plans: more than the schedule is ever ahead of the trainer.
MAX_PLANS = 8


@dataclass(kw_only=True)
class BatchSlice:
    """Slice of one mini-batch for one worker, on its way through the stages.

    Attributes:
        batch, inputs, device_batch, outcome: results of the stages so far; None before the stage.
    """

    step: int  #: number of the step in the run, from 0
    plan: DevicePlan  #: plan that applies to this step
    counts: tuple[int, ...]  #: seeds of each device in this step
    seeds: IntArray  #: this worker's seeds, possibly none
    host_samples: bool = False  #: whether the host samples it for a device that samples
    on_host: MiniBatch | None = None  #: sample by the host, until it is transferred
    batch: Sample | None = None
    inputs: Inputs | None = None
    device_batch: DeviceBatch | None = None
    outcome: BatchOutcome | None = None
    stages: StageTimes = field(default_factory=StageTimes)  #: seconds in each stage
    #: ``(position in STAGES, start, end)`` on the performance counter's clock
    spans: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def num_seeds(self) -> int:
        """Number of seeds of the mini-batch, over all devices."""
        return sum(self.counts)

    @property
    def weight(self) -> float:
        """Fraction of the mini-batch's seeds in this slice."""
        return len(self.seeds) / self.num_seeds


class Schedule:
    """Schedule that yields a worker's slices in the order of steps, over all epochs.

    The seed order determines the seeds of each step; resource management may change their split
    between devices during the run. A step is yielded after its plan is committed. With plan A at
    the start, ``lead_steps=2`` and ``commit_plan(5, B)`` after step 0, steps 0 and 1 use A, steps 2
    to 4 use B, and step 5 waits.
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
        """Start with ``plan`` from ``first_step`` on, which is counted over all epochs from 0.

        Args:
            lead_steps: steps yielded before the first ``commit_plan``; None: the plan never
                changes.
            pending: plans that a checkpoint has committed for later steps, each with its first
                step.
        """
        self._order = order
        self._rank = rank
        self._last = epochs * order.steps_per_epoch
        self._first = first_step
        self._plans: list[tuple[int, DevicePlan]] = [(first_step, plan), *pending]
        self._committed = self._last if lead_steps is None else first_step + lead_steps
        self._next_step = first_step
        self._paused = False
        self._closed = False
        self._changed = threading.Condition()

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of an epoch; the last step may have fewer seeds."""
        return self._order.steps_per_epoch

    @property
    def movable(self) -> bool:
        """Whether seeds may move between devices."""
        return self._order.movable

    @property
    def plan(self) -> DevicePlan:
        """Plan that was committed last."""
        with self._changed:
            return self._plans[-1][1]

    def plan_of(self, step: int) -> DevicePlan:
        """Return the plan of ``step``, which must be committed."""
        with self._changed:
            return next(plan for first, plan in reversed(self._plans) if first <= step)

    def pending_after(self, step: int) -> tuple[tuple[int, DevicePlan], ...]:
        """Return the plans that apply from a later step than ``step``, each with its first step."""
        with self._changed:
            return tuple((first, plan) for first, plan in self._plans if first > step)

    def commit_plan(self, end: int, plan: DevicePlan) -> None:
        """Apply ``plan`` to all uncommitted steps below ``end``."""
        with self._changed:
            if plan != self._plans[-1][1]:
                self._plans.append((self._committed, plan))
                del self._plans[:-MAX_PLANS]
            self._committed = max(self._committed, end)
            self._changed.notify_all()

    def hold(self) -> int:
        """Stop yielding slices until ``end_at`` is called; return the next step's number."""
        with self._changed:
            self._paused = True
            return self._next_step

    def end_at(self, step: int) -> None:
        """End ``slices`` before ``step``, which commits all steps below it, and undo ``hold``."""
        with self._changed:
            self._last = min(self._last, step)
            self._committed = max(self._committed, self._last)
            self._paused = False
            self._changed.notify_all()

    def close(self) -> None:
        """End ``slices``, and wake threads that wait for a step to be committed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def slices(self) -> Iterator[BatchSlice]:
        """Yield the worker's slice of every step from the first one on."""
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
        """Wait until ``step`` is committed; return False if the schedule has ended before it."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed
                    or step >= self._last
                    or (step < self._committed and not self._paused)
                )
            )
            if self._closed or step >= self._last:
                return False
            self._next_step = step + 1
            return True
