"""The synchronizer (HyScale-GNN, section III-A): gradients of all trainers, summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from gnnscale.backend import Backend
from gnnscale.runtime.sync.group import Group
from gnnscale.stages import STAGES, StageTimes

__all__ = ["StepTotals", "Synchronizer"]

_HALF = 1 << 14


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """What every process knows after a step.

    Attributes:
        loss: mean over the mini-batch's seeds.
        num_edges, num_vertices: over all layers and devices.
        stages: each device's stage times; ``sync`` is that of the step before.
    """

    loss: float
    num_edges: int
    num_vertices: int
    stages: tuple[StageTimes, ...]


class Synchronizer:
    """Sums gradients in one flat bucket, which carries the loss and all stage times as well.

    Each slice's loss is weighted with its part of the mini-batch before it is differentiated, so
    that the sum is the gradient of the mean over all seeds. As every process gets the same sums,
    each decides the same about the next steps, and nobody has to tell it.
    """

    def __init__(self, model: nn.Module, backend: Backend, group: Group) -> None:
        """Lay out the bucket.

        Args:
            model: the host's weights.
            backend: the device whose gradients this process brings.
            group: the processes that train together.
        """
        self._model = model
        self._backend = backend
        self._group = group
        self._parameters = list(model.parameters())
        sizes = [parameter.numel() for parameter in self._parameters]
        num_times = group.size * len(STAGES)
        self._bucket = torch.zeros(sum(sizes) + 1 + 4 + num_times)
        *views, self._loss, self._counts, self._times = torch.split(
            self._bucket, [*sizes, 1, 4, num_times]
        )
        self._gradients = [
            view.view(parameter.shape)
            for view, parameter in zip(views, self._parameters, strict=True)
        ]

    def synchronize(
        self, loss: float, stages: StageTimes, *, num_edges: int, num_vertices: int
    ) -> StepTotals:
        """Bring this device's gradients, and leave the sum in ``parameter.grad``.

        Args:
            loss: the slice's weighted loss.
            stages: its stage times.
            num_edges: over the layers of the slice.
            num_vertices: likewise.
        """
        self._backend.gradients_out(self._gradients)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        if self._group.size == 1:
            return StepTotals(
                loss=loss, num_edges=num_edges, num_vertices=num_vertices, stages=(stages,)
            )
        self._loss[0] = loss
        # float32 holds integers up to 2^24: two of them hold a count that is exact when summed.
        for slot, count in enumerate((num_edges, num_vertices)):
            self._counts[2 * slot], self._counts[2 * slot + 1] = divmod(count, _HALF)
        self._times.zero_()
        mine = self._times.view(self._group.size, -1)[self._group.rank]
        for slot, stage in enumerate(STAGES):
            mine[slot] = getattr(stages, stage)
        self._group.sum(self._bucket)
        counts = [int(value) for value in self._counts.tolist()]
        return StepTotals(
            loss=self._loss.item(),
            num_edges=counts[0] * _HALF + counts[1],
            num_vertices=counts[2] * _HALF + counts[3],
            stages=_stage_times(self._times.tolist()),
        )

    def average_buffers(self) -> None:
        """Make running statistics the mean over all devices; a normalisation sees its slice only.

        Integer counters are the same everywhere.
        """
        for buffer in self._model.buffers():
            if buffer.is_floating_point():
                self._group.sum(buffer)
                buffer /= self._group.size


def _stage_times(values: Sequence[float]) -> tuple[StageTimes, ...]:
    rows = zip(*[iter(values)] * len(STAGES), strict=True)
    return tuple(StageTimes(**dict(zip(STAGES, row, strict=True))) for row in rows)
