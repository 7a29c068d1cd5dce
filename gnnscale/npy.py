"""NumPy's .npy files: written row by row; read after the header is checked."""

from __future__ import annotations

import ast
import math
import os
import re
import stat
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NpyError", "NpyHeader", "NpyWriter", "map_npy", "read_header"]

#: Real headers have about 100 bytes; NumPy pads them to 128.
_MAX_HEADER_BYTES = 4096
_MAX_AXES = 4
#: Booleans, whole numbers and floating point; no objects, records, strings or dates.
_KINDS = "biuf"
#: What no header has: Python's parser would warn of it, whatever else it says.
_NOT_IN_HEADER = re.compile(rb"\\|[0-9][A-Za-z_]|[^\t\n -~]")


class NpyError(ValueError):
    """A file is no .npy file of numbers. The message says why, not which file."""


@dataclass(frozen=True, kw_only=True)
class NpyHeader:
    """What a .npy file holds.

    Attributes:
        shape: of the array, in C order.
        dtype: of its elements: numbers in the machine's byte order.
        offset: bytes before the first element.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


class NpyWriter:
    """Writes a .npy file whose number of rows is known only at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any], row_shape: tuple[int, ...] = ()) -> None:
        self._dtype = dtype
        self._row_shape = row_shape
        self._num_rows = 0
        self._crc32 = 0
        self._file = path.open("w+b")
        self._write_header()

    def _write_header(self) -> None:
        # NumPy pads the header for the first axis to grow, so that its size stays the same.
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._num_rows, *self._row_shape),
        }
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, rows: NDArray[Any]) -> None:
        """Write ``rows``, converted to the file's type."""
        data = np.ascontiguousarray(rows, dtype=self._dtype)
        assert data.shape[1:] == self._row_shape
        view = data.reshape(-1).view(np.uint8).data
        self._crc32 = zlib.crc32(view, self._crc32)
        self._file.write(view)
        self._num_rows += len(data)

    def close(self) -> dict[str, Any]:
        """Finish the file; return its entry in ``meta.json``, where ``crc32`` is of the data."""
        num_bytes = self._file.tell()
        self._file.seek(0)
        self._write_header()
        self._file.close()
        return {
            "shape": [self._num_rows, *self._row_shape],
            "dtype": str(self._dtype),
            "bytes": num_bytes,
            "crc32": self._crc32,
        }

    def abandon(self) -> None:
        """Close the file as it is; on a full disk even that can fail."""
        with suppress(OSError):
            self._file.close()


def read_header(stream: IO[bytes]) -> NpyHeader:
    """Read a .npy header from the start of ``stream``, which is left at the first element.

    Raises:
        NpyError: it is none, or of an array that this program has no use for.
    """
    start = stream.read(6)
    if start != b"\x93NUMPY":
        raise NpyError(f"begins with {start!r}, not as a .npy file does")
    version = tuple(stream.read(2))
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise NpyError(f"format version {'.'.join(map(str, version))}, known are 1.0 to 3.0")
    kind = "<H" if version == (1, 0) else "<I"
    size_field = stream.read(struct.calcsize(kind))
    if len(size_field) != struct.calcsize(kind):
        raise NpyError("ends within its header")
    (size,) = struct.unpack(kind, size_field)
    if size > _MAX_HEADER_BYTES:
        raise NpyError(f"header of {size} bytes, allowed are {_MAX_HEADER_BYTES}")
    text = stream.read(size)
    if len(text) != size:
        raise NpyError("ends within its header")
    shape, dtype = _parse(text)
    return NpyHeader(shape=shape, dtype=dtype, offset=8 + len(size_field) + size)


def map_npy(path: Path) -> NDArray[Any]:
    """Map the array in ``path`` read-only.

    Raises:
        NpyError: the file is no .npy file of numbers, or shorter or longer than its header says.
        OSError: the file cannot be opened.
    """
    # A pipe is not waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NpyError("not a regular file")
        header = read_header(stream)
        found = status.st_size - header.offset
    if found != header.num_bytes:
        raise NpyError(f"{found} bytes of data, its header says {header.num_bytes} (truncated?)")
    if not header.num_bytes:  # nothing to map
        return np.empty(header.shape, header.dtype)
    return np.memmap(path, header.dtype, "r", header.offset, header.shape)


def _parse(text: bytes) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type from the text of a header, a Python dictionary of three entries."""
    if strange := _NOT_IN_HEADER.search(text):
        raise NpyError(f"header is not a dictionary (holds {strange[0]!r})")
    try:
        entries = ast.literal_eval(text.decode("ascii").strip())
    # Damaged text makes the parser raise almost anything, MemoryError and RecursionError included.
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
        raise NpyError(f"shape is {shape!r}, allowed are up to {_MAX_AXES} sizes below 2^47")
    if type(fortran) is not bool or (fortran and len(shape) > 1):
        raise NpyError(
            f"fortran_order is {fortran!r}, read is C order, as numpy.ascontiguousarray gives it"
        )
    return shape, _parse_dtype(descr)


def _parse_dtype(descr: object) -> np.dtype[Any]:
    # A list would describe records; a name such as "O" or "int" is not what NumPy writes.
    if not isinstance(descr, str) or len(descr) > 4:
        raise NpyError(f"elements are {descr!r}, allowed are numbers")
    try:
        dtype = np.dtype(descr)
    except Exception:
        raise NpyError(f"elements are {descr!r}, which is no type") from None
    if dtype.kind not in _KINDS or dtype.itemsize > 8:
        raise NpyError(f"elements are {dtype}, allowed are numbers of up to 64 bits")
    if not dtype.isnative:
        raise NpyError(f"elements are {descr!r}, allowed is the machine's byte order")
    return dtype
