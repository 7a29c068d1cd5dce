"""MUSAE datasets on SNAP (Rozemberczki et al., 2019): CSV edges and targets, JSON features."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, ClassVar

import numpy as np

from gnnscale.core import GraphError, Int64Array, brief
from gnnscale.core.artifact.files import parse_json, read_file, total_bytes
from gnnscale.core.config.untrusted import names
from gnnscale.data import base, validation
from gnnscale.data.formats.archive import Archive
from gnnscale.data.formats.sparse import CsrMatrix, sparse_matrix
from gnnscale.data.formats.text import csv_columns
from gnnscale.data.storage import remote
from gnnscale.data.storage.writer import StoreWriter

_LABELS = ("ml_target", "page_type", "mature", "target")
_IDS = ("new_id", "id")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(
    r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)
_Row = tuple[int, str, str]  # line, id, label


def read_labels(data: bytes, *, source: str, num_bytes: int) -> Int64Array:
    """Return the classes ``[num_vertices]`` in a target file, comma-separated text with a header.

    A row has the id of its vertex and a class. Classes are all numbers, or all words, which are
    numbered in alphabetical order. A mixture is refused, so that one damaged number does not
    renumber all classes. ``num_bytes``, the size of all files, limits the number of vertices.
    """
    rows = list(_rows(data, source))
    for line, text, _ in rows:
        if not _WHOLE.fullmatch(text):
            raise GraphError(
                f"{source}: line {line} has the id {validation.quoted(text)}, ids must be whole "
                "numbers"
            )
    validation.check_num_vertices(len(rows), num_bytes, source)
    ids = np.array([int(text) for _, text, _ in rows], np.int64)
    if not np.array_equal(np.sort(ids), np.arange(len(ids))):
        raise GraphError(f"{source}: ids must be 0 to {len(ids) - 1}, each once")
    labels = np.empty(len(ids), np.int64)
    labels[ids] = _class_numbers(rows, source)
    return labels


def _rows(data: bytes, source: str) -> Iterator[_Row]:
    try:
        table = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
        header = next(table, [])
        id_index, label_index = (_column_index(header, names, source) for names in (_IDS, _LABELS))
        for row in table:
            if row and len(row) != len(header):
                raise GraphError(
                    f"{source}: line {table.line_num} has {len(row)} columns, the header "
                    f"{len(header)}"
                )
            if row:
                yield table.line_num, row[id_index], row[label_index].strip()
    # Text that is not UTF-8, a field of over 128 KiB, or a stray NUL.
    except (UnicodeDecodeError, csv.Error) as error:
        raise GraphError(f"{source}: cannot be read as csv ({error})") from None


def _column_index(header: list[str], names: tuple[str, ...], source: str) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    raise GraphError(
        f"{source}: columns are {', '.join(map(brief, header[:20]))}; needed are one of "
        f"{', '.join(_IDS)} and one of {', '.join(_LABELS)}"
    )


def _class_numbers(rows: list[_Row], source: str) -> Int64Array:
    words = [row for row in rows if not _WHOLE.fullmatch(row[2])]
    for line, _, label in words:
        if not label or _NUMBER.fullmatch(label):
            raise GraphError(
                f"{source}: line {line} has the class {validation.quoted(label)}, allowed are "
                "whole numbers and words"
            )
    if not words:
        return np.array([int(label) for _, _, label in rows], np.int64)
    if len(words) < len(rows):
        numbers = [row for row in rows if _WHOLE.fullmatch(row[2])]
        line, _, label = min(words, numbers, key=len)[0]
        raise GraphError(
            f"{source}: line {line} has the class {validation.quoted(label)}; classes must "
            f"be all numbers or all words, {len(words)} of {len(rows)} are words"
        )
    # No text array: each entry would take the bytes of the longest.
    order = {label: number for number, label in enumerate(sorted({row[2] for row in rows}))}
    return np.array([order[label] for _, _, label in rows], np.int64)


_ADDRESS = "https://snap.stanford.edu/data"

_ARCHIVES = {
    "github": "git_web_ml",
    "facebook": "facebook_large",
    "lastfm_asia": "lastfm_asia",
    "deezer_europe": "deezer_europe",
    "twitch": "twitch",
}

_ENDINGS = ("target.csv", "edges.csv", "features.json")
#: Limit of an unpacked member: allowance plus ratio times its packed size. Numbers in text shrink
#: to a quarter; JSON takes up to 25 times as much in memory.
_ALLOWANCE, _RATIO = 16 << 20, 4
_EDGE_ALLOWANCE, _EDGE_RATIO = 64 << 20, 20
_ADVICE = "unpack the archive and name the folder"


@dataclass(frozen=True, kw_only=True)
class Musae(base.Dataset):
    """Zip archive or folder with ``*edges.csv``, ``*features.json`` and ``*target.csv``.

    Features are lists of the columns that are 1.

    Attributes:
        part: word in the file names of one of several graphs, such as a language of Twitch.
    """

    split: str = "random"
    part: str = field(default="", metadata=names("text"))
    has_split: ClassVar[bool] = False
    _layout: ClassVar[str] = "musae"
    _raw_form: ClassVar[str] = (
        "the zip archive or the folder with *{target.csv,edges.csv,features.json}"
    )

    def published(self) -> remote.Published | None:
        """Return the archive on SNAP to download; None if SNAP has no graph of this name."""
        if self.name not in _ARCHIVES:
            return None
        file = remote.RemoteFile(url=f"{_ADDRESS}/{_ARCHIVES[self.name]}.zip", unpack=True)
        return remote.Published(name=f"musae-{self.name}", license="cite the paper", files=(file,))

    def raw_files(self) -> list[Path]:
        """Return the zip archive, or the three files in the folder: targets, edges and features."""
        path = _only_zip(self.raw_path())
        if not path.is_dir():
            return [path]
        names = [str(file.relative_to(path)) for file in _files_in(path)]
        return [path / self._single_file(names, ending, path) for ending in _ENDINGS]

    def read(self, writer: StoreWriter) -> None:
        """Push labels, edges and features into ``writer``; the target file has a row per vertex."""
        files = self.raw_files()
        num_bytes = total_bytes(files)
        with ExitStack() as stack:
            archive = stack.enter_context(Archive(files[0])) if len(files) == 1 else None
            target, edges, features = (
                [_File(str(file)) for file in files]
                if archive is None
                else [
                    _File(self._single_file(archive.names, end, files[0]), archive)
                    for end in _ENDINGS
                ]
            )
            labels = read_labels(target.read(), source=target.source, num_bytes=num_bytes)
            writer.set_num_vertices(len(labels), source=target.source)
            writer.set_labels(labels, source=target.source)
            with edges.open() as stream:
                ends = csv_columns(stream, ["int64"] * 2, skip_lines=1, source=edges.source)
                for src, dst in ends:
                    writer.add_edges(src, dst, source=edges.source)
            matrix = _read_features(features, len(labels), num_bytes)
        writer.write_matrix(matrix, source=features.source)

    def _single_file(self, names: list[str], ending: str, path: Path) -> str:
        matches = [name for name in names if name.endswith(ending) and self.part in name]
        if len(matches) != 1:
            pattern = f"*{self.part}*{ending}" if self.part else f"*{ending}"
            hint = "dataset.part=WORD selects by name" if matches else f"needed is {self._raw_form}"
            raise GraphError(f"{path}: {len(matches)} files {pattern}, expected one; {hint}")
        return matches[0]


class _File:
    """One file of a MUSAE graph, in a folder or as a member of a zip archive."""

    def __init__(self, name: str, archive: Archive | None = None) -> None:
        self._name, self._archive = name, archive
        self.source = name if archive is None else f"{archive.path}/{name}"

    def open(self) -> IO[bytes]:
        """Open the file for reading; GraphError: a zip member that unpacks to too many bytes."""
        if self._archive is None:
            return Path(self._name).open("rb")
        self._archive.check_size(
            self._name, allowance=_EDGE_ALLOWANCE, ratio=_EDGE_RATIO, advice=_ADVICE
        )
        return self._archive.open(self._name)

    def read(self) -> bytes:
        if self._archive is None:
            return read_file(Path(self._name))
        return self._archive.read(self._name, allowance=_ALLOWANCE, ratio=_RATIO, advice=_ADVICE)


def _read_features(file: _File, num_vertices: int, num_bytes: int) -> CsrMatrix:
    lists = parse_json(file.read(), source=file.source)
    ids = validation.vertex_keys(lists, source=file.source)
    if len(ids) and ids.max() >= num_vertices:
        raise GraphError(
            f"{file.source}: vertex id {ids.max()} is out of range, "
            f"the graph has {num_vertices} vertices"
        )
    for vertex, columns in lists.items():
        if not isinstance(columns, list):
            raise GraphError(
                f"{file.source}: features of vertex {vertex} are {validation.quoted(columns)}, "
                "not lists of column numbers"
            )
    what = "not lists of column numbers: columns"
    columns = validation.whole_numbers(list(chain.from_iterable(lists.values())), file.source, what)
    if not len(columns) or columns.min() < 0:
        raise GraphError(
            f"{file.source}: not lists of column numbers, the smallest of {len(columns)} is "
            f"{columns.min(initial=0)}"
        )
    degrees = np.zeros(num_vertices, np.int64)
    degrees[ids] = list(map(len, lists.values()))
    rows = np.repeat(ids, degrees[ids])
    order = np.argsort(rows, kind="stable")
    matrix = sparse_matrix(
        np.ones(len(columns), np.uint8),
        columns[order],
        np.concatenate([[0], np.cumsum(degrees)]),
        num_columns=int(columns.max()) + 1,
        num_bytes=num_bytes,
        source=file.source,
    )
    matrix.data = np.ones(len(matrix.data), np.uint8)  # a column may be listed twice
    return matrix


def _files_in(path: Path) -> list[Path]:
    """Return the files in a folder and in two levels of folders below it."""
    levels = ("*", "*/*", "*/*/*")
    return sorted(file for level in levels for file in path.glob(level) if file.is_file())


def _only_zip(path: Path) -> Path:
    """Return the only .zip in folder ``path`` if it has no target.csv file, else ``path``."""
    if path.is_dir() and not any(file.name.endswith(_ENDINGS[0]) for file in _files_in(path)):
        zips = sorted(path.glob("*.zip"))
        if len(zips) == 1:
            return zips[0]
    return path
