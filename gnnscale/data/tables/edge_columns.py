"""Columns of the table of edges: ends, weights, features and labels, decoded by threads."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from gnnscale.core import (
    Array,
    Float32Array,
    GraphError,
    Int64Array,
    Pipeline,
    brief,
    hardware,
    pyarrow,
)
from gnnscale.data.tables import vertex_ids
from gnnscale.data.tables.batch import Batch, RowLocations, floats, refuse_nulls
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LabelColumn, SplitColumn, csv_label_type
from gnnscale.data.tables.table import Table

_Result = TypeVar("_Result")
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
    num_edges: int  #: rows of the table, with those left out
    num_unknown: int  #: edges left out for an unknown end
    num_empty: int  #: edges left out for an empty feature
    labeled: Batch | None  #: batch with the columns of labels and split. None: no labels.


class EdgeLabelColumns:
    """Collector of edge labels and, if there is a ``split``, of edges' parts from all batches."""

    def __init__(self, table: Table, label: LabelColumn, split: SplitColumn | None) -> None:
        self._label = label
        self._split = split
        self._locations = RowLocations()
        #: Arrow type that each column of CSV is parsed as.
        self.csv_types: dict[str, Any] = {label.name: csv_label_type(table.types[label.name])}
        self._table = table
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
        self._table.problems.raise_any()
        if self._split is None:
            return labels, names, None
        parts = self._split.finish(
            labels, self._locations, unlabeled=unlabeled, source=self._table.path, what="edges"
        )
        return labels, names, parts


