"""Pre-sampled hotness: reads of an epoch's batches (GNNLab; Legion, section 4.2, S1)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from gnnscale import ops
from gnnscale.cache.hotness.degree import slices, sum_at
from gnnscale.cache.presampling import PresampledBatch, Presampler
from gnnscale.core import MAX_COUNT, Array, Float32Array, Float64Array, Int32Array, Int64Array

#: Largest number of vertices for the comparison of an epoch's halves.
_MAX_COMPARED = 1 << 20
#: Octaves of expected counts: 2^-64 and less to 2^63 and more.
_NUM_OCTAVES, _FIRST_OCTAVE = 128, -64
#: Smallest counts and vertices of an octave that give its model error.
_MIN_COUNTS, _MIN_VERTICES = 200, 16
_NEXT_TO_NOTHING = 1e-30
#: Largest probability that float32 tells from 1.
_ALMOST_SURE = 1 - 2.0**-24


def compared_vertices(num_vertices: int) -> slice:
    """Return a slice that samples every k-th vertex, about 2^20 at most.

    ``credible`` compares these vertices' counts in the two halves of an epoch.
    """
    return slice(None, None, -(-num_vertices // _MAX_COMPARED) or 1)


def credible(
    counts: Int32Array,
    expected: Float32Array,
    first_half: Int32Array,
    share: float,
    *,
    max_count: float | None = None,
) -> Float32Array:
    """Return the expected counts of another epoch, vertex by vertex (credibility estimate).

    With m a model's expectation for a vertex, and c its count, the estimate is

        m + Z (c - m),  Z = t m / (t m + s)

    with t the variance of the model's relative error, and s m the variance of a count around its
    expectation. Errors of the model are common to both halves of the epoch, c = c1 + c2: with h the
    first half's share of the batches, t is the mean of (c1 - h m) (c2 - (1 - h) m) over the mean of
    h (1 - h) m². The remainder of (c - m)² beyond t m² is chance and gives s. The model is first
    corrected by a factor. Factor, t and s are estimated per octave of the expectation: from one
    power of 2 to the next. The total of the estimates is that of the counts.

    With ``max_count``, a batch reads a row at most once, so a count of B batches is at most B. The
    factor then applies to picks, x = -B log(1 - m / B): a batch with x / B independent picks on
    average misses the vertex with probability exp(-x / B). A vertex that every batch reads stays at
    B for any factor, and the total is not adjusted.

    Args:
        counts: ``[num_vertices]`` c.
        expected: ``[num_vertices]`` m.
        first_half: c1 of ``compared_vertices``.
        share: h.
        max_count: B. None: counts are unlimited.
    """
    model = _Model(counts, expected, max_count)
    compared = compared_vertices(len(counts))
    model.compare(counts[compared], expected[compared], first_half, share)
    estimates = np.empty(len(counts), np.float32)
    for part in slices(len(counts)):
        estimates[part] = model.estimate(counts[part], expected[part])
    total = estimates.sum(dtype=np.float64)
    if max_count is None and total > 0:
        estimates *= np.float32(counts.sum(dtype=np.int64) / total)
    return estimates


class _Model:
    """Estimator of each vertex's reads, from its count and its expected count; see ``credible``.

    Factor, model error and chance are fitted for each octave of expected counts: for the vertices
    with 2^(k - 1) to 2^k expected reads, or expected picks with ``max_count``.
    """

    def __init__(self, counts: Int32Array, expected: Float32Array, max_count: float | None) -> None:
        self._max_count = max_count
        counted, modeled, vertices = (np.zeros(_NUM_OCTAVES) for _ in range(3))
        for part in slices(len(counts)):
            octaves = _octaves(self._picks(expected[part]))
            counted += np.bincount(octaves, counts[part], _NUM_OCTAVES)
            modeled += np.bincount(octaves, expected[part], _NUM_OCTAVES)
            vertices += np.bincount(octaves, minlength=_NUM_OCTAVES)
        has_enough = (counted >= _MIN_COUNTS) & (vertices >= _MIN_VERTICES) & (modeled > 0)
        self._fitted = np.flatnonzero(has_enough)
        if not len(self._fitted):  # too few counts to fit single octaves
            self._fitted = np.zeros(1, np.int64)
            has_counts = counted.sum() > 0 and modeled.sum() > 0
            counted[0] = counted.sum() if has_counts else 1.0
            modeled[0] = modeled.sum() if has_counts else 1.0
            vertices[0] = vertices.sum()
        fitted = self._fitted
        picks = (self._picks(sums[fitted] / vertices[fitted]) for sums in (counted, modeled))
        self._log_factors = np.subtract(*map(np.log2, picks))
        self._errors, self._chances = np.zeros(len(fitted)), np.ones(len(fitted))

    def compare(
        self, counts: Int32Array, expected: Float32Array, first_half: Int32Array, share: float
    ) -> None:
        """Fit each octave's model error and chance, from counts of an epoch and of its first half.

        ``counts``, ``expected`` and ``first_half`` are of a sample of vertices; ``share`` is the
        first half's share of the batches.
        """
        picks = self._picks(expected)
        mean = self._corrected(picks)
        # The fitted octave nearest to the vertex's octave.
        middles = (self._fitted[1:] + self._fitted[:-1]) / 2
        nearest = np.searchsorted(middles, _octaves(picks))

        def sums(values: Float64Array) -> Float64Array:
            return np.maximum(np.bincount(nearest, values, len(self._fitted)), 0)

        common = sums((first_half - share * mean) * (counts - first_half - (1 - share) * mean))
        squares = sums(np.square(mean))
        self._errors = _ratio(common, share * (1 - share) * squares)
        remainder = sums(np.square(counts - mean)) - self._errors * squares
        self._chances = _ratio(np.maximum(remainder, 0), sums(mean))

    def estimate(self, counts: Int32Array, expected: Float32Array) -> Float64Array:
        picks = self._picks(expected)
        mean = self._corrected(picks)
        error = mean * self._at(picks, self._errors)
        chance = self._at(picks, self._chances)
        weight = np.divide(
            error, error + chance, out=np.zeros_like(mean), where=error > _NEXT_TO_NOTHING
        )
        # A count refutes a model that excludes the vertex.
        weight[mean == 0] = 1
        estimated: Float64Array = mean + weight * (counts - mean)
        return estimated

    def _picks(self, expected: Array) -> Array:
        if self._max_count is None:
            return expected
        picks: Float64Array = -self._max_count * np.log1p(
            -np.minimum(expected / np.float64(self._max_count), _ALMOST_SURE)
        )
        return picks

    def _corrected(self, picks: Array) -> Float64Array:
        """Return the expected counts of vertices, corrected by the factor fitted for their octave.

        ``picks`` are a model's expected counts; with ``max_count``, its picks as in ``credible``.
        """
        factors: Float64Array = np.exp2(self._at(picks, self._log_factors))
        if self._max_count is None:
            factors *= picks
            return factors
        mean: Float64Array = -self._max_count * np.expm1(-factors * picks / self._max_count)
        return mean

    def _at(self, picks: Array, by_octave: Float64Array) -> Float64Array:
        """Return ``by_octave`` at ``picks`` ``[n]``, interpolated over the logarithm of picks.

        ``picks`` are expected counts of vertices, or with ``max_count`` picks as in ``credible``.
        ``by_octave`` has a value for each fitted octave, at the octave's middle.
        """
        middles = self._fitted + _FIRST_OCTAVE - 0.5
        logs = np.log2(np.maximum(picks, np.finfo(np.float32).tiny))
        values: Float64Array = np.interp(logs, middles, by_octave)
        return values


def _ratio(part: Float64Array, whole: Float64Array) -> Float64Array:
    """Return ``part / whole`` elementwise, 0 where ``whole`` is nearly 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > _NEXT_TO_NOTHING)


