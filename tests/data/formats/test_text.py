import gzip
import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import GraphError
from gnnscale.data.formats.text import csv_columns, csv_table, head_lines, num_columns


def columns(content, types=("int64", "int64"), **options):
    blocks = list(csv_columns(io.BytesIO(content), types, source="x.csv", **options))
    return [np.concatenate(column).tolist() for column in zip(*blocks, strict=True)]


def test_columns():
    assert columns(b"1,2\n3,4\n") == [[1, 3], [2, 4]]
    assert columns(b"1 2 9 z\r\n\r\n3 4 9 z", delimiter=" ") == [[1, 3], [2, 4]]
    assert columns(b"# a\nb\n1,2\n", skip_lines=2) == [[1], [2]]
    assert columns(b"1\n", types=["float64"]) == [[1.0]]


@pytest.mark.parametrize("delimiter", [" ", "\t"])
def test_any_run_of_blanks_and_tabs_separates(delimiter):
    for content in (
        b"35  33\n35\t48\n35\t15\n",
        b"35\t33\n35  48\n35 15",
        b" 35 33\n\t35 \t48\n35 15 \n",
        b"35 33 0.5\r\n35 \t 48\r\n\r\n35\t15\tx y\r\n",
    ):
        for options in ({}, {"block_bytes": 9}):
            found = columns(content, delimiter=delimiter, **options)
            assert found == [[35, 35, 35], [33, 48, 15]]


@pytest.mark.parametrize(
    ("content", "delimiter", "message"),
    [
        (b"35 33\n35\n35\t15\n", " ", "x.csv: line 2 is '35' and cannot be read as int64"),
        (b"35  33\n35 x\n35 15\n", " ", "x.csv: line 2 is '35 x' and cannot be read as int64"),
        (b"35 \t33\n" * 999 + b"35 33z\n", " ", "x.csv: line 1000 is '35 33z'"),
        (b"35 33\r35 48\r35 15\r", " ", "x.csv: line 1 has a CR without LF"),
        (b"35\t33\r35\t48\n", " ", "x.csv: line 1 has a CR without LF"),
        (b"1\n2\n", ",", "x.csv: line 1 has 1 columns and cannot be read as int64"),
        (b"1,2\n3\n4,5\n", ",", "x.csv: line 2 is '3' and cannot be read as int64"),
        (b"1,2\n" * 5000 + b"1,z\n" + b"1,2\n" * 5000, ",", "x.csv: line 5001 is '1,z'"),
        (b"1,2\n1,\xff\xfe\n", ",", "x.csv: line 2 is"),
        (b"1,9223372036854775808\n", ",", "x.csv: line 1 is"),
        (b"1,2\n1,\x1b[2J\n", ",", r"x.csv: line 2 is '1,\x1b[2J'"),
        (b"1,2\n" + b"z" * 100_000 + b"\n", ",", "x.csv: line 2 is 'zzz"),
        (b"", ",", "x.csv: empty"),
        (b"," * 70_000, ",", "x.csv: line 1 has 70001 columns"),
        (b"1" * (5 << 20), ",", "x.csv: line 1 is longer than 4194304 bytes"),
        (b"1,2\n" + b" " * (21 << 20), ",", "x.csv: line 2 is longer than 4194304 bytes"),
    ],
)
def test_bad_text(content, delimiter, message):
    with pytest.raises(GraphError, match=f"^{re.escape(message)}") as error:
        columns(content, delimiter=delimiter, block_bytes=1 << 20)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 700


@pytest.mark.long
@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9)), min_size=1))
def test_small_blocks_give_the_same(rows):
    content = "".join(f"{a},{b}\n" for a, b in rows).encode()
    small = columns(content, block_bytes=7)
    assert small == columns(content) == [list(column) for column in zip(*rows, strict=True)]


@pytest.fixture
def packed(tmp_path):
    def write(content, damage=None):
        path = tmp_path / "x.csv.gz"
        data = bytearray(gzip.compress(content, mtime=0))
        if damage is not None:
            data = data[:damage] if damage < 0 else data[:damage] + b"\xff" + data[damage + 1 :]
        path.write_bytes(data)
        return path

    return write


def test_damaged_gzip(packed):
    for damage in (0, 2, 3, 12, 20, -1, -9):
        path = packed(bytes(range(48, 58)) * 99, damage)
        for read in (
            lambda path: csv_table(path, ["int64"], source=path),
            lambda path: list(csv_columns(path, ["int64"], source=path)),
            lambda path: head_lines(path, source=path),
        ):
            with pytest.raises(GraphError, match=r"x.csv.gz: cannot be read"):
                read(path)


@pytest.mark.long
def test_gzip_bombs(packed):
    path = packed(b"0,0\n" * (20 << 20))
    with pytest.raises(GraphError, match=r"x.csv.gz: unpacks to over \d+ bytes, too many"):
        for _ in csv_columns(path, ["int64"] * 2, source=path):
            pass
    path = packed(b"\n" * (90 << 20))
    with pytest.raises(GraphError, match=r"x.csv.gz: unpacks to over \d+ bytes, too many"):
        csv_table(path, ["int64"], source=path)


def test_tables_have_limits(packed):
    path = packed(b"0\n" * 1000)
    assert csv_table(path, ["int64"], source=path, max_rows=1000).shape == (1000, 1)
    with pytest.raises(GraphError, match=r"x.csv.gz: over 999 rows"):
        csv_table(path, ["int64"], source=path, max_rows=999)
    with pytest.raises(GraphError, match=r"x.csv.gz: a table of over \d+ bytes"):
        csv_table(path, ["int64"], source=path, allowance=6000)


def test_head(packed, tmp_path):
    path = packed(b"1,2,3\n\xff\n")
    assert head_lines(path, source=path) == ["1,2,3", "\ufffd"]
    assert num_columns(path, source=path) == 3
    for content, message in ((b"", "empty"), (b"1" * (4 << 20), "line 1 is longer than")):
        with pytest.raises(GraphError, match=rf"x.csv.gz: {message}"):
            head_lines(packed(content), source="x.csv.gz")
    # A line that goes on beyond the head is left out, not cut.
    assert head_lines(packed(b"1\n" + b"2" * (4 << 20)), source="x.csv.gz") == ["1"]
    file = tmp_path / "x.csv"
    for wide in ("utf-16-le", "utf-16-be"):
        file.write_bytes("\ufeffid,label\n1,2\n".encode(wide))
        with pytest.raises(GraphError, match=r"x\.csv: is UTF-16; save the file as UTF-8$"):
            head_lines(file, source=file)
