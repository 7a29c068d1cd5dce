"""Arrays of a .npz archive or a folder of .npy files, read in slices."""

import math
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from gnnscale.core import Array, GraphError
from gnnscale.core.artifact import SLICE_BYTES, NpyHeader, check_array, map_npy, npy, row_slices
from gnnscale.data.formats.archive import Archive

#: Limit of a full array in memory: allowance plus ratio times its size (sorted links: a 17th).
_WHOLE_ALLOWANCE, _WHOLE_RATIO = 64 << 20, 40
#: Limits of arrays that are read in slices: sparse features in dense form, and edges.
_ROWS_ALLOWANCE, _ROWS_RATIO = 1 << 30, 200
_PAIRS_ALLOWANCE, _PAIRS_RATIO = 256 << 20, 40
_ADVICE = "an archive that np.savez wrote, which does not compress, has no such limit"


class NpzReader:
    """Reader of the arrays of a .npz file, in full or in slices, each checked before it is read."""

    def __init__(self, path: Path, *, slice_bytes: int = SLICE_BYTES) -> None:
        self.path = path
        self._archive = Archive(path)
        self._slice_bytes = slice_bytes

    def __enter__(self) -> "NpzReader":
        return self

    def __exit__(self, *error: object) -> None:
        self._archive.__exit__(*error)

    @property
    def names(self) -> list[str]:
        """Names of the arrays in the archive, without ``.npy``."""
        return [name.removesuffix(".npy") for name in self._archive.names]

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._archive.names

    def source(self, name: str) -> str:
        """Return the path of array ``name`` in the archive, for errors."""
        return f"{self.path}/{name}.npy"

    def text(self, name: str) -> bytes:
        """Return the text of array ``name``, such as SciPy's ``format``, as bytes without NULs.

        It is the last 16 bytes of the array's file.
        """
        data = self._archive.read(self._member(name), allowance=1 << 16, ratio=0, advice="too long")
        return data[-16:].replace(b"\0", b"")

    def header(self, name: str, *, axes: int | tuple[int, ...], kinds: str) -> NpyHeader:
        """Return shape and type of an array from its header.

        GraphError: damage, another number of ``axes``, or a dtype of none of the ``kinds``.
        """
        member, source = self._member(name), self.source(name)
        with self._archive.open(member) as file:
            try:
                header = npy.read_header(file)
            except npy.NpyError as error:
                raise GraphError(f"{source}: not a readable array ({error})") from None
        check_array(header, axes=axes, kinds=kinds, source=source)
        num_bytes = self._archive.member_bytes(member)[0] - header.offset
        if num_bytes != header.num_bytes:
            raise GraphError(f"{source}: {num_bytes} bytes, its header says {header.num_bytes}")
        return header

    def vector(self, name: str, kinds: str = "iu") -> Array:
        """Return the array ``name`` of one axis, of one of the dtype ``kinds``."""
        return self._read_full(name, 1, kinds)

    def matrix(self, name: str, kinds: str = "iuf") -> Array:
        """Return the array ``name`` of two axes, of one of the dtype ``kinds``."""
        return self._read_full(name, 2, kinds)

    def labels(self, name: str, num_vertices: int, kinds: str = "iuf") -> Array:
        """Return the array ``name`` of 1 or 2 axes; its size limit grows with ``num_vertices``."""
        return self._read_full(name, (1, 2), kinds, allowance=_WHOLE_ALLOWANCE + 8 * num_vertices)

    def rows(self, name: str, kinds: str = "iuf") -> Generator[Array]:
        """Yield the rows of the two-axis array ``name`` in slices, in order."""
        header = self.header(name, axes=2, kinds=kinds)
        needs = math.prod(header.shape) * max(4, header.dtype.itemsize)  # stored as float32
        self._check_size(name, needs, allowance=_ROWS_ALLOWANCE, ratio=_ROWS_RATIO)
        yield from self._slices(name, header, header.shape[0], header.shape[1:])

    def pairs(self, name: str) -> Iterator[tuple[Array, Array]]:
        """Yield the ``[2, num_edges]`` array ``name`` in slices of columns: ``(row 0, row 1)``."""
        header = self.header(name, axes=2, kinds="iu")
        if header.shape[0] != 2:
            raise _no_pairs(self.source(name), header.shape)
        self._check_size(name, 16 * header.shape[1], allowance=_PAIRS_ALLOWANCE, ratio=_PAIRS_RATIO)
        length = header.shape[1]
        rows = (self._slices(name, header, length, (), first) for first in (0, length))
        yield from zip(*rows, strict=True)

    def _read_full(
        self, name: str, axes: int | tuple[int, ...], kinds: str, allowance: int = _WHOLE_ALLOWANCE
    ) -> Array:
        header = self.header(name, axes=axes, kinds=kinds)
        # Ids become int64 on their way; features keep their width.
        itemsize = 8 if header.dtype.kind in "iu" else header.dtype.itemsize
        needs = math.prod(header.shape) * itemsize
        self._check_size(name, needs, allowance=allowance, ratio=_WHOLE_RATIO)
        with self._archive.open(self._member(name)) as file:
            _read_exactly(file, header.offset, self.source(name))
            data = _read_exactly(file, header.num_bytes, self.source(name))
            file.read(1)
        return np.frombuffer(data, header.dtype).reshape(header.shape)

    def _slices(
        self,
        name: str,
        header: NpyHeader,
        num_rows: int,
        row_shape: tuple[int, ...],
        first: int = 0,
    ) -> Iterator[Array]:
        row_bytes = header.dtype.itemsize * math.prod(row_shape)
        source = self.source(name)
        with self._archive.open(self._member(name)) as file:
            for part in row_slices(first * row_bytes + header.offset, 1, self._slice_bytes):
                _read_exactly(file, part.stop - part.start, source)
            for part in row_slices(num_rows, row_bytes, self._slice_bytes):
                length = part.stop - part.start
                data = _read_exactly(file, length * row_bytes, source)
                yield np.frombuffer(data, header.dtype).reshape(length, *row_shape)
            if (first + num_rows) * row_bytes == header.num_bytes:
                file.read(1)  # at the end the checksum is compared

    def _check_size(self, name: str, needs: int, *, allowance: int, ratio: int) -> None:
        self._archive.check_size(
            self._member(name), allowance=allowance, ratio=ratio, needs=needs, advice=_ADVICE
        )

    def _member(self, name: str) -> str:
        if name not in self:
            raise GraphError(
                f"{self.path}: has no array {name!r}, only {', '.join(self.names) or 'none'}"
            )
        return f"{name}.npy"


