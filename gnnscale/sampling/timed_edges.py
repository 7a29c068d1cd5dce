"""Mini-batches of labeled edges as of their times: units of both ends are the seeds."""

from dataclasses import dataclass, replace

import numpy as np

from gnnscale.core import Array, Float32Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.sampling.cutoff_edges import CutoffEdges
from gnnscale.sampling.minibatch import Links, MiniBatch, SamplerConfig
from gnnscale.sampling.neighbor import FanoutSampling
from gnnscale.sampling.timed import TimedSampler, distinct_units


class UnitSampler:
    """Base of samplers whose seeds are edges, and which sample around units by a timed sampler."""

    def __init__(self, sampler: TimedSampler) -> None:
        """Sample by ``sampler``."""
        self._timed = sampler

    @property
    def num_threads(self) -> int:
        """Number of threads of one call; may be changed between calls."""
        return self._timed.num_threads

    @num_threads.setter
    def num_threads(self, num_threads: int) -> None:
        self._timed.num_threads = num_threads


class TimedEdgeSampler(UnitSampler):
    """Sampler for labels of edges as of their times: an edge's ends are units of its time.

    Row ``i`` is the edge from ``ends[i, 0]`` to ``ends[i, 1]`` at ``times[i]``. Edges of one time
    that share an end share its unit, and so the vertices around it.
    """

    def __init__(
        self, sampler: TimedSampler, ends: IntArray, times: Int64Array, features: Array | None
    ) -> None:
        """Sample by ``sampler`` around ``ends`` ``[num_rows, 2]`` as of int64 ``times``.

        ``features`` are ``[num_rows, num_edge_features]``. None: there are none.
        """
        super().__init__(sampler)
        self._ends = ends
        self._times = times
        self._features = features

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of the labeled edges of row numbers ``seeds`` ``[n]``."""
        rows = np.asarray(seeds)
        units, links = unit_links(
            np.asarray(self._ends[rows]), np.asarray(self._times[rows]), rows, self._features
        )
        return replace(self._timed.sample_units(*units, step), links=links)


def unit_links(
    ends: IntArray,
    times: Int64Array,
    rows: IntArray | None = None,
    features: Array | None = None,
) -> tuple[tuple[IntArray, Int64Array], Links]:
    """Return distinct units of ``ends`` as of ``times`` ``[n]``, and links that index these.

    ``ends`` are ``[n, 2]``, or ``[n, 1 + k]`` with negatives. Units are in the order of vertices,
    then of times. The links have the edges' row numbers ``rows`` ``[n]``, and a float32 copy of
    these rows of ``features``.
    """
    count = ends.shape[1]
    units, numbers = distinct_units(ends.reshape(-1), np.repeat(times, count))
    positions = numbers.reshape(ends.shape)
    links = Links(
        sources=np.ascontiguousarray(positions[:, 0]),
        destinations=np.ascontiguousarray(positions[:, 1:]),
        rows=rows,
        features=_features_of(features, rows),
    )
    return units, links


def _features_of(features: Array | None, rows: IntArray | None) -> Float32Array | None:
    return None if features is None or rows is None else np.asarray(features[rows], np.float32)


@dataclass(frozen=True, kw_only=True)
class TimedEdgeSampling(SamplerConfig):
    """Configuration of ``TimedEdgeSampler``; ``vertices`` has a rule of time and a bound."""

    vertices: FanoutSampling
    ends: IntArray
    times: Int64Array
    features: Array | None
    left_out: CutoffEdges | None = None  #: edges without messages as of their own times

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> TimedEdgeSampler:
        """Build the sampler for ``graph``, which has times."""
        timed = timed_sampler(
            self.vertices, graph, seed=seed, num_threads=num_threads, left_out=self.left_out
        )
        return TimedEdgeSampler(timed, self.ends, self.times, self.features)


def timed_sampler(
    options: FanoutSampling,
    graph: Graph,
    *,
    seed: int,
    num_threads: int,
    left_out: CutoffEdges | None = None,
) -> TimedSampler:
    """Build the sampler of units of ``options``, which have a rule of time."""
    rule = options.time_rule(has_cutoffs=True)
    assert rule is not None
    return options.timed_sampler(graph, rule, seed=seed, num_threads=num_threads, left_out=left_out)