@dataclass(kw_only=True)
class EdgeTable:
    """Table of edges, with its columns to read."""

    table: Table
    ends: tuple[str, str]  #: columns of the source ids and the destination ids
    weight: str | None  #: column of the weights. None: edges have no weights.
    features: FeatureColumns | None = None  #: None: edges have no features
    labels: EdgeLabelColumns | None = None  #: None: edges have no labels
    id_type: str = "auto"  #: one of ``ID_TYPES``
    #: whether edges with an unknown end are left out, which are else refused
    drops_unknown: bool = False
    drops_empty: bool = False  #: whether edges with an empty feature are left out
    num_edges: int = 0  #: edges read so far
    num_unknown: int = 0  #: edges left out so far for an unknown end
    num_empty: int = 0  #: edges left out so far for an empty feature

    def mapped(self, ids: vertex_ids.IdMap) -> Iterator[MappedEdges]:
        """Yield the edges in batches, decoded by threads, whose ends ``ids`` maps to vertices.

        With features or labels the order is the table's; labels are appended to ``labels``. All
        problems of the table are a GraphError at the end; edges are not yielded after the first.
        """
        in_order = self.features is not None or self.labels is not None
        for edges in self._decoded(
            self._csv_types(ids), lambda batch: self._map(batch, ids), in_order=in_order
        ):
            self.num_edges += edges.num_edges
            self.num_unknown += edges.num_unknown
            self.num_empty += edges.num_empty
            if self.labels is not None and edges.labeled is not None and len(edges.labeled):
                self.labels.add(edges.labeled)
            if len(edges.src) and not self.table.problems.found:
                yield edges
        self.table.problems.raise_any()
        if self.num_edges == self.num_unknown + self.num_empty:
            raise GraphError(
                f"{self.table.path}: no edge is left of {self.num_edges:,}: {self.num_unknown:,} "
                f"have an end that is no vertex, {self.num_empty:,} an empty number"
            )

    def unknown_ids(self, ids: vertex_ids.IdMap, max_bytes: int) -> Any:
        """Return the ids that stand only in the edges, sorted, an Arrow array, in a pass.

        GraphError: all ids in the edges are unknown, or unknown ids take over ``max_bytes``.
        """
        types = dict.fromkeys(self.ends, vertex_ids.csv_id_type(self.id_type, ids.type))

        def look_up(batch: Batch) -> tuple[list[Any], int]:
            found = [ids.unknown(batch, end) for end in self.ends]
            known = sum(int(np.count_nonzero(~is_unknown)) for is_unknown, _ in found)
            return [unknown for _, unknown in found], known

        kept, num_known = pyarrow.array([], ids.type), 0
        arrays: list[Any] = []
        for unknown, known in self._decoded(types, look_up, in_order=False):
            num_known += known
            arrays += [array for array in unknown if len(array)]
            if sum(map(len, arrays)) > len(kept):
                kept, arrays = pyarrow.concat_arrays([kept, *arrays]).unique(), []
                if kept.nbytes > max_bytes:
                    raise GraphError(
                        f"{self.table.path}: ids that are no ids of vertices take over {max_bytes} "
                        "bytes; dataset.unknown_ids=drop leaves out their edges"
                    )
        kept = pyarrow.concat_arrays([kept, *arrays]).unique()
        self.table.problems.settle()
        if not num_known and len(kept):
            raise GraphError(
                f"{self.table.path}: {self.ends[0]} and {self.ends[1]} hold no id of the "
                f"{ids.size} vertices, such as {brief(repr(ids.all_ids()[0].as_py()))}, but ids "
                f"such as {brief(repr(kept[0].as_py()))}; name the columns by dataset.id, "
                "dataset.source and dataset.target"
            )
        return kept.take(pyarrow.compute.sort_indices(kept))

    def _decoded(
        self, types: dict[str, Any], work: Callable[[Batch], _Result], *, in_order: bool
    ) -> Iterator[_Result]:
        """Yield what ``work`` returns, in a thread, for each batch of the columns ``types``."""
        num_threads = min(hardware.usable_cores(), _MAX_THREADS)

        def decode(edges: _DecodedEdges[_Result]) -> None:
            batch = edges.share.next()
            if batch is not None:
                edges.result = work(batch)

        with Pipeline(
            self._batches(types, num_threads, in_order=in_order),
            [[decode]],
            limit=_QUEUED_BATCHES * num_threads,
            num_threads=num_threads,
            adaptive=False,
        ) as decoded:
            for edges in decoded:
                result, edges.result = edges.result, None
                if result is not None:
                    yield result

    def _batches(
        self, types: dict[str, Any], num_threads: int, *, in_order: bool
    ) -> "Iterator[_DecodedEdges[Any]]":
        row_bytes = _ROW_BYTES + 8 * (self.features.num_features if self.features else 0)
        if in_order:
            return (
                _DecodedEdges(_Share(iter([batch])))
                for batch in self.table.batches(list(types), types, row_bytes)
            )
        # Any order is fine, since in-neighbor lists are sorted.
        shares = self.table.shares(list(types), types, row_bytes, num_threads)
        return _interleave([_Share(batches) for batches in shares])

    def _csv_types(self, ids: vertex_ids.IdMap) -> dict[str, Any]:
        """Return the Arrow type to parse each CSV column as, by column name."""
        types = dict.fromkeys(self.ends, vertex_ids.csv_id_type(self.id_type, ids.type))
        if self.weight is not None:
            types[self.weight] = pyarrow.float64()
        if self.features is not None and not self.table.problems.found:
            types |= self.features.csv_types
        if self.labels is not None:
            types |= self.labels.csv_types
        return types

    def _map(self, batch: Batch, ids: vertex_ids.IdMap) -> MappedEdges:
        """Return the edges of a batch, without those left out; report those refused."""
        num_edges = len(batch)
        found = [ids.find(batch, end) for end in self.ends]
        keep = np.ones(num_edges, np.bool_)
        for end, vertices in zip(self.ends, found, strict=True):
            is_unknown = vertices < 0
            if is_unknown.any():
                keep &= ~is_unknown
                if not self.drops_unknown:
                    ids.refuse_unknown(batch, end, is_unknown)
        num_unknown = num_edges - int(np.count_nonzero(keep))
        features = None if self.table.problems.found else self.features
        if features is not None and self.drops_empty:
            keep &= ~features.empty(batch)
        src, dst = (vertices[keep] for vertices in found)
        batch = batch.kept(keep)
        return MappedEdges(
            src,
            dst,
            None if self.weight is None else _weights(batch, self.weight),
            None if features is None else features.of_batch(batch),
            num_edges=num_edges,
            num_unknown=num_unknown,
            num_empty=num_edges - num_unknown - len(src),
            labeled=None if self.labels is None else batch,
        )


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


class _DecodedEdges(Generic[_Result]):
    """Next batch of a part of a table, and what is made of it; None until decoded."""

    def __init__(self, share: _Share) -> None:
        self.share = share
        self.result: _Result | None = None


def _interleave(shares: Sequence[_Share]) -> Iterator[_DecodedEdges[Any]]:
    """Yield a batch to decode of each part of a table in turn, until all parts have ended."""
    while any(not share.ended for share in shares):
        for share in shares:
            if not share.ended:
                yield _DecodedEdges(share)


def _weights(batch: Batch, column: str) -> Float32Array:
    """Return the weights of a batch; report those that are empty, negative or not finite."""
    empty = refuse_nulls(batch, column)
    values = floats(batch, column, np.float32)
    batch.report(
        ~(empty | ((values >= 0) & np.isfinite(values))),
        (column, "weight"),
        lambda index: (
            f"{brief(column)}: expected a weight of at least 0 in the range of float32, got "
            f"{batch.columns[column][index]}"
        ),
    )
    return values
