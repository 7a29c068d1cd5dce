"""Hotness over a run: its first epoch by presampling, later epochs by estimates or more samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gnnscale.cache.hotness import degree
from gnnscale.cache.hotness.degree import Inclusion
from gnnscale.cache.hotness.presampled import (
    CountedReads,
    Presampled,
    Reads,
    add_counts,
    credible,
)
from gnnscale.core import Array, Float32Array, Int32Array


class LaterEpochs:
    """Estimate of a group of devices' reads in any epoch after the first: of rows, or of lists.

    The group are all devices that train over a whole graph, or over parts those of a clique.
    """

    def __init__(
        self,
        counts: Mapping[int, Int32Array],
        expected: Float32Array,
        first_half: Sequence[Int32Array],
        share: float,
        *,
        max_count: float | None = None,
    ) -> None:
        """Store the arguments; the properties compute on first use.

        Args:
            counts: ``[num_vertices]`` reads in the first epoch, by device of the group.
            expected: ``[num_vertices]`` reads of the group in an epoch, as a model expects them.
            first_half: reads of a sample of vertices, ``compared_vertices``, by each device in the
                first half of its batches.
            share: share of these batches in all batches of the group.
            max_count: largest possible count of a vertex. None: unlimited.
        """
        self._max_count = max_count
        self._counts, self._expected = counts, expected
        self._first_half, self._share = first_half, share

    @cached_property
    def values(self) -> Float32Array:
        """``[num_vertices]`` expected reads of the group in one later epoch."""
        return credible(
            add_counts(list(self._counts.values())),
            self._expected,
            add_counts(self._first_half),
            self._share,
            max_count=self._max_count,
        )

    @cached_property
    def shares(self) -> dict[int, float]:
        """Share of each device in the group's reads of the first epoch."""
        totals = {device: int(row.sum(dtype=np.int64)) for device, row in self._counts.items()}
        group_total = max(sum(totals.values()), 1)
        return {device: total / group_total for device, total in totals.items()}


@dataclass(frozen=True, kw_only=True)
class ExpectedCounts:
    """Expected reads of one kind in a mean epoch of a run: Legion's H_F of rows, H_T of lists."""

    first: CountedReads  #: reads of the presampled first epoch
    #: estimates of later epochs by device. Empty for a run of one epoch, and for a sampler without
    #: a model: later epochs are then taken to equal the first
    later: Mapping[int, LaterEpochs] = field(repr=False)
    num_epochs: int  #: epochs of the run

    def sum(self, devices: Sequence[int]) -> Array:
        """Return A_F or A_T: ``[num_vertices]`` reads by ``devices`` in a mean epoch."""
        counted = self.first.sum(devices)
        groups = {self.later[device] for device in devices if device in self.later}
        if not groups:
            return counted
        shares = {
            group: sum(group.shares.get(device, 0.0) for device in devices) for group in groups
        }
        total = np.empty(len(counted), np.float32)
        for part in degree.slices(len(counted)):
            expected = sum(share * group.values[part] for group, share in shares.items())
            total[part] = (counted[part] + (self.num_epochs - 1) * expected) / self.num_epochs
        return total


def expect_reads(
    first: Presampled,
    groups: Sequence[Sequence[int]],
    include: Callable[[Sequence[int], float], Inclusion],
    *,
    num_epochs: int,
) -> Reads[ExpectedCounts]:
    """Return the expected reads of a run's mean epoch, from the counted reads of the ``first``.

    The reads of devices in one of ``groups`` are estimated together for later epochs; those of
    other devices equal the first epoch's. ``include`` takes devices and a batch size, and returns
    the reads of a batch that a model expects.
    """
    rows: dict[int, LaterEpochs] = {}
    lists: dict[int, LaterEpochs] = {}
    for group in groups:
        group_rows, group_lists = _later_epochs(first, group, include)
        rows |= dict.fromkeys(group, group_rows)
        lists |= dict.fromkeys(group, group_lists)
    return Reads(
        rows=ExpectedCounts(first=first.rows, later=rows, num_epochs=num_epochs),
        lists=ExpectedCounts(first=first.lists, later=lists, num_epochs=num_epochs),
    )


