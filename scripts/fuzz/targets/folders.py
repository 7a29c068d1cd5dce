"""What targets share whose cases are valid folders, some of whose files are damaged and used."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.graph import Graph, Origin, Split

from ..case import (
    ASIDE,
    Input,
    Outcome,
    WrongResultError,
    case_rng,
    guarded,
    odd_places,
    regular_files,
    strange_files,
)
from ..formats import damaged, npy_element

#: Part of the cases whose files agree with each other about the damage.
_AGREEING = 0.4


class Valid(NamedTuple):
    """A folder as the program makes it.

    Attributes:
        files: content by path below the folder.
        made_for: what the target needs to use it.
    """

    files: Mapping[str, bytes]
    made_for: Any = None


class Artefact(ABC):
    """A target whose cases are folders that were valid before something in them was damaged.

    Attributes:
        place: of the folder, below the case's own.
        kinds: ways in which it is used.
        refusals: exceptions that say what is wrong.
        names: one of which a refusal has to hold, if it does not hold the folder's path.
        leaves: what else may be there when a case has ended.
        writes: whether using it may write into the folder.
    """

    name: ClassVar[str]
    batch = 64
    limit_s = 20.0
    uses_files = True
    place: ClassVar[str] = "store"
    kinds: ClassVar[tuple[str, ...]] = ("",)
    refusals: ClassVar[tuple[type[Exception], ...]] = (GraphError, ConfigError)
    names: ClassVar[tuple[str, ...]] = ()
    leaves: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[bool] = False

    def __init__(self) -> None:
        self._valid: list[Valid] = []
        #: Files of the home folder that every case has.
        self._home: Mapping[str, bytes] = {}

    @abstractmethod
    def valid(self, folder: Path) -> list[Valid]:
        """Make the valid folders in ``folder``, which is the home folder too."""

    @abstractmethod
    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Use the folder of a case, which was ``valid`` before.

        If what is wrong agrees with itself (the case's option ``agreeing``), it may go unnoticed.

        Raises:
            WrongResultError: it was let in, and comes to what cannot be right.
        """

    def spoiled(
        self, files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the files with some of them damaged, and which edits these were."""
        count = case_rng(key, number, "edits").choice((0, 1, 1, 1, 2, 3))
        return damaged(files, key, number, count, keep)

    def agreeing(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the files, of which one says what the others hold, as bad intent would."""
        return dict(files)

    def prepare(self) -> None:
        """Make the valid folders that are damaged later."""
        with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
            os.environ["GNNSCALE_HOME"] = folder
            self._valid = self.valid(Path(folder))

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Input:
        """Damage a valid folder; what describes other files may then be made to agree with them."""
        rng = case_rng(key, number)
        which = number % len(self._valid)
        valid = self._valid[which].files
        files, edits = self.spoiled(valid, key, number, keep)
        agrees = rng.random() < _AGREEING
        if agrees:
            files = self.agreeing(files)
        # What is as it was is left out, so that a kept case follows when the format moves on.
        changed = {name: content for name, content in files.items() if content != valid.get(name)}
        without = sorted(valid.keys() - files.keys())
        options = {"which": which, "without": without, "agreeing": agrees}
        kind, odd = rng.choice(self.kinds), odd_places(files, case_rng(key, number, "odd"))
        return Input(kind=kind, options=options, files=changed, edits=tuple(edits), odd=odd)

    def run(self, made: Input, folder: Path) -> Outcome:
        """Use the folder, which stays as it is; nothing is left beside it."""
        valid = self._valid[made.options["which"]]
        files = {**valid.files, **made.files}
        for name in made.options["without"]:
            del files[name]
        path = folder / self.place
        Input(kind="", files=files, odd=made.odd).write(path)
        Input(kind="", files=self._home).write(folder / "home")
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        before = {each: regular_files(folder / each) for each in (self.place, ASIDE)}
        outcome = guarded(
            lambda: self.use(path, valid, made), self.refusals, [str(path), *self.names]
        )
        if outcome.is_finding:
            return outcome
        for each in (ASIDE,) if self.writes else before:
            if before[each] and regular_files(folder / each) != before[each]:
                return Outcome("wrong result", f"what lay in {each} was changed")
        return strange_files(folder, {self.place, ASIDE, *self.leaves}) or outcome


#: The form of an array in its header.
_FORM = re.compile(rb"'descr': '([<|=>]?\w+)'.*'shape': \(([\d, ]*)\)")
#: What may stand in the place of any value.
_VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 7, 60, 61, 2**31, 2**62, -(2**63), 2**63 - 1, 10**30, 0.5, -0.5, 1e300, -1e300),
    *(None, True, "", "x", "\x1b[2J", "a\nb", "\ud800", "[bold]x[/]", "<svg>", "x" * 1000),
    *([], [1], [0, 0], [[0, 1], [2]], [1, 0, 2, 5], {}, {"0": 1}),
)


class Stored(Artefact):
    """A folder with a JSON file that describes the others.

    Attributes:
        record: name of the JSON file.
        entries: of it that describe arrays: one of each, by name, or that of one array alone.
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
            said, edits = odd_values(json.loads(files[self.record]), self.record, key, number, keep)
            return {**files, self.record: json.dumps(said).encode()}, edits
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
        split=Split(train_idx=vertices[::2], valid_idx=vertices[1::4], test_idx=vertices[3::4]),
        origin=Origin(content="0" * 32),
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
    """Write into entries of arrays, or the only one, what their files or archives say.

    Args:
        entries: by name.
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
    """Overwrite elements of arrays, which no size and no header shows."""
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
    """Return the content of all files below a folder; archives have no times."""
    found = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = path.read_bytes()
        name = str(path.relative_to(folder))
        found[name] = without_times(content) if path.suffix == ".npz" else content
    return found


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


def check_shown(draw: Callable[[], str], show: Callable[[Any], None]) -> None:
    """Look at what a picture and a table print.

    Raises:
        WrongResultError: they have control characters.
    """
    from rich.console import Console

    stream = io.StringIO()
    show(Console(file=stream))
    if "\x1b" in stream.getvalue() or "\x1b" in draw():
        raise WrongResultError("control characters are shown")


def home_of(folder: Path) -> dict[str, bytes]:
    """Return the graph stores of a home folder."""
    return {name: each for name, each in files_of(folder).items() if name.startswith("graphs/")}
