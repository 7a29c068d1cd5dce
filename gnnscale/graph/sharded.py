"""Feature rows that are divided among machines, of which a store has one part."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gnnscale.core import Array, GraphError, IntArray
from gnnscale.core.artifact.npy import row_slices


class ShardedFeatures:
    """The features of a graph: the rows of one part, and whose part has each of the others.

    It has the form of the whole matrix, ``[num_vertices, num_features]``, and stands in its place.
    Reading it as a matrix raises a GraphError: most rows are not here.
    """

    ndim = 2

    def __init__(
        self, rows: Array, owner: Array, *, part: int, num_parts: int, partition: str, path: Path
    ) -> None:
        """Take the arrays of a store.

        Args:
            rows: ``[n, num_features]`` rows of the part's vertices, in ascending order of these.
            owner: ``[num_vertices]`` int16, the part that has each vertex.
            part: of the store, from 0.
            num_parts: of the partition.
            partition: the content of the partition.
            path: of the store.

        Raises:
            GraphError: a vertex belongs to no part, or the part has other vertices than rows.
        """
        self.rows, self.owner, self.path = rows, owner, path
        self.part, self.num_parts, self.partition = part, num_parts, partition
        self.shape = (len(owner), *rows.shape[1:])
        self.dtype: np.dtype[Any] = rows.dtype
        self.itemsize = rows.itemsize
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * rows.itemsize
        self._check()

    def _check(self) -> None:
        found = 0
        for part in row_slices(len(self.owner), self.owner.itemsize):
            owner = np.asarray(self.owner[part])
            outside = (owner < 0) | (owner >= self.num_parts)
            if outside.any():
                vertex = int(outside.argmax())
                raise GraphError(
                    f"{self.path / 'owner.npy'}: vertex {part.start + vertex} belongs to part "
                    f"{owner[vertex]}, allowed are 0 to {self.num_parts - 1}"
                )
            found += int((owner == self.part).sum())
        if found != len(self.rows):
            raise GraphError(
                f"{self.path / 'features.npy'}: {len(self.rows)} rows, part {self.part} has "
                f"{found} vertices"
            )

    def __len__(self) -> int:
        return len(self.owner)

    def places(self) -> IntArray:
        """Return ``[num_vertices]`` the row of each vertex in ``rows``, -1 for those elsewhere."""
        dtype = np.int32 if len(self.rows) < 2**31 else np.int64
        places = np.full(len(self.owner), -1, dtype)
        own = np.flatnonzero(np.asarray(self.owner) == self.part)
        places[own] = np.arange(len(own), dtype=dtype)
        return places

    def refused(self) -> GraphError:
        """Return the error for a reader that needs all rows."""
        return GraphError(
            f"{self.path}: has the rows of part {self.part} of {self.num_parts} alone; "
            "features=shared reads the others from the machines that have them, everything else "
            "needs the store of the whole graph (dataset.store)"
        )

    def __getitem__(self, index: object) -> NoReturn:
        raise self.refused()

    def __array__(self, *args: object, **options: object) -> NoReturn:
        raise self.refused()
