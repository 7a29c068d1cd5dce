"""Device-driven training steps, whose outcomes the host reads up to four steps late."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace

import torch

from gnnscale.backend import DeviceDrivenBackend, PendingOutcome
from gnnscale.core import STAGES
from gnnscale.distributed import Group, activity
from gnnscale.nn import TrainableModel
from gnnscale.planner import BY_DEVICE, DevicePlan
from gnnscale.planner.cost_model.corrections import WorkCounter
from gnnscale.training.gradient_sync import (
    StepControl,
    StepTotals,
    batch_norm_layers,
    combine_statistics,
)
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.step import Finished, last_of_updates

#: Largest number of steps whose outcomes the host has not read.
MAX_LATE = 4


def max_late(plan: DevicePlan) -> int:
    """Return how many steps late outcomes may be read: 4 if ``plan`` is device-driven, else 0."""
    return MAX_LATE if any(share.prefetch == BY_DEVICE for share in plan.shares) else 0


class DeviceDrivenStep:
    """Training step that the device executes from sampling to update.

    The host starts each step, and reads its outcome up to four steps late. It waits for the device
    if it is four steps ahead, a checkpoint is due, or the epoch ends. Several workers read the
    outcome of a step after they have started equally many steps: if a mini-batch exceeded the
    capacity of one device, all devices therefore repeat the same steps.
    """

    def __init__(
        self,
        model: TrainableModel,
        backend: DeviceDrivenBackend,
        optimizer: torch.optim.Optimizer,
        group: Group,
        *,
        work: WorkCounter | None = None,
        accumulate: int = 1,
        steps_per_epoch: int = 1,
    ) -> None:
        """Train on ``backend``.

        Args:
            model: the host's model, to which the device's weights are copied.
            optimizer: the host's optimizer, from which each step's learning rate is read.
            work: counts the device's work for resource management. None: it uses measured times.
            accumulate: mini-batches of an update; the last update of an epoch may have fewer.
        """
        self._model = model
        self._batch_norms = batch_norm_layers(model)
        self._backend = backend
        self._optimizer = optimizer
        self._group = group
        self._control = StepControl(group)
        self._work = work
        self._accumulate = accumulate
        self._steps_per_epoch = steps_per_epoch
        self._pending: deque[tuple[BatchSlice, PendingOutcome]] = deque()
        #: Whether a checkpoint is due; the other workers learn it with the next outcome.
        self._checkpoint_due = False
        #: Rows that each layer's statistics counted since the last ``combine_statistics``.
        self.rows: Counter[int] = Counter()

    def propagate(self, batch: BatchSlice) -> None:
        """Start the complete step on the device, from sampling to the update of weights."""
        with activity("propagate"):
            pending = self._backend.train(
                batch.seeds,
                batch.step,
                num_seeds=batch.num_seeds,
                rate=self._optimizer.param_groups[0]["lr"],
                updates=self.updates_after(batch.step),
            )
        self._pending.append((batch, pending))

    def synchronize(self, batch: BatchSlice, *, checkpoint: bool = False) -> Iterator[Finished]:
        """Yield finished steps that are due: all steps before a checkpoint or at an epoch's end.

        ``checkpoint``: rank 0 requests one; the last of all yielded steps then has the flag.
        """
        ends_epoch = (batch.step + 1) % self._steps_per_epoch == 0
        is_single = self._group.size == 1
        self._checkpoint_due |= checkpoint
        drains = ends_epoch or (is_single and self._checkpoint_due)
        while self._pending and (drains or self._is_due(is_single)):
            finished, totals = self._read(*self._pending.popleft())
            drains |= totals.checkpoint
            saves = drains and totals.checkpoint and not self._pending
            self._checkpoint_due &= not saves
            same = totals.checkpoint == saves
            yield finished, totals if same else replace(totals, checkpoint=saves)

    def _is_due(self, is_single: bool) -> bool:
        """Whether to read the oldest outcome.

        It is due if more than four are unread, or if it is ready and there is a single worker.
        """
        return len(self._pending) > MAX_LATE or (is_single and self._pending[0][1].ready)

    def update_weights(self, batch: BatchSlice) -> None:
        """Do nothing: the device has updated its weights."""

    def updates_after(self, step: int) -> bool:
        """Whether weights are updated after ``step``, counted over all epochs from 0."""
        return last_of_updates(step, self._accumulate, self._steps_per_epoch)

    def combine_statistics(self) -> None:
        """Copy the device's state to the host, and combine running statistics of all devices.

        Changed statistics are copied back to the device. ``rows``, by which the devices' statistics
        are weighted, restart at zero.
        """
        self.copy_state()
        if combine_statistics(self._model, self.rows, self._group):
            self._backend.load_state()
        self.rows.clear()

    def copy_state(self) -> None:
        """Copy weights, buffers and optimizer state from the device to the host."""
        self._backend.copy_state()

    def _read(self, batch: BatchSlice, pending: PendingOutcome) -> Finished:
        """Wait for the outcome of a step; return its slice and its totals over all workers."""
        with activity("propagate"):
            outcome = batch.outcome = pending.read()
        for stage, seconds in outcome.seconds.items():
            assert stage in STAGES
            setattr(batch.stages, stage, seconds)
        for layer, count in outcome.size.rows.items():  # twice as fast as ``Counter.update``
            if count != 1 or layer not in self._batch_norms:
                self.rows[layer] += count
        work = self._work
        counted = None if work is None else work.stage_times(batch.plan, outcome.size)
        if self._group.size == 1:
            return batch, StepTotals.of_single_device(
                outcome, batch.stages, counted, checkpoint=self._checkpoint_due
            )
        with activity("sync"):
            totals = self._control.all_reduce(
                outcome, batch.stages, counted, checkpoint=self._checkpoint_due
            )
        return batch, totals
