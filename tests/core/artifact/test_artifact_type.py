import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.artifact.artifact_type import ArtifactType, Form
from gnnscale.core.artifact.npy import ArrayEntry, write_array
from gnnscale.core.errors import GraphError

KIND = ArtifactType(
    name="bag",
    header="bag.json",
    version=3,
    folder="bags",
    max_bytes=1 << 20,
    option="bag.store",
    command="bag make",
    files=r"bag\.json|(ids|table)\.npy",
)
ARRAYS = {"ids": np.array([3, 1, 2], np.int32), "table": np.arange(6, dtype=np.uint8).reshape(2, 3)}
FORMS: dict[str, Form] = {
    "ids": (np.dtype(np.int32), (3,)),
    "table": (np.dtype(np.uint8), (None, 3)),
}


@dataclass(frozen=True, kw_only=True)
class Header:
    colour: str
    weight: float
    arrays: dict[str, ArrayEntry]


def write(folder: Path, arrays: Any = ARRAYS) -> Path:
    folder.mkdir(exist_ok=True)
    written = {name: write_array(folder / f"{name}.npy", each) for name, each in arrays.items()}
    KIND.write_header(folder, {"colour": "red", "weight": 1, "arrays": written})
    return folder


def read(path: Path, load: bool = True) -> tuple[Header, dict[str, Any]]:
    header = KIND.record(Header, KIND.read_header(path), path)
    return header, KIND.arrays(path, header.arrays, FORMS, load=load)


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    return write(tmp_path / "bag")


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    entries = json.loads((path / "bag.json").read_text())
    change(entries)
    (path / "bag.json").write_text(json.dumps(entries))


def put(path: Path, name: str, array: Any) -> None:
    """Put another array into the bag, and into its header: a lie that fits itself."""
    np.save(path / f"{name}.npy", array, allow_pickle=True)
    size = (path / f"{name}.npy").stat().st_size
    entry = {"shape": list(array.shape), "dtype": str(array.dtype), "bytes": size}
    changed(path, lambda entries: entries["arrays"][name].update(entry))


def refused(path: Path, load: bool = True) -> str:
    with pytest.raises(GraphError) as error:
        read(path, load)
    assert str(error.value).startswith(str(path))
    assert str(error.value).isprintable()
    return str(error.value)


@pytest.mark.parametrize("load", [False, True])
def test_what_is_written_is_read(bag: Path, load: bool) -> None:
    header, arrays = read(bag, load)
    assert (header.colour, header.weight) == ("red", 1.0)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype
        assert isinstance(array, np.memmap) != load
        assert array.flags.writeable == load
    assert header.arrays["ids"].bytes == 128 + 12
    # A line for each entry.
    assert (bag / "bag.json").read_text().splitlines()[1:4] == [
        *(' "format_version": 3,', ' "colour": "red",', ' "weight": 1,')
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b"[1]", "expected a JSON object, got a list"),
        (b" " * ((1 << 20) + 1), "more than 1 MiB; run "),
        (b'{"format_version": 2}', "format version 2, this release reads 3; run "),
        (b'{"format_version": 3.0}', "format version 3.0, this release reads 3; run "),
    ],
)
def test_headers_that_are_none(bag: Path, text: bytes, said: str) -> None:
    (bag / "bag.json").write_bytes(text)
    assert said in refused(bag)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: e.pop("colour"), "entry: Object missing required field `colour`"),
        (lambda e: e.update(colour=3), "entry.colour: Expected `str`, got `int`"),
        (lambda e: e["arrays"]["ids"].pop("crc32"), "missing required field `crc32`"),
        (lambda e: e["arrays"].update(ids=5), "entry.arrays[...]: Expected `object`, got `int`"),
        (lambda e: e["arrays"].pop("table"), "arrays: expected ['ids', 'table'], got ['ids']"),
        (lambda e: e["arrays"].update(more=e["arrays"]["ids"]), "got ['ids', 'more',"),
        (lambda e: e["arrays"]["ids"].update(bytes=9), "140 bytes, bag.json says 9 (truncated?)"),
        (lambda e: e["arrays"]["ids"].update(shape=[4]), "int32[3], bag.json says int32[4]"),
        (lambda e: e["arrays"]["ids"].update(dtype="O"), "int32[3], bag.json says O[3]"),
        (lambda e: e["arrays"]["ids"].update(crc32=1), "checksum "),
    ],
)
def test_entries_that_are_wrong(bag: Path, change: Any, said: str) -> None:
    changed(bag, change)
    line = refused(bag)
    assert said in line
    assert line.endswith("; run bag make again with force=true")


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("ids", np.zeros(4, np.int32), "expected int32[3], got int32[4]"),
        ("ids", np.zeros(3, np.int64), "expected int32[3], got int64[3]"),
        ("ids", np.zeros(3, ">i4"), "elements: expected the machine's byte order, got '>i4'"),
        ("table", np.zeros((2, 4), np.uint8), "expected uint8[n, 3], got uint8[2, 4]"),
        # Pickled objects, which would say so if they were read.
        ("ids", np.array([print, 1, 2], object), "not a readable .npy file (elements: expected n"),
    ],
)
@pytest.mark.parametrize("load", [False, True])
def test_arrays_of_another_form(bag: Path, name: str, array: Any, said: str, load: bool) -> None:
    put(bag, name, array)
    assert said in refused(bag, load)


