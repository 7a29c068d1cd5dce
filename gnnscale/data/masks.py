"""Parts of a split as ids, masks, or columns of masks."""

import numpy as np

from gnnscale.core import Array, GraphError, IntArray
from gnnscale.data import validation
from gnnscale.graph.store_format import vertex_dtype

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
            validation.check_ids(ids, count, what, of)
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
