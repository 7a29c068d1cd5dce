"""MUSAE and its relatives on SNAP (Rozemberczki et al., 2019): csv edges and targets, json."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.sparse import dense_rows
from gnnscale.dataset.formats.text import csv_columns
from gnnscale.dataset.storage.download import Published, RemoteFile
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["Musae"]

_ADDRESS = "https://snap.stanford.edu/data"
_ARCHIVES = {
    "github": "git_web_ml",
    "facebook": "facebook_large",
    "lastfm_asia": "lastfm_asia",
    "deezer_europe": "deezer_europe",
    "twitch": "twitch",
}
_LABELS = ("ml_target", "page_type", "mature", "target")
_IDS = ("new_id", "id")


@dataclass(frozen=True, kw_only=True)
class Musae(Dataset):
    """A zip or folder with ``*edges.csv``, ``*features.json`` and ``*target.csv``.

    Features are lists of the columns that are one; classes that are words are numbered in
    alphabetical order.

    Attributes:
        part: where there are several graphs, such as the languages of Twitch, a word in the file
            names of one.
    """

    split: str = "random"
    part: str = ""
    has_split: ClassVar[bool] = False

    def published(self) -> Published | None:
        """Return the archive on SNAP."""
        if self.name not in _ARCHIVES:
            return None
        file = RemoteFile(url=f"{_ADDRESS}/{_ARCHIVES[self.name]}.zip", unpack=True)
        return Published(name=f"musae-{self.name}", licence="cite the paper", files=(file,))

    def read(self, writer: StoreWriter) -> None:
        """Push the graph; the target file says how many vertices there are."""
        path = _only_zip(self.raw_path())
        with self._open(path, "target.csv") as (file, source):
            labels = _read_labels(file, source)
        writer.set_num_vertices(len(labels), source=source)
        writer.set_labels(labels, source=source)
        with self._open(path, "edges.csv") as (file, source):
            for src, dst in csv_columns(file, ["int64"] * 2, skip_lines=1, source=source):
                writer.add_edges(src, dst, source=source)
        with self._open(path, "features.json") as (file, source):
            features = _read_features(file, len(labels), source)
        writer.write_features(
            dense_rows(features), num_features=features.shape[1], dtype="uint8", source=source
        )

    @contextmanager
    def _open(self, path: Path, ending: str) -> Iterator[tuple[IO[bytes], str]]:
        """Open the one file with that ending, in the folder or the archive."""
        try:
            with zipfile.ZipFile(path) if path.is_file() else nullcontext() as archive:
                names = archive.namelist() if archive else [str(file) for file in path.rglob("*")]
                found = [name for name in names if name.endswith(ending) and self.part in name]
                if len(found) != 1:
                    raise GraphError(
                        f"{path}: {len(found)} files *{self.part}*{ending}, exactly 1 is needed; "
                        f"dataset.part={self.part!r} selects by name"
                    )
                with archive.open(found[0]) if archive else open(found[0], "rb") as file:
                    yield file, f"{path}/{found[0]}" if archive else found[0]
        except zipfile.BadZipFile as error:
            raise GraphError(f"{path}: not a readable zip file ({error})") from None


def _read_labels(file: IO[bytes], source: str) -> NDArray[np.int64]:
    with io.TextIOWrapper(file, "utf-8", newline="") as text:
        table = csv.DictReader(text)
        columns = list(table.fieldnames or [])
        rows = list(table)
    id_column = next((name for name in _IDS if name in columns), None)
    column = next((name for name in _LABELS if name in columns), None)
    if id_column is None or column is None:
        raise GraphError(
            f"{source}: columns are {', '.join(columns)}; needed are one of "
            f"{', '.join(_IDS)} and one of {', '.join(_LABELS)}"
        )
    try:
        ids = np.array([int(row[id_column]) for row in rows], np.int64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{source}: ids must be whole numbers ({error})") from None
    if not np.array_equal(np.sort(ids), np.arange(len(ids))):
        raise GraphError(f"{source}: ids must be 0 to {len(ids) - 1}, each once")
    values = [row[column] for row in rows]
    labels = np.empty(len(ids), np.int64)
    try:
        labels[ids] = np.array([int(value) for value in values], np.int64)
    except (TypeError, ValueError):
        _, labels[ids] = np.unique(np.array(values), return_inverse=True)
    return labels


def _read_features(file: IO[bytes], num_vertices: int, source: str) -> scipy.sparse.csr_matrix:
    try:
        lists = {int(id): columns for id, columns in json.load(file).items()}
        rows = np.repeat(np.array(list(lists)), [len(columns) for columns in lists.values()])
        columns = np.array([column for each in lists.values() for column in each])
        if columns.dtype.kind != "i":
            raise ValueError(f"they are {columns.dtype}")
        matrix = scipy.sparse.coo_matrix((np.ones(len(rows), np.uint8), (rows, columns)))
    except (AttributeError, TypeError, ValueError) as error:
        raise GraphError(f"{source}: not lists of column numbers ({error})") from None
    if matrix.shape[0] > num_vertices:
        raise GraphError(
            f"{source}: vertex id {matrix.shape[0] - 1} is out of range, "
            f"the graph has {num_vertices} vertices"
        )
    matrix.resize(num_vertices, matrix.shape[1])
    features = matrix.tocsr()
    features.data[:] = 1  # a column listed twice is still one
    return features


def _only_zip(path: Path) -> Path:
    """Return the one zip in the folder ``path`` where that is all there is of the layout."""
    if path.is_dir() and not any(path.rglob("*target.csv")):
        zips = sorted(path.glob("*.zip"))
        if len(zips) == 1:
            return zips[0]
    return path
