"""Host-driven training step of one worker, and gradient accumulation over mini-batches."""

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
from gnnscale.training.gradient_sync import StepTotals, Synchronizer, batch_norm_layers
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.stages import measured

#: A slice whose step is done, and the totals of the step over all workers.
Finished: TypeAlias = tuple[BatchSlice, StepTotals]


class WorkerStep(Protocol):
    """Protocol of the part of a training step that follows the stages prepared ahead."""

    rows: Counter[int]  #: rows counted in each layer's statistics since they were combined

    def propagate(self, batch: BatchSlice) -> None:
        """Start to compute the gradients of the slice on the device, which may finish later."""

    def synchronize(self, batch: BatchSlice, *, checkpoint: bool = False) -> Iterable[Finished]:
        """Sum the gradients of all workers; return slice and totals of each step that is done.

        Outcomes may be some steps late, except at a checkpoint and at the end of an epoch. All
        workers learn here whether rank 0 requests a ``checkpoint`` after the step.
        """

    def update_weights(self, batch: BatchSlice) -> None:
        """Apply the gradients to the weights, if the mini-batch is the last of an update."""

    def updates_after(self, step: int) -> bool:
        """Whether weights are updated after ``step``, counted over all epochs from 0."""

    def combine_statistics(self) -> None:
        """Combine the running statistics of all devices, and restart ``rows``.

        A device's weight for a layer is ``rows``: the rows normalized there since the last call.
        """

    def copy_state(self) -> None:
        """Copy the state that the device has trained to the host's model."""


def last_of_updates(step: int, num_batches: int, steps_per_epoch: int) -> bool:
    """Whether ``step``, from 0 over all epochs, ends an update of at most ``num_batches``."""
    position = step % steps_per_epoch + 1
    return position % num_batches == 0 or position == steps_per_epoch


class GradientAccumulator:
    """Sum of the gradients of an update's mini-batches, after the all-reduce of each.

    Each mini-batch is weighted by its seeds, so that the result is the gradient of the mean loss
    over all seeds of the update, also for columns of W¹ that only this device has (P3).
    """

    def __init__(self, model: nn.Module, num_batches: int, steps_per_epoch: int) -> None:
        """Accumulate ``num_batches`` mini-batches an update, or fewer at the end of an epoch."""
        self._parameters = list(model.parameters())
        self._num_batches = num_batches
        self._steps_per_epoch = steps_per_epoch
        self._sums: list[Tensor | None] = [None] * len(self._parameters)
        self._num_seeds = 0

    def ends_with(self, step: int) -> bool:
        """Whether ``step``, counted over all epochs from 0, is the last of its update."""
        return last_of_updates(step, self._num_batches, self._steps_per_epoch)

    def complete(self, batch: BatchSlice) -> bool:
        """Add the gradients in ``parameter.grad``, which are means over the seeds of ``batch``.

        Return True if ``batch`` is the last of its update: ``parameter.grad`` then has the update's
        gradients, and the sum restarts.
        """
        if self._num_batches == 1:
            return True
        # Copied, because the next mini-batch overwrites the gradients.
        for i, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                gradient, total = parameter.grad * batch.num_seeds, self._sums[i]
                self._sums[i] = gradient if total is None else total.add_(gradient)
        self._num_seeds += batch.num_seeds
        if not self.ends_with(batch.step):
            return False
        for parameter, total in zip(self._parameters, self._sums, strict=True):
            parameter.grad = None if total is None else total / self._num_seeds
        self._sums = [None] * len(self._parameters)
        self._num_seeds = 0
        return True


class TrainStep:
    """Host-driven step: propagation on the device, synchronization and update on the host."""

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
        """Train ``model``, in host memory, on ``backend``.

        Args:
            clip_norm: global L2 norm that gradients are scaled down to; None: no clipping.
            work: counts the device's work for resource management. None: it uses measured times.
            accumulate: mini-batches of an update; the last update of an epoch may have fewer.
        """
        self._model = model
        self._batch_norms = batch_norm_layers(model)
        self._backend = backend
        self._synchronizer = synchronizer
        self._optimizer = optimizer
        self._clip_norm = clip_norm
        self._work = work
        self._accumulator = GradientAccumulator(model, accumulate, steps_per_epoch)
        self._last_sync_s = 0.0
        #: Rows that each layer's statistics counted since the last ``combine_statistics``.
        self.rows: Counter[int] = Counter()

    def propagate(self, batch: BatchSlice) -> None:
        """Start to compute the gradients of the slice on the device, which may finish later."""
        if batch.device_batch is not None:
            with measured(batch, "propagate"):
                self._backend.propagate(batch.device_batch, batch.weight)
            # Waiting for a slow peer would make this device look slow, so it counts as exchange.
            waited_s = self._model.pop_waited_s()
            batch.stages.propagate -= waited_s
            batch.stages.exchange += waited_s

    def synchronize(self, batch: BatchSlice, *, checkpoint: bool = False) -> list[Finished]:
        """Sum the gradients of all workers, and return the slice with the step's totals."""
        self._finish(batch)
        # The duration of this synchronization is unknown, so the previous step's is reported.
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
        return self._accumulator.ends_with(step)

    def update_weights(self, batch: BatchSlice) -> None:
        """Add the gradients to the update's sum, and clear them.

        After the last mini-batch of an update, clip the sum and update weights on host and device.
        """
        with measured(batch, "sync"):
            complete = self._accumulator.complete(batch)
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
        """Combine the running statistics of all devices, and restart ``rows``.

        A device's weight for a layer is ``rows``: the rows normalized there since the last call.
        """
        self._synchronizer.combine_statistics(self.rows)
        self.rows.clear()

    def copy_state(self) -> None:
        """Copy the device's buffers to the host's model, whose weights are up to date."""
        self._backend.copy_buffers()

    def _finish(self, batch: BatchSlice) -> None:
        """Wait for the device; set the slice's outcome, and stage times by the device's clock.

        The rows that each layer has normalized are added to ``rows``.
        """
        if batch.device_batch is None:
            return
        start = time.perf_counter()
        with activity("propagate"):
            batch.outcome = self._backend.finish(batch.device_batch)
        batch.stages.propagate += time.perf_counter() - start
        for layer, count in batch.outcome.size.rows.items():
            if count != 1 or layer not in self._batch_norms:
                self.rows[layer] += count
        for stage, seconds in batch.outcome.seconds.items():
            assert stage in STAGES
            setattr(batch.stages, stage, seconds)
        batch.inputs = batch.device_batch = None
