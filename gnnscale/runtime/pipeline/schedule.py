"""Which slice of which mini-batch a worker trains in which step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.backend import DeviceBatch
from gnnscale.model import Inputs
from gnnscale.plan import DevicePlan
from gnnscale.sampler import MiniBatch
from gnnscale.sampler.seed_order import num_batches, seed_batches
from gnnscale.stages import StageTimes

__all__ = ["BatchSlice", "Schedule"]


@dataclass(kw_only=True)
class BatchSlice:
    """One worker's part of one step, on its way through the pipeline.

    Attributes:
        step: the step's number in the run, from 0.
        seeds: the worker's slice of the mini-batch, perhaps empty.
        weight: the slice's part of the mini-batch's seeds.
        batch, inputs, resident: what the stages made of it.
        stages: seconds in each stage.
        spans: ``(stage's number, start, end)`` on the performance counter's clock.
    """

    step: int
    seeds: NDArray[np.integer[Any]]
    weight: float
    batch: MiniBatch | None = None
    inputs: Inputs | None = None
    resident: DeviceBatch | None = None
    stages: StageTimes = field(default_factory=StageTimes)
    spans: list[tuple[int, float, float]] = field(default_factory=list)


class Schedule:
    """Hands out the worker's slices in the order of steps, over all epochs.

    The global mini-batch of a step is fixed by seed and step. How it is split is decided while the
    run goes on: a step is handed out once the plan that applies to it is settled.
    """

    def __init__(
        self,
        train_idx: NDArray[np.integer[Any]],
        plan: DevicePlan,
        *,
        rank: int,
        seed: int,
        epochs: int,
        first_step: int,
        lead_steps: int | None,
    ) -> None:
        """Begin with ``plan``.

        Args:
            train_idx: ``[n]`` training vertices.
            plan: applies from ``first_step`` on.
            rank: the worker's position in the plan.
            seed: the run's seed.
            epochs: how many there are in all.
            first_step: the step to begin with, the first of an epoch.
            lead_steps: steps handed out before the first ``commit_plan``; None where the plan
                never changes.
        """
        self._train_idx = train_idx
        self._rank = rank
        self._seed = seed
        self._batch_size = plan.batch_size
        self._last = epochs * self.steps_per_epoch
        self._plans: list[tuple[int, DevicePlan]] = [(first_step, plan)]
        self._committed = self._last if lead_steps is None else first_step + lead_steps
        self._first = first_step
        self._closed = False
        self._changed = threading.Condition()

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last may have fewer seeds."""
        return num_batches(len(self._train_idx), self._batch_size)

    def plan_of(self, step: int) -> DevicePlan:
        """Return the plan that applies to ``step``, which must be settled."""
        with self._changed:
            return next(plan for first, plan in reversed(self._plans) if first <= step)

    def commit_plan(self, end: int, plan: DevicePlan) -> None:
        """Let ``plan`` apply to all steps below ``end`` that were not settled before."""
        with self._changed:
            if plan != self._plans[-1][1]:
                self._plans.append((self._committed, plan))
                # The trainer is behind the steps being settled; older plans are of no more use.
                del self._plans[:-8]
            self._committed = max(self._committed, end)
            self._changed.notify_all()

    def close(self) -> None:
        """Let go whoever waits for a step to be settled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def work(self) -> Iterator[BatchSlice]:
        """Yield the worker's part of every step from the first on."""
        step = self._first
        for epoch in range(self._first // self.steps_per_epoch, self._last // self.steps_per_epoch):
            batches = seed_batches(self._train_idx, self._batch_size, seed=self._seed, epoch=epoch)
            for seeds in batches:
                if not self._wait_for(step):
                    return
                mine = seeds[self.plan_of(step).slices(len(seeds))[self._rank]]
                yield BatchSlice(step=step, seeds=mine, weight=len(mine) / len(seeds))
                step += 1

    def _wait_for(self, step: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or step < self._committed)
            return not self._closed