@pytest.mark.long
def test_every_damaged_byte_is_noticed_or_means_nothing(bag: Path) -> None:
    name = "ids.npy"
    whole = (bag / name).read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        (bag / name).write_bytes(damaged)
        try:
            found = read(bag)[1]
        except GraphError:
            continue
        assert all((found[each] == ARRAYS[each]).all() for each in ARRAYS)
    for size in range(0, len(whole), 7):
        (bag / name).write_bytes(whole[:size])
        assert "(truncated?)" in refused(bag)
    # Elements that are not aligned would be read by native code.
    size = int.from_bytes(whole[8:10], "little")
    odd = whole[:8] + (size - 1).to_bytes(2, "little") + whole[10 : 8 + size] + b"\n" + whole[128:]
    (bag / name).write_bytes(odd)
    changed(bag, lambda entries: entries["arrays"]["ids"].update(bytes=len(odd)))
    assert "its header has an odd size" in refused(bag)


def test_what_is_missing_and_what_is_no_file(bag: Path, tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path}: not a bag, it has no bag.json"
    assert "not a bag" in refused(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("bag/bag.json", "loop", "x" * 5000, "zero\0byte"):
        with pytest.raises(GraphError, match=r"not a bag, it has no bag\.json$") as error:
            read(tmp_path / name)
        assert str(error.value).isprintable()
    (bag / "ids.npy").unlink()
    assert refused(bag) == f"{bag}/ids.npy: missing; run bag make again with force=true"
    for name in ("ids.npy", "bag.json"):
        (bag / name).unlink(missing_ok=True)
        os.mkfifo(bag / name)  # a pipe is not waited for
        assert f"{name}: not a regular file" in refused(bag)
    (bag / "bag.json").unlink()
    (bag / "bag.json").mkdir()
    assert "not a regular file" in refused(bag)


def test_each_has_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    place = KIND.directory(None, "tiny", "old", {"seed": 1})
    assert place.parent == tmp_path / "home" / "bags"
    assert place.name.startswith("tiny-old-")
    assert KIND.directory(None, "tiny", None, {"seed": 1}).name == place.name.replace("-old", "")
    assert KIND.directory(None, "tiny", "old", {"seed": 2}) != place
    assert KIND.directory(f"{tmp_path}/x", "tiny", "old", {}) == tmp_path / "x"
    for name in ("../../etc", "a/b c", "..", "é" * 200, "/"):
        elsewhere = KIND.directory(None, name, "old", {})
        assert elsewhere.parent == place.parent
        assert len(elsewhere.name) < 130
        assert not elsewhere.name.startswith(".")


def make(path: Path, problem: str | None = None, force: bool = False) -> bool:
    def fits() -> None:
        if problem is not None:
            raise GraphError(problem)

    with KIND.making(path, fits=fits, force=force, holds=lambda e: e.name == "kept") as folder:
        if folder is not None:
            write(folder)
    return folder is not None


def test_it_is_made_once_and_again_by_force(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert make(path)
    assert not make(path)
    with pytest.raises(GraphError, match="another one"):
        make(path, problem="another one")
    (path / "bag.json").write_text("damaged")
    (path / "kept").mkdir()
    assert make(path, problem="another one", force=True)
    read(path)
    for name in ("thesis", "bag.json.old", "ids.npz"):
        (path / name).write_text("years")
        with pytest.raises(GraphError) as error:
            make(path, force=True)
        assert str(error.value) == (
            f"{path}: expected only files of a bag, got {name}, so that it is not replaced; name "
            "another bag.store, or move the file away"
        )
        (path / name).unlink()


def test_what_it_was_made_of_is_compared(tmp_path: Path) -> None:
    KIND.check_same(tmp_path, {"a": 1, "b": [2]}, {"b": [2], "a": 1})
    for now, said in (({"a": 1}, "a=2, now a=1"), ({}, "a=2, now a=None")):
        with pytest.raises(GraphError) as error:
            KIND.check_same(tmp_path, now, {"a": 2})
        assert str(error.value) == (
            f"{tmp_path}: made with {said}; name another bag.store, or run bag make with force=true"
        )
    unnamed = replace(KIND, option=None, command=None)
    assert str(unnamed.refused(tmp_path, "no")) == (
        f"{tmp_path}/bag.json: no; remove {tmp_path}, and it is made again"
    )
