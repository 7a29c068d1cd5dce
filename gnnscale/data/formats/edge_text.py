"""Edge lists in text, one edge per line: their head, ids and columns."""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, brief
from gnnscale.data.formats.text import COMMENTS, csv_columns, head_lines, refuse_lone_cr

_LOG = logging.getLogger(__name__)
_COMMA = re.compile(r"\s*[^\s,]+\s*,")
_WHOLE = re.compile(r"[+-]?\d+")
_SEPARATED = re.compile(r"\s*\d+\s*([^\s\d.,+-])\s*\d+.*")
#: Lines of the head in which lists of neighbors are looked for.
_SAMPLE_LINES = 1000
_FRACTION = re.compile(r"[+-]?\d+\.\d*(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class EdgeText:
    """Edge list in a text file, or a .gz; blanks and tabs, or a comma, separate the columns.

    Lines that begin with # or % are comments.
    """

    file: Path
    delimiter: str  #: comma, blank or tab; blank and tab stand for any run of both
    skip_lines: int  #: lines before the first edge
    first: tuple[str, ...]  #: columns of the first edge

    @classmethod
    def open(cls, file: Path) -> "EdgeText":
        """Read the head of ``file``; a line of names before the first edge is left out, and logged.

        GraphError: there is no edge, ids are no whole numbers, or the file is no edge list.
        """
        lines = head_lines(file, source=file)
        if lines and lines[0].startswith("%%MatrixMarket"):
            raise GraphError(
                f"{file}: expected an edge list, got a Matrix Market file; dataset=matrix_market "
                "reads it"
            )
        edges = (
            number
            for number, line in enumerate(lines)
            if line.strip() and not line.lstrip().startswith(COMMENTS)
        )
        first = next(edges, None)
        if first is None:
            raise GraphError(f"{file}: has no edges")
        for number, line in enumerate(lines[: first + 1], 1):
            refuse_lone_cr(line, number, file)
        second = next(edges, first)
        _refuse_lists(lines[first : first + _SAMPLE_LINES], file)
        if not _has_ids(lines[first]) and _has_ids(lines[second]):
            _LOG.info("%s: line %d, '%s', names columns", file, first + 1, brief(lines[first]))
            first = second
        line = lines[first]
        columns = _columns(line)
        for text in columns[:2]:
            _check_id(text, f"{file}: line {first + 1} is '{brief(line)}'")
        delimiter = " " if " " in line.strip() and "\t" not in line.strip() else "\t"
        comma = "," if _COMMA.match(line) else delimiter
        return cls(file=file, delimiter=comma, skip_lines=first, first=tuple(columns))

    def columns(self, types: tuple[str, ...] = ("int64", "int64")) -> Iterator[list[Array]]:
        """Yield the first columns as ``types`` in blocks; GraphError, with the line, otherwise."""
        return csv_columns(
            self.file,
            types,
            source=self.file,
            delimiter=self.delimiter,
            skip_lines=self.skip_lines,
        )

    def ids(self) -> Int64Array:
        """Return the distinct vertex ids of all edges, ascending; GraphError: one is negative."""
        ids = np.empty(0, np.int64)
        waiting: list[Array] = []
        for ends in self.columns():
            waiting.append(np.unique(np.concatenate(ends)))
            if sum(map(len, waiting)) > max(len(ids), 1 << 22):
                ids, waiting = np.unique(np.concatenate([ids, *waiting])), []
        ids = np.unique(np.concatenate([ids, *waiting]))
        if ids[0] < 0:
            raise GraphError(f"{self.file}: vertex id {ids[0]} is negative")
        return ids


def _columns(line: str) -> list[str]:
    if _COMMA.match(line):
        return [text.strip() for text in line.split(",")]
    return line.split()


def _has_ids(line: str) -> bool:
    return all(_WHOLE.fullmatch(text) or _FRACTION.fullmatch(text) for text in _columns(line)[:2])


def _check_id(text: str, what: str) -> None:
    """Raise GraphError, which begins with ``what``, unless ``text`` is a whole number."""
    if _FRACTION.fullmatch(text):
        raise GraphError(
            f"{what}: expected whole numbers as ids; numpy.savetxt(FILE, edges, fmt='%d') writes "
            "them"
        )
    if (separated := _SEPARATED.fullmatch(text)) is not None:
        raise GraphError(
            f"{what}: expected blanks, tabs or a comma between ids, got '{separated[1]}'"
        )
    if not _WHOLE.fullmatch(text):
        raise GraphError(
            f"{what}: expected whole numbers as ids; dataset=tables takes texts, from edges.csv "
            "with the header source,target and vertices.csv with the header id"
        )


def _refuse_lists(lines: list[str], file: Path) -> None:
    """Raise GraphError if lines are lists of neighbors: different numbers of whole numbers."""
    rows = [
        line.split() for line in lines if line.strip() and not line.lstrip().startswith(COMMENTS)
    ]
    counts = set(map(len, rows))
    if len(counts) > 1 and max(counts) > 3 and all(map(_WHOLE.fullmatch, chain(*rows))):
        raise GraphError(
            f"{file}: lines have {min(counts)} to {max(counts)} whole numbers, as lists of "
            "neighbors have; networkx.read_adjlist(FILE) reads them, and "
            "networkx.write_edgelist(graph, FILE, data=False) writes an edge per line"
        )
