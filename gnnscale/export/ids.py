"""The ids of rows in a file: the user's own where a graph has them, else numbers of vertices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RowIds"]


@dataclass(frozen=True, kw_only=True)
class RowIds:
    """Ids of the rows of some vertices.

    Attributes:
        vertices: ``[n]`` numbers of the vertices; None for all of the graph.
        own: ``[num_vertices]`` the user's ids, whole numbers or texts; None where there are none.
    """

    vertices: NDArray[np.integer[Any]] | None
    own: pyarrow.Array | None = None

    @property
    def are_rows(self) -> bool:
        """Whether the id of a row is its number."""
        return self.vertices is None and self.own is None

    def slice(self, first: int, count: int) -> Any:
        """Return the ids of ``count`` rows from row ``first`` on, ``[count]``.

        They are int64, or an Arrow array of the user's ids.
        """
        if self.vertices is None:
            rows = np.arange(first, first + count)
            return rows if self.own is None else self.own.slice(first, count)
        rows = self.vertices[first : first + count].astype(np.int64)
        return rows if self.own is None else self.own.take(rows)

    def array(self, first: int, count: int) -> NDArray[Any]:
        """Return the same as NumPy has it; texts are as long as the longest of the graph."""
        ids = self.slice(first, count)
        found = ids if isinstance(ids, np.ndarray) else ids.to_numpy(zero_copy_only=False)
        return found.astype(f"<U{self.longest}") if found.dtype == object else found

    @property
    def are_texts(self) -> bool:
        """Whether ids are the user's own texts."""
        return self.own is not None and "string" in str(self.own.type)

    @property
    def mean_bytes(self) -> int:
        """Bytes of an id, on the average over the graph; at least 8."""
        return 8 if self.own is None else max(8, self.own.nbytes // max(len(self.own), 1))

    @property
    def array_bytes(self) -> int:
        """Bytes of an id as ``array`` has it."""
        return self.array(0, 0).dtype.itemsize

    @cached_property
    def longest(self) -> int:
        """Characters of the longest of the graph's texts, at least 1."""
        from pyarrow import compute

        return int(compute.max(compute.utf8_length(self.own)).as_py() or 1)
