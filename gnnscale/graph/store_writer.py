"""Writing of graph stores: arrays in memory, ids of vertices, and metadata of copied graphs."""

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, pyarrow
from gnnscale.core.artifact import files, row_slices, write_array
from gnnscale.graph.labels import LabelsByType
from gnnscale.graph.schema import GraphSchema
from gnnscale.graph.store_arrays import map_arrays, schema_of
from gnnscale.graph.store_format import EDGE_ENDS, EDGE_FEATURES, EDGE_ROWS, ID_FILES
from gnnscale.graph.store_meta import read_meta, write_meta
from gnnscale.graph.timed_store import check_times
from gnnscale.graph.typed_edge_store import check_row_numbers, edge_matrices
from gnnscale.graph.typed_features import TypedFeatures

#: Number of adjacency lists whose sources are checked at a time.
_LISTS = 1 << 16
#: Metadata in ``meta.json``, and the data that each entry describes.
_NOTES = {"ids": "vertices", "columns": "features", "scaling": "features", "classes": "labels"}
_NOTES |= dict.fromkeys(("edge_columns", "edge_scaling"), "edge_features")
_NOTES |= {"edge_classes": "edge_labels"}
_NOTES |= dict.fromkeys(("type_columns", "type_scaling"), "features")
_NOTES |= dict.fromkeys(("edge_type_columns", "edge_type_scaling"), "edge_features")


def write_ids(folder: Path, ids: Any) -> dict[str, Any]:
    """Write vertex ids into a graph store; return the entry ``ids`` for its ``meta.json``.

    ``ids`` are an Arrow array of int64, uint64 or large_string.
    """
    if pyarrow.types.is_integer(ids.type):
        path = folder / ID_FILES[0]
        write_array(path, ids.to_numpy())
    else:
        path = folder / ID_FILES[1]
        pyarrow.parquet.write_table(pyarrow.table({"id": ids}), path)
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": files.file_sha256(path)}


def applicable_metadata(
    path: Path, unchanged: Collection[str]
) -> tuple[dict[str, Any], list[Path]]:
    """Return metadata of the store at ``path``, such as column names, that a copy keeps; id files.

    ``unchanged`` names the data that is equal in the copy: ``vertices``, ``features``, ``labels``,
    ``edge_features``, ``edge_labels``. The file of the users' vertex ids, if any, is to be copied.
    """
    entries = read_meta(path).entries
    notes = {n: entries[n] for n, of in _NOTES.items() if n in entries and of in unchanged}
    ids = notes.get("ids")
    name = ids.get("file") if isinstance(ids, dict) else None
    return notes, [path / name] if name in ID_FILES else []


def are_equal(array: Any, stored: Any) -> bool:
    """Whether arrays are equal; mapped arrays: whether file, offset and shape are. None: False.

    Features by type are equal if those of all types are.
    """
    if isinstance(array, TypedFeatures) and isinstance(stored, TypedFeatures):
        return array.widths == stored.widths and all(
            are_equal(matrix.rows, other.rows)
            for matrix, other in zip(array.present, stored.present, strict=True)
        )
    if isinstance(array, LabelsByType) or isinstance(stored, LabelsByType):
        return False  # the labels hold what the store says about them
    if isinstance(array, np.memmap) and isinstance(stored, np.memmap):
        regions = [(mapped.filename, mapped.offset, mapped.shape) for mapped in (array, stored)]
        return regions[0] == regions[1]
    return array is not None and stored is not None and bool(np.array_equal(array, stored))


def write_store(
    path: Path,
    arrays: Mapping[str, Array],
    *,
    user_ids: Any = None,
    copied: Sequence[Path] = (),
    **entries: Any,
) -> None:
    """Write a graph in memory to a new store at ``path``, atomically, and check its arrays.

    ``arrays`` have the types of a store, ``user_ids`` are as in ``write_ids`` (or None), ``copied``
    are files to add, and ``entries`` are as in ``write_meta``. GraphError: ``path`` is not empty,
    or an array is invalid.
    """
    path = Path(os.path.abspath(path))
    with files.new_folder(path) as folder:
        if folder is None:
            raise GraphError(f"{path}: exists already; name another directory, or remove it")
        try:
            fill_folder(folder, arrays, user_ids=user_ids, copied=copied, **entries)
        except GraphError as error:
            raise GraphError(str(error).replace(str(folder), str(path))) from None


def fill_folder(
    folder: Path,
    arrays: Mapping[str, Array],
    *,
    user_ids: Any = None,
    copied: Sequence[Path] = (),
    **entries: Any,
) -> None:
    """Write a graph in memory to the empty directory ``folder``, as ``write_store`` does.

    GraphError: an array is invalid.
    """
    written = {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
    for file in copied:
        with files.open_regular(file) as source, (folder / file.name).open("wb") as copy:
            shutil.copyfileobj(source, copy)
    if user_ids is not None:
        entries["ids"] = write_ids(folder, user_ids)
    write_meta(folder, written, **entries)
    _check_written(folder)


def _check_written(folder: Path) -> None:
    """Raise GraphError for an invalid array of a new store, such as neighbors out of range."""
    meta = read_meta(folder)
    arrays = map_arrays(folder, meta)
    _check_range(f"{folder}: neighbor", arrays["indices"], meta.num_vertices - 1)
    if meta.types is not None:
        _check_source_types(folder / "indices.npy", arrays, meta.types.schema)
    if meta.times is not None:
        check_times(folder, arrays, schema_of(meta), sources=True)
    if EDGE_FEATURES in arrays:
        last_row = len(arrays[EDGE_FEATURES]) - 1
        _check_range(f"{folder}: row of edge features", arrays[EDGE_ROWS], last_row)
    if meta.types is not None:
        features = edge_matrices(dict(arrays), meta.types.edge_features)
        if features is not None:
            file = folder / f"{EDGE_ROWS}.npy"
            check_row_numbers(file, features, arrays, meta.types.schema)
    if EDGE_ENDS in arrays:
        _check_range(f"{folder}: end of an edge", arrays[EDGE_ENDS], meta.num_vertices - 1)


def _check_range(name: str, ids: Array, last: int) -> None:
    for part in row_slices(len(ids), ids[:1].nbytes):
        low, high = ids[part].min(), ids[part].max()
        if low < 0 or high > last:
            raise GraphError(
                f"{name} {low if low < 0 else high} is out of range, allowed are 0 to {last}"
            )


def _check_source_types(file: Path, arrays: Mapping[str, Array], schema: GraphSchema) -> None:
    """Raise GraphError for a list with a source that is not of its edge type's source type."""
    indptr, indices = arrays["indptr"], arrays["indices"]
    for first in range(0, schema.num_rows, _LISTS):
        ends = np.asarray(indptr[first : first + _LISTS + 1])
        ids = np.asarray(indices[ends[0] : ends[-1]])
        edge = schema.wrong_source(first, np.diff(ends), ids)
        if edge is None:
            continue
        row = first + int(np.searchsorted(ends, ends[0] + edge, side="right")) - 1
        edge_type = schema.edge_types[int(schema.edge_type_of(np.array([row]))[0])]
        raise GraphError(
            f"{file}: neighbor {ids[edge]} of vertex {schema.vertex_of(np.array([row]))[0]} by "
            f"{edge_type} is no vertex of type {edge_type.source}"
        )
