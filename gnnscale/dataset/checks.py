"""What is refused in published files: each check raises one line that names file and value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import GraphError

__all__ = ["check_features", "check_ids", "check_split", "checked_labels", "count_classes"]


def check_ids(ids: NDArray[Any], num_vertices: int, source: object) -> None:
    """Raise GraphError unless ``ids`` are whole numbers in ``[0, num_vertices)``."""
    if ids.dtype.kind not in "iu":
        raise GraphError(f"{source}: vertex ids are {ids.dtype}, they must be whole numbers")
    if not len(ids):
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0:
        raise GraphError(f"{source}: vertex id {low} is negative")
    if high >= num_vertices:
        raise GraphError(
            f"{source}: vertex id {high} is out of range, the graph has {num_vertices} vertices"
        )


def check_features(rows: NDArray[Any], first: int, source: object) -> None:
    """Raise GraphError unless every value of ``rows`` is finite; ``first`` is their first row."""
    finite = np.isfinite(rows)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise GraphError(
            f"{source}: feature {column} of vertex {first + row} is {rows[row, column]}, "
            "features must be finite"
        )


def count_classes(labels: NDArray[Any], source: object) -> int:
    """Return how many classes ``labels`` have: the columns, or one more than the largest class."""
    if labels.ndim == 2:
        return int(labels.shape[1])
    if labels.dtype.kind not in "iu":
        raise GraphError(f"{source}: labels are {labels.dtype}, they must be whole numbers")
    return int(labels.max(initial=-1)) + 1


def checked_labels(
    labels: NDArray[Any], *, num_vertices: int, num_classes: int, source: object
) -> NDArray[Any]:
    """Return labels as a Graph holds them.

    Args:
        labels: ``[num_vertices]`` whole numbers, -1 where unknown, or
            ``[num_vertices, num_classes]`` zeros and ones where a vertex may have several.
        num_vertices: how many vertices the graph has.
        num_classes: labels must lie below this.
        source: named in errors.

    Returns:
        int64 ``[num_vertices]`` or uint8 ``[num_vertices, num_classes]``.
    """
    if len(labels) != num_vertices:
        raise GraphError(f"{source}: {len(labels)} labels for {num_vertices} vertices")
    if labels.ndim == 1 and labels.dtype.kind not in "iu":
        raise GraphError(f"{source}: labels are {labels.dtype}, they must be whole numbers")
    low, high = (0, 1) if labels.ndim == 2 else (-1, num_classes - 1)
    # NaN compares false with everything, hence the test for what is good.
    good = (labels == 0) | (labels == 1) if labels.ndim == 2 else (labels >= low) & (labels <= high)
    if not good.all():
        place = tuple(np.argwhere(~good)[0])
        raise GraphError(
            f"{source}: label {labels[place]} of vertex {place[0]} is out of range, "
            f"allowed are {low} to {high}"
        )
    return labels.astype(np.int64 if labels.ndim == 1 else np.uint8)


def check_split(
    split: Mapping[str, NDArray[Any]], labels: NDArray[Any], num_vertices: int, source: object
) -> None:
    """Raise GraphError unless the parts are non-empty, in range, disjoint and labelled.

    Test vertices may lack labels: some publishers hide them.
    """
    seen = np.zeros(num_vertices, dtype=bool)
    for name, ids in split.items():
        if not len(ids):
            raise GraphError(f"{source}: the {name} split is empty")
        check_ids(ids, num_vertices, f"{source}: {name} split")
        if seen[ids].any():
            vertex = int(ids[seen[ids]][0])
            raise GraphError(
                f"{source}: overlapping splits, vertex {vertex} of the {name} split "
                "is in an earlier one too"
            )
        if len(np.unique(ids)) != len(ids):
            raise GraphError(f"{source}: the {name} split names a vertex twice")
        seen[ids] = True
        if name != "test" and labels.ndim == 1 and (labels[ids] < 0).any():
            vertex = int(ids[labels[ids] < 0][0])
            raise GraphError(f"{source}: vertex {vertex} of the {name} split has no label")