def _later_epochs(
    first: Presampled, devices: Sequence[int], include: Callable[[Sequence[int], float], Inclusion]
) -> tuple[LaterEpochs, LaterEpochs]:
    """Return estimates of the rows, and of the lists, that ``devices`` read in a later epoch.

    ``first`` has the counts of the first epoch; ``include`` takes devices and a batch size, and
    returns the reads of a batch that a model expects.
    """
    reads = [first.reads[device] for device in devices]
    num_batches = sum(device_reads.num_batches for device_reads in reads)
    num_seeds = sum(device_reads.num_seeds for device_reads in reads)
    batch = include(devices, num_seeds / max(num_batches, 1))
    halves = [device_reads.half for device_reads in reads if device_reads.half is not None]
    share = sum(half.num_batches for half in halves) / max(num_batches, 1)
    return (
        LaterEpochs(
            {device: first.rows.of(device) for device in devices},
            batch.probability * np.float32(num_batches),
            [half.rows for half in halves],
            share,
            max_count=max(num_batches, 1),
        ),
        LaterEpochs(
            {device: first.lists.of(device) for device in devices},
            batch.neighborhoods * np.float32(num_batches),
            [half.lists for half in halves],
            share,
        ),
    )


#: Smallest number of seeds to sample after the first epoch, and largest number of steps for them.
_MIN_SEEDS, _MAX_SMALL_STEPS = 1 << 14, 256


@dataclass(frozen=True, kw_only=True)
class AverageCounts:
    """Mean reads per epoch of a run, of rows or of lists by device, to predict hits.

    Later epochs read the hottest vertices of the first epoch less often, since some of them were
    read by chance. The counts alone do not determine the difference: seeds appear once per epoch,
    so counts vary less than in independent batches. Therefore part of the later run is presampled
    exactly as it will be trained; it stands for all epochs after the first, scaled to the first
    epoch's number of reads.
    """

    first: CountedReads  #: reads of the presampled first epoch
    later: CountedReads | None  #: reads of presampled later steps. None: the run has one epoch
    num_epochs: int  #: epochs of the run

    def at(self, device: int, vertices: Array, counted: int | None = None) -> float:
        """Return the device's mean reads, per epoch, of all ``vertices`` together.

        ``counted`` is the number of such reads in the first epoch. None: the method counts them.
        """
        if counted is None:
            counted = self.first.at(device, vertices)
        scale = self._scale(device)
        if self.later is None or scale is None:
            return counted
        later = scale * self.later.at(device, vertices)
        return (counted + (self.num_epochs - 1) * later) / self.num_epochs

    def total(self, device: int) -> int:
        """Return the number of the device's reads in an epoch, counted in the first."""
        return self.first.total(device)

    def sum(self, devices: Sequence[int]) -> Array:
        """Return A_F or A_T: ``[num_vertices]`` mean reads per epoch by all of ``devices``."""
        counted = self.first.sum(devices)
        if self.later is None:
            return counted
        first_weight, mean = 1 / self.num_epochs, np.empty(len(counted), np.float32)
        scales = {device: self._scale(device) for device in devices}
        for part in degree.slices(len(counted)):
            total = counted[part] * first_weight
            for device, scale in scales.items():
                # None: the device had no seeds in the later steps.
                reads, weight = (self.first, 1.0) if scale is None else (self.later, scale)
                total += (1 - first_weight) * weight * reads.of(device)[part]
            mean[part] = total
        return mean

    def _scale(self, device: int) -> float | None:
        """Return a device's reads in the first epoch over those in later steps; None: no such."""
        later = 0 if self.later is None else self.later.total(device)
        return self.first.total(device) / later if later else None


def average_reads(
    first: Presampled, later: Presampled | None, *, num_epochs: int
) -> Reads[AverageCounts]:
    """Return the mean reads of a run, from its ``first`` epoch and the steps of ``later_steps``.

    ``later`` is None for a run of one epoch.
    """
    rows, lists = (None, None) if later is None else (later.rows, later.lists)
    return Reads(
        rows=AverageCounts(first=first.rows, later=rows, num_epochs=num_epochs),
        lists=AverageCounts(first=first.lists, later=lists, num_epochs=num_epochs),
    )


def later_steps(
    steps_per_epoch: int, *, batch_size: int, num_epochs: int
) -> tuple[range, int | None]:
    """Return the epochs after the first to presample, and how many first steps of each.

    The number is None for all steps. Presampled are half of the second epoch, but at least 16,384
    seeds, or 256 steps of small batches: the error of a hit rate is then below half a percentage
    point in nearly all runs. On a small graph, several epochs give these seeds, at most all epochs.
    """
    steps = steps_per_epoch
    needed = max(-(-steps // 2), min(-(-_MIN_SEEDS // batch_size), _MAX_SMALL_STEPS))
    if needed < steps:
        return range(1, 2), needed
    return range(1, min(num_epochs, 1 + -(-needed // steps))), None
