"""The user's ids of vertices, and names of classes, that a graph store keeps beside its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.artifact.arrays import map_npy, write_array
from gnnscale.artifact.files import file_bytes
from gnnscale.artifact.graph_store import GRAPH_STORE, MAX_CLASSES, read_meta
from gnnscale.artifact.key import file_sha256
from gnnscale.core.errors import GraphError, shown
from gnnscale.dataset.tables.ids import IdColumn, max_id_bytes
from gnnscale.dataset.tables.parquet_file import ParquetFile
from gnnscale.graph import Graph

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ID_FILES", "check_ids_file", "read_classes", "read_ids", "write_ids"]

#: Whole numbers, and texts. A store has one of them, or none.
ID_FILES = ("ids.npy", "ids.parquet")
_BATCH_ROWS, _BATCH_BYTES = 1 << 17, 16 << 20


def write_ids(folder: Path, ids: pyarrow.Array) -> dict[str, Any]:
    """Write the ids of all vertices into a store.

    Args:
        folder: the store's directory.
        ids: Arrow array of int64, uint64 or large_string without nulls.

    Returns:
        The entry ``ids`` of ``meta.json``: name of the file, size and SHA-256.
    """
    import pyarrow
    from pyarrow import parquet

    if pyarrow.types.is_integer(ids.type):
        path = folder / ID_FILES[0]
        numbers = ids.to_numpy()
        write_array(path, numbers)
    else:
        path = folder / ID_FILES[1]
        parquet.write_table(pyarrow.table({"id": ids}), path)
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": file_sha256(path)}


def read_ids(graph: Graph) -> pyarrow.Array | None:
    """Return the user's id of every vertex of a graph.

    Returns:
        Arrow array ``[num_vertices]`` of int64, uint64 or large_string without nulls; None where
        the ids are 0 to ``num_vertices - 1``: in a graph in memory, and in most layouts.

    Raises:
        GraphError: the file of the ids is missing, has another size than ``meta.json`` says, or
            holds not one id for each vertex.
    """
    if graph.path is None:
        return None
    entry = _ids_entry(graph.path)
    if entry is None:
        return None
    import pyarrow

    path = graph.path / entry.file
    if path.name == ID_FILES[0]:
        ids = pyarrow.array(map_npy(path, axes=1, kinds="iu"))
    else:
        ids = _read_texts(path, graph.num_vertices)
    if len(ids) != graph.num_vertices:
        raise GraphError(f"{path}: {len(ids)} ids, the graph has {graph.num_vertices} vertices")
    return ids


def _read_texts(path: Path, num_vertices: int) -> pyarrow.Array:
    """Return the texts of a file of ids, of a bounded length altogether."""
    import pyarrow

    file = ParquetFile(path)
    if file.names != ["id"] or file.num_rows() != num_vertices:
        raise GraphError(
            f"{path}: {file.num_rows()} rows of {shown(file.names)}, needed are {num_vertices} of "
            "'id'"
        )
    texts = IdColumn("id", "auto", max_id_bytes(file_bytes(path)))
    for batch in file.batches(["id"], _BATCH_ROWS, _BATCH_BYTES):
        texts.add(batch)
    ids = texts.array()
    if ids.type != pyarrow.large_string():
        raise GraphError(f"{path}: ids are {shown(ids.type)}, needed are texts")
    return ids


def read_classes(graph: Graph) -> list[str] | None:
    """Return the names of the classes, in the order of their numbers; None where they have none.

    Raises:
        GraphError: ``meta.json`` holds something else.
    """
    if graph.path is None:
        return None
    names = read_meta(graph.path).entries.get("classes")
    if names is None:
        return None
    if not (
        isinstance(names, list)
        and len(names) == graph.num_classes <= MAX_CLASSES
        and all(isinstance(name, str) and _is_utf8(name) for name in names)
    ):
        raise GraphError(
            f"{graph.path / 'meta.json'}: classes are not the names of {graph.num_classes} classes"
        )
    return names


def _is_utf8(name: str) -> bool:
    """Whether no half of a character is in a text, which JSON can write."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_ids_file(store: Path) -> str | None:
    """Return what is wrong with the file of the ids of a store, by its checksum; None if nothing.

    Raises:
        GraphError: as ``read_ids``.
    """
    entry = _ids_entry(store)
    if entry is None:
        return None
    found = file_sha256(store / entry.file)
    if found == entry.sha256:
        return None
    return f"{store / entry.file}: SHA-256 is {found}, expected {shown(entry.sha256)}"


@dataclass(frozen=True, kw_only=True)
class _IdFile:
    """The entry ``ids`` of ``meta.json``."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class _WithIds:
    ids: _IdFile | None = None


def _ids_entry(store: Path) -> _IdFile | None:
    """Return the entry of the ids in ``meta.json``, once the file has the size that it says."""
    entry = GRAPH_STORE.record(_WithIds, read_meta(store).entries, store).ids
    if entry is None:
        return None
    if entry.file not in ID_FILES:
        raise GRAPH_STORE.refused(store, f"ids.file is {shown(entry.file)}, no file of ids")
    path = store / entry.file
    if (size := file_bytes(path)) != entry.bytes:
        raise GraphError(f"{path}: {size} bytes, meta.json says {entry.bytes} (truncated?)")
    return entry
