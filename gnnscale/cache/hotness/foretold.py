"""Reads of a run's epoch, as they are counted on batches that had no part in choosing caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.hotness.presampled import Presampled
from gnnscale.cache.hotness.slices import slices

if TYPE_CHECKING:
    from gnnscale.cache.task import CacheTask

__all__ = ["Foretold", "later_steps"]

#: Seeds that are drawn after the first epoch at least, in no more than so many steps.
_MIN_SEEDS, _MAX_SMALL_STEPS = 1 << 14, 256


@dataclass(frozen=True, kw_only=True)
class Foretold:
    """What an epoch reads, on average over a run: H_F and H_T, devices by their positions.

    What the first epoch reads most is read less by the others: it was hot, or lucky. Caches that
    are chosen by its counts therefore hit more in it than later, and no estimate from these counts
    alone is sure to tell how much: seeds come once an epoch, so that counts vary by less than
    independent batches would make them. Sampling is a pure function of the step, so that more of
    the run is drawn as it will be trained: it stands for all epochs but the first, each with as
    many reads as the first one has.

    Attributes:
        first: the run's first epoch.
        later: what ``later_steps`` names; None for a run of one epoch.
        num_epochs: epochs of the run.
    """

    first: Presampled
    later: Presampled | None
    num_epochs: int

    def rows_at(self, device: int, vertices: NDArray[Any], counted: int | None = None) -> float:
        """Return how many rows of ``vertices`` the device reads.

        Args:
            device: who reads.
            vertices: what is read.
            counted: how many it read in the first epoch; None where that is not known.
        """
        return self._at(Presampled.rows_at, self._row_scale(device), device, vertices, counted)

    def lists_at(self, device: int, vertices: NDArray[Any], counted: int | None = None) -> float:
        """Return how often the device reads the lists of ``vertices``.

        Takes the arguments of ``rows_at``.
        """
        return self._at(Presampled.lists_at, self._list_scale(device), device, vertices, counted)

    def num_rows(self, device: int) -> int:
        """Return how many rows the device reads."""
        return self.first.num_rows(device)

    def num_list_reads(self, device: int) -> int:
        """Return N_TSUM of the device."""
        return self.first.num_list_reads(device)

    def sum_rows(self, devices: Sequence[int]) -> NDArray[Any]:
        """Return A_F, ``[num_vertices]``: the sum of H_F over ``devices``."""
        scales = {each: self._row_scale(each) for each in devices}
        return self._sum(self.first.sum_rows(devices), Presampled.rows_of, scales)

    def sum_lists(self, devices: Sequence[int]) -> NDArray[Any]:
        """Return A_T, ``[num_vertices]``: the sum of H_T over ``devices``."""
        scales = {each: self._list_scale(each) for each in devices}
        return self._sum(self.first.sum_lists(devices), Presampled.lists_of, scales)

    def _row_scale(self, device: int) -> float | None:
        return self._scale(Presampled.num_rows, device)

    def _list_scale(self, device: int) -> float | None:
        return self._scale(Presampled.num_list_reads, device)

    def _scale(self, total: Callable[[Presampled, int], int], device: int) -> float | None:
        """Return the first epoch's reads for one of those drawn later; None where none were."""
        drawn = 0 if self.later is None else total(self.later, device)
        return total(self.first, device) / drawn if drawn else None

    def _at(
        self,
        reads_at: Callable[[Presampled, int, NDArray[Any]], int],
        scale: float | None,
        device: int,
        vertices: NDArray[Any],
        counted: int | None,
    ) -> float:
        if counted is None:
            counted = reads_at(self.first, device, vertices)
        if self.later is None or scale is None:
            return counted
        later = scale * reads_at(self.later, device, vertices)
        return (counted + (self.num_epochs - 1) * later) / self.num_epochs

    def _sum(
        self,
        counted: NDArray[np.int32],
        reads_of: Callable[[Presampled, int], NDArray[np.int32]],
        scales: dict[int, float | None],
    ) -> NDArray[Any]:
        if self.later is None:
            return counted
        first_weight, found = 1 / self.num_epochs, np.empty(len(counted), np.float32)
        for part in slices(len(counted)):
            total = counted[part] * first_weight
            for device, scale in scales.items():
                # None where it had no seeds in the steps that were drawn later.
                drawn, weight = (self.first, 1.0) if scale is None else (self.later, scale)
                total += (1 - first_weight) * weight * reads_of(drawn, device)[part]
            found[part] = total
        return found


def later_steps(task: CacheTask) -> tuple[range, int | None]:
    """Return the epochs that are drawn after the first one, and their first steps; None for all.

    It is half of the second epoch if that is long. A hit rate varies among seeds and batches, so
    that 16,384 seeds are drawn at least, or 256 steps of small batches: hardly a run then hits by
    half a point more or less. For these a small graph has several epochs drawn, all of them at
    most.
    """
    steps = task.draws.steps_per_epoch
    wanted = max(-(-steps // 2), min(-(-_MIN_SEEDS // task.batch_size), _MAX_SMALL_STEPS))
    if wanted < steps:
        return range(1, 2), wanted
    return range(1, min(task.num_epochs, 1 + -(-wanted // steps))), None
