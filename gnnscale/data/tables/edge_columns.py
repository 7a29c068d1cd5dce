"""Edges of a table: ends as vertices, weights, features and labels, decoded by threads."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, Int64Array, hardware, shown
from gnnscale.core import pipeline as prefetch
from gnnscale.data.tables import vertex_ids as id_columns
from gnnscale.data.tables.batch import Batch, RowPlaces, floats, refuse_nulls
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LabelColumn, SplitColumn, csv_label_type
from gnnscale.data.tables.table import Table

#: Threads that decode edges and find their ids, at most, and batches that each may be ahead.
_MAX_THREADS = 8
_AHEAD = 4
#: Bytes of a row with two ids and a weight, about.
_ROW_BYTES = 32


@dataclass(frozen=True)
class MappedEdges:
    """Some edges of the table."""

    src: Array  #: ``[num_edges]`` vertices
    dst: Array
    weights: Float32Array | None
    features: Float32Array | None  #: ``[num_edges, num_features]``


class EdgeLabelColumns:
    """Gathers labels, and perhaps the split, of all edges in the order of the table."""

    def __init__(self, table: Table, label: LabelColumn, split: SplitColumn | None) -> None:
        self._label = label
        self._split = split
        self._places = RowPlaces()
        #: Arrow type that each column of CSV is parsed as.
        self.csv_types: dict[str, Any] = {label.name: csv_label_type(table.types[label.name])}
        self._path = table.path
        if split is not None:
            self.csv_types |= split.csv_types

    def add(self, batch: Batch) -> None:
        """Take the labels and parts of a batch; raises as the columns do."""
        for column in (self._places, self._label, self._split):
            if column is not None:
                column.add(batch)

    def finish(
        self, *, unlabelled: str
    ) -> tuple[Array, list[str] | None, Sequence[Int64Array] | None]:
        """Return labels, names of the classes, and the rows of each part; raises as columns do."""
        labels, names = self._label.finish(self._places)
        if self._split is None:
            return labels, names, None
        parts = self._split.finish(
            labels, self._places, unlabelled=unlabelled, source=self._path, what="edges"
        )
        return labels, names, parts


@dataclass(frozen=True, kw_only=True)
class EdgeTable:
    """The columns of a table of edges that are read."""

    table: Table
    ends: tuple[str, str]  #: of the sources' ids, of the targets'
    weight: str | None  #: of the weights
    features: FeatureColumns | None = None
    labels: EdgeLabelColumns | None = None
    id_type: str = field(default="auto")  #: one of ``ID_TYPES``

    @property
    def in_order(self) -> bool:
        """Whether edges are decoded in the order of the table, since rows of theirs keep it."""
        return self.features is not None or self.labels is not None

    def mapped(self, ids: id_columns.IdMap) -> Iterator[MappedEdges]:
        """Yield the edges as threads have decoded them; labels are gathered meanwhile.

        Raises:
            GraphError: an id belongs to no vertex, a weight or label is not allowed, or a feature
                is missing; names the row.
        """
        num_threads = min(hardware.usable_cores(), _MAX_THREADS)
        with prefetch.Pipeline(
            self._batches(ids, num_threads),
            [[lambda edges: self._map(edges, ids)]],
            limit=_AHEAD * num_threads,
            num_threads=num_threads,
            adaptive=False,
        ) as found:
            for edges in found:
                if edges.mapped is None or edges.batch is None:
                    continue
                if self.labels is not None:
                    self.labels.add(edges.batch)
                edges.batch = None
                yield edges.mapped

    def _batches(self, ids: id_columns.IdMap, num_threads: int) -> "Iterator[_DecodedEdges]":
        types = self._csv_types(ids)
        row_bytes = _ROW_BYTES + 8 * (self.features.num_features if self.features else 0)
        if self.in_order:
            return (
                _DecodedEdges(_Share(iter([batch])))
                for batch in self.table.batches(list(types), types, row_bytes)
            )
        # Edges may come in any order, since lists are sorted.
        shares = self.table.shares(list(types), types, row_bytes, num_threads)
        return _in_turn([_Share(each) for each in shares])

    def _csv_types(self, ids: id_columns.IdMap) -> dict[str, Any]:
        """Return all columns, with the Arrow types that they have in CSV."""
        import pyarrow  # takes a while, and a run whose store exists needs none

        types = dict.fromkeys(self.ends, id_columns.csv_id_type(self.id_type, ids.type))
        if self.weight is not None:
            types[self.weight] = pyarrow.float64()
        for columns in (self.features, self.labels):
            if columns is not None:
                types |= columns.csv_types
        return types

    def _map(self, edges: "_DecodedEdges", ids: id_columns.IdMap) -> None:
        batch = edges.batch = edges.share.next()
        if batch is not None:
            src, dst = (ids.find(batch, end) for end in self.ends)
            weights = None if self.weight is None else _weights(batch, self.weight)
            features = None if self.features is None else self.features.of_batch(batch)
            edges.mapped = MappedEdges(src, dst, weights, features)


class _Share:
    """Batches of a part of a table, decoded by one thread at a time."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self.ended = False

    def next(self) -> Batch | None:
        with self._lock:
            batch = next(self._batches, None)
            self.ended = batch is None
            return batch


class _DecodedEdges:
    """A batch of a share, once it is decoded."""

    def __init__(self, share: _Share) -> None:
        self.share = share
        self.batch: Batch | None = None
        self.mapped: MappedEdges | None = None


def _in_turn(shares: Sequence[_Share]) -> Iterator[_DecodedEdges]:
    """Yield a future batch of each share, in turn until all have ended."""
    while any(not share.ended for share in shares):
        for share in shares:
            if not share.ended:
                yield _DecodedEdges(share)


def _weights(batch: Batch, column: str) -> Float32Array:
    refuse_nulls(batch, column)
    values = floats(batch, column, np.float32)
    good = (values >= 0) & np.isfinite(values)
    if not good.all():
        index = int(good.argmin())
        raise GraphError(
            f"{batch.place(index)}: {shown(column)} is {batch.columns[column][index]}, allowed are "
            "numbers from 0 on that float32 holds"
        )
    return values
