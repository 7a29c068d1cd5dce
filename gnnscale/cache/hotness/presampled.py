"""Pre-sampled hotness: what the batches of an epoch read (GNNLab; Legion, section 4.2, S1)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from gnnscale import ops
from gnnscale.cache.hotness.degree import slices, sum_at
from gnnscale.cache.presampling import PresampledInputs, Presampler
from gnnscale.core import MAX_COUNT, Array, Float32Array, Float64Array, Int32Array, Int64Array

#: Vertices of which halves of an epoch are compared.
_MAX_COMPARED = 1 << 20
#: Octaves of expected counts: 2^-64 and less to 2^63 and more.
_NUM_OCTAVES, _FIRST_OCTAVE = 128, -64
#: Counts and vertices that say how far the model is off in an octave.
_MIN_COUNTS, _MIN_VERTICES = 200, 16
_NEXT_TO_NOTHING = 1e-30
#: A probability beyond which float32 does not tell what is sure from what is not.
_ALMOST_SURE = 1 - 2.0**-24


def compared_vertices(num_vertices: int) -> slice:
    """Return the vertices of which halves of an epoch are compared."""
    return slice(None, None, -(-num_vertices // _MAX_COMPARED) or 1)


def credible(
    counts: Int32Array,
    expected: Float32Array,
    first_half: Int32Array,
    share: float,
    *,
    max_count: float | None = None,
) -> Float32Array:
    """Return what another epoch like the counted one is expected to count, vertex by vertex.

    With m a model's expectation of a vertex, and c its count, it is

        m + Z (c - m),  Z = t m / (t m + s)

    with t the variance of the model's relative error, and s m that of a count around its
    expectation. What two halves of the epoch, c = c1 + c2, have in common is error of the model:
    with h the first half's part of the batches, t is the mean of (c1 - h m) (c2 - (1 - h) m) over
    that of h (1 - h) m². What (c - m)² has beyond t m² is chance. The model is first corrected by a
    factor. All are found for each octave of the expectation. The total is that of the counts.

    A batch reads a row at most once, so a count of B batches is at most B. The factor then is one
    of the picks, x = -B log(1 - m / B): independent picks, x / B of them on average, leave a batch
    without the vertex with probability exp(-x / B). What every batch reads stays at B, whatever the
    factor, and the total is not forced.

    Args:
        counts: ``[num_vertices]`` int32, of an epoch.
        expected: ``[num_vertices]`` float32, what a model expects of an epoch; at least 0.
        first_half: counts of about half of it, of the vertices that ``compared_vertices`` names.
        share: part of the epoch's batches that these count.
        max_count: B, the largest possible count; None for no limit.
    """
    model = _Model(counts, expected, max_count)
    some = compared_vertices(len(counts))
    model.compare(counts[some], expected[some], first_half, share)
    found = np.empty(len(counts), np.float32)
    for part in slices(len(counts)):
        found[part] = model.estimate(counts[part], expected[part])
    total = found.sum(dtype=np.float64)
    if max_count is None and total > 0:
        found *= np.float32(counts.sum(dtype=np.int64) / total)
    return found


class _Model:
    """How far an expectation is off, octave by octave."""

    def __init__(self, counts: Int32Array, expected: Float32Array, max_count: float | None) -> None:
        self._max_count = max_count
        counted, foreseen, vertices = (np.zeros(_NUM_OCTAVES) for _ in range(3))
        for part in slices(len(counts)):
            octaves = _octaves(self._picks(expected[part]))
            counted += np.bincount(octaves, counts[part], _NUM_OCTAVES)
            foreseen += np.bincount(octaves, expected[part], _NUM_OCTAVES)
            vertices += np.bincount(octaves, minlength=_NUM_OCTAVES)
        sure = (counted >= _MIN_COUNTS) & (vertices >= _MIN_VERTICES) & (foreseen > 0)
        self._known = np.flatnonzero(sure)
        if not len(self._known):  # too little to tell octaves apart
            self._known = np.zeros(1, np.int64)
            any_known = counted.sum() > 0 and foreseen.sum() > 0
            counted[0] = counted.sum() if any_known else 1.0
            foreseen[0] = foreseen.sum() if any_known else 1.0
            vertices[0] = vertices.sum()
        known = self._known
        picks = (self._picks(each[known] / vertices[known]) for each in (counted, foreseen))
        self._log_factors = np.subtract(*map(np.log2, picks))
        self._errors, self._chances = np.zeros(len(self._known)), np.ones(len(self._known))

    def compare(
        self, counts: Int32Array, expected: Float32Array, first_half: Int32Array, share: float
    ) -> None:
        """Separate errors of the expectation from chance, by counts of two halves."""
        picks = self._picks(expected)
        mean = self._corrected(picks)
        # The known octave that is nearest to the vertex's own.
        middles = (self._known[1:] + self._known[:-1]) / 2
        nearest = np.searchsorted(middles, _octaves(picks))

        def sums(values: Float64Array) -> Float64Array:
            return np.maximum(np.bincount(nearest, values, len(self._known)), 0)

        common = sums((first_half - share * mean) * (counts - first_half - (1 - share) * mean))
        squares = sums(np.square(mean))
        self._errors = _ratio(common, share * (1 - share) * squares)
        rest = sums(np.square(counts - mean)) - self._errors * squares
        self._chances = _ratio(np.maximum(rest, 0), sums(mean))

    def estimate(self, counts: Int32Array, expected: Float32Array) -> Float64Array:
        picks = self._picks(expected)
        mean = self._corrected(picks)
        error = mean * self._at(picks, self._errors)
        chance = self._at(picks, self._chances)
        weight = np.divide(
            error, error + chance, out=np.zeros_like(mean), where=error > _NEXT_TO_NOTHING
        )
        # The model is sure that it is never read; but it was.
        weight[mean == 0] = 1
        estimated: Float64Array = mean + weight * (counts - mean)
        return estimated

    def _picks(self, expected: Array) -> Array:
        if self._max_count is None:
            return expected
        found: Float64Array = -self._max_count * np.log1p(
            -np.minimum(expected / np.float64(self._max_count), _ALMOST_SURE)
        )
        return found

    def _corrected(self, picks: Array) -> Float64Array:
        """Return m by the corrected picks."""
        factors: Float64Array = np.exp2(self._at(picks, self._log_factors))
        if self._max_count is None:
            factors *= picks
            return factors
        mean: Float64Array = -self._max_count * np.expm1(-factors * picks / self._max_count)
        return mean

    def _at(self, picks: Array, of_octaves: Float64Array) -> Float64Array:
        """Return values between those of the known octaves."""
        middles = self._known + _FIRST_OCTAVE - 0.5
        logs = np.log2(np.maximum(picks, np.finfo(np.float32).tiny))
        values: Float64Array = np.interp(logs, middles, of_octaves)
        return values


def _ratio(part: Float64Array, whole: Float64Array) -> Float64Array:
    """Return ``part / whole``, 0 if the whole is about 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > _NEXT_TO_NOTHING)


