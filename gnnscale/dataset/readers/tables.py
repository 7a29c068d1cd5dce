"""Tables of vertices and edges, CSV or Parquet: what databases and data frames write."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gnnscale.config import ConfigError, check_choice
from gnnscale.dataset.base import Dataset
from gnnscale.dataset.ids import write_ids
from gnnscale.dataset.storage.space import check_space, size
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.dataset.tables.arrays import floats, refuse_nulls
from gnnscale.dataset.tables.batch import Batch
from gnnscale.dataset.tables.features import FeatureColumns
from gnnscale.dataset.tables.files import table_files
from gnnscale.dataset.tables.ids import ID_TYPES, IdColumn, IdMap, csv_id_type
from gnnscale.dataset.tables.labels import LABEL_KINDS, LabelColumn, SplitColumn
from gnnscale.dataset.tables.table import Table
from gnnscale.errors import shown
from gnnscale.graph import GraphError
from gnnscale.prefetch import Pipeline

__all__ = ["Tables"]

_LOG = logging.getLogger(__name__)
#: Name of the column of weights that may be missing.
_WEIGHT = "weight"
#: Bytes a vertex, beside its id: label, part of the split, in-degree, where its list begins.
_VERTEX_BYTES = 48
#: Batches of edges that are decoded, mapped and stored at a time.
_AHEAD = 3
_Mapped: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[np.float32] | None]"


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
        label: column of the labels; null is unknown.
        label_kind: one of ``LABEL_KINDS``. By itself, a column of texts or whole numbers is one of
            classes, and any other of values.
        split_column: column of words that say which part a vertex is in.
        features: columns of numbers, or of lists of numbers; None for all columns that are not
            named otherwise.
        source: column of the ids that edges come from.
        target: column of the ids that edges go to.
        weight: column of the weights of edges, read where there is one of the default's name; None
            where every edge counts the same.
        delimiter: one character between the values of CSV.
    """

    vertices: str | None = None
    edges: str | None = None
    id: str = "id"
    id_type: str = "auto"
    label: str = "label"
    label_kind: str = "auto"
    split_column: str = "split"
    features: list[str] | None = None
    source: str = "source"
    target: str = "target"
    weight: str | None = _WEIGHT
    delimiter: str = ","

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.id_type", self.id_type, ID_TYPES)
        check_choice("dataset.label_kind", self.label_kind, LABEL_KINDS)
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n':
            raise ConfigError(
                f"dataset.delimiter={shown(repr(self.delimiter))}: one character of ASCII, and "
                "neither a quote nor a line end"
            )
        taken = (self.id, self.label, self.split_column)
        for column in self.features or ():
            if column in taken or (self.features or []).count(column) > 1:
                raise ConfigError(f"dataset.features: {shown(column)} is named twice")
        if self.features == []:
            raise ConfigError("dataset.features=[]: name a column, or null for all others")

    def raw_files(self) -> list[Path]:
        """Return the files of the vertices, and those of the edges."""
        return [*self._files("vertices", self.vertices), *self._files("edges", self.edges)]

    def _files(self, table: str, name: str | None) -> list[Path]:
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(f"dataset.raw={folder}: no folder with vertices and edges")
        return table_files(folder, table, name)

    def _table(self, table: str, name: str | None) -> Table:
        return Table(self._files(table, name), self.delimiter, self.memory_bytes)

    def read(self, writer: StoreWriter) -> None:
        """Push the vertices, then the edges."""
        vertices, edges = self._table("vertices", self.vertices), self._table("edges", self.edges)
        columns = self._feature_columns(vertices)
        edge_columns = self._edge_columns(edges)
        ids = self._read_vertices(vertices, writer)
        self._say_memory(vertices, ids, writer)
        for src, dst, weights in self._mapped(edges, edge_columns, ids):
            writer.add_edges(src, dst, weights=weights, source=edges.path)
        del ids
        writer.write_features(
            columns.rows(),
            num_features=columns.num_features,
            dtype=columns.dtype,
            source=vertices.path,
        )

    def _edge_columns(self, table: Table) -> list[str]:
        """Return the columns of the edges: source, target and perhaps weight."""
        columns = [table.require("source", self.source), table.require("target", self.target)]
        if self.weight is not None and (self.weight != _WEIGHT or _WEIGHT in table.names):
            columns.append(table.require("weight", self.weight))
        return columns

    def _mapped(self, table: Table, columns: list[str], ids: IdMap) -> Iterator[_Mapped]:
        """Yield sources and targets as vertices, and weights; files are decoded ahead, in threads.

        Raises:
            GraphError: an id is none of a vertex, or a weight not allowed; names the row.
        """
        import pyarrow  # takes a while, and a run whose store exists needs none

        source, target, *weight = columns
        types = {column: csv_id_type(self.id_type, ids.type) for column in (source, target)}
        types |= {column: pyarrow.float64() for column in weight}

        def map_ends(edges: _Edges) -> None:
            batch, edges.batch = edges.batch, None
            assert batch is not None
            weights = _weights(batch, weight[0]) if weight else None
            edges.mapped = ids.find(batch, source), ids.find(batch, target), weights

        decoded = map(_Edges, table.batches(columns, types, 32))
        with Pipeline(decoded, [[map_ends]], limit=_AHEAD, adaptive=False) as mapped:
            for edges in mapped:
                yield edges.mapped

    def _feature_columns(self, table: Table) -> FeatureColumns:
        named = (self.id, self.label, self.split_column)
        names = self.features or [name for name in table.names if name not in named]
        for name in names:
            table.require("features", name)
        if not names:
            raise GraphError(
                f"{table.path}: has no column of features beside {', '.join(map(shown, named))}"
            )
        return FeatureColumns(table, names)

    def _read_vertices(self, table: Table, writer: StoreWriter) -> IdMap:
        """Set number, labels and split of the vertices; keep their ids in the store."""
        import pyarrow

        ids = IdColumn(table.require("id", self.id), self.id_type)
        labels = LabelColumn(table.require("label", self.label), self.label_kind)
        split = None
        columns = [self.id, self.label]
        types = {self.id: csv_id_type(self.id_type, table.types[self.id])}
        types[self.label] = _csv_label_type(table.types[self.label])
        if self.split == "published":
            self._require_split(table)
            split = SplitColumn(self.split_column)
            columns.append(self.split_column)
            types[self.split_column] = pyarrow.string()
        for batch in table.batches(columns, types, 64):
            ids.add(batch)
            labels.add(batch)
            if split is not None:
                split.add(batch)
        writer.set_num_vertices(ids.num_vertices, source=table.path)
        values, names = labels.finish(ids)
        num_classes = None if names is None else len(names)
        writer.set_labels(values, num_classes=num_classes, source=table.path)
        if names is not None:
            writer.notes["classes"] = names
        if split is not None:
            writer.set_split(*split.finish(values, ids), source=table.path)
        found = ids.map()
        if found.array is not None:
            writer.notes["ids"] = write_ids(writer.path, found.array)
            found.array = None
        return found

    def _require_split(self, table: Table) -> None:
        try:
            table.require("split_column", self.split_column)
        except GraphError as error:
            raise GraphError(f"{error}; or set dataset.split=random") from None

    def _say_memory(self, vertices: Table, ids: IdMap, writer: StoreWriter) -> None:
        each = _VERTEX_BYTES * writer.num_vertices
        batches = 12 * vertices.batch_bytes
        check_space(f"{vertices.path}: {writer.num_vertices} vertices", writer.path, memory=each)
        _LOG.info(
            "%s: %s vertices; memory: %s for ids, %s for other data of vertices, up to %s for "
            "reading, then up to %s for sorting edges",
            vertices.path,
            f"{writer.num_vertices:,}",
            *map(size, (ids.num_bytes, each, batches, self.memory_bytes)),
        )


class _Edges:
    """A batch of edges on its way: as it is decoded, then sources, targets and weights."""

    def __init__(self, batch: Batch) -> None:
        self.batch: Batch | None = batch
        self.mapped: _Mapped = (np.empty(0), np.empty(0), None)


def _weights(batch: Batch, column: str) -> NDArray[np.float32]:
    """Return weights of edges, finite and not negative."""
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


def _csv_label_type(guessed: Any) -> Any:
    """Return the Arrow type that labels of CSV are parsed as: numbers of any kind, or texts."""
    from pyarrow import float64, string, types

    numeric = types.is_integer(guessed) or types.is_floating(guessed) or types.is_null(guessed)
    return float64() if numeric else string()
