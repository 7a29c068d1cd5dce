"""Tables of vertices and edges, CSV or Parquet, as databases and data frames write them."""

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import numpy as np

from gnnscale.artifact import files
from gnnscale.core import ConfigError, GraphError, check_choice, hardware, prefetch, shown
from gnnscale.core.arrays import Array, Float32Array
from gnnscale.dataset.base import Dataset
from gnnscale.dataset.storage import remote, store
from gnnscale.dataset.tables import ids as id_columns
from gnnscale.dataset.tables.batch import Batch, floats, refuse_nulls, table_files, usual_names
from gnnscale.dataset.tables.columns import (
    LABEL_KINDS,
    UNLABELLED,
    FeatureColumns,
    LabelColumn,
    SplitColumn,
)
from gnnscale.dataset.tables.ids import ID_TYPES
from gnnscale.dataset.tables.table import Table
from gnnscale.options.found import names

_LOG = logging.getLogger(__name__)
#: Name of the column of weights that may be missing.
_WEIGHT = "weight"
#: Bytes a vertex, beside its id: label, part of the split, in-degree, where its list begins.
_VERTEX_BYTES = 48
#: And of a table of ids, at most; texts come on top.
_ID_BYTES = 64
#: Threads that decode edges and find their ids, at most, and batches that each may be ahead.
_MAX_THREADS = 8
_AHEAD = 4
_Mapped: TypeAlias = "tuple[Array, Array, Float32Array | None]"