def _octaves(expected: Array) -> Int64Array:
    """Return the octave of each value: from 2^(k - 1) to 2^k it is k, less ``_FIRST_OCTAVE``."""
    exponents: Int64Array = np.frexp(expected)[1].astype(np.int64) - _FIRST_OCTAVE
    return np.minimum(np.maximum(exponents, 0), _NUM_OCTAVES - 1)


@dataclass(frozen=True, kw_only=True)
class HalfReads:
    """What about the first half of the batches reads, of the vertices of ``compared_vertices``."""

    #: rows, lists: int32, as in ``DeviceReads``
    rows: Int32Array
    lists: Int32Array
    num_batches: int  #: batches that are counted


@dataclass(kw_only=True)
class DeviceReads:
    """What the batches of one device read."""

    #: ``[num_vertices]`` int32, a row of H_F: batches whose input vertices have the vertex
    rows: Int32Array
    #: ``[num_vertices]`` int32, a row of H_T: reads of the list of the vertex. Each edge that is
    #: traversed is one, and so are the offsets, once a visit: an empty list has these
    lists: Int32Array
    num_rows: int = 0  #: rows that were read, the sum of H_F
    num_list_reads: int = 0  #: N_TSUM, the transactions of sampling: the sum of H_T
    num_batches: int = 0  #: batches
    num_seeds: int = 0  #: seeds of these
    #: what about half of the batches reads; None if that was not counted
    half: HalfReads | None = None

    def keep_half(self) -> None:
        """Remember what the batches up to now read."""
        some = compared_vertices(len(self.rows))
        self.half = HalfReads(
            rows=self.rows[some].copy(), lists=self.lists[some].copy(), num_batches=self.num_batches
        )


