"""Reading of the table of edges into a graph store: ends, weights, features and labels."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, Int64Array, brief, hardware, pyarrow
from gnnscale.core.artifact import files
from gnnscale.data.readers.column_reading import (
    label_columns,
    log_unread,
    survey_edges,
)
from gnnscale.data.readers.table_options import WEIGHT, TableOptions
from gnnscale.data.storage import StoreWriter
from gnnscale.data.tables.batch import Batch
from gnnscale.data.tables.label_columns import LabelColumns
from gnnscale.data.tables.table import Table, mapped
from gnnscale.data.tables.time_columns import TimeColumn
from gnnscale.data.tables.vertex_ids import IdMap, csv_id_type, max_id_bytes

_Result = TypeVar("_Result")
#: Threads that look up ids, at most, and batches in the queue per thread.
MAX_THREADS, QUEUED_BATCHES = 8, 4
#: Bytes of a row with two ids and a weight, about.
ROW_BYTES = 32
#: Bytes of disk per edge: row, both ends, label and split.
_EDGE_ROW_BYTES = 28
#: Bytes of memory per edge: raw label, stored label and split.
_EDGE_LABEL_BYTES = 32


class _MappedEdges(NamedTuple):
    """Batch of edges whose ids are mapped to vertices, without those left out."""

    batch: Batch  #: rows of the table
    src: Array  #: ``[num_edges]`` source vertices
    dst: Array  #: ``[num_edges]`` destination vertices
    weights: Float32Array | None  #: ``[num_edges]``. None: edges have no weights.
    features: Float32Array | None  #: ``[num_edges, num_features]``. None: no features.
    times: Int64Array | None  #: ``[num_edges]``. None: edges have no times of their own
    num_unknown: int  #: edges left out for an unknown end
    num_empty: int  #: edges left out for an empty feature


class EdgeReader:
    """Reader of the table of edges, in batches that threads map to vertices.

    Columns of features go into the notes of ``writer``; columns that are not read are logged.
    ``id_type`` is one of ``ID_TYPES``; ``changes`` gets what was filled or left out, with counts.
    """

    def __init__(
        self,
        options: TableOptions,
        table: Table,
        id_type: str,
        writer: StoreWriter,
        changes: list[str],
    ) -> None:
        self._options, self._table, self._writer = options, table, writer
        self._columns = options.column_options(edges=True)
        self._id_type, self._changes = id_type, changes
        #: whether edges with an unknown end are left out, which are else refused
        self.drops_unknown = False
        ids = options.ids
        self._ends = table.require("source", ids.source), table.require("target", ids.target)
        self._weight = None
        if options.weight is not None and (options.weight != WEIGHT or WEIGHT in table.names):
            self._weight = table.require("weight", options.weight)
        self._time = None
        if options.edge_time is not None:
            self._time = TimeColumn(table, options.edge_time, options.time_unit, "edge_time")
            writer.time_unit = self._time.unit
        self._labels = label_columns(self._columns, table)
        names = [table.require("edge_features", name) for name in options.edge_features or ()]
        labels = self._labels.csv_types if self._labels else ()
        used = {*self._ends, self._weight, options.edge_time, *names, *labels}
        log_unread(table, used, "edge_features")
        self._features = survey_edges(self._columns, table, changes) if names else None
        if self._features is not None:
            writer.notes["edge_columns"] = self._features.described()
        self._check_space()

    def _check_space(self) -> None:
        """Raise NoSpaceError if features and labels of the edges exceed the free memory or disk."""
        num_edges, has_labels = self._table.num_rows(), self._labels is not None
        if num_edges is None or not (self._features or has_labels):
            return
        what = f"{self._table.path}: features and labels of about {num_edges} edges"
        row = _EDGE_ROW_BYTES + 4 * (self._features.num_features if self._features else 0)
        memory = _EDGE_LABEL_BYTES * num_edges * has_labels
        files.check_space(what, self._writer.path, memory=memory, disk=row * num_edges)

    def unknown_ids(self, ids: IdMap) -> Any:
        """Return the ids that stand only in the edges, sorted, an Arrow array, in a pass.

        GraphError: all ids in the edges are unknown, or unknown ids take too much memory.
        """

        def look_up(batch: Batch) -> list[tuple[Any, bool]]:
            return [ids.unknown(batch, end) for end in self._ends]

        max_bytes = max_id_bytes(files.total_bytes(self._table.paths))
        unknown, has_known = pyarrow.array([], ids.type), False
        arrays: list[Any] = []
        for columns in self._map(look_up, self._end_types(ids)):
            arrays += [array for array, _ in columns]
            has_known |= any(has_other for _, has_other in columns)
            if sum(map(len, arrays)) > len(unknown):
                unknown, arrays = pyarrow.concat_arrays([unknown, *arrays]).unique(), []
                if unknown.nbytes > max_bytes:
                    raise GraphError(
                        f"{self._table.path}: ids that are no ids of vertices take over "
                        f"{max_bytes} bytes; dataset.unknown_ids=drop leaves out their edges"
                    )
        unknown = pyarrow.concat_arrays([unknown, *arrays]).unique()
        self._table.problems.settle()
        if not has_known and len(unknown) and not self._table.problems.exist:
            raise GraphError(
                f"{self._table.path}: {self._ends[0]} and {self._ends[1]} hold no id of the "
                f"{ids.size} vertices, such as {brief(repr(ids.all_ids()[0].as_py()))}, but ids "
                f"such as {brief(repr(unknown[0].as_py()))}; name the columns by dataset.id, "
                "dataset.source and dataset.target"
            )
        return unknown.take(pyarrow.compute.sort_indices(unknown))

    def write(self, ids: IdMap) -> None:
        """Push the edges in the table's order, whose ends ``ids`` maps to vertices, and labels.

        All problems of the table are a GraphError; edges are not pushed after the first.
        """
        writer, source, problems = self._writer, self._table.path, self._table.problems
        writer.edges.lists_edges = self._options.edge_label is not None
        writer.edges.counts_repeated = True
        types = self._end_types(ids) | (self._labels.csv_types if self._labels else {})
        if self._weight is not None:
            types[self._weight] = pyarrow.float64()
        if self._features is not None and not problems.exist:
            types |= self._features.csv_types
        if self._time is not None:
            types |= self._time.csv_types
        num_kept = num_unknown = num_empty = 0
        for edges in self._map(lambda batch: self._mapped(batch, ids), types):
            num_kept += len(edges.src)
            num_unknown += edges.num_unknown
            num_empty += edges.num_empty
            if self._labels is not None and len(edges.src):
                self._labels.add(edges.batch)
            if len(edges.src) and not problems.exist:
                _, src, dst, weights, features, times, *_ = edges
                data: dict[str, Any] = {"weights": weights, "features": features, "times": times}
                writer.add_edges(src, dst, **data, source=source)
        problems.raise_any()
        self._note(num_kept + num_unknown + num_empty, num_unknown, num_empty)
        if self._labels is not None:
            self._write_labels(self._labels)

    def _note(self, num_edges: int, num_unknown: int, num_empty: int) -> None:
        """Add the numbers of edges left out to the changes; GraphError: no edge is left."""
        if num_edges == num_unknown + num_empty:
            raise GraphError(
                f"{self._table.path}: no edge is left of {num_edges:,}: {num_unknown:,} have an "
                f"end that is no vertex, {num_empty:,} an empty number"
            )
        option = "missing" if self._options.missing == "drop" else "unknown_ids"
        for count, reason in (
            (num_unknown, f"an end is no vertex (dataset.{option}=drop)"),
            (num_empty, "a number is empty (dataset.missing=drop)"),
        ):
            if count:
                self._changes.append(f"{count:,} of {num_edges:,} edges left out, since {reason}")

    def _write_labels(self, columns: LabelColumns) -> None:
        labels, names = columns.labels()
        self._table.problems.raise_any()
        parts = columns.parts(labels, unlabeled=self._options.unlabelled, what="edges")
        self._writer.set_edge_labels(labels, source=self._table.path)
        if names is not None:
            self._writer.notes["edge_classes"] = names
        if parts is not None:
            self._writer.set_edge_split(*parts, source=self._table.path)

    def _end_types(self, ids: IdMap) -> dict[str, Any]:
        """Return the Arrow type to parse the ids of CSV as, by column name."""
        return dict.fromkeys(self._ends, csv_id_type(self._id_type, ids.type))

    def _map(self, work: Callable[[Batch], _Result], types: Mapping[str, Any]) -> Iterator[_Result]:
        """Yield ``work``, done by threads, of each batch of the columns ``types``."""
        row_bytes = ROW_BYTES + 8 * (self._features.num_features if self._features else 0)
        batches = self._table.batches(list(types), types, row_bytes)
        num_threads = min(hardware.usable_cores(), MAX_THREADS)
        limit = QUEUED_BATCHES * num_threads
        return mapped(work, batches, num_threads=num_threads, limit=limit)

    def _mapped(self, batch: Batch, ids: IdMap) -> _MappedEdges:
        """Return the edges of a batch, without those left out; report those refused."""
        num_rows = len(batch)
        ends = [ids.find(batch, end) for end in self._ends]
        mask = np.ones(num_rows, np.bool_)
        for end, vertices in zip(self._ends, ends, strict=True):
            is_unknown = vertices < 0
            mask &= ~is_unknown
            if not self.drops_unknown and is_unknown.any():
                ids.report_unknown(batch, end, is_unknown)
        num_known = int(np.count_nonzero(mask))
        features = None if self._table.problems.exist else self._features
        if features is not None and self._options.missing == "drop":
            mask &= ~features.empty(batch)
        batch = batch.filtered(mask)
        src, dst = (vertices[mask] for vertices in ends)
        return _MappedEdges(
            *(batch, src, dst),
            None if self._weight is None else read_weights(batch, self._weight),
            None if features is None else features.of_batch(batch),
            None if self._time is None else self._time.read(batch),
            num_unknown=num_rows - num_known,
            num_empty=num_known - len(src),
        )


def read_weights(batch: Batch, column: str) -> Float32Array:
    """Return the weights of a batch; report those that are empty, negative or not finite."""
    empty = batch.report_nulls(column)
    values = batch.floats(column, np.float32)
    batch.report(
        ~(empty | ((values >= 0) & np.isfinite(values))),
        (column, "weight"),
        lambda index: (
            f"{brief(column)}: expected a weight of at least 0 in the range of float32, got "
            f"{batch.columns[column][index]}"
        ),
    )
    return values
