"""NumPy files in streams: writing .npy row by row, reading .npy and .npz in slices."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import GraphError

__all__ = ["NpyWriter", "NpzReader", "map_npy", "row_slices"]

_SLICE_BYTES = 64 << 20


def row_slices(num_rows: int, row_bytes: int) -> Iterator[slice]:
    """Cut ``num_rows`` rows into slices of about 64 MiB."""
    step = max(1, _SLICE_BYTES // max(1, row_bytes))
    for first in range(0, num_rows, step):
        yield slice(first, min(first + step, num_rows))


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


def map_npy(path: Path) -> NDArray[Any]:
    """Map a .npy file read-only.

    Raises:
        GraphError: it is missing, truncated or holds Python objects.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise GraphError(f"{path}: missing") from None
    except (OSError, ValueError, EOFError) as error:
        raise GraphError(f"{path}: not a readable .npy file ({error})") from None
    return array


class NpzReader:
    """The arrays of a .npz file, whole or in slices of rows, so that one may exceed memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._readable("file"):
            self._zip = zipfile.ZipFile(path)

    def __enter__(self) -> NpzReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._zip.namelist()

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Read the whole array ``name``."""
        with self._open(name) as file, self._readable(name):
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the array ``name``, from its header alone."""
        with self._open(name) as file:
            return self._header(name, file)[0]

    def dtype(self, name: str) -> np.dtype[Any]:
        """Type of the array ``name``, from its header alone."""
        with self._open(name) as file:
            return self._header(name, file)[1]

    def rows(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield the array ``name`` in slices of its first axis."""
        shape = self.shape(name)
        return self._slices(name, 0, shape[0], shape[1:])

    def pairs(self, name: str) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield a ``[2, num_edges]`` array in slices ``(row 0, row 1)``, read side by side."""
        shape = self.shape(name)
        if len(shape) != 2 or shape[0] != 2:
            raise GraphError(f"{self.path}: {name} is {list(shape)}, allowed is [2, num_edges]")
        rows = (self._slices(name, first, shape[1], ()) for first in (0, shape[1]))
        return zip(*rows, strict=True)

    def _slices(
        self, name: str, first: int, num_rows: int, row_shape: tuple[int, ...]
    ) -> Iterator[NDArray[Any]]:
        with self._open(name) as file:
            _, dtype = self._header(name, file)
            row_bytes = dtype.itemsize * int(np.prod(row_shape, dtype=np.int64))
            with self._readable(name):
                file.seek(first * row_bytes, 1)
            for part in row_slices(num_rows, row_bytes):
                with self._readable(name):
                    data = file.read((part.stop - part.start) * row_bytes)
                    rows = np.frombuffer(data, dtype).reshape(part.stop - part.start, *row_shape)
                yield rows

    def _open(self, name: str) -> IO[bytes]:
        if name not in self:
            arrays = ", ".join(Path(member).stem for member in self._zip.namelist())
            raise GraphError(f"{self.path}: has no array {name!r}, only {arrays}")
        with self._readable(name):
            return self._zip.open(f"{name}.npy")

    def _header(self, name: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        with self._readable(name):
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            else:
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
            if dtype.hasobject or (fortran and len(shape) > 1):
                raise ValueError(f"{dtype} in {'Fortran' if fortran else 'C'} order")
        return shape, dtype

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise GraphError(f"{self.path}: missing") from None
        except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, GraphError):
                raise
            raise GraphError(f"{self.path}: {name} cannot be read ({error})") from None
