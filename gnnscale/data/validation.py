"""Checks of arrays from files and from users; an error names source and value in one line."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, Int64Array, IntArray, brief
from gnnscale.core.artifact.npy import check_array, row_slices
from gnnscale.graph import MAX_FEATURES, check_labeled, vertex_dtype

#: Vertices of a split that are checked at a time.
_SLICE_IDS = 1 << 18
#: Vertices allowed beyond one per byte of the files.
_SPARE_VERTICES = 1 << 20
_KEY = re.compile(r"[0-9]{1,18}")


def check_num_vertices(num_vertices: int, num_bytes: int, source: object) -> None:
    """Raise GraphError unless there are 1 to ``num_bytes`` (of the files) plus 2^20 vertices.

    Memory and disk are allocated per vertex before the data are read. All published files have more
    than one byte per vertex, even if they are compressed.
    """
    if not 1 <= num_vertices <= num_bytes + _SPARE_VERTICES:
        raise GraphError(
            f"{source}: expected 1 to {num_bytes + _SPARE_VERTICES} vertices in files of "
            f"{num_bytes} bytes, got {quoted(num_vertices)}"
        )


def check_num_features(num_features: int, source: object) -> None:
    """Raise GraphError unless ``num_features`` is 1 to ``MAX_FEATURES``."""
    if not 1 <= num_features <= MAX_FEATURES:
        raise GraphError(
            f"{source}: expected 1 to {MAX_FEATURES} features, got {quoted(num_features)}"
        )


#: Plurals of the values of ``of``.
PLURAL = {"vertex": "vertices", "edge": "edges", "row": "rows"}


def check_ids(ids: Array, num_vertices: int, source: object, of: str = "vertex") -> None:
    """Raise GraphError unless ``ids`` are ``[n]`` integers in ``[0, num_vertices)``.

    If ``of`` is ``edge`` or ``row``, these are ids and the number of edges or rows.
    """
    if ids.ndim != 1:
        raise GraphError(f"{source}: expected {of} ids with one axis, got {list(ids.shape)}")
    if ids.dtype.kind not in "iu":
        raise GraphError(f"{source}: expected integers as {of} ids, got {ids.dtype}")
    if not len(ids):
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0:
        raise GraphError(f"{source}: {of} id {low} is negative")
    if high >= num_vertices:
        hint = "; ids count from 0" if (low, high) == (1, num_vertices) else ""
        raise GraphError(
            f"{source}: {of} id {high} is out of range, the graph has {num_vertices} "
            f"{PLURAL[of]}{hint}"
        )


def check_features(rows: Array, first: int, source: object, of: str = "vertex") -> float:
    """Return the largest magnitude in ``rows``, 0 for float16; GraphError: a value is not finite.

    ``rows`` are ``[n, num_features]``, whose first row is vertex or edge ``first``.
    """
    check_array(rows, axes=2, kinds="biuf", source=f"{source}: features")
    if rows.dtype == np.float16:
        largest = 0.0 if np.isfinite(rows).all() else np.inf
    else:
        largest = float(max(-float(rows.min()), float(rows.max()))) if rows.size else 0.0
    if not np.isfinite(largest):
        refuse_not_finite(rows, rows, first, source, of)
    return largest


def refuse_not_finite(
    rows: Array, converted: Array, first: int, source: object, of: str = "vertex"
) -> None:
    """Raise GraphError if ``converted``, ``rows`` in another type, has a value that is not finite.

    The error names the value, and its vertex or edge (``of``): ``first`` plus its row.
    """
    finite = np.isfinite(converted)
    if finite.all():
        return
    row, column = np.argwhere(~finite)[0]
    reason = not_finite(rows[row, column], str(converted.dtype))
    raise GraphError(f"{source}: feature {column} of {of} {first + row} is {reason}")


def not_finite(value: Any, dtype: str = "float32") -> str:
    """Return a message on a feature value that is not finite, or beyond the range of ``dtype``."""
    if np.isfinite(value):
        return f"{value}, {dtype} cannot hold it"
    limit = f", and at most {np.finfo(dtype).max:.3g}" if np.isinf(value) else ""
    return f"{value}, features must be finite{limit}"


def check_weights(weights: Array, num_edges: int, source: object) -> Float32Array:
    """Return weights ``[num_edges]``, finite and at least 0, as float32; else raise GraphError."""
    check_array(weights, axes=1, kinds="iuf", source=source)
    if len(weights) != num_edges:
        raise GraphError(f"{source}: {len(weights)} weights for {num_edges} edges")
    with np.errstate(over="ignore", invalid="ignore"):  # infinity is refused below
        converted = np.ascontiguousarray(weights, np.float32)
    # NaN compares false with everything, hence the test for valid values.
    good = (converted >= 0) & np.isfinite(converted)
    if not good.all():
        edge = int(good.argmin())
        raise GraphError(
            f"{source}: edge {edge}: expected a weight of at least 0 in the range of float32, got "
            f"{weights[edge]}"
        )
    return converted


def edge_features(
    rows: Array,
    num_edges: int,
    num_features: int,
    *,
    first: int = 0,
    source: object,
    dtype: type[Any] = np.float32,
) -> Array:
    """Return ``rows`` of edges as ``dtype``, ``[num_edges, num_features]``; else raise GraphError.

    Values must be finite; errors number the edges from ``first``.
    """
    check_array(rows, axes=2, kinds="biuf", source=f"{source}: features of edges")
    if len(rows) != num_edges:
        raise GraphError(f"{source}: {len(rows)} rows of features for {num_edges} edges")
    if rows.shape[1] != num_features:
        raise GraphError(
            f"{source}: expected {num_features} features as for the edges before, got "
            f"{rows.shape[1]} from edge {first} on"
        )
    with np.errstate(over="ignore"):  # infinity is refused below
        converted = np.ascontiguousarray(rows, dtype)
    refuse_not_finite(rows, converted, first, source, "edge")
    return converted


def check_split(
    split: Mapping[str, Array], labels: Array, num_vertices: int, source: object, of: str = "vertex"
) -> None:
    """Raise GraphError unless the parts of ``split`` are in range, disjoint and labeled.

    ``split`` has the ids of vertices, edges or rows (``of``) by part. Part ``train`` has some,
    other parts may be empty. Part ``test`` may lack labels, since some publishers hide test labels.
    """
    is_assigned = np.zeros(num_vertices, dtype=bool)
    num_assigned = 0
    for name, ids in split.items():
        if not ids.size:
            if name == "train":
                raise GraphError(
                    f"{source}: the train split is empty; dataset.split=random draws a split"
                )
            continue
        check_ids(ids, num_vertices, f"{source}: {name} split", of)
        for rows in row_slices(len(ids), 1, _SLICE_IDS):
            part = ids[rows]
            if is_assigned[part].any():
                vertex = int(part[is_assigned[part].argmax()])
                other = next(other for other, other_ids in split.items() if vertex in other_ids)
                raise GraphError(
                    f"{source}: overlapping splits, {of} {vertex} of the {name} split "
                    f"is in the {other} split too"
                )
        is_assigned[ids] = True
        num_assigned += len(ids)
        if np.count_nonzero(is_assigned) != num_assigned:
            article = "an" if of == "edge" else "a"
            raise GraphError(f"{source}: the {name} split names {article} {of} twice")
        if name != "test":
            check_labeled(labels, ids, source=source, of=of, part=f"the {name} split")


def whole_numbers(values: object, source: object, what: str) -> Int64Array:
    """Return a list of Python integers as an int64 array; GraphError: other types, or too large."""
    if not isinstance(values, list):
        raise GraphError(f"{source}: {what}: expected a list, got {quoted(values)}")
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    index = next(
        number
        for number, value in enumerate(values)
        if type(value) is not int or not -(2**63) <= value < 2**63
    )
    raise GraphError(
        f"{source}: {what}: expected integers of 64 bits, got {quoted(values[index])} as number "
        f"{index}"
    )


def vertex_keys(keys: Iterable[str], *, source: object) -> Int64Array:
    """Return the keys of a JSON object as int64 vertex ids.

    GraphError: a key is no decimal number, or an id repeats, as of "7" and "07".
    """
    names = list(keys)
    for name in names:
        if not _KEY.fullmatch(name):
            raise GraphError(f"{source}: expected vertex ids as keys, got '{brief(name)}'")
    ids = np.array(list(map(int, names)), np.int64)
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise GraphError(f"{source}: vertex {distinct[counts > 1][0]} is named twice")
    return ids


def quoted(value: object) -> str:
    """Return a JSON or pickle value as text for a message; a compound value as its type's name."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return f"'{brief(value)}'"
    if value is None or isinstance(value, int | float):
        return brief(value)
    return f"a {type(value).__name__}"


