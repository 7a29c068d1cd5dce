"""Negatives of a loader for link prediction: rules and draws, as PyG describes them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import MAX_COUNT, ConfigError, Float64Array, Int64Array, IntArray, brief
from gnnscale.data.array_inputs import as_array, is_instance_of

#: Numbers that are drawn for weighted and timed negatives: those below.
_DRAWS = 1 << 40


@dataclass(frozen=True, kw_only=True)
class VerticesByTime:
    """Vertices of a type in the order of their times."""

    ids: IntArray  #: ``[num_vertices]``
    times: Int64Array  #: ``[num_vertices]``, ascending
    sums: Float64Array  #: ``[num_vertices + 1]`` sums of the weights of the vertices before

    @classmethod
    def sort(cls, times: Int64Array, weights: Any) -> "VerticesByTime":
        """Return the vertices of ``times``; they weigh 1 if ``weights`` is None."""
        ids = np.argsort(times, kind="stable")
        in_order = np.ones(len(ids)) if weights is None else np.asarray(weights, np.float64)[ids]
        return cls(ids=ids, times=times[ids], sums=np.concatenate([[0.0], np.cumsum(in_order)]))

    def sums_at(self, cutoffs: Int64Array) -> Float64Array:
        """Return the sum of the weights of the vertices that exist at each cut-off."""
        return self.sums[np.searchsorted(self.times, cutoffs, side="right")]

    def choose(self, shares: Float64Array, cutoffs: Int64Array) -> Int64Array:
        """Return ``[n, count]`` vertices at ``shares`` in [0, 1) of the sums at ``cutoffs``."""
        sums = shares * self.sums_at(cutoffs)[:, None]
        return self.ids[np.searchsorted(self.sums, sums, side="right") - 1].astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class EndCandidates:
    """Vertices of a type that become ends of negatives."""

    num_vertices: int
    #: ends of each vertex's interval of the numbers that are drawn. None: all are as likely
    ends: Int64Array | None = None
    #: vertices by time, to choose from those that exist. None: they have no times
    by_time: VerticesByTime | None = None

    def draw(
        self, keys: IntArray, count: int, cutoffs: Int64Array | None, *, seed: int, step: int
    ) -> Int64Array:
        """Return ``[len(keys), count]`` vertices, those of a key by itself, ``seed`` and ``step``.

        They exist at ``cutoffs`` ``[len(keys)]``. None: any.
        """
        by_time = None if cutoffs is None else self.by_time
        is_even = self.ends is None and by_time is None
        limit = self.num_vertices if is_even else _DRAWS
        draws = ops.draw_negatives(keys, count, limit, seed=seed, step=step)
        if by_time is not None and cutoffs is not None:
            return by_time.choose(draws / _DRAWS, cutoffs)
        return draws if self.ends is None else np.searchsorted(self.ends, draws, side="right")

    def check(self, cutoffs: Int64Array, end: str) -> None:
        """Raise ConfigError if no vertex, called ``end``, exists at one of ``cutoffs``."""
        if self.by_time is None:
            return
        early = np.flatnonzero(self.by_time.sums_at(cutoffs) == 0)
        if len(early):
            raise ConfigError(
                f"edge_label_time[{early[0]}]={cutoffs[early[0]]}: expected the time of a {end} "
                f"or later, since negatives must exist; the first is {self.by_time.times[0]}"
            )


@dataclass(frozen=True, kw_only=True)
class Negatives:
    """Rule by which a mini-batch gets edges that are no positives; one may exist by chance."""

    is_triplet: bool  #: whether positives get destinations, not the batch new pairs of vertices
    amount: float  #: negatives for each positive
    sources: EndCandidates
    destinations: EndCandidates

    def draw_pairs(
        self, num_edges: int, cutoffs: Int64Array | None, *, seed: int, step: int
    ) -> tuple[Int64Array, Int64Array]:
        """Return sources and destinations of the negatives of ``num_edges`` positives.

        They are a function of ``seed``, ``step`` and ``cutoffs`` ``[num_edges]``: negative ``i``
        exists at that of positive ``i % num_edges``. None: any vertices.
        """
        numbers = 2 * np.arange(math.ceil(num_edges * self.amount))
        times = None if cutoffs is None else np.resize(cutoffs, len(numbers))
        sources = self.sources.draw(numbers, 1, times, seed=seed, step=step)
        destinations = self.destinations.draw(numbers + 1, 1, times, seed=seed, step=step)
        return sources[:, 0], destinations[:, 0]

    def draw_destinations(
        self, rows: IntArray, cutoffs: Int64Array | None, *, seed: int, step: int
    ) -> Int64Array:
        """Return ``[n, amount]`` negative destinations of the seed edges ``rows`` ``[n]``.

        Those of an edge are a function of ``seed``, ``step``, its row, and its cut-off, at which
        they exist, alone.
        """
        return self.destinations.draw(rows, int(self.amount), cutoffs, seed=seed, step=step)

    def check_times(self, cutoffs: Int64Array | None) -> None:
        """Raise ConfigError if no negative exists at one of ``cutoffs``; None: there are none."""
        if cutoffs is None:
            return
        self.destinations.check(cutoffs, "destination")
        if not self.is_triplet:
            self.sources.check(cutoffs, "source")


def read_negatives(
    neg_sampling: Any,
    sizes: tuple[int, int],
    times: tuple[Int64Array | None, Int64Array | None] = (None, None),
) -> Negatives | None:
    """Read PyG's ``NegativeSampling``, its mode, or a dictionary or tuple of its arguments.

    ``sizes`` and ``times`` are those of the vertices of the source and destination types; None:
    these have no times. ConfigError: ``neg_sampling`` is none of these, or the amount is not above
    0, or no whole number for triplets, or weights are not those of the vertices.
    """
    if neg_sampling is None:
        return None
    names = ("mode", "amount", "src_weight", "dst_weight")
    values = neg_sampling
    if is_instance_of(values, "torch_geometric", "sampler.NegativeSampling"):
        values = {name: getattr(values, name) for name in names}
    elif isinstance(values, tuple):
        values = dict(zip(names, values, strict=False))
    elif not isinstance(values, Mapping):
        values = {"mode": values}
    mode = getattr(values.get("mode"), "value", values.get("mode"))
    if mode not in ("binary", "triplet") or not set(values) <= set(names):
        raise ConfigError(
            f"neg_sampling={brief(neg_sampling)}: expected None, 'binary', 'triplet', or a "
            "dictionary of mode, amount, src_weight and dst_weight"
        )
    amount = values.get("amount", 1)
    is_number = isinstance(amount, (int, float, np.number)) and not isinstance(amount, bool)
    if not is_number or not 0 < amount <= MAX_COUNT:
        raise ConfigError(f"neg_sampling: amount={brief(amount)}: expected a number above 0")
    if mode == "triplet" and amount != int(amount):
        raise ConfigError(
            f"neg_sampling: amount={amount}: expected a whole number of destinations for each edge"
        )
    sources, destinations = (
        _candidates(values.get(name), name, size, own_times)
        for name, size, own_times in zip(names[2:], sizes, times, strict=True)
    )
    return Negatives(
        is_triplet=mode == "triplet",
        amount=float(amount),
        sources=sources,
        destinations=destinations,
    )


def _candidates(
    weights: Any, name: str, num_vertices: int, times: Int64Array | None
) -> EndCandidates:
    """Return the vertices of a type, drawn by ``weights`` (None: all are as likely)."""
    if weights is None:
        by_time = None if times is None else VerticesByTime.sort(times, None)
        return EndCandidates(num_vertices=num_vertices, by_time=by_time)
    values = as_array(weights, f"neg_sampling: {name}")
    if values.shape != (num_vertices,):
        raise ConfigError(
            f"neg_sampling: {name}: expected a number for each of {num_vertices} vertices, got "
            f"{list(values.shape)}"
        )
    sums = np.cumsum(values, dtype=np.float64)
    if not ((values >= 0).all() and 0 < sums[-1] < np.inf):
        raise ConfigError(f"neg_sampling: {name}: expected finite numbers from 0 on, not all 0")
    return EndCandidates(
        num_vertices=num_vertices,
        # Ends of intervals whose lengths are in proportion to the weights.
        ends=np.ceil(sums / sums[-1] * _DRAWS).astype(np.int64),
        by_time=None if times is None else VerticesByTime.sort(times, values),
    )
