"""What stored artefacts share: a JSON file that tells of arrays, in files or an archive."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnscale.graph import Graph

from ..case import case_rng
from ..structured import npy_element
from .artefact import Artefact

__all__ = [
    "Stored",
    "files_of",
    "odd_values",
    "overwritten",
    "small_graph",
    "tell_files",
    "without_times",
]

#: Entries of a JSON file that tell an array's form.
_FORM = re.compile(rb"'descr': '([<|=>]?\w+)'.*'shape': \(([\d, ]*)\)")

#: What may stand in the place of any value.
_VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 7, 60, 61, 2**31, 2**62, -(2**63), 2**63 - 1, 10**30, 0.5, -0.5, 1e300, -1e300),
    *(None, True, "", "x", "\x1b[2J", "a\nb", "\ud800", "[bold]x[/]", "<svg>", "x" * 1000),
    *([], [1], [0, 0], [[0, 1], [2]], [1, 0, 2, 5], {}, {"0": 1}),
)


class Stored(Artefact):
    """A folder with a JSON file that tells of the others.

    Attributes:
        record: name of the JSON file.
        entries: of it that tell of arrays: one of each, by name, or that of one array alone.
        checksums: whether arrays are refused for their checksums when they are read.
    """

    record: ClassVar[str]
    entries: ClassVar[str] = "arrays"
    checksums: ClassVar[bool] = False

    def spoiled(
        self, files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """Damage any file, overwrite elements of arrays, or put other values into the JSON file."""
        kind = case_rng(key, number, "kind").random()
        if kind < 0.3 and self.record in files:
            return _retold(files, self.record, key, number, keep)
        if kind < 0.6 and any(name.endswith(".npy") for name in files):
            return overwritten(files, key, number, keep)
        return super().spoiled(files, key, number, keep)

    def agreeing(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Write into the JSON file what the others say."""
        try:
            said = json.loads(files[self.record])
            tell_files(said[self.entries], files, checksums=self.checksums)
        except Exception:  # damaged itself
            return dict(files)
        return {**files, self.record: json.dumps(said).encode()}


def small_graph(num_vertices: int, num_edges: int) -> Graph:
    """Return a graph of random edges, half of whose vertices train."""
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, num_edges + 1, num_vertices - 1))
    vertices = np.arange(num_vertices, dtype=np.int32)
    return Graph(
        name="fuzzed",
        indptr=np.concatenate([[0], ends, [num_edges]]).astype(np.int64),
        indices=rng.integers(0, num_vertices, num_edges, dtype=np.int32),
        features=np.zeros((num_vertices, 5), np.float32),
        feature_dtype="float32",
        labels=np.zeros(num_vertices, np.int64),
        num_classes=1,
        train_idx=vertices[::2],
        valid_idx=vertices[1::4],
        test_idx=vertices[3::4],
        content="0" * 32,
    )


def without_times(archive: bytes) -> bytes:
    """Return an archive that says nothing of when it was written."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(packed, "w") as copy:
        for info in source.infolist():
            copy.writestr(zipfile.ZipInfo(info.filename), source.read(info))
    return packed.getvalue()


def tell_files(
    entries: dict[str, Any], files: Mapping[str, bytes], *, checksums: bool = False
) -> None:
    """Write into entries of arrays what their files say, or the archive that they are in.

    Args:
        entries: one of each array by its name, or that of one array alone.
        files: by name.
        checksums: write those of ``.npy`` files, too.
    """
    for name, content in files.items():
        if name.endswith(".npz"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for info in archive.infolist():
                    entry = entries.get(info.filename.removesuffix(".npy"))
                    if entry:
                        entry.update(bytes=info.file_size, crc32=info.CRC)
        entry = entries if "bytes" in entries else entries.get(name.removesuffix(".npy"))
        found = _FORM.search(content[:256])
        if name.endswith(".npy") and entry and found:
            shape = [int(axis) for axis in found[2].split(b",") if axis.strip()]
            entry.update(bytes=len(content), shape=shape)
            if checksums:
                first = 10 + int.from_bytes(content[8:10], "little")
                entry["crc32"] = zlib.crc32(content[first:])
            if "dtype" in entry:
                entry["dtype"] = str(np.dtype(found[1].decode()))


def overwritten(
    files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
) -> tuple[dict[str, bytes], list[str]]:
    """Overwrite elements of arrays, which no size and no header can tell."""
    changed, edits = dict(files), []
    arrays = [name for name in sorted(files) if name.endswith(".npy")]
    for place in range(case_rng(key, number, "edits").choice((1, 1, 1, 2, 3, 8))):
        rng = case_rng(key, number, place)
        name = rng.choice(arrays)
        if keep is None or place in keep:
            changed[name] = npy_element(changed[name], rng)
            edits.append(f"{place}: {name}")
    return changed, edits


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder; archives tell no times."""
    found = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = path.read_bytes()
        name = str(path.relative_to(folder))
        found[name] = without_times(content) if path.suffix == ".npz" else content
    return found


def _retold(
    files: Mapping[str, bytes], name: str, key: str, number: int, keep: frozenset[int] | None
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files with other values here and there in the JSON file ``name``, and which."""
    said, edits = odd_values(json.loads(files[name]), name, key, number, keep)
    return {**files, name: json.dumps(said).encode()}, edits


def odd_values(
    said: Any, name: str, key: str, number: int, keep: frozenset[int] | None
) -> tuple[Any, list[str]]:
    """Put other values here and there into nested lists and mappings, and say which.

    Every edit has random numbers of its own, so that one can be left out and the others stay.
    """
    edits = []
    for place in range(case_rng(key, number, "edits").choice((1, 1, 2, 4))):
        rng = case_rng(key, number, place)
        holder, index = rng.choice(list(_places(said)))
        if keep is None or place in keep:
            holder[index] = deepcopy(rng.choice(_VALUES))  # later edits may change it
            edits.append(f"{place}: {name}")
    return said, edits


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in nested lists and mappings, as what holds it and its index or key."""
    if not isinstance(value, (dict, list)):
        return
    for index in value if isinstance(value, dict) else range(len(value)):
        yield value, index
        yield from _places(value[index])
