"""Hotness over a run: its first epoch as it was drawn, the others by estimates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gnnscale.cache.hotness import degree
from gnnscale.cache.hotness.inclusion import Inclusion
from gnnscale.cache.hotness.presampled import Presampled, add_counts, credible
from gnnscale.core import Array, Float32Array, Int32Array


class LaterEpochs:
    """A row of H_F or H_T that some devices are expected to share in an epoch to come."""

    def __init__(
        self,
        counts: Mapping[int, Int32Array],
        expected: Float32Array,
        first_half: Sequence[Int32Array],
        share: float,
        *,
        max_count: float | None = None,
    ) -> None:
        """Prepare to estimate.

        Args:
            counts: ``[num_vertices]`` of each device in the first epoch, by position.
            expected: ``[num_vertices]``, what a model expects of all of them.
            first_half: counts of half an epoch, for each device, of some of the vertices.
            share: part of the batches that these count.
            max_count: the largest possible count; None for no limit.
        """
        self._max_count = max_count
        self._counts, self._expected = counts, expected
        self._first_half, self._share = first_half, share

    @cached_property
    def values(self) -> Float32Array:
        """``[num_vertices]``, of all the devices together."""
        return credible(
            add_counts(list(self._counts.values())),
            self._expected,
            add_counts(self._first_half),
            self._share,
            max_count=self._max_count,
        )

    @cached_property
    def shares(self) -> dict[int, float]:
        """The part of it that each device reads."""
        totals = {each: int(row.sum(dtype=np.int64)) for each, row in self._counts.items()}
        return {each: total / max(sum(totals.values()), 1) for each, total in totals.items()}


@dataclass(frozen=True, kw_only=True)
class ExpectedReads:
    """What an epoch of a run is expected to read: H_F and H_T, by device position.

    It decides which vertices are hot. ``AverageReads`` counts how often caches of these will hit.
    """

    first: Presampled  #: the run's first epoch, which was drawn
    #: rows, lists: by device, what is expected of the other epochs. Empty for a run of one epoch,
    #: and if no formula tells what a sampler includes: they are taken to be like the first one then
    rows: Mapping[int, LaterEpochs] = field(repr=False)
    lists: Mapping[int, LaterEpochs] = field(repr=False)
    num_epochs: int  #: epochs of the run

    def sum_rows(self, devices: Sequence[int]) -> Array:
        """Return A_F, ``[num_vertices]``: the sum of H_F over ``devices``."""
        return self._sum(self.first.sum_rows(devices), self.rows, devices)

    def sum_lists(self, devices: Sequence[int]) -> Array:
        """Return A_T, ``[num_vertices]``: the sum of H_T over ``devices``."""
        return self._sum(self.first.sum_lists(devices), self.lists, devices)

    def _sum(
        self, counted: Int32Array, later: Mapping[int, LaterEpochs], devices: Sequence[int]
    ) -> Array:
        groups = {later[each] for each in devices if each in later}
        if not groups:
            return counted
        shares = {each: sum(each.shares.get(device, 0.0) for device in devices) for each in groups}
        found = np.empty(len(counted), np.float32)
        for part in degree.slices(len(counted)):
            expected = sum(share * each.values[part] for each, share in shares.items())
            found[part] = self._mean(counted[part], expected)
        return found

    def _mean(self, counted: Any, expected: Any) -> Any:
        """Return the mean of the first epoch and as many others as the run has."""
        return (counted + (self.num_epochs - 1) * expected) / self.num_epochs


def expect_reads(
    first: Presampled,
    groups: Sequence[Sequence[int]],
    include: Callable[[Sequence[int], float], Inclusion],
    *,
    num_epochs: int,
) -> ExpectedReads:
    """Estimate what the epochs of a run read, from its first one.

    Args:
        first: what it reads.
        groups: devices that count together, since they train vertices of one set: what one of them
            reads predicts the others. Without groups, later epochs are taken to be like the first.
        include: what a batch of so many seeds of some devices should read.
        num_epochs: epochs of the run.
    """
    rows: dict[int, LaterEpochs] = {}
    lists: dict[int, LaterEpochs] = {}
    for group in groups:
        of_rows, of_lists = _later_epochs(first, group, include)
        rows |= dict.fromkeys(group, of_rows)
        lists |= dict.fromkeys(group, of_lists)
    return ExpectedReads(first=first, rows=rows, lists=lists, num_epochs=num_epochs)


def _later_epochs(
    first: Presampled, devices: Sequence[int], include: Callable[[Sequence[int], float], Inclusion]
) -> tuple[LaterEpochs, LaterEpochs]:
    """Return the rows and lists that ``devices`` should read in each epoch after the first."""
    reads = {each: first.of(each) for each in devices}
    num_batches = sum(each.num_batches for each in reads.values())
    num_seeds = sum(each.num_seeds for each in reads.values())
    batch = include(devices, num_seeds / max(num_batches, 1))
    halves = [each.half for each in reads.values() if each.half is not None]
    share = sum(half.num_batches for half in halves) / max(num_batches, 1)
    return (
        LaterEpochs(
            {each: first.rows_of(each) for each in devices},
            batch.probability * np.float32(num_batches),
            [half.rows for half in halves],
            share,
            max_count=max(num_batches, 1),
        ),
        LaterEpochs(
            {each: first.lists_of(each) for each in devices},
            batch.lists * np.float32(num_batches),
            [half.lists for half in halves],
            share,
        ),
    )


#: Seeds that are drawn after the first epoch at least, in no more than so many steps.
_MIN_SEEDS, _MAX_SMALL_STEPS = 1 << 14, 256


@dataclass(frozen=True, kw_only=True)
class AverageReads:
    """What an epoch reads on average over a run: H_F and H_T, by device position.

    Later epochs read less of what the first epoch reads most, since that was hot or lucky. So
    caches chosen by its counts hit more in it than later. No estimate from these counts alone is
    sure of the difference: seeds come once an epoch, so counts vary less than those of independent
    batches. Sampling is a pure function of the step, so more of the run is drawn as it will be
    trained. It stands for all epochs after the first, each with as many reads as the first one.
    """

    first: Presampled  #: the run's first epoch
    later: Presampled | None  #: what ``later_steps`` names; None for a run of one epoch
    num_epochs: int  #: epochs of the run

    def rows_at(self, device: int, vertices: Array, counted: int | None = None) -> float:
        """Return how many rows of ``vertices`` the device reads.

        ``counted`` is their number in the first epoch, if it is known.
        """
        return self._at(Presampled.rows_at, self._row_scale(device), device, vertices, counted)

    def lists_at(self, device: int, vertices: Array, counted: int | None = None) -> float:
        """Return how often the device reads the lists of ``vertices``; arguments as ``rows_at``."""
        return self._at(Presampled.lists_at, self._list_scale(device), device, vertices, counted)

    def num_rows(self, device: int) -> int:
        """Return how many rows the device reads."""
        return self.first.num_rows(device)

    def num_list_reads(self, device: int) -> int:
        """Return N_TSUM of the device."""
        return self.first.num_list_reads(device)

    def sum_rows(self, devices: Sequence[int]) -> Array:
        """Return A_F, ``[num_vertices]``: the sum of H_F over ``devices``."""
        scales = {each: self._row_scale(each) for each in devices}
        return self._sum(self.first.sum_rows(devices), Presampled.rows_of, scales)

    def sum_lists(self, devices: Sequence[int]) -> Array:
        """Return A_T, ``[num_vertices]``: the sum of H_T over ``devices``."""
        scales = {each: self._list_scale(each) for each in devices}
        return self._sum(self.first.sum_lists(devices), Presampled.lists_of, scales)

    def _row_scale(self, device: int) -> float | None:
        return self._scale(Presampled.num_rows, device)

    def _list_scale(self, device: int) -> float | None:
        return self._scale(Presampled.num_list_reads, device)

    def _scale(self, total: Callable[[Presampled, int], int], device: int) -> float | None:
        """Return the first epoch's reads per read drawn later; None if there were none."""
        drawn = 0 if self.later is None else total(self.later, device)
        return total(self.first, device) / drawn if drawn else None

    def _at(
        self,
        reads_at: Callable[[Presampled, int, Array], int],
        scale: float | None,
        device: int,
        vertices: Array,
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
        counted: Int32Array,
        reads_of: Callable[[Presampled, int], Int32Array],
        scales: dict[int, float | None],
    ) -> Array:
        if self.later is None:
            return counted
        first_weight, found = 1 / self.num_epochs, np.empty(len(counted), np.float32)
        for part in degree.slices(len(counted)):
            total = counted[part] * first_weight
            for device, scale in scales.items():
                # None if it had no seeds in the steps that were drawn later.
                drawn, weight = (self.first, 1.0) if scale is None else (self.later, scale)
                total += (1 - first_weight) * weight * reads_of(drawn, device)[part]
            found[part] = total
        return found


def later_steps(
    steps_per_epoch: int, *, batch_size: int, num_epochs: int
) -> tuple[range, int | None]:
    """Return the epochs that are drawn after the first one, and their first steps; None for all.

    It is half of the second epoch if that is long. A hit rate varies among seeds and batches, so at
    least 16,384 seeds are drawn, or 256 steps of small batches, after which hardly a run is off by
    half a point. A small graph has several epochs drawn for these, at most all.
    """
    steps = steps_per_epoch
    wanted = max(-(-steps // 2), min(-(-_MIN_SEEDS // batch_size), _MAX_SMALL_STEPS))
    if wanted < steps:
        return range(1, 2), wanted
    return range(1, min(num_epochs, 1 + -(-wanted // steps))), None
