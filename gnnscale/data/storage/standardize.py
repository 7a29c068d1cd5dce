"""Features of mean 0 and standard deviation 1, fitted on the vertices or edges that train."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, IntArray
from gnnscale.core.artifact.files import check_space
from gnnscale.graph import Graph
from gnnscale.graph.dtypes import as_float32
from gnnscale.graph.store_format import GRAPH_STORE, MAX_FEATURES, read_meta

_LOG = logging.getLogger(__name__)
#: Rows that are read at once take about so many bytes.
_SLICE_BYTES = 16 << 20
#: Rows that are looked at for columns of larger numbers.
SAMPLED_ROWS = 1 << 16
#: Beside columns of so much larger numbers, others count for little.
_WIDE = 100
#: float32 holds no square of larger numbers, nor sums of many.
_LARGE = 1e18
#: Magnitude of the rows that layers compute, which features of edges are added to or stand beside.
MAGNITUDE_OF_LAYERS = 1.0


@dataclass(frozen=True, kw_only=True)
class ColumnScaling:
    """What is taken from each column of the features, and what it is divided by then."""

    mean: list[float]
    deviation: list[float]  #: standard deviation; 1 for a column of equal numbers

    def __post_init__(self) -> None:
        if not 1 <= len(self.mean) == len(self.deviation) <= MAX_FEATURES:
            raise ValueError(f"{len(self.mean)} means, {len(self.deviation)} deviations")
        if min(self.deviation) <= 0:
            raise ValueError(f"a deviation of {min(self.deviation)}")

    @classmethod
    def of(
        cls, rows: Array, train: IntArray | None, what: str = "training vertices"
    ) -> ColumnScaling:
        """Fit rows ``[n, num_features]`` of ``train`` vertices, or of all, in float64.

        Raises:
            GraphError: there is no such row; names ``what`` is needed.
        """
        count, width = len(rows) if train is None else len(train), rows.shape[1]
        if not count:
            raise GraphError(f"dataset.standardize: needs {what}, and there are none")
        sums = sum((part.sum(axis=0) for part in _parts(rows, train)), np.zeros(width))
        mean = sums / count
        # In two passes: a difference of large sums would lose a small deviation.
        squares = sum((((part - mean) ** 2).sum(axis=0) for part in _parts(rows, train)), 0 * mean)
        deviation = np.sqrt(squares / count)
        # What rounding leaves of a column of equal numbers is none.
        deviation[deviation <= 1e-7 * np.abs(mean)] = 0
        return cls(mean=mean.tolist(), deviation=np.where(deviation > 0, deviation, 1).tolist())

    def scaled(self, rows: Array, dtype: str = "float32") -> Iterator[Float32Array]:
        """Yield rows, as they are stored in the type ``dtype``, scaled, some after the other.

        What is yielded is ``[any, num_features]`` float32.
        """
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        for part in _parts(rows, None, dtype, len(mean)):
            with np.errstate(over="ignore"):  # what is not finite is refused when it is stored
                yield ((part - mean) / deviation).astype(np.float32)


def _parts(
    rows: Array, vertices: IntArray | None, dtype: str = "float32", width: int | None = None
) -> Iterator[Array]:
    """Yield rows of ``vertices``, all if None, in float64.

    ``width`` is their number of features, None for the columns of ``rows``.
    """
    width = rows.shape[1] if width is None else width
    step = max(1, _SLICE_BYTES // (8 * width))
    for first in range(0, len(rows) if vertices is None else len(vertices), step):
        chosen = slice(first, first + step) if vertices is None else vertices[first : first + step]
        yield as_float32(rows[chosen], dtype, width).astype(np.float64)


class Spread:
    """How much larger some columns of features are than others, by the first rows.

    ``others`` are magnitudes of what a model computes with beside them.
    """

    def __init__(self, others: Sequence[float] = ()) -> None:
        self._others = others
        self._max: Float32Array | None = None  # ``[num_features]`` of magnitudes
        self._left = SAMPLED_ROWS

    def watching(self, chunks: Iterable[Array]) -> Iterator[Array]:
        """Yield ``chunks`` of rows as they are, and look at the first of them."""
        for rows in chunks:
            if rows.ndim == 2:
                self.look_at(rows)
            yield rows

    def look_at(self, rows: Array) -> None:
        """Look at ``[n, num_features]`` rows, if they are among the first."""
        if self._left > 0 and len(rows):
            with np.errstate(over="ignore"):  # what float32 cannot hold is refused later
                part = np.abs(rows[: self._left].astype(np.float32)).max(axis=0)
            self._max = part if self._max is None else np.maximum(self._max, part)
            self._left -= len(rows)

    @property
    def largest(self) -> float:
        """Largest magnitude of the rows that were looked at."""
        return 0.0 if self._max is None or not len(self._max) else float(self._max.max())

    @property
    def widest(self) -> tuple[int, float, float] | None:
        """A column of which the largest number is 100 times that of most columns, and both."""
        if self._max is None or not self._max.any():
            return None
        found = np.append(self._max[self._max > 0], self._others)
        column, usual = int(self._max.argmax()), float(np.sort(found)[(len(found) - 1) // 2])
        largest = float(self._max[column])
        return (column, largest, usual) if largest >= _WIDE * usual else None


def warn_of_spread(spread: Spread, source: object, names: Callable[[int], str], cure: str) -> None:
    """Warn of a column of features that is far larger than others.

    Args:
        spread: of the features.
        source: the features, in the warning.
        names: return the name of a column.
        cure: a sentence that says how to scale them.
    """
    if spread.widest is None:
        return
    column, largest, usual = spread.widest
    _LOG.warning(
        "%s: feature %s reaches %.3g, and most only %.3g; a model learns little of these. %s",
        *(source, names(column), largest, usual, cure),
    )


def warn_of_large(largest: float, source: object) -> None:
    """Warn of features whose sums and squares overflow float32, by their largest magnitude."""
    if largest > _LARGE:
        _LOG.warning(
            "%s: features reach %.3g; sums and squares of numbers above %.0e overflow float32, and "
            "the loss becomes NaN. Scale them, or replace the number that stands for unknown",
            *(source, largest, _LARGE),
        )


@dataclass(frozen=True, kw_only=True)
class _WithScaling:
    """The entries of ``meta.json`` that have the scalings."""

    scaling: ColumnScaling | None = None
    edge_scaling: ColumnScaling | None = None


def read_scaling(graph: Graph) -> ColumnScaling | None:
    """Return the scaling that the features of a store have gone through; None without.

    Raises:
        GraphError: ``meta.json`` holds something else.
    """
    return _read(graph, "scaling", graph.num_features) if graph.origin.own_features else None


def read_edge_scaling(graph: Graph) -> ColumnScaling | None:
    """Return the scaling that the features of edges have gone through; None without.

    It raises as ``read_scaling`` does.
    """
    width = graph.num_edge_features
    return _read(graph, "edge_scaling", width) if width else None


def _read(graph: Graph, name: str, num_features: int) -> ColumnScaling | None:
    if graph.path is None:
        return None
    record = GRAPH_STORE.record(_WithScaling, read_meta(graph.path).entries, graph.path)
    found: ColumnScaling | None = getattr(record, name)
    if found is not None and len(found.mean) != num_features:
        raise GRAPH_STORE.refused(graph.path, f"{name} is of {len(found.mean)} features")
    return found


def scaled_graph(graph: Graph, scaling: ColumnScaling) -> Graph:
    """Return ``graph`` with scaled features, float32 in a temporary file.

    Raises:
        NoSpaceError: the disk has no room for it.
    """
    rows = _scaled_copy(graph.features, scaling, graph.feature_dtype, graph.num_vertices)
    return replace(graph, features=rows, feature_dtype="float32")


def scaled_edges(graph: Graph, scaling: ColumnScaling) -> Graph:
    """Return ``graph`` with scaled features of edges, in a temporary file.

    Rows after those of the edges as published, of loops that are added, remain zeros, the mean.

    Raises:
        NoSpaceError: the disk has no room for it.
    """
    edges = graph.edges
    assert edges.features is not None
    count = len(edges.features) if edges.ends is None else len(edges.ends)
    rows = _scaled_copy(edges.features, scaling, "float32", count)
    return replace(graph, edges=replace(edges, features=rows))


def _scaled_copy(rows: Array, scaling: ColumnScaling, dtype: str, count: int) -> Float32Array:
    """Return ``rows`` with the first ``count`` scaled and zeros after them, in a temporary file."""
    folder, shape = Path(tempfile.gettempdir()), (len(rows), len(scaling.mean))
    check_space("scaled features", folder, disk=4 * shape[0] * shape[1])
    with tempfile.TemporaryFile() as file:  # the map keeps it
        copy = np.memmap(file, np.float32, "w+", shape=shape)
    first = 0
    for part in scaling.scaled(rows[:count], dtype):
        copy[first : first + len(part)] = part
        first += len(part)
    return copy
