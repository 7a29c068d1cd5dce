"""Pre-sampled hotness: what the batches of an epoch read (GNNLab; Legion, section 4.2, S1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.draws import Draws, Reached
from gnnscale.cache.hotness.credibility import compared_vertices
from gnnscale.cache.hotness.slices import slices, sum_at
from gnnscale.config import MAX_COUNT

__all__ = ["Presampled", "add_counts", "presample"]


@dataclass(frozen=True, kw_only=True)
class HalfReads:
    """What about the first half of the batches reads, of the vertices of ``compared_vertices``.

    Attributes:
        rows, lists: int32, as in ``DeviceReads``.
        num_batches: batches that are counted.
    """

    rows: NDArray[np.int32]
    lists: NDArray[np.int32]
    num_batches: int


@dataclass(kw_only=True)
class DeviceReads:
    """What the batches of one device read.

    Attributes:
        rows: ``[num_vertices]`` int32, a row of H_F: batches whose input vertices have the vertex.
        lists: ``[num_vertices]`` int32, a row of H_T: reads of the list of the vertex. Each edge
            that is traversed is one, and so are the offsets, once a visit: an empty list has these.
        num_rows: rows that were read, the sum of H_F.
        num_list_reads: N_TSUM, the transactions of sampling: the sum of H_T.
        num_batches: batches.
        num_seeds: seeds of these.
        half: what about half of the batches reads; None where that was not counted.
    """

    rows: NDArray[np.int32]
    lists: NDArray[np.int32]
    num_rows: int = 0
    num_list_reads: int = 0
    num_batches: int = 0
    num_seeds: int = 0
    half: HalfReads | None = None

    def keep_half(self) -> None:
        """Remember what the batches up to now read."""
        some = compared_vertices(len(self.rows))
        self.half = HalfReads(
            rows=self.rows[some].copy(), lists=self.lists[some].copy(), num_batches=self.num_batches
        )


@dataclass(frozen=True, kw_only=True)
class Presampled:
    """What batches read, device by device: the matrices H_F and H_T.

    Attributes:
        reads: by the device's position in the plan.
        num_epochs: epochs that were drawn.
        num_threads: threads that add up.
    """

    reads: Mapping[int, DeviceReads] = field(repr=False)
    num_epochs: int
    num_threads: int = 1

    def of(self, device: int) -> DeviceReads:
        """Return what the device at position ``device`` reads."""
        return self.reads[device]

    def rows_of(self, device: int) -> NDArray[np.int32]:
        """Return the device's row of H_F."""
        return self.reads[device].rows

    def lists_of(self, device: int) -> NDArray[np.int32]:
        """Return the device's row of H_T."""
        return self.reads[device].lists

    def sum_rows(self, devices: Sequence[int]) -> NDArray[np.int32]:
        """Return A_F: the sum of H_F over ``devices``."""
        rows = [self.rows_of(each) for each in devices]
        return add_counts(rows, num_threads=self.num_threads)

    def sum_lists(self, devices: Sequence[int]) -> NDArray[np.int32]:
        """Return A_T: the sum of H_T over ``devices``."""
        lists = [self.lists_of(each) for each in devices]
        return add_counts(lists, num_threads=self.num_threads)

    def rows_at(self, device: int, vertices: NDArray[Any]) -> int:
        """Return how many rows of ``vertices`` the device reads."""
        return int(sum_at(self.rows_of(device), vertices))

    def lists_at(self, device: int, vertices: NDArray[Any]) -> int:
        """Return how often the device reads the lists of ``vertices``."""
        return int(sum_at(self.lists_of(device), vertices))

    def num_rows(self, device: int) -> int:
        """Return how many rows the device reads."""
        return self.reads[device].num_rows

    def num_list_reads(self, device: int) -> int:
        """Return N_TSUM of a device: how often it reads lists, a transaction each time."""
        return self.reads[device].num_list_reads


def add_counts(rows: Sequence[NDArray[np.int32]], *, num_threads: int = 1) -> NDArray[np.int32]:
    """Add up counts, which stay at 2^31 - 1 as each of them does."""
    if len(rows) == 1:
        return rows[0]
    total = np.empty_like(rows[0])

    def add(part: slice) -> None:
        total[part] = rows[0][part]
        for row in rows[1:]:
            total[part] += np.minimum(row[part], MAX_COUNT - total[part])

    # Memory that is touched for the first time costs as much as adding up, in each thread.
    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(add, slices(len(total))))
    return total


def presample(
    draws: Draws,
    epochs: Iterable[int],
    *,
    devices: Sequence[int],
    num_steps: int | None = None,
    drawn: Callable[[int], None] = lambda amount: None,
) -> Presampled:
    """Draw epochs, and count what the batches of ``devices`` read.

    Several batches are drawn at once; the counts do not depend on their order. Takes about 16 bytes
    for each device and vertex.

    Args:
        draws: of the run.
        epochs: which epochs, those beyond the run's end included.
        devices: positions of the devices whose batches count.
        num_steps: first steps of each epoch that are drawn; None for all.
        drawn: told of every batch.
    """
    num_vertices, num_epochs = draws.graph.num_vertices, 0
    found = {
        device: DeviceReads(
            rows=np.zeros(num_vertices, np.int32), lists=np.zeros(num_vertices, np.int32)
        )
        for device in devices
    }
    waiting = {device: _Uncounted() for device in found}
    for epoch in epochs:
        num_epochs += 1
        middle = epoch * draws.steps_per_epoch + draws.steps_per_epoch // 2
        for draw in draws.reaches(epoch, devices=found, num_steps=num_steps):
            drawn(1)
            if draw.step >= middle and found[draw.device].half is None:
                waiting[draw.device].count(found[draw.device])
                found[draw.device].keep_half()
            _add_sizes(found[draw.device], draw)
            if waiting[draw.device].add(draw) >= num_vertices:
                waiting[draw.device].count(found[draw.device])
    for device, reads in found.items():
        waiting[device].count(reads)
        if reads.half is None:  # it had no batch in the second half
            reads.keep_half()
    return Presampled(reads=found, num_epochs=num_epochs, num_threads=draws.num_threads)


class _Uncounted:
    """Batches of a device that are to be counted.

    Many are counted at once: each alone would find the counts pushed out of the processor's cache
    by what was sampled meanwhile, and wait for memory as long as sampling does.
    """

    def __init__(self) -> None:
        self._rows: list[NDArray[Any]] = []
        self._lists: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
        self._num_rows = 0

    def add(self, reached: Reached) -> int:
        """Take what a batch reads, and return the rows of all that wait."""
        vertices = reached.reach.input_vertices
        self._rows.append(vertices)
        for indptr in reached.reach.indptrs:
            # One read more than edges from each list: its offsets.
            ends = indptr + np.arange(len(indptr))
            self._lists.append((ends, vertices[: len(indptr) - 1]))
        self._num_rows += len(vertices)
        return self._num_rows

    def count(self, reads: DeviceReads) -> None:
        """Count what waits."""
        for vertices in self._rows:
            ops.count_uses(vertices, reads.rows, num_threads=1)
        for ends, vertices in self._lists:
            ops.count_reads(ends, vertices, reads.lists, num_threads=1)
        self._rows, self._lists, self._num_rows = [], [], 0


def _add_sizes(reads: DeviceReads, reached: Reached) -> None:
    """Add a batch's sizes; by one thread, unlike the counts."""
    reads.num_batches += 1
    reads.num_seeds += len(reached.seeds)
    reads.num_rows += len(reached.reach.input_vertices)
    reads.num_list_reads += reached.reach.num_edges + reached.reach.num_lists
