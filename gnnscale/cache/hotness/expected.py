"""Hotness over a run: its first epoch by presampling, later epochs by estimates or more samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gnnscale.cache.hotness import degree
from gnnscale.cache.hotness.degree import Inclusion
from gnnscale.cache.hotness.presampled import Presampled, add_counts, credible
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
class ExpectedReads:
    """Expected reads of a mean epoch of a run, to rank vertices by hotness.

    They are those of rows, Legion's H_F, and of adjacency lists, H_T, for any set of devices.
    """

    first: Presampled  #: presampled first epoch
    #: rows, lists: estimates of later epochs by device. Empty for a run of one epoch, and for a
    #: sampler without a model: later epochs are then taken to equal the first
    rows: Mapping[int, LaterEpochs] = field(repr=False)
    lists: Mapping[int, LaterEpochs] = field(repr=False)
    num_epochs: int  #: epochs of the run

    def sum_rows(self, devices: Sequence[int]) -> Array:
        """Return A_F, ``[num_vertices]`` reads of rows by ``devices`` in a mean epoch."""
        return self._sum(self.first.sum_rows(devices), self.rows, devices)

    def sum_lists(self, devices: Sequence[int]) -> Array:
        """Return A_T, ``[num_vertices]`` reads of lists by ``devices`` in a mean epoch."""
        return self._sum(self.first.sum_lists(devices), self.lists, devices)

    def _sum(
        self, counted: Int32Array, later: Mapping[int, LaterEpochs], devices: Sequence[int]
    ) -> Array:
        groups = {later[device] for device in devices if device in later}
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
) -> ExpectedReads:
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
    return ExpectedReads(first=first, rows=rows, lists=lists, num_epochs=num_epochs)


def _later_epochs(
    first: Presampled, devices: Sequence[int], include: Callable[[Sequence[int], float], Inclusion]
) -> tuple[LaterEpochs, LaterEpochs]:
    """Return estimates of the rows, and of the lists, that ``devices`` read in a later epoch.

    ``first`` has the counts of the first epoch; ``include`` takes devices and a batch size, and
    returns the reads of a batch that a model expects.
    """
    reads = [first.of(device) for device in devices]
    num_batches = sum(device_reads.num_batches for device_reads in reads)
    num_seeds = sum(device_reads.num_seeds for device_reads in reads)
    batch = include(devices, num_seeds / max(num_batches, 1))
    halves = [device_reads.half for device_reads in reads if device_reads.half is not None]
    share = sum(half.num_batches for half in halves) / max(num_batches, 1)
    return (
        LaterEpochs(
            {device: first.rows_of(device) for device in devices},
            batch.probability * np.float32(num_batches),
            [half.rows for half in halves],
            share,
            max_count=max(num_batches, 1),
        ),
        LaterEpochs(
            {device: first.lists_of(device) for device in devices},
            batch.lists * np.float32(num_batches),
            [half.lists for half in halves],
            share,
        ),
    )


#: Smallest number of seeds to sample after the first epoch, and largest number of steps for them.
_MIN_SEEDS, _MAX_SMALL_STEPS = 1 << 14, 256


@dataclass(frozen=True, kw_only=True)
class AverageReads:
    """Mean reads per epoch of a run, to predict hits: H_F of rows, H_T of lists, by device.

    Later epochs read the hottest vertices of the first epoch less often, since some of them were
    read by chance. The counts alone do not determine the difference: seeds appear once per epoch,
    so counts vary less than in independent batches. Therefore part of the later run is presampled
    exactly as it will be trained; it stands for all epochs after the first, scaled to the first
    epoch's number of reads.
    """

    first: Presampled  #: presampled first epoch
    later: Presampled | None  #: presampled steps of ``later_steps``. None: the run has one epoch
    num_epochs: int  #: epochs of the run

    def rows_at(self, device: int, vertices: Array, counted: int | None = None) -> float:
        """Return the device's mean reads, per epoch, of the rows of all ``vertices`` together.

        ``counted`` is the number of such reads in the first epoch. None: the method counts them.
        """
        scale = self._scale(Presampled.num_rows, device)
        return self._at(Presampled.rows_at, scale, device, vertices, counted)

    def lists_at(self, device: int, vertices: Array, counted: int | None = None) -> float:
        """Return the device's mean reads, per epoch, of the lists of all ``vertices`` together.

        ``counted`` is the number of such reads in the first epoch. None: the method counts them.
        """
        scale = self._scale(Presampled.num_list_reads, device)
        return self._at(Presampled.lists_at, scale, device, vertices, counted)

    def num_rows(self, device: int) -> int:
        """Return the number of rows that the device reads in an epoch, counted in the first."""
        return self.first.num_rows(device)

    def num_list_reads(self, device: int) -> int:
        """Return N_TSUM, the device's number of list reads in an epoch, counted in the first."""
        return self.first.num_list_reads(device)

    def sum_rows(self, devices: Sequence[int]) -> Array:
        """Return A_F, ``[num_vertices]`` mean reads of rows per epoch by all of ``devices``."""
        scales = {device: self._scale(Presampled.num_rows, device) for device in devices}
        return self._sum(self.first.sum_rows(devices), Presampled.rows_of, scales)

    def sum_lists(self, devices: Sequence[int]) -> Array:
        """Return A_T, ``[num_vertices]`` mean reads of lists per epoch by all of ``devices``."""
        scales = {device: self._scale(Presampled.num_list_reads, device) for device in devices}
        return self._sum(self.first.sum_lists(devices), Presampled.lists_of, scales)

    def _scale(self, total: Callable[[Presampled, int], int], device: int) -> float | None:
        """Return a device's reads in the first epoch, divided by those in presampled later steps.

        ``total`` counts the device's reads in either. None: no later reads were presampled.
        """
        later = 0 if self.later is None else total(self.later, device)
        return total(self.first, device) / later if later else None

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
        first_weight, mean = 1 / self.num_epochs, np.empty(len(counted), np.float32)
        for part in degree.slices(len(counted)):
            total = counted[part] * first_weight
            for device, scale in scales.items():
                # None: the device had no seeds in the later steps.
                reads, weight = (self.first, 1.0) if scale is None else (self.later, scale)
                total += (1 - first_weight) * weight * reads_of(reads, device)[part]
            mean[part] = total
        return mean


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
