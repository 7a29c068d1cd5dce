"""Columns of the table of edges: ends, weights, features and labels, decoded by threads."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, Int64Array, Pipeline, brief, hardware
from gnnscale.data.tables import vertex_ids
from gnnscale.data.tables.batch import Batch, RowLocations, floats, refuse_nulls
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LabelColumn, SplitColumn, csv_label_type
from gnnscale.data.tables.table import Table

#: Threads that decode edges and look up ids, at most.
_MAX_THREADS = 8
#: Batches in the queue per thread.
_QUEUED_BATCHES = 4
#: Bytes of a row with two ids and a weight, about.
_ROW_BYTES = 32


@dataclass(frozen=True)
class MappedEdges:
    """Batch of edges whose ids are mapped to vertices."""

    src: Array  #: ``[num_edges]`` source vertices
    dst: Array  #: ``[num_edges]`` destination vertices
    weights: Float32Array | None  #: ``[num_edges]``. None: edges have no weights.
    features: Float32Array | None  #: ``[num_edges, num_features]``. None: no features.


class EdgeLabelColumns:
    """Collector of edge labels and, if there is a ``split``, of edges' parts from all batches."""

    def __init__(self, table: Table, label: LabelColumn, split: SplitColumn | None) -> None:
        self._label = label
        self._split = split
        self._locations = RowLocations()
        #: Arrow type that each column of CSV is parsed as.
        self.csv_types: dict[str, Any] = {label.name: csv_label_type(table.types[label.name])}
        self._path = table.path
        if split is not None:
            self.csv_types |= split.csv_types

    def add(self, batch: Batch) -> None:
        """Append the labels and parts of a batch; GraphError if a value is not valid."""
        for column in (self._locations, self._label, self._split):
            if column is not None:
                column.add(batch)

    def finish(
        self, *, unlabeled: str
    ) -> tuple[Array, list[str] | None, Sequence[Int64Array] | None]:
        """Return labels, class names (None: numbers) and edge indices by part (None: no split).

        ``unlabeled`` refuses or drops training and validation edges without a label.
        """
        labels, names = self._label.finish(self._locations)
        if self._split is None:
            return labels, names, None
        parts = self._split.finish(
            labels, self._locations, unlabeled=unlabeled, source=self._path, what="edges"
        )
        return labels, names, parts


@dataclass(frozen=True, kw_only=True)
class EdgeTable:
    """Table of edges, with its columns to read."""

    table: Table
    ends: tuple[str, str]  #: columns of the source ids and the destination ids
    weight: str | None  #: column of the weights. None: edges have no weights.
    features: FeatureColumns | None = None  #: None: edges have no features
    labels: EdgeLabelColumns | None = None  #: None: edges have no labels
    id_type: str = field(default="auto")  #: one of ``ID_TYPES``

    def mapped(self, ids: vertex_ids.IdMap) -> Iterator[MappedEdges]:
        """Yield the edges in batches, decoded by threads, whose ends ``ids`` maps to vertices.

        With features or labels the order is the table's; labels are appended to ``labels``.
        """
        num_threads = min(hardware.usable_cores(), _MAX_THREADS)
        with Pipeline(
            self._batches(ids, num_threads),
            [[lambda edges: self._map(edges, ids)]],
            limit=_QUEUED_BATCHES * num_threads,
            num_threads=num_threads,
            adaptive=False,
        ) as decoded:
            for edges in decoded:
                if edges.mapped is None or edges.batch is None:
                    continue
                if self.labels is not None:
                    self.labels.add(edges.batch)
                edges.batch = None
                yield edges.mapped

    def _batches(self, ids: vertex_ids.IdMap, num_threads: int) -> "Iterator[_DecodedEdges]":
        types = self._csv_types(ids)
        row_bytes = _ROW_BYTES + 8 * (self.features.num_features if self.features else 0)
        if self.features is not None or self.labels is not None:  # their rows are in table order
            return (
                _DecodedEdges(_Share(iter([batch])))
                for batch in self.table.batches(list(types), types, row_bytes)
            )
        # Any order is fine, since in-neighbor lists are sorted.
        shares = self.table.shares(list(types), types, row_bytes, num_threads)
        return _interleave([_Share(batches) for batches in shares])

    def _csv_types(self, ids: vertex_ids.IdMap) -> dict[str, Any]:
        """Return the Arrow type to parse each CSV column as, by column name."""
        import pyarrow  # takes a while, and a run whose store exists needs none

        types = dict.fromkeys(self.ends, vertex_ids.csv_id_type(self.id_type, ids.type))
        if self.weight is not None:
            types[self.weight] = pyarrow.float64()
        for columns in (self.features, self.labels):
            if columns is not None:
                types |= columns.csv_types
        return types

    def _map(self, edges: "_DecodedEdges", ids: vertex_ids.IdMap) -> None:
        batch = edges.batch = edges.share.next()
        if batch is not None:
            src, dst = (ids.find(batch, end) for end in self.ends)
            weights = None if self.weight is None else _weights(batch, self.weight)
            features = None if self.features is None else self.features.of_batch(batch)
            edges.mapped = MappedEdges(src, dst, weights, features)


class _Share:
    """Iterator over the batches of a part of a table; threads advance it in turn."""

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
    """Next batch of a part of a table, read and mapped to vertices; None until decoded."""

    def __init__(self, share: _Share) -> None:
        self.share = share
        self.batch: Batch | None = None
        self.mapped: MappedEdges | None = None


def _interleave(shares: Sequence[_Share]) -> Iterator[_DecodedEdges]:
    """Yield a batch to decode of each part of a table in turn, until all parts have ended."""
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
            f"{batch.locate(index)}: {brief(column)}: expected a weight of at least 0 in the range "
            f"of float32, got {batch.columns[column][index]}"
        )
    return values
