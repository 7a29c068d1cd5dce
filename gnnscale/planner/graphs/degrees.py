"""Degrees of a graph in classes, and the mini-batches that neighbour sampling makes of them.

A mean degree is not enough. Few vertices have most neighbours: many others have fewer than the
fan-out, and samples meet the same ones again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnscale.core import ConfigError, Float64Array, IntArray
from gnnscale.core.artifact.npy import map_npy
from gnnscale.planner.cost_model.equations import BatchSize

#: Classes of a lognormal distribution, and standard deviations from its median that they cover:
#: beyond them are 4 of 100,000 vertices.
_CLASSES, _LOWEST, _HIGHEST = 128, -4.0, 4.5
#: Two degrees fit into one number of 64 bits.
_MAX_DEGREE = 2**31 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Degrees:
    """Classes of vertices that are alike."""

    counts: Float64Array  #: ``[classes]`` vertices of each
    inward: Float64Array  #: ``[classes]`` in-neighbours of each of its vertices, that it samples
    outward: Float64Array  #: ``[classes]`` vertices that sample it

    @classmethod
    def of_sequence(cls, inward: IntArray, outward: IntArray) -> Degrees:
        """Return the classes of vertices whose degrees are known: ``[num_vertices]`` both."""
        # One number for both is sorted in a tenth of the time that pairs take.
        base = int(outward.max(initial=0)) + 1
        pairs, counts = np.unique(inward.astype(np.int64) * base + outward, return_counts=True)
        return cls(
            counts=counts.astype(np.float64),
            inward=(pairs // base).astype(np.float64),
            outward=(pairs % base).astype(np.float64),
        )

    @classmethod
    def of_file(cls, file: Path, num_vertices: int) -> Degrees:
        """Return the classes of the vertices whose degrees a .npy file has.

        Args:
            file: ``[num_vertices]`` integers, of neighbours; or ``[2, num_vertices]``, of
                in-neighbours and of out-neighbours.

        Raises:
            ConfigError: it holds nothing of that.
            GraphError: it cannot be read.
        """
        found = np.asarray(map_npy(file))
        if found.dtype.kind not in "iu" or found.shape not in ((num_vertices,), (2, num_vertices)):
            raise ConfigError(
                f"degrees={file}: {found.dtype} of shape {list(found.shape)}, must be an integer "
                f"for each of {num_vertices:,} vertices, or two rows of them"
            )
        for odd in (found.min(initial=0), found.max(initial=0)):
            if not 0 <= odd <= _MAX_DEGREE:
                raise ConfigError(
                    f"degrees={file}: {odd} neighbours of a vertex, allowed are 0 to {_MAX_DEGREE}"
                )
        inward, outward = (found, found) if found.ndim == 1 else found
        return cls.of_sequence(inward, outward)

    @classmethod
    def lognormal(
        cls, num_vertices: float, mean: float, skew: float, *, directed: bool = False
    ) -> Degrees:
        """Return degrees whose logarithms are normal variables.

        Args:
            mean: neighbours of a vertex.
            skew: standard deviation of the logarithms. With ``c`` for the standard deviation of
                degrees over their mean, it is sqrt(log(1 + c²)).
            directed: whether in-neighbours and out-neighbours of a vertex are unrelated. Without,
                they are the same.
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
        """Vertices of all classes."""
        return float(self.counts.sum())


def expected_size(
    degrees: Degrees, fanouts: Sequence[int], num_seeds: float
) -> tuple[BatchSize, Float64Array]:
    """Return the mini-batch to expect of ``num_seeds`` vertices, drawn from all of them.

    Every vertex keeps min(degree, fan-out) neighbours. Each of these is one of all vertices, with
    chances in proportion to their out-neighbours, so that of ``m`` draws a vertex of chance ``c``
    is among them with 1 - exp(-cm). Communities, in which neighbours share neighbours, are left
    out: they make three hops of a real graph smaller.

    Args:
        fanouts: from the seeds outwards; -1 for all neighbours.
        num_seeds: at most all vertices.

    Returns:
        The size, and for each class the part of its vertices that are among the inputs.
    """
    counts = degrees.counts
    # Without edges there is nothing to draw.
    chances = degrees.outward / max(float(counts @ degrees.outward), 1.0)
    seeds = min(float(num_seeds), degrees.num_vertices)
    met = np.full(len(counts), seeds / degrees.num_vertices)
    vertices, edges = [seeds], []
    for fanout in fanouts:
        kept = degrees.inward if fanout < 0 else np.minimum(degrees.inward, fanout)
        edges.append(float((counts * met) @ kept))
        met = 1 - (1 - met) * np.exp(-edges[-1] * chances)
        vertices.append(float(counts @ met))
    size = BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))
    return size, met


def share_of_hottest(degrees: Degrees, met: Float64Array, part: float) -> float:
    """Return the share of a mini-batch's inputs that are among the vertices most often sampled.

    Args:
        met: for each class the part of its vertices that are inputs, of ``expected_size``.
        part: of all vertices, those with the most out-neighbours (PaGraph's static cache).
    """
    hottest = np.argsort(-degrees.outward, kind="stable")
    counts = degrees.counts[hottest]
    before = np.cumsum(counts) - counts
    inside = np.clip((part * degrees.num_vertices - before) / counts, 0.0, 1.0)
    inputs = counts * met[hottest]
    return float(inside @ inputs / inputs.sum())
