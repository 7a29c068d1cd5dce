"""Gradients of several mini-batches, of which one update is made."""

from __future__ import annotations

from torch import Tensor, nn

from gnnscale.runtime.pipeline.schedule import BatchSlice

__all__ = ["Accumulated"]


class Accumulated:
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
        place = step % self._steps_per_epoch + 1
        return place % self._num_batches == 0 or place == self._steps_per_epoch

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
