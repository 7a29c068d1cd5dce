"""Headers of Parquet pages, and the max size of the decoded pages.

The footer has sizes too, but a decoder uses the headers. Both are in Thrift's compact protocol
(``FileMetaData`` and ``PageHeader`` of https://github.com/apache/parquet-format). pyarrow does not
read the footer's columns here: it ends the process if their statistics are damaged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from gnnscale.core import GraphError

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
#: Numbers of the fields of a header that say more of a page of each type.
_DETAILS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
#: Encodings: numbers of entries of a dictionary, lengths as differences, and shared prefixes.
_BY_DICTIONARY, _DELTA_LENGTHS, _PREFIXES = (2, 8), 6, 7
#: Fields that are read, by their numbers: of a header, its type, both sizes and the details; of a
#: footer, by row groups and columns, the values, the bytes and the first page of each kind.
_HEADER = {1: None, 2: None, 3: None, 5: {1: None, 2: None}, 7: {1: None, 2: None}}
_HEADER |= {8: {1: None, 4: None}}
_FOOTER = {4: {1: {3: {5: None, 7: None, 9: None, 11: None}}}}
#: Types of Thrift's compact protocol, and the bytes of those that always take as many.
_TRUTH, _BYTE, _WHOLE, _TEXT, _LIST, _SET, _STRUCT = (1, 2), 3, (4, 5, 6), 8, 9, 10, 12
_SIZES = {1: 0, 2: 0, _BYTE: 1, 7: 8}
#: Statistics make a header long; Arrow reads no longer ones.
_HEADER_BYTES, _MAX_HEADER_BYTES = 1 << 9, 16 << 20
#: Structures within each other: of a header, and of a footer.
_HEADER_DEPTH, _FOOTER_DEPTH = 4, 16
#: Bytes at the end of a file: the length of the footer, and what every file ends with.
_TAIL_BYTES, _MAGIC = 8, b"PAR1"
#: Of a footer: that of a million chunks of columns is shorter.
_MAX_FOOTER_BYTES = 128 << 20
#: What decoders keep for a value whose length is stored as a difference.
_LENGTH_BYTES = 8
#: Of one batch of texts with shared prefixes, of which each may be as long as a page.
_PREFIX_BYTES = 128 << 20


@dataclass(frozen=True)
class Page:
    """A page, as its header describes it."""

    encoding: int | None  #: the format's number for it; None of the page that is the dictionary
    num_values: int  #: entries, empty ones included
    unpacked: int  #: bytes once it is decompressed
    packed: int  #: bytes in the file


@dataclass(frozen=True, kw_only=True)
class ColumnChunk:
    """One column of a row group, before it is decoded."""

    path: str  #: of the column in the schema
    num_rows: int  #: rows of the group
    nested: bool  #: whether a row may have several values
    width: int | None  #: bytes of a value, None if each has a length of its own
    pages: tuple[Page, ...]  #: all of them, in order

    @property
    def data(self) -> list[Page]:
        """All pages except the dictionary."""
        return [page for page in self.pages if page.encoding is not None]

    @property
    def num_values(self) -> int:
        """Values of all pages."""
        return sum(page.num_values for page in self.data)

    @property
    def packed(self) -> int:
        """Bytes of all pages in the file."""
        return sum(page.packed for page in self.pages)

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of the dictionary, 0 if there is none."""
        return sum(page.unpacked for page in self.pages if page.encoding is None)

    @property
    def page_bytes(self) -> int:
        """Bytes of the dictionary and the largest page together, decompressed."""
        return self.dictionary_bytes + max((_memory(page) for page in self.data), default=0)

    @property
    def begins_with_dictionary(self) -> bool:
        """Whether the first values are entries of the dictionary."""
        return bool(self.data) and self.data[0].encoding in _BY_DICTIONARY

    def value_bytes(self, batch_bytes: int, longest: int | None = None) -> int:
        """Return the max bytes of a decoded value; for plain pages, the average of each.

        ``longest`` is the longest entry of the dictionary in bytes, None if unknown.
        """
        if self.width is not None:
            return self.width
        entry = self.dictionary_bytes if longest is None else longest
        found = [
            entry if page.encoding in _BY_DICTIONARY else -(-page.unpacked // page.num_values)
            for page in self.data
            if page.num_values and page.encoding != _PREFIXES
        ]
        return max([1, *found, self._prefixed_bytes(batch_bytes)])

    def _prefixed_bytes(self, batch_bytes: int) -> int:
        """Return the same for texts that share prefixes: each is as long as a page, or two."""
        pages = [page for page in self.data if page.encoding == _PREFIXES]
        if not pages:
            return 0
        rows = _PREFIX_BYTES // (2 * max(page.unpacked for page in pages) + 1)
        # A batch of rows is in two pages at most.
        rows = max(min(rows, *(page.num_values for page in pages[:-1]), rows), 1)
        return max(batch_bytes // rows, 1)


def _memory(page: Page) -> int:
    lengths = page.encoding in (_DELTA_LENGTHS, _PREFIXES)
    return page.unpacked + (_LENGTH_BYTES * page.num_values if lengths else 0)


@dataclass(frozen=True, kw_only=True)
class ChunkPlace:
    """The place of one column of a row group in the file."""

    start: int  #: offset of its first page
    num_bytes: int  #: bytes of all its pages
    num_values: int  #: values of all its pages


def read_footer(stream: IO[bytes], source: str) -> list[list[ChunkPlace]]:
    """Return the columns of every row group, in the order of the file's schema.

    Raises:
        GraphError: the footer is damaged or too long, or there is none.
    """
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
        footer, _ = _struct(stream.read(length), 0, _FOOTER_DEPTH, _FOOTER)
        return [[_place(column[3]) for column in group[1]] for group in footer[4]]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise GraphError(f"{source}: its footer is damaged") from None


def _place(fields: dict[int, Any]) -> ChunkPlace:
    """Return the place of the pages of a ``ColumnMetaData``."""
    data, dictionary = fields[9], fields.get(11, 0)
    start = dictionary if 0 < dictionary < data else data
    if min(start, fields[7], fields[5]) < 0:
        raise ValueError("a negative size")
    return ChunkPlace(start=start, num_bytes=fields[7], num_values=fields[5])


def read_pages(
    stream: IO[bytes], start: int, num_bytes: int, num_values: int, source: str
) -> tuple[Page, ...]:
    """Return the pages of a chunk that begins at ``start``; their content is skipped.

    Readers stop after ``num_values``.

    Raises:
        GraphError: a header is damaged, or a page ends after the chunk.
    """
    pages: list[Page] = []
    place, end = start, start + num_bytes
    while place < end and num_values > 0:
        fields, size = _header(stream, place, end, source)
        page = _page(fields)
        if page is None or (place := place + size + fields[3]) > end:
            raise GraphError(f"{source}: the header of page {len(pages) + 1} is damaged")
        if fields[1] in _DETAILS:
            pages.append(page)
            num_values -= page.num_values if page.encoding is not None else 0
    return tuple(pages)


def _page(fields: dict[int, Any]) -> Page | None:
    """Return the page that a header describes; None if it is damaged."""
    kind = fields.get(1)
    if type(kind) is not int:
        return None
    details = fields.get(_DETAILS.get(kind, -1), {})
    if not isinstance(details, dict) or (kind in _DETAILS and not details):
        return None
    encoding = details.get(4 if kind == _DATA_V2 else 2, 0)
    sizes = (details.get(1, 0), fields.get(2), fields.get(3))
    if any(type(each) is not int or not 0 <= each < 1 << 31 for each in (*sizes, encoding)):
        return None
    return Page(None if kind == _DICTIONARY else encoding, *sizes)  # type: ignore[arg-type]


def _header(stream: IO[bytes], place: int, end: int, source: str) -> tuple[dict[int, Any], int]:
    """Return the fields of the header at ``place`` by their numbers, and its length."""
    length = _HEADER_BYTES
    while True:
        stream.seek(place)
        data = stream.read(min(length, end - place))
        try:
            return _struct(data, 0, _HEADER_DEPTH, _HEADER)
        except IndexError:
            if length >= min(end - place, _MAX_HEADER_BYTES) or len(data) < min(
                length, end - place
            ):
                raise GraphError(f"{source}: ends within the header of a page") from None
            length *= 16
        except ValueError as error:
            raise GraphError(f"{source}: the header of a page is damaged ({error})") from None


def _struct(
    data: bytes, place: int, depth: int, wanted: Mapping[int, Any]
) -> tuple[dict[int, Any], int]:
    """Return the wanted fields of a Thrift structure at ``place`` by their numbers, and its end.

    At most ``depth`` more structures and lists may be nested. ``wanted`` maps field numbers to
    None, or to the wanted fields of a structure or of a list of structures. Others are skipped, so
    a footer of megabytes takes little memory.
    """
    if depth < 0:
        raise ValueError("nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while byte := data[place]:
        place += 1
        number += byte >> 4
        if not byte >> 4:
            number, place = _whole(data, place)
        if number in wanted:
            fields[number], place = _value(data, place, byte & 15, depth, wanted[number])
        else:
            place = _after(data, place, byte & 15, depth)
    return fields, place + 1


def _value(data: bytes, place: int, kind: int, depth: int, wanted: Any) -> tuple[Any, int]:
    """Return a wanted value, and its end; None for a type that is not wanted."""
    if kind in _WHOLE:
        return _whole(data, place)
    if kind == _STRUCT and wanted is not None:
        return _struct(data, place, depth - 1, wanted)
    if kind != _LIST or wanted is None:
        return None, _after(data, place, kind, depth)
    length, kind, place = _list_header(data, place, depth)
    found = []
    for _ in range(length):
        value, place = _value(data, place, kind, depth - 1, wanted)
        found.append(value)
    return found, place


def _after(data: bytes, place: int, kind: int, depth: int) -> int:
    """Return the end of a value that is skipped."""
    if kind in _WHOLE:
        while data[place] > 127:
            place += 1
        return place + 1
    if kind == _TEXT:
        length, place = _varint(data, place)
        return place + length
    if kind == _STRUCT:
        return _struct(data, place, depth - 1, {})[1]
    if kind in (_LIST, _SET):
        length, kind, place = _list_header(data, place, depth)
        for _ in range(length):
            place = _after(data, place, kind, depth - 1)
        return place
    if kind in _SIZES:
        return place + _SIZES[kind]
    raise ValueError(f"a field of type {kind}")


def _list_header(data: bytes, place: int, depth: int) -> tuple[int, int, int]:
    """Return the length of a list, the type of its values, and the place of the first one."""
    if depth < 1:
        raise ValueError("nested too deeply")
    length, kind = data[place] >> 4, data[place] & 15
    place += 1
    if length == 15:
        length, place = _varint(data, place)
    # A truth value is a byte here, and a type elsewhere. Every value takes a byte at least.
    kind = _BYTE if kind in _TRUTH else kind
    if length > len(data) - place:
        raise IndexError("a list that ends after what it is in")
    return length, kind, place


def _whole(data: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("a number of over 64 bits")