def _octaves(expected: Array) -> Int64Array:
    """Return each value's octave as an index: k + 64 for values from 2^(k - 1) to below 2^k.

    Indices are limited to 0 and 127.
    """
    exponents: Int64Array = np.frexp(expected)[1].astype(np.int64) - _FIRST_OCTAVE
    return np.minimum(np.maximum(exponents, 0), _NUM_OCTAVES - 1)


@dataclass(frozen=True, kw_only=True)
class HalfReads:
    """One device's reads of a sample of vertices in about the first half of its batches."""

    rows: Int32Array  #: reads of rows, as in ``DeviceReads``
    lists: Int32Array  #: reads of lists, as in ``DeviceReads``
    num_batches: int  #: number of batches in the half


@dataclass(kw_only=True)
class DeviceReads:
    """Reads by the presampled batches of one device: a count for each vertex, and totals."""

    #: ``[num_vertices]`` int32, a row of H_F: batches with the vertex as an input vertex
    rows: Int32Array
    #: ``[num_vertices]`` int32, a row of H_T: reads of lists, one per traversed edge and per visit
    lists: Int32Array
    num_rows: int = 0  #: rows that were read, the sum of H_F
    num_list_reads: int = 0  #: N_TSUM, the transactions of sampling: the sum of H_T
    num_batches: int = 0  #: number of batches
    num_seeds: int = 0  #: seeds of the batches
    half: HalfReads | None = None  #: reads of about half of the batches. None: not counted

    def keep_half(self) -> None:
        """Copy the counts so far of a sample of vertices, ``compared_vertices``, to ``half``."""
        compared = compared_vertices(len(self.rows))
        self.half = HalfReads(
            rows=self.rows[compared].copy(),
            lists=self.lists[compared].copy(),
            num_batches=self.num_batches,
        )


