"""Features of mean 0 and standard deviation 1, fitted on the training vertices."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnscale.artifact.files import check_space
from gnnscale.artifact.graph_store import GRAPH_STORE, MAX_FEATURES, read_meta
from gnnscale.core import Array, Float32Array, GraphError, IntArray
from gnnscale.graph import Graph

#: Rows that are read at once take about so many bytes.
_SLICE_BYTES = 16 << 20
#: Rows that are looked at for columns of larger numbers.
_SAMPLED_ROWS = 1 << 16
#: Beside columns of so much larger numbers, others count for little.
_WIDE = 100


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What is taken from each column of the features, and what it is divided by then."""

    mean: list[float]
    deviation: list[float]  #: standard deviation; 1 for a column of equal numbers

    def __post_init__(self) -> None:
        if not 1 <= len(self.mean) == len(self.deviation) <= MAX_FEATURES:
            raise ValueError(f"{len(self.mean)} means, {len(self.deviation)} deviations")
        if min(self.deviation) <= 0:
            raise ValueError(f"a deviation of {min(self.deviation)}")

    @classmethod
    def of(cls, rows: Array, train: IntArray) -> Scaling:
        """Fit rows ``[n, num_features]`` of ``train`` vertices, in float64.

        Raises:
            GraphError: there is no training vertex.
        """
        if not len(train):
            raise GraphError("dataset.standardize: needs training vertices, and there are none")
        count, width = len(train), rows.shape[1]
        sums = sum((part.sum(axis=0) for part in _parts(rows, train)), np.zeros(width))
        mean = sums / count
        # In two passes: a difference of large sums would lose a small deviation.
        squares = sum((((part - mean) ** 2).sum(axis=0) for part in _parts(rows, train)), 0 * mean)
        deviation = np.sqrt(squares / count)
        # What rounding leaves of a column of equal numbers is none.
        deviation[deviation <= 1e-7 * np.abs(mean)] = 0
        return cls(mean=mean.tolist(), deviation=np.where(deviation > 0, deviation, 1).tolist())

    def scaled(self, rows: Array, dtype: str = "float32") -> Iterator[Float32Array]:
        """Yield rows ``[n, num_features]`` scaled, float32, some after the other.

        Args:
            rows: of the type ``dtype`` of ``FEATURE_DTYPES``.
        """
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        for part in _parts(rows, None, dtype):
            with np.errstate(over="ignore"):  # what is not finite is refused when it is stored
                yield ((part - mean) / deviation).astype(np.float32)


def _parts(rows: Array, vertices: IntArray | None, dtype: str = "float32") -> Iterator[Array]:
    """Yield rows of ``vertices``, all if None, in float64."""
    step = max(1, _SLICE_BYTES // (8 * rows.shape[1]))
    for first in range(0, len(rows) if vertices is None else len(vertices), step):
        chosen = slice(first, first + step) if vertices is None else vertices[first : first + step]
        part = rows[chosen]
        if dtype == "bfloat16":  # the upper half of a float32
            part = (part.astype(np.uint32) << 16).view(np.float32)
        yield part.astype(np.float64)


class Spread:
    """How much larger some columns of features are than others, by the first rows."""

    def __init__(self) -> None:
        self._max: Float32Array | None = None  # ``[num_features]`` of magnitudes
        self._left = _SAMPLED_ROWS

    def watching(self, chunks: Iterable[Array]) -> Iterator[Array]:
        """Yield ``chunks`` of rows as they are, and look at the first of them."""
        for rows in chunks:
            if self._left > 0 and rows.ndim == 2 and len(rows):
                with np.errstate(over="ignore"):  # what float32 cannot hold is refused later
                    part = np.abs(rows[: self._left].astype(np.float32)).max(axis=0)
                self._max = part if self._max is None else np.maximum(self._max, part)
                self._left -= len(rows)
            yield rows

    @property
    def widest(self) -> tuple[int, float, float] | None:
        """A column of which the largest number is 100 times that of most columns, and both."""
        found = np.zeros(0) if self._max is None else self._max[self._max > 0]
        if self._max is None or not len(found):
            return None
        column, usual = int(self._max.argmax()), float(np.sort(found)[(len(found) - 1) // 2])
        largest = float(self._max[column])
        return (column, largest, usual) if largest >= _WIDE * usual else None


@dataclass(frozen=True, kw_only=True)
class _WithScaling:
    """The entry of ``meta.json`` that has the scaling."""

    scaling: Scaling | None = None


def read_scaling(graph: Graph) -> Scaling | None:
    """Return the scaling that the features of a store have gone through; None without.

    Raises:
        GraphError: ``meta.json`` holds something else.
    """
    if graph.path is None or not graph.origin.own_features:
        return None
    entries = read_meta(graph.path).entries
    found = GRAPH_STORE.record(_WithScaling, entries, graph.path).scaling
    if found is not None and len(found.mean) != graph.num_features:
        raise GRAPH_STORE.refused(graph.path, f"scales {len(found.mean)} features")
    return found


def scaled_graph(graph: Graph, scaling: Scaling) -> Graph:
    """Return ``graph`` with scaled features, float32 in a temporary file.

    Raises:
        NoSpaceError: the disk has no room for it.
    """
    shape = (graph.num_vertices, graph.num_features)
    folder = Path(tempfile.gettempdir())
    check_space("scaled features", folder, disk=4 * shape[0] * shape[1])
    with tempfile.TemporaryFile() as file:  # the map keeps it
        rows = np.memmap(file, np.float32, "w+", shape=shape)
    first = 0
    for part in scaling.scaled(graph.features, graph.feature_dtype):
        rows[first : first + len(part)] = part
        first += len(part)
    return replace(graph, features=rows, feature_dtype="float32")