def _no_pairs(source: str, shape: tuple[int, ...]) -> GraphError:
    """Return the error on edges whose first axis is not of length 2."""
    hint = "; numpy.ascontiguousarray(a.T) swaps the axes" if shape[1:] == (2,) else ""
    return GraphError(f"{source}: {list(shape)}, allowed is [2, num_edges]{hint}")


def _read_exactly(file: IO[bytes], num_bytes: int, source: str) -> bytes:
    data = file.read(num_bytes)
    if len(data) != num_bytes:
        raise GraphError(f"{source}: ends before its last element")
    return data


class ArrayFolder:
    """Reader of the .npy files of a folder, memory-mapped; with most methods of ``NpzReader``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "ArrayFolder":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def names(self) -> list[str]:
        """Names of the folder's arrays, sorted, without ``.npy``."""
        try:
            return sorted(file.stem for file in self.path.iterdir() if file.suffix == ".npy")
        except OSError as error:
            raise GraphError(f"{self.path}: {error.strerror}") from None

    def __contains__(self, name: str) -> bool:
        # A broken link counts as an array, so that reading it raises an error.
        return os.path.lexists(self.path / f"{name}.npy")

    def source(self, name: str) -> str:
        """Return the path of array ``name`` for errors."""
        return f"{self.path}/{name}.npy"

    def header(self, name: str, *, axes: int | tuple[int, ...], kinds: str) -> NpyHeader:
        """Return shape and type of an array.

        GraphError: damage, another number of ``axes``, or a dtype of none of the ``kinds``.
        """
        array = map_npy(self.path / f"{name}.npy")
        check_array(array, axes=axes, kinds=kinds, source=self.source(name))
        return NpyHeader(shape=array.shape, dtype=array.dtype, offset=0)

    def vector(self, name: str, kinds: str = "iu") -> Array:
        """Return the array ``name`` of one axis, of one of the dtype ``kinds``, mapped."""
        return map_npy(self.path / f"{name}.npy", axes=1, kinds=kinds)

    def labels(self, name: str, num_vertices: int, kinds: str = "iuf") -> Array:
        """Return the label array ``name`` of 1 or 2 axes, mapped; ``num_vertices`` is ignored."""
        self.header(name, axes=(1, 2), kinds=kinds)
        return map_npy(self.path / f"{name}.npy")

    def rows(self, name: str, kinds: str = "iuf") -> Generator[Array]:
        """Yield the rows of the two-axis array ``name`` in memory-mapped slices, in order."""
        array = map_npy(self.path / f"{name}.npy", axes=2, kinds=kinds)
        for part in row_slices(len(array), array[:1].nbytes):
            yield array[part]

    def pairs(self, name: str) -> Iterator[tuple[Array, Array]]:
        """Yield the ``[2, num_edges]`` array ``name`` in slices of columns: ``(row 0, row 1)``."""
        array = map_npy(self.path / f"{name}.npy", axes=2, kinds="iu")
        if len(array) != 2:
            raise _no_pairs(self.source(name), array.shape)
        for part in row_slices(array.shape[1], 2 * array.itemsize, SLICE_BYTES):
            yield array[0, part], array[1, part]


def open_arrays(path: Path) -> ArrayFolder | NpzReader:
    """Return a reader of the arrays at ``path``, a folder of .npy files or a .npz file.

    Use it in a ``with`` block, which closes it.
    """
    if path.is_dir():
        return ArrayFolder(path)
    if path.suffix != ".npz":
        raise GraphError(f"{path}: allowed are a folder of .npy files and a .npz file")
    return NpzReader(path)
