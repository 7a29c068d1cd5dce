from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError
from gnnscale.dataset.formats.npz import Form, read_npz, write_npz
from gnnscale.graph_files import ArrayEntry

IDS = np.array([3, 1, 2], np.int32)
TABLE = np.arange(6, dtype=np.uint8).reshape(2, 3)
ARRAYS = {"ids": IDS, "table": TABLE}


def forms_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Form]:
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


def read(
    file: Path, told: Mapping[str, ArrayEntry], forms: Mapping[str, Form] | None = None
) -> dict[str, NDArray[Any]]:
    forms = forms_of(ARRAYS) if forms is None else forms
    return read_npz(file, told, forms, json_name="a.json", again="make it anew")


@pytest.fixture
def told(tmp_path: Path) -> dict[str, ArrayEntry]:
    return write_npz(tmp_path / "a.npz", ARRAYS)


def refused(*arguments: Any) -> str:
    with pytest.raises(GraphError) as error:
        read(*arguments)
    assert str(error.value).isprintable()
    return str(error.value)


def test_what_is_written_is_read(told: dict[str, ArrayEntry], tmp_path: Path) -> None:
    found = read(tmp_path / "a.npz", told)
    assert found.keys() == ARRAYS.keys()
    for name, array in found.items():
        assert array.dtype == ARRAYS[name].dtype
        assert array.tolist() == ARRAYS[name].tolist()
        assert array.flags.writeable
    assert (told["ids"].shape, told["ids"].dtype, told["ids"].bytes) == ((3,), "int32", 128 + 12)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["int16", "int32", "int64", "uint8", "float32"]),
            st.lists(st.integers(0, 4), max_size=3),
        ),
        max_size=4,
    )
)
def test_any_shapes(tmp_path_factory: pytest.TempPathFactory, shapes: list[Any]) -> None:
    generator = np.random.default_rng(0)
    arrays = {
        f"a{number}": generator.integers(0, 100, shape).astype(dtype)
        for number, (dtype, shape) in enumerate(shapes)
    }
    file = tmp_path_factory.mktemp("npz") / "a.npz"
    found = read(file, write_npz(file, arrays), forms_of(arrays))
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


def test_members_that_were_not_told_of(told: dict[str, ArrayEntry], tmp_path: Path) -> None:
    del told["table"]
    line = refused(tmp_path / "a.npz", told)
    assert line.endswith("members are ['ids.npy', 'table.npy'], a.json tells of ['ids']")


@pytest.mark.parametrize(
    "changes", [{"bytes": 139}, {"crc32": 1}, {"dtype": "int64"}, {"shape": (4,)}]
)
def test_entries_of_another_file(
    told: dict[str, ArrayEntry], tmp_path: Path, changes: dict[str, Any]
) -> None:
    told["ids"] = replace(told["ids"], **changes)
    assert refused(tmp_path / "a.npz", told) == (
        f"{tmp_path}/a.npz/ids.npy: not the array that a.json tells of; make it anew"
    )


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ((np.dtype(np.int32), (2,)), "not the array that a.json tells of"),
        ((np.dtype(np.int32), (10**6,)), "140 bytes, int32[1000000] has 4000000"),
        ((np.dtype(np.int32), (10**9, 10**9)), "has 4000000000000000000"),
        ((np.dtype(np.uint8), (3,)), "not the array that a.json tells of"),
    ],
)
def test_forms_that_the_array_has_not(
    told: dict[str, ArrayEntry], tmp_path: Path, form: Form, said: str
) -> None:
    assert said in refused(tmp_path / "a.npz", told, {**forms_of(ARRAYS), "ids": form})


def npy(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (npy(IDS)[:-4], "8 bytes of data, needed are 12"),
        (npy(IDS) + b"x", "13 bytes of data, needed are 12"),
        (npy(IDS.astype(np.int64)), "int64[3], needed is int32[3]"),
        (npy(IDS[None]), "int32[1, 3], needed is int32[3]"),
        (bytes(range(140)), "not a readable .npy array"),
        (npy(np.array([print], object)), "not a readable .npy array (elements are"),
        (npy(IDS) + bytes(1 << 20), "bytes, int32[3] has 12"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_made_to_agree(
    told: dict[str, ArrayEntry], tmp_path: Path, content: bytes, said: str, method: int
) -> None:
    file = tmp_path / "b.npz"
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("ids.npy", content)
        crc32 = archive.getinfo("ids.npy").CRC
    told["ids"] = replace(told["ids"], bytes=len(content), crc32=crc32)
    assert said in refused(file, {"ids": told["ids"]})


def test_every_damaged_byte_is_noticed_or_means_nothing(
    told: dict[str, ArrayEntry], tmp_path: Path
) -> None:
    whole = (tmp_path / "a.npz").read_bytes()
    noticed = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        (tmp_path / "b.npz").write_bytes(damaged)
        try:
            found = read(tmp_path / "b.npz", told)
        except GraphError:
            noticed += 1
            continue
        assert all((found[name] == ARRAYS[name]).all() for name in ARRAYS)
    assert noticed > len(whole) // 2


def test_a_file_that_is_no_archive(told: dict[str, ArrayEntry], tmp_path: Path) -> None:
    file = tmp_path / "b.npz"
    assert "b.npz: missing" in refused(file, told)
    file.write_bytes(b"PK\x05\x06")
    assert "b.npz" in refused(file, told)