#: Accepted names of each part of a split of vertices, as a mask or as ids.
PART_NAMES = (
    ("train_mask", "train_idx"),
    ("valid_mask", "val_mask", "valid_idx", "val_idx"),
    ("test_mask", "test_idx"),
)


def part_ids(
    values: Array,
    count: int,
    what: str,
    *,
    column: int | None,
    option: str,
    of: str = "vertex",
    is_mask: bool | None = None,
) -> IntArray:
    """Return the sorted ids of a part of a split, given as ids or a mask.

    A mask is ``[count]`` or ``[count, 1]``; of masks ``[count, k]``, ``column`` counts. GraphError,
    in which ``what`` names the part and ``option`` the option of ``column``: an id is out of range,
    masks have another form, or no column is chosen.

    Args:
        values: ids, whole numbers ``[n]`` or ``[n, 1]``; or a mask, of booleans, or of 1 and 0.
        is_mask: whether the name says that ``values`` are a mask, or (False) ids. None: booleans
            are a mask, whole numbers are ids.
    """
    if is_mask is None:
        is_mask = values.dtype.kind == "b"
    if not is_mask:
        ids = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if ids.ndim != 1:
            raise GraphError(f"{what}: expected one axis, got {list(ids.shape)}")
        if len(ids):  # an empty list is float64 to NumPy
            check_ids(ids, count, what, of)
        return np.sort(ids).astype(vertex_dtype(count))
    if values.dtype.kind not in "biu" or values.ndim not in (1, 2) or len(values) != count:
        raise GraphError(
            f"{what}: expected bool[{count}] or bool[{count}, k], got "
            f"{values.dtype}{list(values.shape)}"
        )
    if values.ndim == 2:
        values = values[:, _checked_column(values.shape[1], what, column=column, option=option)]
    if values.dtype.kind != "b" and not ((values == 0) | (values == 1)).all():
        raise GraphError(f"{what}: expected true and false, or 1 and 0, got other numbers")
    return np.flatnonzero(values).astype(vertex_dtype(count))


def _checked_column(width: int, what: str, *, column: int | None, option: str) -> int:
    """Return the column of masks ``[n, width]`` to read; GraphError: none is chosen, or exists."""
    if width == 1 and column is None:
        return 0
    if column is None or not 0 <= column < width:
        got = "" if column is None else f", got {column}"
        raise GraphError(f"{what}: has {width} masks; {option}=0 to {width - 1} chooses one{got}")
    return column
