import contextlib
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core.artifact import npy as arrays
from gnnscale.core.artifact.npy import NpyError, check_length, map_npy, read_header, write_array
from gnnscale.core.errors import GraphError


def header(text: str, version: tuple[int, int] = (1, 0)) -> io.BytesIO:
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return io.BytesIO(b"\x93NUMPY" + bytes(version) + size + text.encode("latin1"))


GOOD = "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }"


def test_headers_of_all_versions_and_damaged_ones() -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        found = read_header(header(GOOD, version))
        assert (found.shape, found.dtype, found.num_bytes) == ((3, 2), np.dtype(np.int32), 24)
    for text, reason in (
        (GOOD.replace("<i4", "O"), "elements: expected"),
        (GOOD.replace("'<i4'", "[('a', '<i4')]"), "expected numbers"),
        (GOOD.replace("<i4", ">i4"), "byte order"),
        (GOOD.replace("(3, 2)", f"({2**62}, 16)"), "shape: expected up to"),
        (GOOD.replace("(3, 2)", "(1, 1, 1, 1, 1)"), "shape: expected up to"),
        (GOOD.replace("False", "True"), "fortran_order: expected C order, got True"),
        (GOOD.replace("'shape'", "'shapes'"), "header needs exactly"),
        ("[" * 4000, "header is not a dictionary"),
        ("'\n", "header is not a dictionary"),
        ("__import__('os')", "header is not a dictionary"),
        (GOOD.replace("False", "\xe9"), "header is not a dictionary .holds"),
        (" " * 5000, "bytes, got 5000"),
    ):
        with pytest.raises(NpyError, match=reason):
            read_header(header(text))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    file = io.BytesIO(b"\x93NUMPY\x01\x00" + data)
    # Any other exception fails the test.
    with contextlib.suppress(NpyError):
        assert read_header(file).offset == file.tell()


def test_mapping_what_numpy_wrote(tmp_path: Path) -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    for array in (matrix, np.empty((0, 4)), np.float32(3), np.ones(3, bool)):
        np.save(tmp_path / "a.npy", array)
        mapped = map_npy(tmp_path / "a.npy")
        assert (mapped.dtype, mapped.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(mapped, array)


def test_files_that_are_not_mapped(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.arange(5))
    data = file.read_bytes()
    for content in (data[:-1], data + b"x"):
        file.write_bytes(content)
        with pytest.raises(GraphError, match=r"a\.npy: not a readable .*its header says 40"):
            map_npy(file)
    os.mkfifo(tmp_path / "pipe.npy")  # not waited for
    with pytest.raises(GraphError, match=r"pipe\.npy: not a regular file"):
        map_npy(tmp_path / "pipe.npy")
    np.save(tmp_path / "x.npy", np.zeros(4, np.int64))
    assert map_npy(tmp_path / "x.npy", axes=1, kinds="iu").tolist() == [0] * 4
    with pytest.raises(GraphError, match=r"x.npy: expected floating point, got int64\[4\]"):
        map_npy(tmp_path / "x.npy", axes=1, kinds="f")
    with pytest.raises(GraphError, match=r"x.npy: expected 2 axes, got int64\[4\] with 1"):
        map_npy(tmp_path / "x.npy", axes=2)
    with pytest.raises(GraphError, match=r"y.npy: missing"):
        map_npy(tmp_path / "y.npy")


def test_writing_and_reading_in_pieces(tmp_path: Path) -> None:
    with arrays.NpyWriter(tmp_path / "x.npy", np.dtype(np.float16), (2,)) as writer:
        for rows in (np.ones((3, 2)), np.empty((0, 2)), np.zeros((100_000, 2))):
            writer.append(rows)
        entry = writer.close()
    array = np.load(tmp_path / "x.npy")
    assert array[2].tolist() == [1, 1]
    assert (array.shape, entry.shape, entry.dtype) == ((100_003, 2), (100_003, 2), "float16")
    assert entry.bytes == (tmp_path / "x.npy").stat().st_size
    assert write_array(tmp_path / "y.npy", array) == entry
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "x.npy").read_bytes()
    np.save(tmp_path / "x.npy", np.arange(10).reshape(5, 2))
    mapped = map_npy(tmp_path / "x.npy")
    found = list(arrays.read_slices(tmp_path / "x.npy", mapped, 32))
    assert [first for first, _ in found] == [0, 2, 4]
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in found]), mapped)
    larger = np.zeros((50, 2), int)
    with pytest.raises((GraphError, OSError)):
        list(arrays.read_slices(tmp_path / "x.npy", larger, 32))


def test_a_mapped_file_that_became_shorter(tmp_path: Path) -> None:
    """The rest of its last page reads as zeros."""
    file = tmp_path / "rows.npy"
    write_array(file, np.ones((100, 8), np.float32))
    size = file.stat().st_size
    mapped = map_npy(file)
    for view in (mapped, mapped[3:], np.asarray(mapped), mapped.reshape(-1).view(np.uint8)):
        check_length(view)
    os.truncate(file, size - 1)
    line = f"{file}: became shorter while it was in use: {size - 1} bytes, it had {size} when"
    for view in (mapped, mapped[3:], np.asarray(mapped), mapped.reshape(-1).view(np.uint8)):
        with one_line(begins=line, error=GraphError):
            check_length(view)
    # The mapping is of the file that was opened, whatever has its name by now.
    os.truncate(file, size)
    file.unlink()
    write_array(file, np.ones((1,), np.float32))
    check_length(mapped)
    check_length(np.ones(3))
    # The reason of a lost page.
    file = tmp_path / "others.npy"
    write_array(file, np.zeros((100, 8), np.float32))
    size = file.stat().st_size
    os.truncate(file, 5000)
    reason = f"{file}: became shorter while it was in use: 5000 bytes, not {size}"
    assert arrays.explain_lost_page(file) == reason
    other = tmp_path / "rows"
    other.write_bytes(bytes(5))
    reason = "a mapped file became shorter, or its disk fails or is full"
    for path in (other, tmp_path / "gone"):
        assert arrays.explain_lost_page(path) == f"{path}: {reason}"
