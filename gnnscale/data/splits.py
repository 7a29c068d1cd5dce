"""Random splits of labeled vertices and edges into training, validation and test."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gnnscale.core import Array, ConfigError, Int64Array, IntArray
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.graph.split import has_label

_LOG = logging.getLogger(__name__)
_Parts: TypeAlias = tuple[Int64Array, Int64Array, Int64Array]


@dataclass(frozen=True, kw_only=True)
class RandomSplit:
    """Random split of labeled vertices, and of labeled edges, into training, validation and test.

    ConfigError unless both fractions are above 0, with a sum below 1.
    """

    #: shares of training and validation in (0, 1); test has the remainder
    fractions: tuple[float, float]
    seed: int
    by_pair: bool  #: whether all edges between two vertices are in one part

    def __post_init__(self) -> None:
        # Written so that NaN is refused too.
        if not (all(share > 0 for share in self.fractions) and sum(self.fractions) < 1):
            raise ConfigError(f"{self}: expected fractions above 0 with a sum below 1")

    def write(self, writer: StoreWriter, name: str) -> None:
        """Split the labeled vertices and edges of ``writer``, and set both splits in it.

        ConfigError: a part is empty.
        """
        if writer.has_labels:
            parts = random_split(writer.labels, self.fractions, seed=self.seed)
            self._check(parts, "vertices")
            writer.set_split(*parts, source=f"random split of {name}")
        if (labels := writer.edges.labels) is not None:
            if self.by_pair:
                ends = writer.edges.ends()
                parts = random_edge_split(labels, ends, self.fractions, seed=self.seed)
            else:
                parts = random_split(labels, self.fractions, seed=self.seed)
            self._check(parts, "edges")
            writer.set_edge_split(*parts, source=f"random split of the edges of {name}")

    def _check(self, parts: Sequence[Int64Array], what: str) -> None:
        sizes = [len(part) for part in parts]
        if not all(sizes):
            raise ConfigError(
                f"{self}: expected at least one of {sum(sizes)} labeled {what} in each part, got "
                f"{sizes[0]} for train, {sizes[1]} for valid, {sizes[2]} for test"
            )

    def __str__(self) -> str:
        return "dataset.train_fraction={}, valid_fraction={}".format(*self.fractions)


def random_split(labels: Array, fractions: tuple[float, float], *, seed: int) -> _Parts:
    """Return the ids of entries with a label in three random parts: train, valid and test.

    ``fractions`` are the shares of train and valid.
    """
    labeled = np.flatnonzero(has_label(labels))
    order = np.random.Generator(np.random.Philox(seed)).permutation(labeled)
    first, second = (round(len(order) * share) for share in np.cumsum(fractions))
    return order[:first], order[first:second], order[second:]


def random_edge_split(
    labels: Array, ends: IntArray, fractions: tuple[float, float], *, seed: int
) -> _Parts:
    """Return random train, valid and test edges; all edges between two vertices are in one part.

    A copy or a reverse of a test edge often has the same label, so training on it would reveal the
    label. Parts have about their shares ``fractions`` of train and valid. If no two labeled edges
    join the same vertices, the split equals that of ``random_split``.

    Args:
        labels: ``[n]`` of the edges; an edge without a label is in no part.
        ends: ``[n, 2]`` sources and destinations.

    Returns:
        Indices of the edges of each part, ``[k]``.
    """
    labeled = np.flatnonzero(has_label(labels))
    pairs = np.sort(np.asarray(ends)[labeled], axis=1)
    _, pair_of, sizes = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    if len(sizes) == len(labeled):
        return random_split(labels, fractions, seed=seed)
    _LOG.info(
        "%s of %s labeled edges join two vertices that another edge joins too; all edges of a pair "
        "are in one part of the split. dataset.edge_split_by=edge splits edge by edge",
        *(f"{int(sizes[sizes > 1].sum()):,}", f"{len(labeled):,}"),
    )
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(sizes))
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    bounds = np.round(np.cumsum(fractions) * len(labeled))
    part_of_pair = np.empty(len(sizes), np.int64)
    part_of_pair[order] = np.searchsorted(bounds, middles)
    part = part_of_pair[pair_of.reshape(-1)]
    train, valid, test = (labeled[part == number] for number in range(3))
    return train, valid, test