@dataclass(frozen=True, kw_only=True)
class CountedReads:
    """Counted reads of one kind by device: of rows, H_F, or of adjacency lists, H_T."""

    counts: Mapping[int, Int32Array]  #: ``[num_vertices]`` reads by device position in the plan
    totals: Mapping[int, int]  #: sum of each device's reads; of lists, N_TSUM
    num_threads: int = 1  #: threads that add up reads

    def of(self, device: int) -> Int32Array:
        """Return a row of H_F or H_T: ``[num_vertices]`` reads by the device."""
        return self.counts[device]

    def sum(self, devices: Sequence[int]) -> Int32Array:
        """Return A_F or A_T: ``[num_vertices]`` reads by all of ``devices``."""
        return add_counts([self.of(device) for device in devices], num_threads=self.num_threads)

    def at(self, device: int, vertices: Array) -> int:
        """Return the number of the device's reads of all ``vertices`` together."""
        return int(sum_at(self.of(device), vertices))

    def total(self, device: int) -> int:
        """Return the number of all reads of the device."""
        return self.totals[device]


C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class Reads(Generic[C]):
    """Reads of both kinds: counted, expected or averaged."""

    rows: C  #: reads of feature rows
    lists: C  #: reads of adjacency lists


@dataclass(frozen=True, kw_only=True)
class Presampled:
    """Counted reads of presampled batches by device: H_F of rows, H_T of lists."""

    reads: Mapping[int, DeviceReads] = field(repr=False)  #: by device position in the plan
    num_epochs: int  #: number of presampled epochs
    num_threads: int = 1  #: threads that add up reads

    @cached_property
    def rows(self) -> CountedReads:
        """Reads of rows: for each vertex, how many batches of a device read its row."""
        return CountedReads(
            counts={device: reads.rows for device, reads in self.reads.items()},
            totals={device: reads.num_rows for device, reads in self.reads.items()},
            num_threads=self.num_threads,
        )

    @cached_property
    def lists(self) -> CountedReads:
        """Reads of lists: for each vertex, the transactions by which a device reads its list."""
        return CountedReads(
            counts={device: reads.lists for device, reads in self.reads.items()},
            totals={device: reads.num_list_reads for device, reads in self.reads.items()},
            num_threads=self.num_threads,
        )


