"""Training steps that the device does by itself, of which the host reads the outcomes late."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace

import torch

from gnnscale.backend import PendingOutcome, StepOwner
from gnnscale.core import STAGES
from gnnscale.distributed.heartbeat import activity
from gnnscale.distributed.process_group import Group
from gnnscale.nn import TrainableModel
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.planner.cost_model.corrections import WorkCounter
from gnnscale.training.gradient_sync import (
    StepControl,
    StepTotals,
    combine_statistics,
    needs_several_rows,
)
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.step import Finished, last_of_updates

#: Steps whose outcome the host may not have read yet.
MAX_LATE = 4


def max_late(plan: DevicePlan) -> int:
    """Return how many steps late an outcome may come under ``plan``."""
    return MAX_LATE if any(each.prefetch == BY_DEVICE for each in plan.shares) else 0


class DeviceDrivenStep:
    """Starts the steps of a device that owns them, and reads their outcomes up to four steps late.

    The host waits for the device only if it is that far ahead, before a checkpoint, and at the end
    of an epoch. Workers of several devices read the outcome of a step after they have started the
    same one: what finds no room is then done again by all of them alike.
    """

    def __init__(
        self,
        model: TrainableModel,
        backend: StepOwner,
        optimizer: torch.optim.Optimizer,
        group: Group,
        *,
        work: WorkCounter | None = None,
        accumulate: int = 1,
        steps_per_epoch: int = 1,
    ) -> None:
        """Train on ``backend``.

        Args:
            model: the host's, which the device's weights are copied to.
            optimizer: the host's, of which each step's learning rate is read.
            group: the workers of all devices.
            work: what the device's work takes by count; None if resource management looks at the
                clock.
            accumulate: mini-batches of an update; the last update of an epoch may have fewer.
            steps_per_epoch: mini-batches of an epoch.
        """
        self._model = model
        self._several = needs_several_rows(model)
        self._backend = backend
        self._optimizer = optimizer
        self._group = group
        self._control = StepControl(group)
        self._work = work
        self._accumulate = accumulate
        self._steps_per_epoch = steps_per_epoch
        self._late: deque[tuple[BatchSlice, PendingOutcome]] = deque()
        #: Whether a checkpoint is wanted, of which the other workers learn with the next outcome.
        self._wanted = False
        #: Rows that each layer wrote since statistics were combined.
        self.rows: Counter[int] = Counter()

    def propagate(self, batch: BatchSlice) -> None:
        """Start the whole step, from sampling to the update."""
        with activity("propagate"):
            pending = self._backend.train(
                batch.seeds,
                batch.step,
                num_seeds=batch.num_seeds,
                rate=self._optimizer.param_groups[0]["lr"],
                updates=self.updates_after(batch.step),
            )
        self._late.append((batch, pending))

    def synchronize(self, batch: BatchSlice, *, checkpoint: bool = False) -> Iterator[Finished]:
        """Yield the steps whose outcomes are there; all of them before a checkpoint.

        Args:
            batch: the slice of the step that was started last.
            checkpoint: whether a checkpoint is wanted after it.
        """
        last = (batch.step + 1) % self._steps_per_epoch == 0
        alone = self._group.size == 1
        self._wanted |= checkpoint
        drains = last or (alone and self._wanted)
        while self._late and (drains or self._is_due(alone)):
            finished, totals = self._read(*self._late.popleft())
            drains |= totals.checkpoint
            saves = drains and totals.checkpoint and not self._late
            self._wanted &= not saves
            same = totals.checkpoint == saves
            yield finished, totals if same else replace(totals, checkpoint=saves)

    def _is_due(self, alone: bool) -> bool:
        """Whether the next outcome is read: it is late, or there and no other worker waits."""
        return len(self._late) > MAX_LATE or (alone and self._late[0][1].ready)

    def update_weights(self, batch: BatchSlice) -> None:
        """Nothing to do: the device updates its weights."""

    def updates_after(self, step: int) -> bool:
        """Whether weights are updated after ``step``, counted over all epochs from 0."""
        return last_of_updates(step, self._accumulate, self._steps_per_epoch)

    def combine_statistics(self) -> None:
        """Bring the host's model up to date, and its running statistics to those of all devices."""
        self.state_out()
        if combine_statistics(self._model, self.rows, self._group):
            self._backend.load_state()
        self.rows.clear()

    def state_out(self) -> None:
        """Copy weights, buffers and the optimizer's state to the host's."""
        self._backend.state_out()

    def _read(self, batch: BatchSlice, pending: PendingOutcome) -> Finished:
        """Wait for the outcome of a step if it is not there, and trade it with other workers."""
        with activity("propagate"):
            outcome = batch.outcome = pending.read()
        for stage, seconds in outcome.seconds.items():
            assert stage in STAGES
            setattr(batch.stages, stage, seconds)
        for layer, count in outcome.size.rows.items():  # half as long as ``Counter.update``
            if count != 1 or layer not in self._several:
                self.rows[layer] += count
        work = self._work
        counted = None if work is None else work.stage_times(batch.plan, outcome.size)
        if self._group.size == 1:
            of_one = None if counted is None else (counted,)
            return batch, StepTotals.of_one(outcome, batch.stages, of_one, checkpoint=self._wanted)
        with activity("sync"):
            totals = self._control.trade(outcome, batch.stages, counted, checkpoint=self._wanted)
        return batch, totals
