"""Sharded feature matrix: a store on each machine has the rows of one part."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gnnscale.core import Array, GraphError, IntArray
from gnnscale.core.artifact.npy import row_slices


class ShardedFeatures:
    """Feature rows of one part, with the owner of every vertex.

    The object has the shape of the matrix that it replaces in a ``Graph``; reads raise GraphError.
    """

    ndim = 2

    def __init__(
        self, rows: Array, owner: Array, *, part: int, num_parts: int, partition: str, path: Path
    ) -> None:
        """Check ``rows`` of the part's vertices against ``owner``, the part of every vertex."""
        self.rows, self.owner, self.path = rows, owner, path
        self.part, self.num_parts, self.partition = part, num_parts, partition
        self.shape = (len(owner), *rows.shape[1:])
        self.dtype: np.dtype[Any] = rows.dtype
        self.itemsize = rows.itemsize
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * rows.itemsize
        num_owned = 0
        for vertices in row_slices(len(owner), owner.itemsize):
            parts = np.asarray(owner[vertices])
            outside = (parts < 0) | (parts >= num_parts)
            if outside.any():
                vertex = int(outside.argmax())
                raise GraphError(
                    f"{path / 'owner.npy'}: vertex {vertices.start + vertex} belongs to part "
                    f"{parts[vertex]}, allowed are 0 to {num_parts - 1}"
                )
            num_owned += int((parts == part).sum())
        if num_owned != len(rows):
            raise GraphError(
                f"{path / 'features.npy'}: {len(rows)} rows, part {part} has {num_owned} vertices"
            )

    def __len__(self) -> int:
        return len(self.owner)

    def places(self) -> IntArray:
        """Return ``[num_vertices]`` the row of each vertex in ``rows``; -1 for remote vertices."""
        dtype = np.int32 if len(self.rows) < 2**31 else np.int64
        row_numbers = np.full(len(self.owner), -1, dtype)
        local = np.flatnonzero(np.asarray(self.owner) == self.part)
        row_numbers[local] = np.arange(len(local), dtype=dtype)
        return row_numbers

    def refused(self) -> GraphError:
        """Return the error for a reader that needs all rows."""
        return GraphError(
            f"{self.path}: has only the rows of part {self.part} of {self.num_parts}; "
            "features=shared reads remote rows from their machines, everything else needs the "
            "store of the whole graph (dataset.store)"
        )

    def __getitem__(self, index: object) -> NoReturn:
        raise self.refused()

    def __array__(self, *args: object, **options: object) -> NoReturn:
        raise self.refused()
