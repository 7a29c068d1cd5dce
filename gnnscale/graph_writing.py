"""Writing a graph that is in memory as a store, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gnnscale.core.errors import GraphError
from gnnscale.core.files import unfinished_folder
from gnnscale.graph_files import (
    FORMAT_VERSION,
    WEIGHTED_FORMAT_VERSION,
    WEIGHTS,
    map_arrays,
    read_meta,
)
from gnnscale.npy import NpyWriter

__all__ = ["write_store"]

_SLICE_BYTES = 64 << 20


def write_store(path: Path, entries: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a graph store into a temporary sibling of ``path``, check it, and rename it.

    Args:
        path: a directory that does not exist yet, or is empty. Those above it are made.
        entries: what ``meta.json`` says of the graph, without its version and arrays.
        arrays: all of ``ARRAYS``, and ``WEIGHTS`` where edges have them, in the types of a store.

    Raises:
        GraphError: ``path`` holds something, or cannot be written; or a store must not hold that.
    """
    path = Path(os.path.abspath(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    taken = f"{path}: exists already; name another directory, or remove it"
    try:
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise GraphError(taken)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        with unfinished_folder(partial):
            _fill(partial, entries, arrays)
            _check(partial, path)
            try:
                partial.rename(path)  # onto an empty directory or none
            except (FileExistsError, NotADirectoryError):
                raise GraphError(taken) from None
            except OSError as error:
                if any(path.iterdir()):
                    raise GraphError(taken) from None
                raise error
    except OSError as error:
        raise GraphError(f"{path}: cannot be written ({error.strerror or error})") from None


def _fill(folder: Path, entries: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    version = WEIGHTED_FORMAT_VERSION if WEIGHTS in arrays else FORMAT_VERSION
    written = {name: _write(folder / f"{name}.npy", array) for name, array in arrays.items()}
    meta = {"format_version": version, **entries, "arrays": written}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


def _write(file: Path, array: NDArray[Any]) -> dict[str, Any]:
    writer = NpyWriter(file, array.dtype, array.shape[1:])
    step = max(1, _SLICE_BYTES // max(1, array[:1].nbytes))
    try:
        for first in range(0, len(array), step):
            writer.append(array[first : first + step])
        return writer.close()
    finally:
        writer.abandon()


def _check(folder: Path, path: Path) -> None:
    """Open what was written: what is not allowed in a store is said of where it would be."""
    try:
        meta = read_meta(folder)
        arrays = map_arrays(folder, meta)
    except GraphError as error:
        raise GraphError(str(error).replace(str(folder), str(path))) from None
    ids, last = arrays["indices"], meta.num_vertices - 1
    step = _SLICE_BYTES // ids.itemsize
    for first in range(0, len(ids), step):
        part = ids[first : first + step]
        if part.min() < 0 or part.max() > last:
            bad = part.min() if part.min() < 0 else part.max()
            raise GraphError(f"{path}: neighbour {bad} is out of range, allowed are 0 to {last}")
