import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import GraphError
from gnnscale.data.tables.parquet_pages import (
    ChunkLocation,
    ColumnChunk,
    Page,
    read_footer,
    read_pages,
)

#: Type 0 (data), 10 bytes unpacked, 4 packed; 3 values in encoding 8, levels in encoding 3.
DATA = bytes.fromhex("15 00 15 14 15 08 2c 15 06 15 10 15 06 15 06 00 00")
#: Type 2 (dictionary), 200 bytes unpacked, 2 packed; 5 values, plain.
DICTIONARY = bytes.fromhex("15 04 15 90 03 15 04 4c 15 0a 15 00 00 00")
#: Type 3 (data, second version), as DATA, and 1 of the values is null in 2 rows; a checksum.
DATA_V2 = bytes.fromhex("15 06 15 14 15 08 15 02 4c 15 06 15 02 15 04 15 10 15 00 15 00 11 00 00")


def pages(content: bytes, num_values: int = 100) -> tuple[Page, ...]:
    place = ChunkLocation(4, len(content), num_values)
    return read_pages(io.BytesIO(b"PAR1" + content), place, "f: column 'c'")


def test_pages_by_hand() -> None:
    content = DICTIONARY + b"zz" + DATA + b"data" + DATA_V2 + b"data"
    assert pages(content) == (Page(None, 5, 200, 2), Page(8, 3, 10, 4), Page(8, 3, 10, 4))
    assert len(pages(content, num_values=3)) == 2  # as a reader stops, which has all values
    assert pages(b"") == ()
    # Of a type that nobody decodes: skipped.
    skipped = DATA.replace(b"\x15\x00", b"\x15\x02", 1) + b"data"
    assert pages(skipped + DATA + b"data") == (Page(8, 3, 10, 4),)
    # Statistics make a header long: a minimum of 10,000 bytes.
    statistics = b"\x5c\x18" + b"\x90\x4e" + b"m" * 10_000 + b"\x00"
    assert pages(DATA[:-2] + statistics + b"\x00\x00" + b"data") == (Page(8, 3, 10, 4),)


DAMAGED = {
    "no sizes": b"\x15\x00\x00",
    "no details": DATA[:6] + b"\x00data",
    "ends after the chunk": DATA + b"dat",
    "ends within": DATA[:9],
    "negative": DATA.replace(b"\x15\x08", b"\x15\x07", 1) + b"data",
    "of over 31 bits": DATA.replace(b"\x15\x14", b"\x15\xfe\xff\xff\xff\x1f", 1) + b"data",
    "of over 64 bits": b"\x15" + b"\xff" * 11,
    "of another kind": DATA.replace(b"\x15\x14", b"\x11", 1) + b"data",
    "a list in place of the type": b"\x19\x00" + DATA,
    "a number in place of what it holds": DATA[:6] + b"\x25\x08\x00" + b"data",
    "nested": b"\x1c" * 9,
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_headers(case: str) -> None:
    with pytest.raises(GraphError, match=r"^f: column 'c': (the header of|ends within the)"):
        pages(DAMAGED[case])


@settings(max_examples=20)
@given(st.binary(max_size=60))
def test_any_bytes_are_pages_or_refused(content: bytes) -> None:
    try:
        found = pages(content)
    except GraphError:
        return
    assert sum(page.packed for page in found) < 60


def chunk(*found: Page, width: int | None = None) -> ColumnChunk:
    return ColumnChunk(path="c", num_rows=9, nested=False, width=width, pages=found)


def test_bytes_of_a_value() -> None:
    dictionary, named = Page(None, 5, 200, 2), Page(8, 4, 9, 9)
    plain, prefixed, lengths = Page(0, 4, 90, 9), Page(7, 4, 1 << 20, 9), Page(6, 4, 90, 9)
    assert chunk(dictionary, named).value_bytes(1000) == 200
    assert chunk(dictionary, named).value_bytes(1000, longest=7) == 7
    assert chunk(dictionary, named, plain).value_bytes(1000, longest=7) == 23
    assert chunk(lengths).value_bytes(1000) == 23
    assert chunk(width=8).value_bytes(1000) == 8
    assert chunk().value_bytes(1000) == 1
    # 128 MiB hold 63 rows of two pages of 1 MiB each.
    assert 1000 // chunk(prefixed).value_bytes(1000) == 66
    assert 1000 // chunk(prefixed, prefixed).value_bytes(1000) == 4
    assert chunk(dictionary, named, plain).page_bytes == 290
    assert chunk(lengths).page_bytes == 90 + 4 * 8
    assert [chunk(each, plain).begins_with_dictionary for each in (named, plain)] == [True, False]


def test_a_footer_says_where_columns_are(tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    table = pa.table({"a": [*range(10)], "b": ["x", "y"] * 5, "c": [[1, 2], []] * 5})
    pq.write_table(table, file, row_group_size=4)
    metadata = pq.read_metadata(file)
    with file.open("rb") as stream:
        footer = read_footer(stream, "some.parquet")
    assert len(footer) == metadata.num_row_groups == 3
    for group, columns in enumerate(footer):
        for index, place in enumerate(columns):
            column = metadata.row_group(group).column(index)
            first = column.dictionary_page_offset or column.data_page_offset
            assert place.start == min(first, column.data_page_offset)
            assert place.num_bytes == column.total_compressed_size
            assert place.num_values == column.num_values


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        b"\x49\x1c\x00\x00",
        b"\x49\x1c" * 20,
        b"\x49\xfc\xff\xff\xff\xff\x0f",
        b"\x45\x02\x00",
        # Lists within each other, a list longer than the file, columns that say nothing.
        b"\x49" + b"\x19" * 3000,
        b"\x19\xf7" + b"\xff" * 8 + b"\x01\x49\x1c\x19\x0c\x00\x00",
        b"\x49\x1c\x19\x2c\x26\x00\x00\x26\x00\x00\x00\x00",
    ],
)
def test_damaged_footers(footer: bytes) -> None:
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(GraphError, match=r"^some\.parquet: its footer is damaged$"):
        read_footer(io.BytesIO(data), "some.parquet")


def test_no_parquet_file() -> None:
    for content in (b"", b"id,label", b"PAR1 and more"):
        with pytest.raises(GraphError, match=r"^f: no Parquet file, or cut off"):
            read_footer(io.BytesIO(content), "f")
    data = b"PAR1" + (1 << 31).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(GraphError, match=r"^f: its footer has 2147483648 bytes, allowed are"):
        read_footer(io.BytesIO(data), "f")
