"""Arrays in .npy files: written row by row, and mapped after a strict check of the header."""

import ast
import io
import math
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Protocol

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, GraphError
from gnnscale.core.artifact.files import open_regular

#: Approximate bytes read or written at a time.
SLICE_BYTES = 64 << 20
#: Real headers have about 100 bytes; NumPy pads them to 128.
_MAX_HEADER_BYTES = 4096
#: First bytes of a .npy file of version 1.0, and the bytes of a disk block, to which headers of
#: matrices are padded.
_START = b"\x93NUMPY\x01\x00"
_BLOCK = 4096
_MAX_AXES = 4
#: NumPy's kinds of bool, int and float; objects, records, strings and dates are refused.
_KINDS = "biuf"
_KIND_NAMES = {
    "iu": "whole numbers",
    "f": "floating point",
    "iuf": "numbers",
    "biuf": "numbers",
    "b": "booleans",
}
#: Characters that no valid header contains, and for which Python's parser would print a warning.
_NOT_IN_HEADER = re.compile(rb"\\|[0-9][A-Za-z_]|[^\t\n -~]")


class NpyError(ValueError):
    """Error in a .npy file of numbers; the message does not name the file."""


@dataclass(frozen=True, kw_only=True)
class NpyHeader:
    """Header of a .npy file."""

    shape: tuple[int, ...]  #: shape of the array, in C order
    dtype: np.dtype[Any]  #: a numeric type in the machine's byte order
    offset: int  #: bytes before the first element

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, kw_only=True)
class ArrayEntry:
    """Entry of one array in an artifact's header."""

    shape: tuple[Annotated[int, Meta(ge=0, le=1 << 47)], ...]
    dtype: str  #: NumPy's name of the type
    bytes: Annotated[int, Meta(ge=0)]  #: size of the .npy file, header included
    crc32: Annotated[int, Meta(ge=0, lt=1 << 32)]  #: checksum of the elements


class NpyWriter:
    """Writer, and context manager, of a .npy file whose number of rows is known only at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any], row_shape: tuple[int, ...] = ()) -> None:
        self._dtype = dtype
        self._row_shape = row_shape
        self._num_rows = 0
        self._crc32 = 0
        self._file = path.open("w+b")
        self._write_header()

    def _write_header(self) -> None:
        # NumPy pads the header, so its size does not depend on the number of rows.
        write_header(self._file, (self._num_rows, *self._row_shape), self._dtype)

    def append(self, rows: Array) -> None:
        """Write ``rows``, converted to the file's type, after the rows written so far."""
        data = np.ascontiguousarray(rows, dtype=self._dtype)
        assert data.shape[1:] == self._row_shape
        view = data.reshape(-1).view(np.uint8).data
        self._crc32 = zlib.crc32(view, self._crc32)
        self._file.write(view)
        self._num_rows += len(data)

    def close(self) -> ArrayEntry:
        """Write the final header, close the file and return the array's entry."""
        num_bytes = self._file.tell()
        self._file.seek(0)
        self._write_header()
        self._file.close()
        return ArrayEntry(
            shape=(self._num_rows, *self._row_shape),
            dtype=str(self._dtype),
            bytes=num_bytes,
            crc32=self._crc32,
        )

    def __enter__(self) -> "NpyWriter":
        return self

    def __exit__(self, *reason: object) -> None:
        with suppress(OSError):  # closing can fail on a full disk
            self._file.close()