@dataclass(frozen=True, kw_only=True)
class Tables(Dataset):
    """A folder with a table of vertices and a table of edges.

    A table is ``vertices.parquet``, ``vertices.csv`` or ``vertices.csv.gz``, or a folder
    ``vertices`` of such files; ``edges`` likewise. Vertex ``i`` is row ``i`` of the vertices.

    Attributes:
        vertices: file or folder of the vertices in ``raw``, None for the names above.
        edges: likewise.
        id: column of the vertices' ids, which are whole numbers or texts.
        id_type: one of ``ID_TYPES``; ``string`` reads whole numbers as texts too.
        label: column of the labels, null for unknown; None for a graph without labels, which
            has no split either.
        label_kind: one of ``LABEL_KINDS``. By default, a column of texts or whole numbers has
            classes, and any other has values.
        split_column: column of words that name the part of each vertex.
        unlabelled: one of ``UNLABELLED``: vertices in the split to train or validate that have no
            label are refused, or taken out of it.
        features: columns of numbers, or of lists of numbers; None for all columns without another
            role.
        source: column of the ids that edges come from.
        target: column of the ids that edges go to.
        weight: column of the weights of edges, read if there is one of the default's name; None
            if every edge counts the same.
        delimiter: one character between the values of CSV, or ``tab``.
    """

    vertices: str | None = field(default=None, metadata=names("text"))
    edges: str | None = field(default=None, metadata=names("text"))
    id: str = field(default="id", metadata=names("text"))
    id_type: str = "auto"
    label: str | None = field(default="label", metadata=names("text"))
    label_kind: str = "auto"
    split_column: str = field(default="split", metadata=names("text"))
    unlabelled: str = "refuse"
    features: list[str] | None = field(default=None, metadata=names("text"))
    source: str = field(default="source", metadata=names("text"))
    target: str = field(default="target", metadata=names("text"))
    weight: str | None = field(default=_WEIGHT, metadata=names("text"))
    delimiter: str = ","

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, name in (("vertices", self.vertices), ("edges", self.edges)):
            path = PurePath("." if name is None else name)
            if name == "" or path.is_absolute() or ".." in path.parts:
                raise ConfigError(
                    f"dataset.{option}={shown(name)}: must be a file or folder in dataset.raw"
                )
        check_choice("dataset.id_type", self.id_type, ID_TYPES)
        check_choice("dataset.label_kind", self.label_kind, LABEL_KINDS)
        check_choice("dataset.unlabelled", self.unlabelled, UNLABELLED)
        if self.delimiter != "tab" and (
            len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'
        ):
            raise ConfigError(
                f"dataset.delimiter={shown(repr(self.delimiter))}: allowed are tab, and one "
                "character of ASCII that is neither a quote nor a line end"
            )
        if self.label is None and self.split == "random":
            raise ConfigError("dataset.split=random: dataset.label=null leaves nothing to split")
        taken = (self.id, self.label, self.split_column)
        for column in self.features or ():
            if column in taken or (self.features or []).count(column) > 1:
                raise ConfigError(f"dataset.features: {shown(column)} is named twice")

    def raw_files(self) -> list[Path]:
        """Return the files of the vertices, and those of the edges."""
        return [*self._files("vertices", self.vertices), *self._files("edges", self.edges)]

    def raw_path(self) -> Path:
        """Return the folder with the tables, copied first if it is remote."""
        if self.raw is None or not remote.is_remote(self.raw):
            return super().raw_path()
        names = (("vertices", self.vertices), ("edges", self.edges))
        wanted = [[name] if name else usual_names(table) for table, name in names]
        return remote.copy_remote(self.raw, [*wanted[0], *wanted[1]])

    def _files(self, table: str, name: str | None) -> list[Path]:
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(f"dataset.raw={folder}: no folder with vertices and edges")
        return table_files(folder, table, name)

    def _table(self, table: str, name: str | None) -> Table:
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return Table(self._files(table, name), delimiter, self.memory_bytes)

    def read(self, writer: store.StoreWriter) -> None:
        """Push the vertices, then the edges."""
        vertices, edges = self._table("vertices", self.vertices), self._table("edges", self.edges)
        columns = self._feature_columns(vertices)
        if columns is not None:
            writer.notes["columns"] = columns.described()
        edge_columns = self._edge_columns(edges)
        expected = vertices.num_rows()
        if expected is not None:  # else told when they are decompressed
            self._check_memory(vertices, expected, writer.path)
        ids = self._read_vertices(vertices, writer)
        if expected is None:
            self._check_memory(vertices, writer.num_vertices, writer.path)
        for src, dst, weights in self._mapped(edges, edge_columns, ids):
            writer.add_edges(src, dst, weights=weights, source=edges.path)
        del ids
        if columns is None:
            writer.set_featureless(source=vertices.path)
            return
        width, dtype = columns.num_features, columns.dtype
        writer.write_features(columns.rows(), num_features=width, dtype=dtype, source=vertices.path)

    def _edge_columns(self, table: Table) -> list[str]:
        columns = [table.require("source", self.source), table.require("target", self.target)]
        if self.weight is not None and (self.weight != _WEIGHT or _WEIGHT in table.names):
            columns.append(table.require("weight", self.weight))
        return columns

    def _mapped(self, table: Table, columns: list[str], ids: id_columns.IdMap) -> Iterator[_Mapped]:
        """Yield sources and targets as vertices, and weights, as threads have decoded them.

        Raises:
            GraphError: an id belongs to no vertex, or a weight is not allowed; names the row.
        """
        import pyarrow  # takes a while, and a run whose store exists needs none

        source, target, *weight = columns
        types = {
            column: id_columns.csv_id_type(self.id_type, ids.type) for column in (source, target)
        }
        types |= {column: pyarrow.float64() for column in weight}

        def map_ends(edges: _Edges) -> None:
            batch = edges.share.next()
            if batch is not None:
                weights = _weights(batch, weight[0]) if weight else None
                edges.mapped = ids.find(batch, source), ids.find(batch, target), weights

        num_threads = min(hardware.usable_cores(), _MAX_THREADS)
        shares = [_Share(each) for each in table.shares(columns, types, 32, num_threads)]
        # Edges may come in any order, since lists are sorted.
        with prefetch.Pipeline(
            _in_turn(shares),
            [[map_ends]],
            limit=_AHEAD * num_threads,
            num_threads=num_threads,
            adaptive=False,
        ) as mapped:
            for edges in mapped:
                if edges.mapped is not None:
                    yield edges.mapped

    def _feature_columns(self, table: Table) -> FeatureColumns | None:
        """Return the columns of features; None if vertices have no features."""
        names = self.features
        if names is None:
            named = (table.require("id", self.id), self.label, self.split_column)
            names = [name for name in table.names if name not in named]
        for name in names:
            table.require("features", name)
        if not names:
            return None
        return FeatureColumns(table, names, named=self.features is not None)

    def _read_vertices(self, table: Table, writer: store.StoreWriter) -> id_columns.IdMap:
        """Set number, labels and split of the vertices; keep their ids in the store."""
        import pyarrow

        max_bytes = id_columns.max_id_bytes(
            files.total_bytes(self._files("vertices", self.vertices))
        )
        ids = id_columns.IdColumn(table.require("id", self.id), self.id_type, max_bytes)
        types = {self.id: id_columns.csv_id_type(self.id_type, table.types[self.id])}
        labels = split = None
        if self.label is not None:
            _require_or(table, "label", self.label, "dataset.label=null")
            labels = LabelColumn(self.label, self.label_kind)
            types[self.label] = _csv_label_type(table.types[self.label])
        if self.label is not None and self.split == "published":
            _require_or(table, "split_column", self.split_column, "dataset.split=random")
            split = SplitColumn(self.split_column)
            types[self.split_column] = pyarrow.string()
        for batch in table.batches(list(types), types, 64):
            for column in (ids, labels, split):
                if column is not None:
                    column.add(batch)
        writer.set_num_vertices(ids.num_vertices, source=table.path)
        values = None if labels is None else _set_labels(writer, labels, ids, table.path)
        if values is None:
            writer.set_unlabelled()
        elif split is not None:
            parts = split.finish(values, ids, unlabelled=self.unlabelled)
            writer.set_split(*parts, source=table.path)
        found = ids.map()
        if found.array is not None:
            writer.notes["ids"] = id_columns.write_ids(writer.path, found.array)
            found.array = None
        return found

    def _check_memory(self, table: Table, num_vertices: int, folder: Path) -> None:
        """Log and check the memory that it takes; ``num_vertices`` may be an estimate."""
        each = _VERTEX_BYTES * num_vertices
        ids = _ID_BYTES * num_vertices
        files.check_space(f"{table.path}: about {num_vertices} vertices", folder, memory=each + ids)
        _LOG.info(
            "%s: about %s vertices; memory: up to %s for their ids, beside texts, %s for their "
            "other data, %s for reading, then up to %s for edges",
            table.path,
            f"{num_vertices:,}",
            *map(files.size, (ids, each, 12 * table.batch_bytes, self.memory_bytes)),
        )


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


