"""One training step of one worker, after the stages that run ahead of it.

Gradients of several mini-batches, of which one update is made.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from gnnscale.backend import Backend
from gnnscale.core import STAGES, StageTimes
from gnnscale.distributed.heartbeat import activity
from gnnscale.nn import TrainableModel
from gnnscale.planner.cost_model.corrections import WorkCounter
from gnnscale.training.gradient_sync import StepTotals, Synchronizer, needs_several_rows
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.stages import measured

#: A slice whose step is done, and what all workers know of the step.
Finished: TypeAlias = tuple[BatchSlice, StepTotals]


class WorkerStep(Protocol):
    """What a run and a rehearsal do with a slice after the stages that run ahead."""

    #: Rows that each layer wrote since statistics were combined, and that these count.
    rows: Counter[int]

    def propagate(self, batch: BatchSlice) -> None:
        """Compute the gradients of the slice; a device may still be at it afterwards."""
        ...

    def synchronize(self, batch: BatchSlice, *, checkpoint: bool = False) -> Iterable[Finished]:
        """Sum the gradients of all workers.

        Args:
            batch: this worker's slice.
            checkpoint: whether rank 0 wants a checkpoint after the step, of which all learn so.

        Returns:
            The steps that are done. An outcome may come some steps late, but not at a checkpoint
            and at the end of an epoch.
        """
        ...

    def update_weights(self, batch: BatchSlice) -> None:
        """Apply the gradients to the weights, if their mini-batch is the last of an update."""
        ...

    def updates_after(self, step: int) -> bool:
        """Whether weights are updated after ``step``, counted over all epochs from 0."""
        ...

    def combine_statistics(self) -> None:
        """Make running statistics those of all devices, by the rows of each since the last time."""
        ...

    def state_out(self) -> None:
        """Bring what the device learns by itself to the host's model."""
        ...


def last_of_updates(step: int, num_batches: int, steps_per_epoch: int) -> bool:
    """Whether ``step``, counted over all epochs from 0, is the last of its update.

    Args:
        num_batches: mini-batches of an update.
        steps_per_epoch: mini-batches of an epoch; an update has none of two epochs.
    """
    place = step % steps_per_epoch + 1
    return place % num_batches == 0 or place == steps_per_epoch


class GradientAccumulator:
    """Sums the gradients of an update's mini-batches, which all devices have summed before.

    Each counts by its seeds, so that the gradient is that of the mean over all of them. Weights of
    one's own (P3) are summed alike.
    """

    def __init__(self, model: nn.Module, num_batches: int, steps_per_epoch: int) -> None:
        """Sum for ``model``.

        Args:
            model: what this device trains.
            num_batches: mini-batches of an update.
            steps_per_epoch: mini-batches of an epoch; an update has none of two epochs.
        """
        self._parameters = list(model.parameters())
        self._num_batches = num_batches
        self._steps_per_epoch = steps_per_epoch
        self._sums: list[Tensor | None] = [None] * len(self._parameters)
        self._num_seeds = 0

    def ends_with(self, step: int) -> bool:
        """Whether ``step``, counted over all epochs from 0, is the last of its update."""
        return last_of_updates(step, self._num_batches, self._steps_per_epoch)

    def complete(self, batch: BatchSlice) -> bool:
        """Take the gradients of a mini-batch in ``parameter.grad``, its mean over the seeds.

        Returns:
            Whether it is the last of its update: the update's gradients are then in
            ``parameter.grad``, and those to come are of the next.
        """
        if self._num_batches == 1:
            return True
        # What is in the gradient is overwritten by the next mini-batch.
        for place, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                mine, before = parameter.grad * batch.num_seeds, self._sums[place]
                self._sums[place] = mine if before is None else before.add_(mine)
        self._num_seeds += batch.num_seeds
        if not self.ends_with(batch.step):
            return False
        for parameter, total in zip(self._parameters, self._sums, strict=True):
            parameter.grad = None if total is None else total / self._num_seeds
        self._sums = [None] * len(self._parameters)
        self._num_seeds = 0
        return True


