"""Tables of vertices and edges, CSV or Parquet, as databases and data frames write them."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from gnnscale.core import GraphError, brief
from gnnscale.data import base
from gnnscale.data.readers.table_options import WEIGHT, TableOptions
from gnnscale.data.readers.table_reading import read_tables
from gnnscale.data.storage import StoreWriter, remote
from gnnscale.data.tables import roles
from gnnscale.data.tables.batch import table_files, usual_names
from gnnscale.data.tables.categories import Column
from gnnscale.data.tables.feature_columns import log_columns
from gnnscale.data.tables.table import Table
from gnnscale.graph.store_format import read_meta

_LOG = logging.getLogger(__name__)
#: Options that a graph to predict does not take from the run; its columns are in the run's schema.
_OF_EACH_GRAPH = (
    *("name", "raw", "store", "features", "categories", "edge_features", "edge_categories"),
    *("split", "train_fraction", "valid_fraction", "split_seed"),
    *("missing", "standardize", "feature_dtype", "memory_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class Tables(TableOptions):
    """Folder with a table of vertices and a table of edges.

    A table is ``vertices.parquet``, ``vertices.csv`` or ``vertices.csv.gz``, or a folder
    ``vertices`` of such files; ``edges`` accordingly. Vertex ``i`` is row ``i`` of the vertices.
    Example::

        Tables(name="fraud", raw="fraud/", label="is_fraud", edge_features=["amount"]).open()
    """

    _is_users: ClassVar[bool] = True
    _raw_form: ClassVar[str] = "the folder with a table of vertices and a table of edges"

    def with_options(self, trained: base.GraphSource, named: Collection[str]) -> base.GraphSource:
        """Return these options, and those of a run's tables on how to read tables.

        Options that the user has ``named``, or that differ from their defaults, stay.
        """
        if not isinstance(trained, Tables) or self._is_prepared():
            return self
        changes = {
            option.name: getattr(trained, option.name)
            for option in fields(self)
            if option.name not in {*_OF_EACH_GRAPH, *named}
            and getattr(self, option.name) == option.default != getattr(trained, option.name)
        }
        if changes:
            shown = {name: "null" if value is None else value for name, value in changes.items()}
            listed = ", ".join(f"{name}={brief(value)}" for name, value in shown.items())
            _LOG.info("dataset: %s, as the run has it", listed)
        return replace(self, **changes)

    def to_predict(
        self,
        columns: Sequence[Column] | None,
        edge_columns: Sequence[Column] | None,
        *,
        splits: bool,
    ) -> base.Dataset:
        """Return these options for predictions by a run trained on the given columns.

        Unset ``features`` and ``edge_features`` become the run's columns, unless ``store`` is
        prepared; such a column is then no label (unless ``splits``) and no weight.
        """
        changes: dict[str, Any] = {}
        if not self._is_prepared():
            if columns and self.features is None:
                names, changes["features"] = _column_names(columns)
                changes["categories"] = self.categories or names
            if edge_columns and self.edge_features is None:
                names, changes["edge_features"] = _column_names(edge_columns)
                changes["edge_categories"] = self.edge_categories or names
            if self.label in changes.get("features", ()) and not splits:
                changes["label"] = None
            if self.weight == WEIGHT and WEIGHT in changes.get("edge_features", ()):
                changes["weight"] = None
        tables = replace(self, **changes) if changes else self
        return super(Tables, tables).to_predict(columns, edge_columns, splits=splits)

    def prepare(self, force: bool = False) -> Path:
        """Convert the tables to a graph store, unless it is up to date, and return its directory.

        With ``force`` the store is written again. Log the columns of features, and what was filled,
        added or left out. If the user set no ``features``, warn of columns
        that an earlier release stored as features and the default now leaves out.
        """
        path = super().prepare(force)
        if self.features is None:
            columns = read_meta(path).entries.get("columns")
            roles.warn_of_store(columns, self.categories or (), path)
        log_columns(path)
        return path

    def raw_files(self) -> list[Path]:
        """Return the files of the vertices, then the files of the edges."""
        return [*self._files("vertices", self.vertices), *self._files("edges", self.edges)]

    def raw_path(self) -> Path:
        """Return the local folder with the tables; if ``raw`` is remote, copy them first."""
        if self.raw is None or not remote.is_remote(self.raw):
            return super().raw_path()
        names = (("vertices", self.vertices), ("edges", self.edges))
        paths = [[name] if name else usual_names(table) for table, name in names]
        return remote.copy_remote(self.raw, [*paths[0], *paths[1]])

    def _files(self, table: str, name: str | None) -> list[Path]:
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(f"dataset.raw={folder}: expected a folder with vertices and edges")
        return table_files(folder, table, name)

    def _table(self, table: str, name: str | None) -> Table:
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return Table(self._files(table, name), delimiter, self.memory_bytes, self.decimal)

    def vertex_table(self) -> tuple[Table, str] | None:
        """Return the raw table of the vertices, and its column of ids; None: no such column."""
        return None if self.id is None else (self._table("vertices", self.vertices), self.id)

    def read(self, writer: StoreWriter) -> None:
        """Push vertices with labels and split, edges with their data, then vertex features."""
        vertices = self._table("vertices", self.vertices)
        read_tables(self, vertices, self._table("edges", self.edges), writer)


def _column_names(columns: Sequence[Column]) -> tuple[list[str] | None, list[str]]:
    """Return the names of category columns (None if there are none), and of all columns."""
    categories = [column.name for column in columns if column.categories is not None]
    return categories or None, [column.name for column in columns]
