"""Graphs without data: published sizes, degree classes, and expected mini-batch sizes.

The mean degree alone predicts mini-batches badly. A few vertices have most of the neighbors: many
vertices have fewer neighbors than the fan-out, and samples contain popular vertices repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from gnnscale.core import ConfigError, Float64Array, IntArray
from gnnscale.core.artifact.npy import map_npy
from gnnscale.planner.cost_model.equations import BatchSize

#: Number of classes of a lognormal distribution, and their range in standard deviations from the
#: median. 4 of 100,000 vertices lie outside.
_CLASSES, _LOWEST, _HIGHEST = 128, -4.0, 4.5
#: Two degrees are packed into one int64 number.
_MAX_DEGREE = 2**31 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Degrees:
    """Vertices grouped into classes of equal in-degree and out-degree."""

    counts: Float64Array  #: ``[num_classes]`` number of vertices
    inward: Float64Array  #: ``[num_classes]`` in-degree: the neighbors that a vertex samples from
    outward: Float64Array  #: ``[num_classes]`` out-degree: the vertices that may sample it

    @classmethod
    def from_arrays(cls, inward: IntArray, outward: IntArray) -> Degrees:
        """Group vertices by equal ``[num_vertices]`` in-degrees and out-degrees."""
        # Sorting packed numbers takes a tenth of the time of sorting pairs.
        base = int(outward.max(initial=0)) + 1
        pairs, counts = np.unique(inward.astype(np.int64) * base + outward, return_counts=True)
        return cls(
            counts=counts.astype(np.float64),
            inward=(pairs // base).astype(np.float64),
            outward=(pairs % base).astype(np.float64),
        )

    @classmethod
    def from_npy(cls, file: Path, num_vertices: int) -> Degrees:
        """Read the degrees of all vertices from a .npy file.

        ``file``: integers, ``[num_vertices]`` degrees of an undirected graph, or ``[2,
        num_vertices]`` in-degrees and out-degrees. Raises ConfigError if the array has another type
        or shape, or a degree is out of range; GraphError if the file cannot be read.
        """
        array = np.asarray(map_npy(file))
        if array.dtype.kind not in "iu" or array.shape not in ((num_vertices,), (2, num_vertices)):
            raise ConfigError(
                f"degrees={file}: expected integers [{num_vertices}] or [2, {num_vertices}], "
                f"got {array.dtype} {list(array.shape)}"
            )
        for degree in (array.min(initial=0), array.max(initial=0)):
            if not 0 <= degree <= _MAX_DEGREE:
                raise ConfigError(
                    f"degrees={file}: expected degrees from 0 to {_MAX_DEGREE}, got {degree}"
                )
        inward, outward = (array, array) if array.ndim == 1 else array
        return cls.from_arrays(inward, outward)

    @classmethod
    def lognormal(
        cls, num_vertices: float, mean: float, skew: float, *, directed: bool = False
    ) -> Degrees:
        """Return degree classes of a lognormal distribution.

        ``skew`` is the standard deviation of the logarithms of the degrees: sqrt(log(1 + c²)),
        where ``c`` is the standard deviation of the degrees over their mean. ``directed``:
        in-degree and out-degree of a vertex are independent. Otherwise they are equal.
        """
        normal = np.linspace(_LOWEST, _HIGHEST, _CLASSES)
        shares = np.exp(-normal * normal / 2)
        shares /= shares.sum()
        degrees = np.exp(skew * normal)
        degrees *= mean / (shares @ degrees)
        if not directed:
            return cls(counts=num_vertices * shares, inward=degrees, outward=degrees)
        both = np.outer(shares, shares).ravel()
        return cls(
            counts=num_vertices * both,
            inward=np.repeat(degrees, _CLASSES),
            outward=np.tile(degrees, _CLASSES),
        )

    @property
    def num_vertices(self) -> float:
        """Number of vertices in all classes."""
        return float(self.counts.sum())


def expected_size(
    degrees: Degrees, fanouts: Sequence[int], num_seeds: float
) -> tuple[BatchSize, Float64Array]:
    """Return the expected sizes of a mini-batch of ``num_seeds`` seeds drawn uniformly.

    Every vertex samples min(degree, fan-out) neighbors; a fan-out of -1 samples all. A neighbor is
    any vertex, with probability ``c`` proportional to its out-degree: ``m`` draws contain the
    vertex with probability 1 - exp(-cm). The model ignores communities, where neighbors share
    neighbors and three hops reach fewer vertices. The second result are ``[num_classes]``
    probabilities that a vertex of the class is an input of the mini-batch.
    """
    counts = degrees.counts
    # At least 1: a graph without edges has no neighbors to draw.
    chances = degrees.outward / max(float(counts @ degrees.outward), 1.0)
    seeds = min(float(num_seeds), degrees.num_vertices)
    probabilities = np.full(len(counts), seeds / degrees.num_vertices)
    vertices, edges = [seeds], []
    for fanout in fanouts:
        sampled = degrees.inward if fanout < 0 else np.minimum(degrees.inward, fanout)
        edges.append(float((counts * probabilities) @ sampled))
        probabilities = 1 - (1 - probabilities) * np.exp(-edges[-1] * chances)
        vertices.append(float(counts @ probabilities))
    size = BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))
    return size, probabilities


def share_of_hottest(degrees: Degrees, met: Float64Array, part: float) -> float:
    """Return the hit rate of PaGraph's static cache: the share of a batch's inputs in the cache.

    ``met`` are ``[num_classes]`` probabilities that a vertex is an input, from ``expected_size``.
    ``part``, a fraction of all vertices, is cached: the vertices of highest out-degree.
    """
    hottest = np.argsort(-degrees.outward, kind="stable")
    counts = degrees.counts[hottest]
    num_hotter = np.cumsum(counts) - counts
    cached_part = np.clip((part * degrees.num_vertices - num_hotter) / counts, 0.0, 1.0)
    inputs = counts * met[hottest]
    return float(cached_part @ inputs / inputs.sum())


@dataclass(frozen=True)
class PublishedGraph:
    """Sizes and degree distribution of a graph whose data are not needed."""

    num_vertices: int  #: |V|
    num_edges: int  #: |E|, counted once per in-neighbor
    num_features: int  #: f^0
    num_classes: int  #: f^L
    num_train: int  #: training vertices
    skew: float  #: standard deviation of the logarithms of the degrees
    #: number of vertices that an epoch's mini-batches contain. None: all vertices
    num_reached: int | None = None
    directed: bool = False  #: whether in-degree and out-degree of a vertex are independent
    exact_degrees: Degrees | None = None  #: measured degrees. None: lognormal with ``skew``

    @cached_property
    def degrees(self) -> Degrees:
        """Exact degree classes if known, else lognormal ones of vertices that an epoch reaches."""
        if self.exact_degrees is not None:
            return self.exact_degrees
        mean = self.num_edges / self.num_vertices
        count = self.num_reached or self.num_vertices
        return Degrees.lognormal(count, mean, self.skew, directed=self.directed)

    def size(self, fanouts: Sequence[int], num_seeds: float) -> BatchSize:
        """Return the expected sizes of a mini-batch of ``num_seeds``; a fan-out of -1: all."""
        return expected_size(self.degrees, fanouts, num_seeds)[0]


#: Sizes: HitGNN Table IV and HyScale-GNN Table III. Splits: GraphSAINT for the first three, the
#: Open Graph Benchmark for the rest. Edges of ogbn-products are undirected and count twice here;
#: the first three are published with both directions.
#:
#: Skew of the first three: HitGNN reports throughput and epoch time, whose product over
#: ⌈|V| / 1,024⌉ is the number of vertices of a mini-batch. The skew is fitted to the measured GPU
#: rows of Table VI. The predicted FPGA rows have the same product, so that only one of epoch time
#: and NVTPS is left to predict. Of ogbn-products: its degrees have mean 50.5 and standard deviation
#: 95.9. Of ogbn-papers100M, and of MAG240M, also a citation graph: GNNLab's 568,300 inputs of
#: mini-batches of 8,000 seeds, fan-outs 15, 10 and 5, of which an epoch meets a tenth of all
#: vertices (its repository, exp/fig5a and fig11c).
PUBLISHED = {
    "reddit": PublishedGraph(232_965, 23_213_838, 602, 41, 153_932, 1.57),
    "yelp": PublishedGraph(716_847, 13_954_819, 300, 100, 537_635, 2.0),
    "amazon": PublishedGraph(1_569_960, 264_339_468, 200, 107, 1_255_968, 2.58),
    "products": PublishedGraph(2_449_029, 2 * 61_859_140, 100, 47, 196_615, 1.24),
    "papers100m": PublishedGraph(
        *(111_059_956, 1_615_685_872, 128, 172, 1_207_179, 1.89),
        num_reached=11_105_996,
        directed=True,
    ),
    "mag240m": PublishedGraph(
        *(121_751_666, 1_297_748_926, 756, 153, 1_112_392, 1.89),
        num_reached=12_175_167,
        directed=True,
    ),
}
