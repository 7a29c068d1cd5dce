"""Hotness over a run: its first epoch as it was drawn, the others as they are to be expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.hotness.credibility import credible
from gnnscale.cache.hotness.inclusion import inclusion
from gnnscale.cache.hotness.presampled import Presampled, add_counts
from gnnscale.cache.hotness.slices import slices
from gnnscale.cache.hotness.training import train_vertices

if TYPE_CHECKING:
    from gnnscale.cache.task import CacheTask

__all__ = ["ExpectedReads", "LaterEpochs", "expect_reads"]


class LaterEpochs:
    """A row of H_F or H_T that some devices are expected to share in an epoch to come."""

    def __init__(
        self,
        counts: Mapping[int, NDArray[np.int32]],
        expected: NDArray[np.float32],
        first_half: Sequence[NDArray[np.int32]],
        share: float,
        *,
        most: float | None = None,
    ) -> None:
        """Prepare to estimate.

        Args:
            counts: ``[num_vertices]`` of each device in the first epoch, by position.
            expected: ``[num_vertices]``, what a model expects of all of them.
            first_half: counts of half an epoch, for each device, of some of the vertices.
            share: part of the batches that these count.
            most: the largest count that there can be; None for no limit.
        """
        self._most = most
        self._counts, self._expected = counts, expected
        self._first_half, self._share = first_half, share

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """``[num_vertices]``, of all the devices together."""
        return credible(
            add_counts(list(self._counts.values())),
            self._expected,
            add_counts(self._first_half),
            self._share,
            most=self._most,
        )

    @cached_property
    def shares(self) -> dict[int, float]:
        """The part of it that each device reads."""
        totals = {each: int(row.sum(dtype=np.int64)) for each, row in self._counts.items()}
        return {each: total / max(sum(totals.values()), 1) for each, total in totals.items()}


@dataclass(frozen=True, kw_only=True)
class ExpectedReads:
    """What an epoch of a run is expected to read: H_F and H_T, devices by their positions.

    It tells which vertices are hot. How often caches of these will hit is counted, by ``Foretold``.

    Attributes:
        first: the run's first epoch, which was drawn.
        rows, lists: by device, what is expected of the other epochs. Empty for a run of one epoch,
            and where no formula tells what a sampler includes: they are taken to be like the first
            one then.
        num_epochs: epochs of the run.
    """

    first: Presampled
    rows: Mapping[int, LaterEpochs] = field(repr=False)
    lists: Mapping[int, LaterEpochs] = field(repr=False)
    num_epochs: int

    def sum_rows(self, devices: Sequence[int]) -> NDArray[Any]:
        """Return A_F, ``[num_vertices]``: the sum of H_F over ``devices``."""
        return self._sum(self.first.sum_rows(devices), self.rows, devices)

    def sum_lists(self, devices: Sequence[int]) -> NDArray[Any]:
        """Return A_T, ``[num_vertices]``: the sum of H_T over ``devices``."""
        return self._sum(self.first.sum_lists(devices), self.lists, devices)

    def _sum(
        self,
        counted: NDArray[np.int32],
        later: Mapping[int, LaterEpochs],
        devices: Sequence[int],
    ) -> NDArray[Any]:
        groups = {later[each] for each in devices if each in later}
        if not groups:
            return counted
        shares = {each: sum(each.shares.get(device, 0.0) for device in devices) for each in groups}
        found = np.empty(len(counted), np.float32)
        for part in slices(len(counted)):
            expected = sum(share * each.values[part] for each, share in shares.items())
            found[part] = self._mean(counted[part], expected)
        return found

    def _mean(self, counted: Any, expected: Any) -> Any:
        """Return the mean of the first epoch and as many others as the run has."""
        return (counted + (self.num_epochs - 1) * expected) / self.num_epochs


def expect_reads(task: CacheTask) -> ExpectedReads:
    """Estimate what the epochs of a run read, from its first one.

    Devices of a clique count together where the graph is divided, and all devices where it is not:
    they train vertices of one set, and what one of them reads tells of the others.
    """
    first = task.presampled
    rows: dict[int, LaterEpochs] = {}
    lists: dict[int, LaterEpochs] = {}
    if task.num_epochs > 1 and task.fanouts is not None:
        whole = task.parts is None or task.parts.owner is None
        for group in (tuple(task.device_at),) if whole else task.cliques:
            of_rows, of_lists = _later_epochs(task, group)
            rows |= dict.fromkeys(group, of_rows)
            lists |= dict.fromkeys(group, of_lists)
    return ExpectedReads(first=first, rows=rows, lists=lists, num_epochs=task.num_epochs)


def _later_epochs(task: CacheTask, devices: Sequence[int]) -> tuple[LaterEpochs, LaterEpochs]:
    """Return what ``devices`` are expected to read in each epoch but the first: rows and lists."""
    assert task.fanouts is not None
    first = task.presampled
    reads = {each: first.of(each) for each in devices}
    num_batches = sum(each.num_batches for each in reads.values())
    batch = inclusion(
        task.graph,
        np.unique(np.concatenate([train_vertices(task, each) for each in devices])),
        task.fanouts,
        batch_size=sum(each.num_seeds for each in reads.values()) / max(num_batches, 1),
        replace=task.replace,
        num_threads=task.num_threads,
    )
    halves = [each.half for each in reads.values() if each.half is not None]
    share = sum(half.num_batches for half in halves) / max(num_batches, 1)
    return (
        LaterEpochs(
            {each: first.rows_of(each) for each in devices},
            batch.probability * np.float32(num_batches),
            [half.rows for half in halves],
            share,
            most=max(num_batches, 1),
        ),
        LaterEpochs(
            {each: first.lists_of(each) for each in devices},
            batch.lists * np.float32(num_batches),
            [half.lists for half in halves],
            share,
        ),
    )
