"""Tables of vertices and edges, CSV or Parquet, as databases and data frames write them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from gnnscale.core import ConfigError, GraphError, brief, check_choice
from gnnscale.core.config.typed import MAPPING_HINT
from gnnscale.core.config.untrusted import names
from gnnscale.data.readers.table_files import (
    check_file_name,
    check_marks,
    table_files,
    usual_names,
)
from gnnscale.data.readers.table_options import UNKNOWN_ID_POLICIES, IdOptions, TableOptions
from gnnscale.data.readers.table_reading import read_tables
from gnnscale.data.storage import StoreWriter, remote
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import ID_TYPES

#: Message for a mapping in place of a file.
_BY_TYPE = "expected one file or folder; dataset=typed_tables reads tables by type"


@dataclass(frozen=True, kw_only=True)
class Tables(TableOptions):
    """Folder with a table of vertices and a table of edges.

    A table is ``vertices.parquet``, ``vertices.csv`` or ``vertices.csv.gz``, or a folder
    ``vertices`` of such files; ``edges`` accordingly. Vertex ``i`` is row ``i`` of the vertices.
    Example::

        Tables(name="fraud", raw="fraud/", label="is_fraud", edge_features=["amount"]).open()

    Attributes:
        vertices: file or folder of the vertices in ``raw``. None: one of the names above.
        edges: file or folder of the edges in ``raw``. None: one of the names above.
        id: column of the vertex ids, integers or texts. None: ids are row numbers from 0.
        id_type: one of ``ID_TYPES``; ``string`` reads integers as texts too.
        source: column of the source ids of edges.
        target: column of the destination ids of edges.
        unknown_ids: one of ``UNKNOWN_ID_POLICIES`` for ids that stand only in the edges:
            ``vertices`` makes them vertices without a label, whose features are empty cells;
            ``drop`` leaves out their edges; ``refuse`` raises an error.
        delimiter: one character between the values of CSV, or ``tab``.
        decimal: mark of decimals in CSV, a point or a comma.
    """

    vertices: str | None = field(default=None, metadata=names("text") | {MAPPING_HINT: _BY_TYPE})
    edges: str | None = field(default=None, metadata=names("text") | {MAPPING_HINT: _BY_TYPE})
    id: str | None = field(default="id", metadata=names("text"))
    id_type: str = "auto"
    source: str = field(default="source", metadata=names("text"))
    target: str = field(default="target", metadata=names("text"))
    unknown_ids: str = "vertices"
    delimiter: str = ","
    decimal: str = "."

    _raw_form: ClassVar[str] = "the folder with a table of vertices and a table of edges"

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, name in (("vertices", self.vertices), ("edges", self.edges)):
            if isinstance(name, Mapping):
                raise ConfigError(f"dataset.{option}={brief(name)}: {_BY_TYPE}")
            if name is not None:
                check_file_name(option, name)
        check_choice("dataset.id_type", self.id_type, ID_TYPES)
        check_choice("dataset.unknown_ids", self.unknown_ids, UNKNOWN_ID_POLICIES)
        check_marks(self.delimiter, self.decimal)

    @property
    def ids(self) -> IdOptions:
        """Columns of ids, and how ids are read."""
        return IdOptions(self.id, self.source, self.target, self.id_type, self.unknown_ids)

    def raw_files(self) -> list[Path]:
        """Return the files of the vertices, then the files of the edges."""
        return [*self._files("vertices"), *self._files("edges")]

    def raw_path(self) -> Path:
        """Return the local folder with the tables; if ``raw`` is remote, copy them first."""
        if self.raw is None or not remote.is_remote(self.raw):
            return super().raw_path()
        vertices = [self.vertices] if self.vertices else usual_names("vertices")
        edges = [self.edges] if self.edges else usual_names("edges")
        return remote.copy_remote(self.raw, [*vertices, *edges])

    def _files(self, table: str) -> list[Path]:
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(f"dataset.raw={folder}: expected a folder with vertices and edges")
        return table_files(folder, table, getattr(self, table))

    def _table(self, table: str) -> Table:
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return Table(self._files(table), delimiter, self.memory_bytes, self.decimal)

    def vertex_table(self) -> tuple[Table, str] | None:
        """Return the raw table of the vertices, and its column of ids; None: no such column."""
        return None if self.id is None else (self._table("vertices"), self.id)

    def read(self, writer: StoreWriter) -> None:
        """Push vertices with labels and split, edges with their data, then vertex features."""
        read_tables(self, self._table("vertices"), self._table("edges"), writer)