class _Edges:
    """A batch of a share, once it is decoded: sources, targets and weights."""

    def __init__(self, share: _Share) -> None:
        self.share = share
        self.mapped: _Mapped | None = None


def _in_turn(shares: Sequence[_Share]) -> Iterator[_Edges]:
    """Yield a future batch of each share, in turn until all have ended."""
    while any(not share.ended for share in shares):
        for share in shares:
            if not share.ended:
                yield _Edges(share)


def _weights(batch: Batch, column: str) -> Float32Array:
    refuse_nulls(batch, column)
    values = floats(batch, column, np.float32)
    good = (values >= 0) & np.isfinite(values)
    if not good.all():
        index = int(good.argmin())
        raise GraphError(
            f"{batch.place(index)}: {shown(column)} is {batch.columns[column][index]}, allowed are "
            "finite numbers from 0 on"
        )
    return values


def _set_labels(
    writer: store.StoreWriter, column: LabelColumn, ids: id_columns.IdColumn, source: Path
) -> Array:
    """Give the writer classes and their names, or values to regress on; return them."""
    labels, names = column.finish(ids)
    if labels.dtype.kind == "f":
        writer.set_labels(labels, metric="rmse", source=source)
        return labels
    num_classes = None if names is None else len(names)
    writer.set_labels(labels, num_classes=num_classes, source=source)
    if names is not None:
        writer.notes["classes"] = names
    return labels


def _require_or(table: Table, option: str, column: str, other: str) -> None:
    """Refuse a table without ``column``, and name the option for such tables."""
    try:
        table.require(option, column)
    except GraphError as error:
        raise GraphError(f"{error}; if there is none, set {other}") from None


def _csv_label_type(guessed: Any) -> Any:
    """Return the Arrow type that labels of CSV are parsed as: numbers of any kind, or texts."""
    from pyarrow import float64, string, types

    numeric = types.is_integer(guessed) or types.is_floating(guessed) or types.is_null(guessed)
    return float64() if numeric else string()
