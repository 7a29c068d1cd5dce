"""The classes of MUSAE's target files: numbers, or words that are numbered here."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gnnscale.dataset.checks import check_num_vertices, quoted
from gnnscale.errors import shown
from gnnscale.graph import GraphError

__all__ = ["read_labels"]

_LABELS = ("ml_target", "page_type", "mature", "target")
_IDS = ("new_id", "id")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_Row = tuple[int, str, str]  # line, id, label


def read_labels(data: bytes, *, source: str, num_bytes: int) -> NDArray[np.int64]:
    """Return the class of every vertex.

    Classes are all numbers, or all words, which are then numbered in alphabetical order: one
    damaged number among numbers must not number all classes anew.

    Args:
        data: comma-separated text with a header that names a column of ids and one of classes.
        source: named in errors.
        num_bytes: of all files, which limits the number of vertices.

    Raises:
        GraphError: ids are not 0 to the number of rows, each once; or a row or a class is damaged.
            Names the line.
    """
    rows = []
    for row in _rows(data, source):
        if not _WHOLE.fullmatch(row[1]):
            raise GraphError(
                f"{source}: line {row[0]} has the id {quoted(row[1])}, ids must be whole numbers"
            )
        rows.append(row)
    check_num_vertices(len(rows), num_bytes, source)
    ids = np.array([int(text) for _, text, _ in rows], np.int64)
    if not np.array_equal(np.sort(ids), np.arange(len(ids))):
        raise GraphError(f"{source}: ids must be 0 to {len(ids) - 1}, each once")
    labels = np.empty(len(ids), np.int64)
    labels[ids] = _numbered(rows, source)
    return labels


def _rows(data: bytes, source: str) -> Iterator[_Row]:
    """Yield line number, id and class of each row."""
    try:
        table = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
        header = next(table, [])
        id_place, label_place = (_place(header, names, source) for names in (_IDS, _LABELS))
        for row in table:
            if row and len(row) != len(header):
                raise GraphError(
                    f"{source}: line {table.line_num} has {len(row)} columns, the header "
                    f"{len(header)}"
                )
            if row:
                yield table.line_num, row[id_place], row[label_place].strip()
    # Not UTF-8, a field of over 128 KiB, a stray NUL.
    except (UnicodeDecodeError, csv.Error) as error:
        raise GraphError(f"{source}: cannot be read as csv ({error})") from None


def _place(header: list[str], names: tuple[str, ...], source: str) -> int:
    """Return the place of the first of ``names`` that is a column."""
    for name in names:
        if name in header:
            return header.index(name)
    raise GraphError(
        f"{source}: columns are {', '.join(map(shown, header[:20]))}; needed are one of "
        f"{', '.join(_IDS)} and one of {', '.join(_LABELS)}"
    )


def _numbered(rows: list[_Row], source: str) -> NDArray[np.int64]:
    """Return the number of each row's class."""
    words = [row for row in rows if not _WHOLE.fullmatch(row[2])]
    for line, _, label in words:
        if not label or _is_number(label):
            raise GraphError(
                f"{source}: line {line} has the class {quoted(label)}, allowed are whole numbers "
                "and words"
            )
    if words and len(words) < len(rows):
        numbers = [row for row in rows if _WHOLE.fullmatch(row[2])]
        line, _, label = (words if len(words) <= len(numbers) else numbers)[0]
        raise GraphError(
            f"{source}: line {line} has the class {quoted(label)}; classes must be all numbers or "
            f"all words, {len(words)} of {len(rows)} are words"
        )
    if words:
        # Not as an array of text, in which each takes the room of the longest.
        order = {label: place for place, label in enumerate(sorted({row[2] for row in rows}))}
        return np.array([order[label] for _, _, label in rows], np.int64)
    return np.array([int(label) for _, _, label in rows], np.int64)


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True
