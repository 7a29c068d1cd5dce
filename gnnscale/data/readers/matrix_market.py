"""Sparse matrices in the Matrix Market format, as SciPy and the SuiteSparse collection write it."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from gnnscale.core import Array, GraphError, brief
from gnnscale.core.artifact import file_bytes
from gnnscale.data import validation
from gnnscale.data.formats.text import csv_columns, head_lines
from gnnscale.data.readers.edge_file import EdgeFile
from gnnscale.data.storage import StoreOptions, StoreWriter

_LOG = logging.getLogger(__name__)
#: First words of the header, and the accepted values of the others.
_BANNER = ("%%matrixmarket", "matrix", "coordinate")
_FIELDS = ("pattern", "real", "integer")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")


@dataclass(frozen=True, kw_only=True)
class _Header:
    has_values: bool
    symmetry: str  #: one of ``_SYMMETRIES``
    num_vertices: int
    num_entries: int
    num_lines: int  #: lines before the first entry


@dataclass(frozen=True, kw_only=True)
class MatrixMarket(EdgeFile):
    """Square coordinate matrix in a .mtx or .mtx.gz; entry ``(i, j)`` is an edge from i to j.

    Row and column 1 are vertex 0. A symmetric or skew-symmetric matrix has both directions of each
    edge. Values are weights, unless ``weighted`` is False.
    """

    weighted: bool = True

    _raw_form: ClassVar[str] = "the .mtx file"

    def read_edges(self, file: Path, num_rows: int | None, writer: StoreWriter) -> None:
        """Push the number of vertices, then the entries of the matrix as edges."""
        header = _read_header(file)
        if num_rows not in (None, header.num_vertices):
            raise GraphError(
                f"{file}: a matrix of {header.num_vertices} rows, for {num_rows} rows of features "
                "or labels"
            )
        writer.set_num_vertices(header.num_vertices, source=file)
        reads_values = self.weighted and header.has_values
        if header.has_values and not self.weighted:
            _LOG.info("%s: values are not read (dataset.weighted=false)", file)
        types = ("int64", "int64", "float64") if reads_values else ("int64", "int64")
        count = 0
        for row, column, *values in csv_columns(
            file, types, source=file, delimiter=" ", skip_lines=header.num_lines
        ):
            count += len(row)
            _check_entries(file, header, row, column)
            if values:
                _check_weights(file, header, values[0])
            weights = values[0] if values else None
            writer.add_edges(row - 1, column - 1, weights=weights, source=file)
        if count != header.num_entries:
            raise GraphError(f"{file}: {count} entries, its header says {header.num_entries}")

    def written_options(self) -> StoreOptions:
        """Return the options of the store; it has reverse edges if the matrix is symmetric."""
        symmetric = _read_header(self.raw_files()[0]).symmetry != "general"
        return replace(self, undirected=True) if symmetric else self


def _read_header(file: Path) -> _Header:
    """Return the header of a Matrix Market file; GraphError: it is another kind, or damaged."""
    lines = head_lines(file, source=file)
    words = lines[0].lower().split()
    if words[:1] != [_BANNER[0]]:
        raise GraphError(
            f"{file}: line 1 is '{brief(lines[0])}', expected '%%MatrixMarket matrix coordinate "
            "...'; dataset=edge_list reads edges without a header"
        )
    if tuple(words[:3]) != _BANNER or len(words) != 5:
        dense = "; scipy.io.mmwrite(FILE, scipy.sparse.coo_array(m)) writes a sparse matrix"
        raise GraphError(
            f"{file}: line 1 is '{brief(lines[0])}', expected a matrix in coordinates, its field "
            f"and its symmetry{dense if 'array' in words else ''}"
        )
    for word, allowed in ((words[3], _FIELDS), (words[4], _SYMMETRIES)):
        if word not in allowed:
            raise GraphError(f"{file}: line 1: expected {', '.join(allowed)}, got {brief(word)}")
    number = next(
        (n for n, line in enumerate(lines[1:], 1) if line.strip() and line.lstrip()[0] != "%"), 0
    )
    sizes = lines[number].split()
    if not (
        number and len(sizes) == 3 and all(size.isascii() and size.isdigit() for size in sizes)
    ):
        raise GraphError(
            f"{file}: line {number + 1} is '{brief(lines[number])}', expected the numbers of rows, "
            "columns and entries"
        )
    if max(map(len, sizes)) > 18:
        raise GraphError(f"{file}: line {number + 1} is '{brief(lines[number])}', too large sizes")
    num_rows, num_columns, num_entries = map(int, sizes)
    if num_rows != num_columns:
        raise GraphError(
            f"{file}: expected a square matrix, a row and a column per vertex, got {num_rows} x "
            f"{num_columns}"
        )
    if not num_entries:
        raise GraphError(f"{file}: has no entries, and so no edges")
    validation.check_num_vertices(num_rows, file_bytes(file), file)
    return _Header(
        has_values=words[3] != "pattern",
        symmetry=words[4],
        num_vertices=num_rows,
        num_entries=num_entries,
        num_lines=number + 1,
    )


def _check_entries(file: Path, header: _Header, row: Array, column: Array) -> None:
    """Raise GraphError for a row or column that is not 1 to the number of vertices."""
    wrong = (row < 1) | (row > header.num_vertices) | (column < 1) | (column > header.num_vertices)
    if wrong.any():
        first = int(wrong.argmax())
        raise GraphError(
            f"{file}: entry ({row[first]}, {column[first]}): expected rows and columns from 1 to "
            f"{header.num_vertices}"
        )


def _check_weights(file: Path, header: _Header, values: Array) -> None:
    """Raise GraphError for a value that is no weight."""
    if header.symmetry == "skew-symmetric" or not (values >= 0).all():
        value = "the negative value of a reverse edge (skew-symmetric)"
        if header.symmetry != "skew-symmetric":
            value = str(values[int((~(values >= 0)).argmax())])
        raise GraphError(
            f"{file}: expected values of at least 0 as weights of edges, got {value}; "
            "dataset.weighted=false leaves values out"
        )
