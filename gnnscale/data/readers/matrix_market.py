"""Sparse matrices in the Matrix Market format, as SciPy and the SuiteSparse collection write it."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from gnnscale.core import GraphError, brief
from gnnscale.core.artifact import file_bytes
from gnnscale.data import validation
from gnnscale.data.formats.text import csv_columns, head_lines
from gnnscale.data.readers.edge_list import EdgeFormat
from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.writer import StoreWriter

_BANNER = re.compile(
    r"%%MatrixMarket\s+matrix\s+coordinate\s+(pattern|real|integer)"
    r"\s+(general|symmetric|skew-symmetric)\s*",
    re.IGNORECASE,
)
_SIZES = re.compile(r"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class MatrixMarket(EdgeFormat):
    """Square coordinate matrix in a .mtx or .mtx.gz; entry ``(i, j)`` is an edge from i to j.

    Row and column 1 are vertex 0. A symmetric or skew-symmetric matrix has both directions of each
    edge. Values are weights, unless ``weighted`` is False.
    """

    weighted: bool = True

    _raw_form: ClassVar[str] = "the .mtx file"

    def read_edges(self, file: Path, num_rows: int | None, writer: StoreWriter) -> None:
        """Push the number of vertices, then the entries of the matrix as edges."""
        header = _Header.read(file)
        if num_rows not in (None, header.num_vertices):
            raise GraphError(
                f"{file}: a matrix of {header.num_vertices} rows, for {num_rows} rows of features "
                "or labels"
            )
        writer.set_num_vertices(header.num_vertices, source=file)
        has_weights, count = self.weighted and header.field != "pattern", 0
        types = ["int64", "int64", *(["float64"] if has_weights else [])]
        for row, column, *values in csv_columns(
            file, types, source=file, delimiter=" ", skip_lines=header.num_lines
        ):
            count += len(row)
            if values and (header.symmetry == "skew-symmetric" or (values[0] < 0).any()):
                raise GraphError(
                    f"{file}: has negative values, and weights of edges are at least 0; "
                    "dataset.weighted=false leaves values out"
                )
            weights = values[0] if values else None
            source = f"{file} (ids less 1)"
            writer.add_edges(row - 1, column - 1, weights=weights, source=source)
        if count != header.num_entries:
            raise GraphError(f"{file}: {count} entries, its header says {header.num_entries}")

    def written_options(self) -> StoreOptions:
        """Return the options of the store; it has reverse edges if the matrix is symmetric."""
        symmetric = _Header.read(self.raw_files()[0]).symmetry != "general"
        return replace(self, undirected=True) if symmetric else self


@dataclass(frozen=True, kw_only=True)
class _Header:
    """Head of a Matrix Market file."""

    field: str  #: kind of the values: pattern, real or integer
    symmetry: str  #: general, symmetric or skew-symmetric
    num_vertices: int
    num_entries: int
    num_lines: int  #: lines before the first entry

    @classmethod
    def read(cls, file: Path) -> "_Header":
        """Read the head of ``file``; GraphError: another kind of file, or no square matrix."""
        lines = head_lines(file, source=file)
        banner = _BANNER.fullmatch(lines[0])
        if banner is None:
            raise GraphError(
                f"{file}: line 1 is '{brief(lines[0])}', expected '%%MatrixMarket matrix "
                "coordinate', a field (pattern, real, integer) and a symmetry (general, symmetric, "
                "skew-symmetric); dataset=edge_list reads edges without this line"
            )
        number = next(
            (n for n, line in enumerate(lines) if line.strip() and line.lstrip()[0] != "%"), 0
        )
        sizes = _SIZES.fullmatch(lines[number])
        if sizes is None:
            raise GraphError(
                f"{file}: line {number + 1} is '{brief(lines[number])}', expected the numbers of "
                "rows, columns and entries"
            )
        num_rows, num_columns, num_entries = map(int, sizes.groups())
        if num_rows != num_columns or not num_entries:
            raise GraphError(
                f"{file}: expected a square matrix with entries, got {num_rows} x {num_columns} "
                f"with {num_entries}"
            )
        validation.check_num_vertices(num_rows, file_bytes(file), file)
        return cls(
            field=banner[1].lower(),
            symmetry=banner[2].lower(),
            num_vertices=num_rows,
            num_entries=num_entries,
            num_lines=number + 1,
        )
