"""GraphML files, as networkx, igraph and Gephi write them, read as tables of nodes and edges."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from gnnscale.core import GraphError
from gnnscale.data.formats import graphml
from gnnscale.data.readers.table_options import TableOptions
from gnnscale.data.readers.table_reading import read_tables
from gnnscale.data.storage import StoreOptions, StoreWriter
from gnnscale.data.tables.table import Table

#: Files of the tables that a file is converted to, and their names in messages.
_TABLES = ((graphml.NODES, "nodes"), (graphml.EDGES, "edges"))


@dataclass(frozen=True, kw_only=True)
class GraphMl(TableOptions):
    """File .graphml, or a .gz, whose attributes of nodes and edges are read like columns of tables.

    Options that name columns name attributes. Vertex ``i`` is the ``i``-th node; predictions have
    the nodes' ids. An undirected graph has both directions of each edge.
    """

    _raw_form: ClassVar[str] = "the .graphml file"

    def raw_files(self) -> list[Path]:
        """Return the file."""
        path = self.raw_path()
        if path.is_dir():
            raise GraphError(f"dataset.raw={self.raw}: expected a .graphml file, got a folder")
        return [path]

    def read(self, writer: StoreWriter) -> None:
        """Push vertices and edges, converted to tables of a temporary folder first."""
        (file,) = self.raw_files()
        with TemporaryDirectory(dir=writer.path) as folder:
            paths = [Path(folder) / name for name, _ in _TABLES]
            graphml.write_tables(file, Path(folder))
            try:
                nodes, edges = (Table([path], ",", self.memory_bytes) for path in paths)
                nodes.path, edges.path = (Path(f"{file}: {name}") for _, name in _TABLES)
                read_tables(self, nodes, edges, writer)
            except GraphError as error:
                text = str(error)
                for path, (_, name) in zip(paths, _TABLES, strict=True):
                    text = text.replace(str(path), f"{file}: {name}")
                raise type(error)(text) from None

    def written_options(self) -> StoreOptions:
        """Return the options of the store; it has reverse edges if the graph is undirected."""
        is_directed = graphml.is_directed(self.raw_files()[0])
        return self if is_directed else replace(self, undirected=True)