def add_counts(rows: Sequence[Int32Array], *, num_threads: int = 1) -> Int32Array:
    """Return the elementwise sum of the arrays ``rows``, limited to 2^31 - 1.

    The sum of a single array is that array, not a copy.
    """
    if len(rows) == 1:
        return rows[0]
    total = np.empty_like(rows[0])

    def add(part: slice) -> None:
        total[part] = rows[0][part]
        for row in rows[1:]:
            total[part] += np.minimum(row[part], MAX_COUNT - total[part])

        # Threads share the cost of the total's page faults, which equals that of adding.

    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(add, slices(len(total))))
    return total


def presample(
    draws: Presampler,
    epochs: Iterable[int],
    *,
    devices: Sequence[int],
    num_steps: int | None = None,
    advance: Callable[[int], None] = lambda amount: None,
) -> Presampled:
    """Sample batches, and return the reads of ``devices``, summed over ``epochs``.

    Only the first ``num_steps`` of each epoch are sampled; None: all. Several batches are sampled
    at a time; their order is irrelevant. ``advance`` is called with 1 for each batch. Takes about
    16 bytes per device and vertex.
    """
    num_vertices, num_epochs = draws.graph.num_vertices, 0
    reads_by_device = {
        device: DeviceReads(
            rows=np.zeros(num_vertices, np.int32), lists=np.zeros(num_vertices, np.int32)
        )
        for device in devices
    }
    uncounted = {device: _Uncounted() for device in devices}
    for epoch in epochs:
        num_epochs += 1
        middle = epoch * draws.steps_per_epoch + draws.steps_per_epoch // 2
        for inputs in draws.frontiers(epoch, devices=reads_by_device, num_steps=num_steps):
            advance(1)
            reads, batches = reads_by_device[inputs.device], uncounted[inputs.device]
            if inputs.step >= middle and reads.half is None:
                batches.count(reads)
                reads.keep_half()
            # By one thread, unlike the counts.
            reads.num_batches += 1
            reads.num_seeds += len(inputs.seeds)
            reads.num_rows += len(inputs.frontier.input_vertices)
            reads.num_list_reads += inputs.frontier.num_edges + inputs.frontier.num_lists
            if batches.add(inputs) >= num_vertices:
                batches.count(reads)
    for device, reads in reads_by_device.items():
        uncounted[device].count(reads)
        if reads.half is None:  # the device had no batch in the second half
            reads.keep_half()
    return Presampled(reads=reads_by_device, num_epochs=num_epochs, num_threads=draws.num_threads)


class _Uncounted:
    """Batches of a device that wait to be counted in one pass, which has fewer CPU cache misses."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._lists: list[tuple[Int64Array, Array]] = []
        self._num_rows = 0

    def add(self, inputs: PresampledBatch) -> int:
        """Add a batch, still uncounted; return the number of input rows of all that wait."""
        vertices = inputs.frontier.input_vertices
        self._rows.append(vertices)
        for list_vertices, indptr in inputs.frontier.lists_read:
            # A vertex has one read more than sampled edges: the offsets of its lists.
            self._lists.append((indptr + np.arange(len(indptr)), list_vertices))
        self._num_rows += len(vertices)
        return self._num_rows

    def count(self, reads: DeviceReads) -> None:
        for vertices in self._rows:
            ops.count_uses(vertices, reads.rows, num_threads=1)
        for ends, vertices in self._lists:
            ops.count_reads(ends, vertices, reads.lists, num_threads=1)
        self._rows, self._lists, self._num_rows = [], [], 0
