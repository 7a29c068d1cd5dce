"""SNAP edge lists (Leskovec & Krevl, 2014): text with one edge per line, ids with gaps."""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array
from gnnscale.data.formats.text import csv_columns, head_lines, refuse_lone_cr
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.structure_only import Structure

_LOG = logging.getLogger(__name__)
#: First characters of comments, of SNAP and of KONECT.
_COMMENT = ("#", "%")
_COMMA = re.compile(r"\s*[+-]?\d+\s*,")


@dataclass(frozen=True, kw_only=True)
class Snap(Structure):
    """File ``<name>.txt`` or ``<name>.txt.gz``; comments (# or %) at its start are skipped.

    Blanks and tabs, or a comma, separate the ids. Vertex ``i`` is the ``i``-th smallest id. The
    file is read twice, first for the ids.
    """

    _raw_form: ClassVar[str] = (
        "the file <name>.txt or <name>.txt.gz, as https://snap.stanford.edu/data has it, or the "
        "folder"
    )

    def read_edges(self, writer: StoreWriter) -> None:
        """Push the number of vertices, then the edges; a line ``a b`` is an edge from a to b."""
        (file,) = self.raw_files()
        edge, delimiter, _ = _first_edge(file)
        if len(edge.split("," if delimiter == "," else None)) > 2:
            _LOG.info("%s: columns after the first two are not read", file)
        ids = _distinct(_read(file), file)
        writer.set_num_vertices(len(ids), source=file)
        # Without gaps, ids are vertices.
        contiguous = ids[-1] == len(ids) - 1
        for ends in _read(file):
            src, dst = ends if contiguous else (np.searchsorted(ids, end) for end in ends)
            writer.add_edges(src, dst, source=file)

    def raw_files(self) -> list[Path]:
        """Return the path of the edge list."""
        path = self.raw_path()
        if path.is_file():
            return [path]
        for file in (path / f"{self.name}.txt", path / f"{self.name}.txt.gz"):
            if file.exists():
                return [file]
        raise GraphError(f"{path}: has neither {self.name}.txt nor {self.name}.txt.gz")


def _read(file: Path) -> Iterator[list[Array]]:
    _, delimiter, num_comments = _first_edge(file)
    return csv_columns(
        file, ["int64"] * 2, source=file, delimiter=delimiter, skip_lines=num_comments
    )


def _first_edge(file: Path) -> tuple[str, str, int]:
    """Return the first line that is not a comment, its delimiter, and its index from 0."""
    lines = head_lines(file, source=file)
    if lines and lines[0].startswith("%%MatrixMarket"):
        raise GraphError(
            f"{file}: expected an edge list, got a Matrix Market file; scipy.io.mmread reads it, "
            "and gnnscale.from_arrays((m.row, m.col), features) takes the matrix m"
        )
    num_comments = next(
        (number for number, line in enumerate(lines) if not line.startswith(_COMMENT)), len(lines)
    )
    if num_comments == len(lines):
        raise GraphError(f"{file}: has no edges")
    for number, line in enumerate(lines[: num_comments + 1], 1):
        refuse_lone_cr(line, number, file)
    edge = lines[num_comments]
    delimiter = " " if " " in edge.strip() and "\t" not in edge.strip() else "\t"
    return edge, "," if _COMMA.match(edge) else delimiter, num_comments


def _distinct(edges: Iterator[list[Array]], file: Path) -> Int64Array:
    """Return the distinct vertex ids of ``edges``, ascending; GraphError: an id is negative."""
    ids = np.empty(0, np.int64)
    waiting: list[Array] = []
    for ends in edges:
        waiting.append(np.unique(np.concatenate(ends)))
        if sum(map(len, waiting)) > max(len(ids), 1 << 22):
            ids, waiting = np.unique(np.concatenate([ids, *waiting])), []
    ids = np.unique(np.concatenate([ids, *waiting]))
    if ids[0] < 0:
        raise GraphError(f"{file}: vertex id {ids[0]} is negative")
    return ids
