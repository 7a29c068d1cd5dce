import decimal
import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from gnnscale.core.errors import GraphError
from gnnscale.data.tables import parquet_file
from gnnscale.data.tables.batch import Problems
from gnnscale.data.tables.parquet_file import ParquetFile

LONG = "x" * 20_000


def read(file: Path, columns: list[str], rows: int = 1 << 17, num_bytes: int = 16 << 20) -> Any:
    return ParquetFile(file, Problems()).batches(columns, {}, rows, num_bytes)


def written(file: Path, columns: dict[str, Any], **options: Any) -> Path:
    parquet.write_table(pa.table(columns), file, **options)
    return file


def named(entries: list[Any], places: Any) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(entries))


WRITERS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"use_dictionary": False},
    "second version": {"data_page_version": "2.0", "compression": "zstd"},
    "no compression": {"compression": "none", "write_page_checksum": True},
    "many groups": {"row_group_size": 70},
    "small pages": {"data_page_size": 100, "write_batch_size": 10},
    "differences": {
        "use_dictionary": False,
        "column_encoding": {
            **{"text": "DELTA_BYTE_ARRAY", "view": "DELTA_LENGTH_BYTE_ARRAY"},
            **{"whole": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT"},
        },
    },
}


@pytest.mark.long
@pytest.mark.parametrize(("writer", "num_bytes"), [*zip(WRITERS, cycle([64, 16 << 20]))])
def test_values_are_those_that_were_written(tmp_path: Path, writer: str, num_bytes: int) -> None:
    count = 300
    texts = pa.array([None if i % 7 == 0 else f"user{i * i % 91:x}" for i in range(count)])
    columns = {
        **{"text": texts, "view": texts.cast(pa.large_string()), "bytes": texts.cast(pa.binary())},
        **{"category": named(["a", "bc"], np.arange(count) % 2), "whole": np.arange(count) % 9},
        **{"real": np.arange(count) / 7, "flag": np.arange(count) % 2 == 1},
        "list": pa.array([[1.0, 2.0]] * count),
        "words": pa.array([["a", "b"], []] * (count // 2)),
        "price": pa.array([decimal.Decimal("1.5")] * count),
        "fixed": pa.array([b"abcd" * 10] * count, pa.binary(40)),
        **{"parts": pa.array([{"x": "a", "y": 1}] * count), "none": pa.nulls(count)},
    }
    file = written(tmp_path / "f.parquet", columns, **WRITERS[writer])
    for name, column in pa.table(columns).to_pydict().items():
        batches = list(read(file, [name], 128, num_bytes))
        assert [value for batch in batches for value in batch.columns[name].to_pylist()] == column
        sizes = [len(batch) for batch in batches]
        assert [batch.row for batch in batches] == np.cumsum([1, *sizes[:-1]]).tolist()
    assert sum(map(len, read(file, list(columns), 128, num_bytes))) == count


def test_rows_are_as_few_as_the_longest_entry_asks_for(tmp_path: Path) -> None:
    short, long = named(["a", "b"], np.arange(4096) % 2), named(["a", LONG], [0] * 4095 + [1])
    file = written(tmp_path / "f.parquet", {"short": short, "long": long})
    assert [len(batch) for batch in read(file, ["short"], 4000)] == [4000, 96]
    assert {len(batch) for batch in read(file, ["long"])} == {(16 << 20) // 20_000, 4096 % 838}
    # A null has no entry, and whoever looks for the longest goes on.
    empty = pa.concat_arrays([pa.nulls(200_000, pa.string()), pa.array([LONG] * 50)])
    file = written(tmp_path / "f.parquet", {"empty": empty}, write_batch_size=1000)
    assert max(len(batch) for batch in read(file, ["empty"])) <= (16 << 20) // 20_000


@pytest.mark.parametrize(("row", "options"), [(0, {}), (5, {"use_dictionary": False}), (5, {})])
def test_texts_that_are_not_utf8(tmp_path: Path, row: int, options: dict[str, Any]) -> None:
    texts = [b"a", b"b", b"c", b"d", b"e", b"f"]
    texts[row] = b"\xff\xfe"
    for kind in (pa.string(), pa.large_string()):
        column = pa.array(texts, pa.large_binary() if kind == pa.large_string() else pa.binary())
        file = written(tmp_path / "f.parquet", {"c": column.view(kind)}, **options)
        with pytest.raises(GraphError, match=rf"f\.parquet: row {row + 1}: c is not UTF-8$"):
            list(read(file, ["c"]))


def test_a_text_has_a_longest_length(tmp_path: Path) -> None:
    good = written(tmp_path / "f.parquet", {"c": ["a", "ä" * (1 << 15), None]})
    assert sum(map(len, read(good, ["c"]))) == 3
    bad = written(tmp_path / "f.parquet", {"c": ["a", "ä" * (1 << 15) + "b"]})
    with pytest.raises(GraphError, match=r"row 2: c has 65537 bytes, allowed are 65536$"):
        list(read(bad, ["c"]))


def test_pages_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "_PAGE_ALLOWANCE", 1 << 20)
    monkeypatch.setattr(parquet_file, "_LIST_ALLOWANCE", 1 << 20)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1 << 20)), 1 << 20)
    file = written(tmp_path / "l.parquet", {"c": lists.cast(pa.list_(pa.float64()))})
    with pytest.raises(GraphError, match=r"'c\.list\.element' has 1048576 values in lists, too m"):
        list(read(file, ["c"]))
    options = {"use_dictionary": False, "data_page_size": 1 << 30}
    texts = {"c": [LONG] * 400}
    file = written(tmp_path / "p.parquet", texts, compression="zstd", **options)
    with pytest.raises(GraphError, match=r"its pages unpack to \d+ bytes at a time, allowed are"):
        list(read(file, ["c"]))
    # As they are, they are no smaller.
    file = written(tmp_path / "p.parquet", texts, compression="none", **options)
    assert sum(map(len, read(file, ["c"]))) == 400


