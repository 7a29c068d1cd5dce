"""Degree classes of a graph, and the size of the mini-batches that neighbor sampling produces.

The mean degree alone predicts mini-batches badly. A few vertices have most of the neighbors: many
vertices have fewer neighbors than the fan-out, and samples contain popular vertices repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        """Group vertices by their degrees, ``[num_vertices]`` integers each."""
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

        Args:
            skew: standard deviation of the logarithms of the degrees: sqrt(log(1 + c²)), where
                ``c`` is the standard deviation of the degrees over their mean.
            directed: whether in-degree and out-degree of a vertex are independent. Otherwise they
                are equal.
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
    """Return the expected mini-batch of ``num_seeds`` seeds that are drawn uniformly.

    Every vertex samples min(degree, fan-out) neighbors. A neighbor is any vertex, with probability
    ``c`` proportional to its out-degree: ``m`` draws contain the vertex with probability 1 -
    exp(-cm). The model ignores communities, where neighbors share neighbors. They make three hops
    of a real graph smaller. ``fanouts``: neighbors per vertex and hop, from the seeds outwards; -1
    for all neighbors.

    Returns:
        The size of the mini-batch, and ``[num_classes]`` probabilities that a vertex of the class
        is an input.
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
    ``part`` of all vertices, from 0 to 1, is cached: the vertices of highest out-degree.
    """
    hottest = np.argsort(-degrees.outward, kind="stable")
    counts = degrees.counts[hottest]
    num_hotter = np.cumsum(counts) - counts
    cached_part = np.clip((part * degrees.num_vertices - num_hotter) / counts, 0.0, 1.0)
    inputs = counts * met[hottest]
    return float(cached_part @ inputs / inputs.sum())