@dataclass(frozen=True, kw_only=True)
class Presampled:
    """What batches read, device by device: the matrices H_F and H_T."""

    reads: Mapping[int, DeviceReads] = field(repr=False)  #: by the device's position in the plan
    num_epochs: int  #: epochs that were drawn
    num_threads: int = 1  #: threads that add up

    def of(self, device: int) -> DeviceReads:
        """Return what the device at position ``device`` reads."""
        return self.reads[device]

    def rows_of(self, device: int) -> Int32Array:
        """Return the device's row of H_F."""
        return self.reads[device].rows

    def lists_of(self, device: int) -> Int32Array:
        """Return the device's row of H_T."""
        return self.reads[device].lists

    def sum_rows(self, devices: Sequence[int]) -> Int32Array:
        """Return A_F: the sum of H_F over ``devices``."""
        rows = [self.rows_of(each) for each in devices]
        return add_counts(rows, num_threads=self.num_threads)

    def sum_lists(self, devices: Sequence[int]) -> Int32Array:
        """Return A_T: the sum of H_T over ``devices``."""
        lists = [self.lists_of(each) for each in devices]
        return add_counts(lists, num_threads=self.num_threads)

    def rows_at(self, device: int, vertices: Array) -> int:
        """Return how many rows of ``vertices`` the device reads."""
        return int(sum_at(self.rows_of(device), vertices))

    def lists_at(self, device: int, vertices: Array) -> int:
        """Return how often the device reads the lists of ``vertices``."""
        return int(sum_at(self.lists_of(device), vertices))

    def num_rows(self, device: int) -> int:
        """Return how many rows the device reads."""
        return self.reads[device].num_rows

    def num_list_reads(self, device: int) -> int:
        """Return N_TSUM of a device: how often it reads lists, a transaction each time."""
        return self.reads[device].num_list_reads


def add_counts(rows: Sequence[Int32Array], *, num_threads: int = 1) -> Int32Array:
    """Add up counts, at most 2^31 - 1 each."""
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
    draws: Presampler,
    epochs: Iterable[int],
    *,
    devices: Sequence[int],
    num_steps: int | None = None,
    drawn: Callable[[int], None] = lambda amount: None,
) -> Presampled:
    """Draw the first ``num_steps`` (None for all) of ``epochs``, and count what ``devices`` read.

    Several batches are drawn at once; the counts do not depend on their order. Takes about 16 bytes
    per device and vertex. Epochs beyond the run's end may be drawn. ``drawn`` is called after each
    batch.
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
    """Batches of a device that are counted together.

    Sampling evicts the counts from the processor's cache, so counting each batch alone would wait
    for memory as long as sampling does.
    """

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._lists: list[tuple[Int64Array, Array]] = []
        self._num_rows = 0

    def add(self, reached: PresampledInputs) -> int:
        """Add what a batch reads, and return the rows that wait."""
        vertices = reached.reach.input_vertices
        self._rows.append(vertices)
        for indptr in reached.reach.indptrs:
            # One read more than edges from each list: its offsets.
            ends = indptr + np.arange(len(indptr))
            self._lists.append((ends, vertices[: len(indptr) - 1]))
        self._num_rows += len(vertices)
        return self._num_rows

    def count(self, reads: DeviceReads) -> None:
        for vertices in self._rows:
            ops.count_uses(vertices, reads.rows, num_threads=1)
        for ends, vertices in self._lists:
            ops.count_reads(ends, vertices, reads.lists, num_threads=1)
        self._rows, self._lists, self._num_rows = [], [], 0


def _add_sizes(reads: DeviceReads, reached: PresampledInputs) -> None:
    """Add a batch's sizes; by one thread, unlike the counts."""
    reads.num_batches += 1
    reads.num_seeds += len(reached.seeds)
    reads.num_rows += len(reached.reach.input_vertices)
    reads.num_list_reads += reached.reach.num_edges + reached.reach.num_lists
