"""Training steps that the device does by itself, of which the host reads the outcomes late."""

from collections import Counter, deque
from collections.abc import Iterator

import torch

from gnnscale.backend import PendingOutcome, StepOwner
from gnnscale.core import STAGES
from gnnscale.plan import BY_DEVICE, DevicePlan
from gnnscale.plan.perf.counted import CountedWork
from gnnscale.runtime.pipeline.schedule import BatchSlice
from gnnscale.runtime.pipeline.stages import running
from gnnscale.runtime.pipeline.step import Finished, last_of_updates
from gnnscale.runtime.sync.synchronizer import StepTotals

#: Steps whose outcome the host may not have read yet.
MAX_LATE = 4


def max_late(plan: DevicePlan) -> int:
    """Return how many steps late an outcome may come under ``plan``."""
    return MAX_LATE if any(each.prefetch == BY_DEVICE for each in plan.shares) else 0


class OwnedStep:
    """Starts the steps of a device that owns them, and reads their outcomes up to four steps late.

    The host waits for the device only if it is that far ahead, before a checkpoint, and at the end
    of an epoch.
    """

    def __init__(
        self,
        backend: StepOwner,
        optimizer: torch.optim.Optimizer,
        *,
        work: CountedWork | None = None,
        accumulate: int = 1,
        steps_per_epoch: int = 1,
    ) -> None:
        """Train on ``backend``.

        Args:
            optimizer: the host's, of which each step's learning rate is read.
            work: what the device's work takes by count; None if resource management looks at the
                clock.
            accumulate: mini-batches of an update; the last update of an epoch may have fewer.
            steps_per_epoch: mini-batches of an epoch.
        """
        self._backend = backend
        self._optimizer = optimizer
        self._work = work
        self._accumulate = accumulate
        self._steps_per_epoch = steps_per_epoch
        self._late: deque[tuple[BatchSlice, PendingOutcome]] = deque()
        #: Rows that each layer wrote since statistics were combined.
        self.rows: Counter[int] = Counter()

    def propagate(self, batch: BatchSlice) -> None:
        """Start the whole step, from sampling to the update."""
        with running("propagate"):
            pending = self._backend.train(
                batch.seeds,
                batch.step,
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
        max_late = 0 if checkpoint or last else MAX_LATE
        while self._late and (len(self._late) > max_late or self._late[0][1].ready):
            wanted = checkpoint and len(self._late) == 1
            yield self._read(*self._late.popleft(), checkpoint=wanted)

    def update_weights(self, batch: BatchSlice) -> None:
        """Nothing to do: the device updates its weights."""

    def updates_after(self, step: int) -> bool:
        """Whether weights are updated after ``step``, counted over all epochs from 0."""
        return last_of_updates(step, self._accumulate, self._steps_per_epoch)

    def combine_statistics(self) -> None:
        """Bring the host's model up to date; there is no other device."""
        self.state_out()
        self.rows.clear()

    def state_out(self) -> None:
        """Copy weights, buffers and the optimizer's state to the host's."""
        self._backend.state_out()

    def _read(self, batch: BatchSlice, pending: PendingOutcome, *, checkpoint: bool) -> Finished:
        """Wait for the outcome of a step if it is not there."""
        with running("propagate"):
            outcome = batch.outcome = pending.read()
        for stage, seconds in outcome.seconds.items():
            assert stage in STAGES
            setattr(batch.stages, stage, seconds)
        self.rows.update(outcome.size.rows)
        work = self._work
        counted = None if work is None else (work.stage_times(batch.plan, outcome.size),)
        totals = StepTotals.of_one(outcome, batch.stages, counted, checkpoint=checkpoint)
        return batch, totals
