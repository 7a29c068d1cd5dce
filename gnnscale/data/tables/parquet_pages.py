"""Parser of Parquet footers and page headers, which bounds the size of the decoded pages.

The footer has sizes too, but a decoder uses the headers. Both are in Thrift's compact protocol
(https://github.com/apache/parquet-format). pyarrow aborts on damaged statistics, so it is not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from gnnscale.core import GraphError

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
#: Field numbers of the details of a page, by page type.
_DETAILS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
#: Encodings: dictionary indices, delta-encoded lengths, and shared prefixes.
_BY_DICTIONARY, _DELTA_LENGTHS, _PREFIXES = (2, 8), 6, 7
#: Field numbers to read: of a header, type, both sizes and details; of a footer, per row group and
#: column, number of values, bytes, and offsets of the first data and dictionary page.
_HEADER = {1: None, 2: None, 3: None, 5: {1: None, 2: None}, 7: {1: None, 2: None}}
_HEADER |= {8: {1: None, 4: None}}
_FOOTER = {4: {1: {3: {5: None, 7: None, 9: None, 11: None}}}}
#: Types of Thrift's compact protocol, and the bytes of types of fixed size.
_TRUTH, _BYTE, _WHOLE, _TEXT, _LIST, _SET, _STRUCT = (1, 2), 3, (4, 5, 6), 8, 9, 10, 12
_SIZES = {1: 0, 2: 0, _BYTE: 1, 7: 8}
#: Bytes of a header: usual, and at most (as in Arrow), since statistics may be long.
_HEADER_BYTES, _MAX_HEADER_BYTES = 1 << 9, 16 << 20
#: Nesting depth of a header, and of a footer, at most.
_HEADER_DEPTH, _FOOTER_DEPTH = 4, 16
#: Bytes at the end of a file: the length of the footer, and the magic number.
_TAIL_BYTES, _MAGIC = 8, b"PAR1"
#: Bytes of a footer, at most; that of a million column chunks is shorter.
_MAX_FOOTER_BYTES = 128 << 20
#: Bytes that decoders hold per delta-encoded length.
_LENGTH_BYTES = 8
#: Bytes of a batch of texts with shared prefixes, each of which may be as long as a page.
_PREFIX_BYTES = 128 << 20


@dataclass(frozen=True)
class Page:
    """Page of a column chunk, from its header."""

    encoding: int | None  #: encoding number of the format. None: the dictionary page.
    num_values: int  #: number of values, nulls included
    unpacked: int  #: decompressed bytes
    packed: int  #: bytes in the file


@dataclass(frozen=True, kw_only=True)
class ColumnChunk:
    """Column of a row group (a column chunk), described by its page headers, not decoded."""

    path: str  #: path of the column in the schema
    num_rows: int  #: rows of the group
    nested: bool  #: whether a row may have several values
    width: int | None  #: bytes of a value. None: values have variable length.
    pages: tuple[Page, ...]  #: all pages in order

    @property
    def data(self) -> list[Page]:
        """All pages except the dictionary."""
        return [page for page in self.pages if page.encoding is not None]

    @property
    def num_values(self) -> int:
        """Number of values of all pages but the dictionary, nulls included."""
        return sum(page.num_values for page in self.data)

    @property
    def packed(self) -> int:
        """Bytes that all pages take in the file."""
        return sum(page.packed for page in self.pages)

    @property
    def dictionary_bytes(self) -> int:
        """Decompressed bytes of the dictionary; 0 without a dictionary."""
        return sum(page.unpacked for page in self.pages if page.encoding is None)

    @property
    def page_bytes(self) -> int:
        """Decompressed bytes of the dictionary plus the largest page, with decoded lengths."""
        has_lengths = (_DELTA_LENGTHS, _PREFIXES)
        sizes = (
            page.unpacked + (_LENGTH_BYTES * page.num_values if page.encoding in has_lengths else 0)
            for page in self.data
        )
        return self.dictionary_bytes + max(sizes, default=0)

    @property
    def begins_with_dictionary(self) -> bool:
        """Whether the first page of values holds indices into the dictionary."""
        return bool(self.data) and self.data[0].encoding in _BY_DICTIONARY

    def value_bytes(self, batch_bytes: int, longest: int | None = None) -> int:
        """Return an upper bound on the bytes of a decoded value, in a batch of ``batch_bytes``.

        ``longest``: bytes of the longest dictionary entry. None: unknown.
        """
        if self.width is not None:
            return self.width
        entry = self.dictionary_bytes if longest is None else longest
        sizes = [
            entry if page.encoding in _BY_DICTIONARY else -(-page.unpacked // page.num_values)
            for page in self.data
            if page.num_values and page.encoding != _PREFIXES
        ]
        return max([1, *sizes, self._prefixed_bytes(batch_bytes)])

    def _prefixed_bytes(self, batch_bytes: int) -> int:
        """Return the bytes to count per prefix-encoded text; 0 without such texts.

        So a batch of ``batch_bytes`` has few enough rows to decode to 128 MiB at most.
        """
        pages = [page for page in self.data if page.encoding == _PREFIXES]
        if not pages:
            return 0
        rows = _PREFIX_BYTES // (2 * max(page.unpacked for page in pages) + 1)
        # A batch of rows is in two pages at most.
        rows = max(min(rows, *(page.num_values for page in pages[:-1]), rows), 1)
        return max(batch_bytes // rows, 1)


@dataclass(frozen=True, kw_only=True)
class ChunkLocation:
    """Location of a column chunk (column of a row group) in the file."""

    start: int  #: offset of the first page
    num_bytes: int  #: bytes of all pages
    num_values: int  #: values of all pages


def read_footer(stream: IO[bytes], source: str) -> list[list[ChunkLocation]]:
    """Return the locations of the column chunks of every row group, in the order of the schema."""
    size = stream.seek(0, 2)
    stream.seek(max(size - _TAIL_BYTES, 0))
    length, magic = int.from_bytes(stream.read(4), "little"), stream.read(4)
    if magic != _MAGIC:
        raise GraphError(f"{source}: no Parquet file, or cut off: it does not end with PAR1")
    if length > _MAX_FOOTER_BYTES:
        raise GraphError(
            f"{source}: its footer has {length} bytes, allowed are {_MAX_FOOTER_BYTES}; "
            "write fewer row groups"
        )
    stream.seek(max(size - _TAIL_BYTES - length, 0))
    try:
        footer, _ = _read_struct(stream.read(length), 0, _FOOTER_DEPTH, _FOOTER)
        return [[_chunk_location(column[3]) for column in group[1]] for group in footer[4]]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise GraphError(f"{source}: its footer is damaged") from None


def _chunk_location(fields: dict[int, Any]) -> ChunkLocation:
    """Return the location of a column chunk, from the fields of its ``ColumnMetaData``."""
    data, dictionary = fields[9], fields.get(11, 0)
    start = dictionary if 0 < dictionary < data else data
    if min(start, fields[7], fields[5]) < 0:
        raise ValueError("a negative size")
    return ChunkLocation(start=start, num_bytes=fields[7], num_values=fields[5])


def read_pages(
    stream: IO[bytes], start: int, num_bytes: int, num_values: int, source: str
) -> tuple[Page, ...]:
    """Return the pages of a column chunk, from their headers, until they have ``num_values``."""
    pages: list[Page] = []
    offset, end = start, start + num_bytes
    while offset < end and num_values > 0:
        fields, size = _read_header(stream, offset, end, source)
        page = _parse_page(fields)
        if page is None or (offset := offset + size + fields[3]) > end:
            raise GraphError(f"{source}: the header of page {len(pages) + 1} is damaged")
        if fields[1] in _DETAILS:
            pages.append(page)
            num_values -= page.num_values if page.encoding is not None else 0
    return tuple(pages)


def _parse_page(fields: dict[int, Any]) -> Page | None:
    """Return the page that header ``fields`` describe; None: the header is damaged."""
    kind = fields.get(1)
    if type(kind) is not int:
        return None
    details = fields.get(_DETAILS.get(kind, -1), {})
    if not isinstance(details, dict) or (kind in _DETAILS and not details):
        return None
    encoding = details.get(4 if kind == _DATA_V2 else 2, 0)
    sizes = (details.get(1, 0), fields.get(2), fields.get(3))
    if any(type(number) is not int or not 0 <= number < 1 << 31 for number in (*sizes, encoding)):
        return None
    return Page(None if kind == _DICTIONARY else encoding, *sizes)  # type: ignore[arg-type]


def _read_header(
    stream: IO[bytes], offset: int, end: int, source: str
) -> tuple[dict[int, Any], int]:
    """Return the fields of the header at ``offset`` by number, and its length."""
    length = _HEADER_BYTES
    while True:
        stream.seek(offset)
        data = stream.read(min(length, end - offset))
        try:
            return _read_struct(data, 0, _HEADER_DEPTH, _HEADER)
        except IndexError:
            if length >= min(end - offset, _MAX_HEADER_BYTES) or len(data) < min(
                length, end - offset
            ):
                raise GraphError(f"{source}: ends within the header of a page") from None
            length *= 16
        except ValueError as error:
            raise GraphError(f"{source}: the header of a page is damaged ({error})") from None


def _read_struct(
    data: bytes, offset: int, depth: int, schema: Mapping[int, Any]
) -> tuple[dict[int, Any], int]:
    """Return a Thrift structure's fields that ``schema`` has, by number, and the end offset."""
    if depth < 0:
        raise ValueError("nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while byte := data[offset]:
        offset += 1
        number += byte >> 4
        if not byte >> 4:
            number, offset = _read_integer(data, offset)
        if number in schema:
            fields[number], offset = _read_value(data, offset, byte & 15, depth, schema[number])
        else:
            offset = _skip_value(data, offset, byte & 15, depth)
    return fields, offset + 1


def _read_value(data: bytes, offset: int, kind: int, depth: int, schema: Any) -> tuple[Any, int]:
    """Return a value of Thrift type ``kind`` and its end offset.

    Values other than integers are None if they are not in ``schema``.
    """
    if kind in _WHOLE:
        return _read_integer(data, offset)
    if kind == _STRUCT and schema is not None:
        return _read_struct(data, offset, depth - 1, schema)
    if kind != _LIST or schema is None:
        return None, _skip_value(data, offset, kind, depth)
    length, kind, offset = _read_list_header(data, offset, depth)
    values = []
    for _ in range(length):
        value, offset = _read_value(data, offset, kind, depth - 1, schema)
        values.append(value)
    return values, offset


def _skip_value(data: bytes, offset: int, kind: int, depth: int) -> int:
    """Return the end offset of a value of Thrift type ``kind``, without its value."""
    if kind in _WHOLE:
        while data[offset] > 127:
            offset += 1
        return offset + 1
    if kind == _TEXT:
        length, offset = _read_varint(data, offset)
        return offset + length
    if kind == _STRUCT:
        return _read_struct(data, offset, depth - 1, {})[1]
    if kind in (_LIST, _SET):
        length, kind, offset = _read_list_header(data, offset, depth)
        for _ in range(length):
            offset = _skip_value(data, offset, kind, depth - 1)
        return offset
    if kind in _SIZES:
        return offset + _SIZES[kind]
    raise ValueError(f"a field of type {kind}")


def _read_list_header(data: bytes, offset: int, depth: int) -> tuple[int, int, int]:
    """Return the length of a list, the type of its values, and the offset of the first value."""
    if depth < 1:
        raise ValueError("nested too deeply")
    length, kind = data[offset] >> 4, data[offset] & 15
    offset += 1
    if length == 15:
        length, offset = _read_varint(data, offset)
    # In a list, a truth value is a byte, not a type. Every value takes at least a byte.
    kind = _BYTE if kind in _TRUTH else kind
    if length > len(data) - offset:
        raise IndexError("a list that ends after what it is in")
    return length, kind, offset


def _read_integer(data: bytes, offset: int) -> tuple[int, int]:
    value, offset = _read_varint(data, offset)
    return (value >> 1) ^ -(value & 1), offset


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise ValueError("a number of over 64 bits")