def write_header(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the header of a .npy file; of a matrix it is padded to a block, for direct I/O."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, header)
    text = content.getvalue()
    if len(shape) == 2:
        text = _START + struct.pack("<H", _BLOCK - 10) + text[10:-1].ljust(_BLOCK - 11) + b"\n"
    file.write(text)


def write_rows(
    file: Path, chunks: Iterable[Array], dtype: np.dtype[Any], row_shape: tuple[int, ...] = ()
) -> ArrayEntry:
    """Write ``chunks`` of rows one by one to a .npy file, and return the array's entry."""
    with NpyWriter(file, dtype, row_shape) as writer:
        for rows in chunks:
            writer.append(rows)
        return writer.close()


def write_array(file: Path, array: Array) -> ArrayEntry:
    """Write ``array``, which may be mapped, in slices, never fully in memory; return its entry."""
    slices = row_slices(len(array), array[:1].nbytes)
    return write_rows(file, (array[part] for part in slices), array.dtype, array.shape[1:])


def row_slices(num_rows: int, row_bytes: int, slice_bytes: int = SLICE_BYTES) -> Iterator[slice]:
    """Yield slices of about ``slice_bytes`` that cover ``num_rows`` rows."""
    step = max(1, slice_bytes // max(1, row_bytes))
    for first in range(0, num_rows, step):
        yield slice(first, min(first + step, num_rows))


def read_header(stream: IO[bytes]) -> NpyHeader:
    """Read a .npy header, and leave ``stream`` at the first element; NpyError if it is invalid."""
    start = stream.read(6)
    if start != b"\x93NUMPY":
        raise NpyError(f"begins with {start!r}, not as a .npy file does")
    version = tuple(stream.read(2))
    if version not in ((1, 0), (2, 0), (3, 0)):
        got = ".".join(map(str, version))
        raise NpyError(f"format version: expected 1.0 to 3.0, got {got}")
    kind = "<H" if version == (1, 0) else "<I"
    size_field = stream.read(struct.calcsize(kind))
    if len(size_field) != struct.calcsize(kind):
        raise NpyError("ends within its header")
    (size,) = struct.unpack(kind, size_field)
    if size > _MAX_HEADER_BYTES:
        raise NpyError(f"header: expected at most {_MAX_HEADER_BYTES} bytes, got {size}")
    text = stream.read(size)
    if len(text) != size:
        raise NpyError("ends within its header")
    shape, dtype = _parse(text)
    return NpyHeader(shape=shape, dtype=dtype, offset=8 + len(size_field) + size)


def map_npy(path: Path, *, axes: int | None = None, kinds: str | None = None) -> Array:
    """Map a .npy file read-only; GraphError: it is damaged, or fails ``check_array``."""
    try:
        with open_regular(path) as stream:
            header = read_header(stream)
            size = os.fstat(stream.fileno()).st_size - header.offset
        if size != header.num_bytes:
            expected = header.num_bytes
            raise NpyError(f"{size} bytes of data, its header says {expected} (truncated?)")
        array = (
            np.memmap(path, header.dtype, "r", header.offset, header.shape)
            if header.num_bytes
            else np.empty(header.shape, header.dtype)
        )
    except (NpyError, OSError) as error:
        raise GraphError(f"{path}: not a readable .npy file ({error})") from None
    check_array(array, axes=axes, kinds=kinds, source=path)
    return array


def check_length(array: Array) -> None:
    """Raise GraphError if the file that ``array``, unless in memory, maps became shorter.

    Beyond the new end, the last page reads as zeros, and further pages raise SIGBUS.
    """
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    # The mapping refers to its file even if the name now leads to another file.
    if not isinstance(root, np.memmap) or not isinstance(root.base, mmap.mmap):
        return
    size, expected = root.base.size(), root.offset + root.nbytes
    if size < expected:
        raise GraphError(
            f"{root.filename}: became shorter while it was in use: {size} bytes, it had "
            f"{expected} when it was opened"
        )


def explain_lost_page(file: Path) -> str:
    """Return one line that explains a SIGBUS of ``file``, a name in ``/proc/self/maps``."""
    with suppress(NpyError, GraphError, OSError), open_regular(file) as stream:
        header, size = read_header(stream), os.fstat(stream.fileno()).st_size
        expected = header.offset + header.num_bytes
        if size < expected:
            return f"{file}: became shorter while it was in use: {size} bytes, not {expected}"
    return f"{file}: a mapped file became shorter, or its disk fails or is full"


def read_slices(
    file: Path, array: Array, slice_bytes: int = SLICE_BYTES
) -> Iterator[tuple[int, Array]]:
    """Yield the first row's number and the rows of each slice of a mapped array.

    The slices are read from ``file``: mapped pages would count as memory of this process.
    """
    with file.open("rb") as stream:
        stream.seek(file.stat().st_size - array.nbytes)
        for part in row_slices(len(array), array[:1].nbytes, slice_bytes):
            shape = (part.stop - part.start, *array.shape[1:])
            rows = np.fromfile(stream, array.dtype, math.prod(shape))
            if rows.size != math.prod(shape):
                raise GraphError(f"{file}: was changed while it was read")
            yield part.start, rows.reshape(shape)


class _Shaped(Protocol):
    """Array, or header of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


def check_array(
    array: _Shaped, *, axes: int | tuple[int, ...] | None, kinds: str | None, source: object
) -> None:
    """Raise GraphError, naming ``source``, unless an array has the expected axes and elements.

    ``axes`` is an allowed number of axes, or several; ``kinds`` are NumPy's letters of allowed
    kinds. None: all are allowed.
    """
    form = f"{array.dtype}{list(array.shape)}"
    allowed = (axes,) if isinstance(axes, int) else axes
    if allowed is not None and len(array.shape) not in allowed:
        raise GraphError(
            f"{source}: expected {' or '.join(map(str, allowed))} axes, got {form} with "
            f"{len(array.shape)}"
        )
    if kinds is not None and array.dtype.kind not in kinds:
        raise GraphError(f"{source}: expected {_KIND_NAMES.get(kinds, kinds)}, got {form}")


def _parse(text: bytes) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype from a header's text; NpyError: not of numbers in C order."""
    if strange := _NOT_IN_HEADER.search(text):
        raise NpyError(f"header is not a dictionary (holds {strange[0]!r})")
    try:
        entries = ast.literal_eval(text.decode("ascii").strip())
    # On damaged text the parser may raise even MemoryError and RecursionError.
    except Exception as error:
        raise NpyError(f"header is not a dictionary ({type(error).__name__})") from None
    if not isinstance(entries, dict) or set(entries) != {"descr", "fortran_order", "shape"}:
        raise NpyError("header needs exactly descr, fortran_order and shape")
    shape, descr, fortran = (entries[key] for key in ("shape", "descr", "fortran_order"))
    if not (
        isinstance(shape, tuple)
        and len(shape) <= _MAX_AXES
        and all(type(axis) is int and 0 <= axis < 2**47 for axis in shape)
        and math.prod(shape) < 2**47
    ):
        raise NpyError(f"shape: expected up to {_MAX_AXES} sizes below 2^47, got {shape!r}")
    if type(fortran) is not bool or (fortran and len(shape) > 1):
        raise NpyError(
            f"fortran_order: expected C order, got {fortran!r}; numpy.ascontiguousarray converts"
        )
    return shape, _parse_dtype(descr)


def _parse_dtype(descr: object) -> np.dtype[Any]:
    # A list would describe records; NumPy does not write names such as "O" or "int".
    if not isinstance(descr, str) or len(descr) > 4:
        raise NpyError(f"elements: expected numbers, got {descr!r}")
    try:
        dtype = np.dtype(descr)
    except Exception:
        raise NpyError(f"elements: expected numbers, got {descr!r}") from None
    if dtype.kind not in _KINDS or dtype.itemsize > 8:
        hint = (
            "; numpy.unique(a, return_inverse=True)[1] numbers texts" if dtype.kind in "USO" else ""
        )
        raise NpyError(f"elements: expected numbers of up to 64 bits, got {dtype}{hint}")
    if not dtype.isnative:
        raise NpyError(f"elements: expected the machine's byte order, got {descr!r}")
    return dtype
