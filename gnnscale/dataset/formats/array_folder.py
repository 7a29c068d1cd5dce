"""Folders of .npy files, read as an archive of arrays is: mapped, and in slices."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from gnnscale.artifact.arrays import SLICE_BYTES, NpyHeader, check_array, map_npy, row_slices
from gnnscale.dataset.formats.npz import NpzReader
from gnnscale.graph import GraphError

__all__ = ["ArrayFolder", "open_arrays"]


class ArrayFolder:
    """The arrays of a folder of .npy files, with what ``NpzReader`` has for those of an archive.

    Arrays are mapped, not read, so that any of them may exceed memory. Errors are GraphErrors that
    name the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> ArrayFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        try:
            return sorted(file.stem for file in self.path.iterdir() if file.suffix == ".npy")
        except OSError as error:
            raise GraphError(f"{self.path}: {error.strerror}") from None

    def __contains__(self, name: str) -> bool:
        return (self.path / f"{name}.npy").exists()

    def source(self, name: str) -> str:
        """How errors name an array."""
        return f"{self.path}/{name}.npy"

    def header(self, name: str, *, axes: int | tuple[int, ...], kinds: str) -> NpyHeader:
        """Return shape and type of an array, checked as in ``map_npy``."""
        array = map_npy(self.path / f"{name}.npy")
        check_array(array, axes=axes, kinds=kinds, source=self.source(name))
        return NpyHeader(shape=array.shape, dtype=array.dtype, offset=0)

    def vector(self, name: str, kinds: str = "iu") -> NDArray[Any]:
        """Map the array ``name``, which must have one axis."""
        return map_npy(self.path / f"{name}.npy", axes=1, kinds=kinds)

    def labels(self, name: str, num_vertices: int, kinds: str = "iuf") -> NDArray[Any]:
        """Map labels, ``[num_vertices]`` or a row of them for each vertex."""
        self.header(name, axes=(1, 2), kinds=kinds)
        return map_npy(self.path / f"{name}.npy")

    def rows(self, name: str, kinds: str = "iuf") -> Generator[NDArray[Any]]:
        """Yield the matrix ``name`` in slices of its rows."""
        array = map_npy(self.path / f"{name}.npy", axes=2, kinds=kinds)
        for part in row_slices(len(array), array[:1].nbytes):
            yield array[part]

    def pairs(self, name: str) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield a ``[2, num_edges]`` array in slices ``(row 0, row 1)``, read side by side."""
        array = map_npy(self.path / f"{name}.npy", axes=2, kinds="iu")
        if len(array) != 2:
            raise GraphError(f"{self.source(name)}: {list(array.shape)}, allowed is [2, num_edges]")
        for part in row_slices(array.shape[1], 2 * array.itemsize, SLICE_BYTES):
            yield array[0, part], array[1, part]


def open_arrays(path: Path) -> ArrayFolder | NpzReader:
    """Open a folder of .npy files, or an archive of them, as a context manager.

    Raises:
        GraphError: ``path`` is neither.
    """
    if path.is_dir():
        return ArrayFolder(path)
    if path.suffix != ".npz":
        raise GraphError(f"{path}: allowed are a folder of .npy files and a .npz file")
    return NpzReader(path)
