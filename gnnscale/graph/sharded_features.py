"""Features of one part of a partitioned graph, of which each machine has the rows of its part."""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gnnscale.core import Array, GraphError, IntArray
from gnnscale.core.artifact import row_slices
from gnnscale.graph.store_format import OWNER
from gnnscale.graph.store_meta import PartEntry


class ShardedFeatures:
    """Feature rows of one part of a partitioned graph, and the part that owns each vertex.

    The object replaces the full matrix as ``Graph.features`` and has its shape; indexing it raises
    GraphError, and ``rows`` are the part's rows.
    """

    ndim = 2

    def __init__(
        self, rows: Array, owner: Array, *, part: int, num_parts: int, partition: str, path: Path
    ) -> None:
        """Hold ``rows``, the features of the vertices that ``part`` owns.

        ``owner`` is ``[num_vertices]`` the part of each vertex, ``partition`` the partition's
        digest, ``path`` the store. GraphError: an owner is not a part, or ``part`` owns another
        number of vertices than ``rows`` has.
        """
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

    @classmethod
    def from_store(cls, arrays: dict[str, Array], part: PartEntry, path: Path) -> "ShardedFeatures":
        """Remove the owners from a shard's ``arrays``; return its feature rows with them."""
        return cls(
            arrays["features"],
            arrays.pop(OWNER),
            part=part.index,
            num_parts=part.num_parts,
            partition=str(part.rows_of),
            path=path,
        )

    def __len__(self) -> int:
        return len(self.owner)

    def places(self) -> IntArray:
        """Return ``[num_vertices]`` each vertex's index in ``rows``; -1: another part owns it."""
        dtype = np.int32 if len(self.rows) < 2**31 else np.int64
        row_numbers = np.full(len(self.owner), -1, dtype)
        local = np.flatnonzero(np.asarray(self.owner) == self.part)
        row_numbers[local] = np.arange(len(local), dtype=dtype)
        return row_numbers

    def refused(self) -> GraphError:
        """Return the error for a reader that needs all rows; the caller raises it."""
        return GraphError(
            f"{self.path}: has only the rows of part {self.part} of {self.num_parts}; "
            "features=shared reads remote rows from their machines, everything else needs the "
            "store of the whole graph (dataset.store)"
        )

    def __getitem__(self, index: object) -> NoReturn:
        raise self.refused()

    def __array__(self, *args: object, **options: object) -> NoReturn:
        raise self.refused()
