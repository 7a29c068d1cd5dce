"""Parser of Parquet footers and page headers, which bounds the size of the decoded pages.

The footer has sizes too, but a decoder uses the headers. Both are in Thrift's compact protocol
(https://github.com/apache/parquet-format). pyarrow aborts on damaged statistics, so it is not used.
"""

from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from gnnscale.core import GraphError

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
#: Field numbers of the details of a page, by page type.
_DETAILS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
#: Encodings: dictionary indices, delta-encoded lengths, and shared prefixes.
_BY_DICTIONARY, _DELTA_LENGTHS, _PREFIXES = (2, 8), 6, 7
#: Types of Thrift's compact protocol, and the bytes of types of fixed size.
_TRUTH, _BYTE, _WHOLE, _TEXT, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 8, (9, 10), 12
_SIZES = {1: 0, 2: 0, _BYTE: 1, 7: 8}
#: Bytes of a header: usual, and at most (as in Arrow), since statistics may be long.
_HEADER_BYTES, _MAX_HEADER_BYTES = 1 << 9, 16 << 20
#: Nesting depth and number of structures of a header, and of a footer, at most.
_HEADER_DEPTH, _FOOTER_DEPTH = 4, 16
_HEADER_STRUCTS, _FOOTER_STRUCTS = 1 << 8, 16 << 20
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


class ChunkLocation(NamedTuple):
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
        footer = _Thrift(stream.read(length), _FOOTER_STRUCTS).struct(_FOOTER_DEPTH)
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


def read_pages(stream: IO[bytes], chunk: ChunkLocation, source: str) -> tuple[Page, ...]:
    """Return the pages of a column chunk, from their headers, until they have all its values."""
    pages: list[Page] = []
    offset, end, num_values = chunk.start, chunk.start + chunk.num_bytes, chunk.num_values
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
        header = _Thrift(stream.read(min(length, end - offset)), _HEADER_STRUCTS)
        try:
            return header.struct(_HEADER_DEPTH), header.offset
        except IndexError:
            if len(header.data) < length or length >= _MAX_HEADER_BYTES:
                raise GraphError(f"{source}: ends within the header of a page") from None
            length *= 16
        except ValueError as error:
            raise GraphError(f"{source}: the header of a page is damaged ({error})") from None


class _Thrift:
    """Decoder of Thrift's compact protocol, for at most ``num_structs`` structures.

    Only integers, structures and their lists are decoded; other values are None. IndexError: the
    data end within a value.
    """

    def __init__(self, data: bytes, num_structs: int) -> None:
        self.data, self.offset = data, 0
        self._num_structs = num_structs

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the fields of the structure at ``offset`` by number.

        ValueError: it is nested deeper than ``depth``, has too many structures, or is damaged.
        """
        self._num_structs -= 1
        if depth < 0 or self._num_structs < 0:
            raise ValueError("nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while byte := self._byte():
            number = number + (byte >> 4) if byte >> 4 else self._integer()
            fields[number] = self._value(byte & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _WHOLE:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth - 1)
        if kind in _LISTS:
            return self._list(depth - 1)
        if kind != _TEXT and kind not in _SIZES:
            raise ValueError(f"a field of type {kind}")
        size = self._varint() if kind == _TEXT else _SIZES[kind]
        self.offset += size
        return None

    def _list(self, depth: int) -> list[Any]:
        if depth < 0:
            raise ValueError("nested too deeply")
        byte = self._byte()
        length, kind = byte >> 4, byte & 15
        length = self._varint() if length == 15 else length
        # Every value takes at least a byte; a truth value is a byte in a list.
        if length > len(self.data) - self.offset:
            raise IndexError("a list that ends after what it is in")
        return [self._value(_BYTE if kind in _TRUTH else kind, depth) for _ in range(length)]

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number of over 64 bits")

    def _byte(self) -> int:
        byte = self.data[self.offset]
        self.offset += 1
        return byte