def test_a_page_that_lies_about_its_values_and_a_pipe(tmp_path: Path) -> None:
    options = {"use_dictionary": False, "compression": "none"}
    file = written(tmp_path / "f.parquet", {"c": np.arange(100)}, **options)
    content = file.read_bytes()
    said, more = b"\x2c\x15\xc8\x01", b"\x2c\x15\xc6\x01"  # 100 values, and 99
    assert content.count(said) == 1
    file.write_bytes(content.replace(said, more))
    with pytest.raises(GraphError, match=r"row group 0: column 'c' has 99 values in 100 rows$"):
        list(read(file, ["c"]))
    os.mkfifo(tmp_path / "pipe.parquet")  # which is not waited for
    with pytest.raises(GraphError, match="not a regular file"):
        ParquetFile(tmp_path / "pipe.parquet", Problems())


#: A file of some kilobytes, whose texts or pages have gigabytes once they are decoded.
BOMBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "one text in all rows": (lambda: named([LONG], np.zeros(1 << 17)), {}),
    "the last of many entries": (
        lambda: named([*map(str, range(9999)), LONG], [*range(9999), *[9999] * 121_073]),
        {},
    ),
    "prefixes": (
        lambda: pa.array([LONG] * 10_000),
        {"use_dictionary": False, "column_encoding": {"c": "DELTA_BYTE_ARRAY"}},
    ),
}

PEAK = """
import sys
from pathlib import Path
import pyarrow
from gnnscale.data.tables.parquet_file import ParquetFile
from gnnscale.data.tables.batch import Problems
file = ParquetFile(Path(sys.argv[1]), Problems())
rows = sum(map(len, file.batches(["c"], {}, 1 << 17, 16 << 20)))
print(rows, pyarrow.default_memory_pool().max_memory())
"""


@pytest.mark.long
@pytest.mark.parametrize("case", BOMBS)
def test_a_small_file_takes_little_memory(tmp_path: Path, case: str) -> None:
    make, options = BOMBS[case]
    column = make()
    file = written(tmp_path / "f.parquet", {"c": column}, **options)
    assert file.stat().st_size < 300_000
    decoded = len(column) * len(LONG)
    answer = subprocess.check_output([sys.executable, "-c", PEAK, str(file)], text=True)
    rows, peak = map(int, answer.split())
    assert rows == len(column)
    assert peak < min(decoded, 200 << 20)
