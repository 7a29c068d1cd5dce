"""GraphML files, as networkx, igraph and Gephi write them, read as tables of nodes and edges."""

from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from gnnscale.core import GraphError
from gnnscale.data import base
from gnnscale.data.formats import graphml
from gnnscale.data.readers.tables import Tables
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.tables.table import Table

#: What messages call each table.
_SHOWN = {"vertices": "nodes", "edges": "edges"}


@dataclass(frozen=True, kw_only=True)
class GraphMl(Tables):
    """File .graphml, or a .gz, whose attributes of nodes and edges are read like columns of tables.

    The options of ``Tables`` name attributes. Vertex ``i`` is the ``i``-th node; predictions have
    the nodes' ids. An undirected graph has both directions of each edge.
    """

    # Nodes and edges have fixed columns, and are in one file: no options of theirs.
    vertices: ClassVar[None] = None  # type: ignore[misc]
    edges: ClassVar[None] = None  # type: ignore[misc]
    id: ClassVar[str] = "id"  # type: ignore[misc]
    id_type: ClassVar[str] = "auto"  # type: ignore[misc]
    source: ClassVar[str] = "source"  # type: ignore[misc]
    target: ClassVar[str] = "target"  # type: ignore[misc]
    unknown_ids: ClassVar[str] = "refuse"  # type: ignore[misc]
    delimiter: ClassVar[str] = ","  # type: ignore[misc]
    decimal: ClassVar[str] = "."  # type: ignore[misc]
    _raw_form: ClassVar[str] = "the .graphml file"
    #: File to name in messages, in place of the tables that it is converted to.
    _shown: ClassVar[Path] = Path()

    def raw_files(self) -> list[Path]:
        """Return the file."""
        path = self.raw_path()
        if path.is_dir():
            raise GraphError(f"dataset.raw={self.raw}: expected a .graphml file, got a folder")
        return [path]

    def raw_path(self) -> Path:
        """Return the path of the file."""
        return base.Dataset.raw_path(self)

    def read(self, writer: StoreWriter) -> None:
        """Push vertices and edges, converted to tables of a temporary folder first."""
        (file,) = self.raw_files()
        with TemporaryDirectory(dir=writer.path) as folder:
            graphml.write_tables(file, Path(folder))
            tables = copy(self)
            object.__setattr__(tables, "raw", folder)
            object.__setattr__(tables, "_shown", file)
            try:
                Tables.read(tables, writer)
            except GraphError as error:
                text = str(error)
                for table, shown in _SHOWN.items():
                    text = text.replace(f"{folder}/{table}.parquet", f"{file}: {shown}")
                raise type(error)(text) from None

    def written_options(self) -> StoreOptions:
        """Return the options of the store; it has reverse edges if the graph is undirected."""
        is_directed = graphml.is_directed(self.raw_files()[0])
        return self if is_directed else replace(self, undirected=True)

    def _table(self, table: str, name: str | None) -> Table:
        found = super()._table(table, name)
        found.path = Path(f"{self._shown}: {_SHOWN[table]}")
        return found