class TrainStep:
    """Propagation on the device; synchronisation and update on the host."""

    def __init__(
        self,
        model: TrainableModel,
        backend: Backend,
        synchronizer: Synchronizer,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float | None = None,
        work: WorkCounter | None = None,
        accumulate: int = 1,
        steps_per_epoch: int = 1,
    ) -> None:
        """Train ``model`` on ``backend``.

        Args:
            model: what this device trains of the host's weights.
            backend: the device.
            synchronizer: sums gradients over all workers.
            optimizer: updates the host's weights.
            clip_norm: scale gradients down to this global L2 norm; None leaves them.
            work: what this device's work takes by count; None if resource management looks at
                the clock.
            accumulate: mini-batches of an update; the last update of an epoch may have fewer.
            steps_per_epoch: mini-batches of an epoch.
        """
        self._model = model
        self._several = needs_several_rows(model)
        self._backend = backend
        self._synchronizer = synchronizer
        self._optimizer = optimizer
        self._clip_norm = clip_norm
        self._work = work
        self._accumulated = GradientAccumulator(model, accumulate, steps_per_epoch)
        self._last_sync_s = 0.0
        #: Rows that each layer wrote since statistics were combined.
        self.rows: Counter[int] = Counter()

    def propagate(self, batch: BatchSlice) -> None:
        """Compute the gradients of the slice; a device may still be at it afterwards."""
        if batch.device_batch is not None:
            with measured(batch, "propagate"):
                self._backend.propagate(batch.device_batch, batch.weight)
            # A device that is waited for would otherwise make all others look as slow.
            waited_s = self._model.take_waited_s()
            batch.stages.propagate -= waited_s
            batch.stages.exchange += waited_s

    def synchronize(self, batch: BatchSlice, *, checkpoint: bool = False) -> list[Finished]:
        """Sum the gradients of all workers, and return the step, which is done.

        Args:
            batch: this worker's slice.
            checkpoint: whether rank 0 wants a checkpoint after the step, of which all learn so.
        """
        self._finish(batch)
        # How long this synchronisation takes is not known yet: the previous one is reported.
        stages = replace(batch.stages, sync=self._last_sync_s)
        counted = None if self._work is None else self._counted(self._work, batch)
        with measured(batch, "sync"):
            totals = self._synchronizer.synchronize(
                batch.outcome, stages, counted, checkpoint=checkpoint
            )
        return [(batch, totals)]

    def _counted(self, work: WorkCounter, batch: BatchSlice) -> StageTimes:
        size = None if batch.outcome is None else batch.outcome.size
        return work.stage_times(batch.plan, size, host_samples=batch.host_samples)

    def updates_after(self, step: int) -> bool:
        """Whether weights are updated after ``step``, counted over all epochs from 0."""
        return self._accumulated.ends_with(step)

    def update_weights(self, batch: BatchSlice) -> None:
        """Apply the gradients to the weights, if their mini-batch is the last of an update."""
        with measured(batch, "sync"):
            complete = self._accumulated.complete(batch)
            if complete:
                if self._clip_norm is not None:
                    self._synchronizer.clip_gradients(self._clip_norm)
                self._optimizer.step()
                if self._model.vertex_rows is not None:
                    self._model.vertex_rows.update(self._optimizer)
            self._optimizer.zero_grad()
            if complete:
                self._backend.update_weights()
        self._last_sync_s = batch.stages.sync

    def combine_statistics(self) -> None:
        """Make running statistics those of all devices, by the rows of each since the last time."""
        self._synchronizer.combine_statistics(self.rows)
        self.rows.clear()

    def state_out(self) -> None:
        """Bring the device's buffers to the host's model, whose weights are up to date."""
        self._backend.buffers_out()

    def _finish(self, batch: BatchSlice) -> None:
        """Wait for the device; what its own clock says takes the place of the host's."""
        if batch.device_batch is None:
            return
        start = time.perf_counter()
        with activity("propagate"):
            batch.outcome = self._backend.finish(batch.device_batch)
        batch.stages.propagate += time.perf_counter() - start
        for layer, count in batch.outcome.size.rows.items():
            if count != 1 or layer not in self._several:
                self.rows[layer] += count
        for stage, seconds in batch.outcome.seconds.items():
            assert stage in STAGES
            setattr(batch.stages, stage, seconds)
        batch.inputs = batch.device_batch = None
