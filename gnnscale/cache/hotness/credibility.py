"""What later epochs read: counts of one epoch and a model of sampling, each as far as it is sure.

A vertex that few batches of an epoch read may be hot or lucky. The hottest ones of a count were
lucky on average, so that a cache chosen by it hits less often than it says. Credibility theory
(Bühlmann 1967, "Experience rating and credibility") weighs what was counted against what was to be
expected, by how far the two are apart over vertices that are alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.hotness.slices import slices

__all__ = ["compared_vertices", "credible"]

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
    counts: NDArray[np.int32],
    expected: NDArray[np.float32],
    first_half: NDArray[np.int32],
    share: float,
    *,
    most: float | None = None,
) -> NDArray[np.float32]:
    """Return what another epoch like the counted one is expected to count, vertex by vertex.

    With m a model's expectation of a vertex, and c what was counted, it is

        m + Z (c - m),  Z = t m / (t m + s)

    where t is the variance of the model's relative error, and s m that of a count around its own
    expectation. What two halves of the epoch, c = c1 + c2, have in common is error of the model:
    with h the first half's part of the batches, t is the mean of (c1 - h m) (c2 - (1 - h) m) over
    that of h (1 - h) m². What (c - m)² has beyond t m² is chance. The model is first corrected by a
    factor. All are found for each octave of the expectation. The total is that of the counts.

    A batch reads a row once at most, so that a count of B batches stays at B. The factor then is
    one of the picks, x = -B log(1 - m / B): independent picks, x / B of them on average, leave a
    batch without the vertex with probability exp(-x / B). What every batch reads stays at B,
    whatever the factor, and the total is not forced.

    Args:
        counts: ``[num_vertices]`` int32, of an epoch.
        expected: ``[num_vertices]`` float32, what a model expects of an epoch; none negative.
        first_half: counts of about half of it, of the vertices that ``compared_vertices`` names.
        share: part of the epoch's batches that these count.
        most: the largest count that there can be, B; None for no limit.
    """
    model = _Model(counts, expected, most)
    some = compared_vertices(len(counts))
    model.compare(counts[some], expected[some], first_half, share)
    found = np.empty(len(counts), np.float32)
    for part in slices(len(counts)):
        found[part] = model.estimate(counts[part], expected[part])
    total = found.sum(dtype=np.float64)
    if most is None and total > 0:
        found *= np.float32(counts.sum(dtype=np.int64) / total)
    return found


class _Model:
    """How far an expectation is off, octave by octave."""

    def __init__(
        self, counts: NDArray[np.int32], expected: NDArray[np.float32], most: float | None
    ) -> None:
        self._most = most
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
        self,
        counts: NDArray[np.int32],
        expected: NDArray[np.float32],
        first_half: NDArray[np.int32],
        share: float,
    ) -> None:
        """Tell errors of the expectation from chance, by counts of two halves."""
        picks = self._picks(expected)
        mean = self._corrected(picks)
        # The known octave that is nearest to the vertex's own.
        middles = (self._known[1:] + self._known[:-1]) / 2
        nearest = np.searchsorted(middles, _octaves(picks))

        def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.maximum(np.bincount(nearest, values, len(self._known)), 0)

        common = sums((first_half - share * mean) * (counts - first_half - (1 - share) * mean))
        squares = sums(np.square(mean))
        self._errors = _ratio(common, share * (1 - share) * squares)
        rest = sums(np.square(counts - mean)) - self._errors * squares
        self._chances = _ratio(np.maximum(rest, 0), sums(mean))

    def estimate(
        self, counts: NDArray[np.int32], expected: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Return what is to be expected of some vertices."""
        picks = self._picks(expected)
        mean = self._corrected(picks)
        error = mean * self._at(picks, self._errors)
        chance = self._at(picks, self._chances)
        weight = np.divide(
            error, error + chance, out=np.zeros_like(mean), where=error > _NEXT_TO_NOTHING
        )
        # The model is sure that it is never read; but it was.
        weight[mean == 0] = 1
        estimated: NDArray[np.float64] = mean + weight * (counts - mean)
        return estimated

    def _picks(self, expected: NDArray[Any]) -> NDArray[Any]:
        """Return x of each expectation."""
        if self._most is None:
            return expected
        found: NDArray[np.float64] = -self._most * np.log1p(
            -np.minimum(expected / np.float64(self._most), _ALMOST_SURE)
        )
        return found

    def _corrected(self, picks: NDArray[Any]) -> NDArray[np.float64]:
        """Return m by the corrected picks."""
        factors: NDArray[np.float64] = np.exp2(self._at(picks, self._log_factors))
        if self._most is None:
            factors *= picks
            return factors
        mean: NDArray[np.float64] = -self._most * np.expm1(-factors * picks / self._most)
        return mean

    def _at(self, picks: NDArray[Any], of_octaves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values between those of the known octaves."""
        middles = self._known + _FIRST_OCTAVE - 0.5
        logs = np.log2(np.maximum(picks, np.finfo(np.float32).tiny))
        values: NDArray[np.float64] = np.interp(logs, middles, of_octaves)
        return values


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``part / whole``, 0 where the whole is next to nothing."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > _NEXT_TO_NOTHING)


def _octaves(expected: NDArray[Any]) -> NDArray[np.int64]:
    """Return the octave of each value: from 2^(k - 1) to 2^k it is k, less ``_FIRST_OCTAVE``."""
    exponents: NDArray[np.int64] = np.frexp(expected)[1].astype(np.int64) - _FIRST_OCTAVE
    return np.minimum(np.maximum(exponents, 0), _NUM_OCTAVES - 1)
