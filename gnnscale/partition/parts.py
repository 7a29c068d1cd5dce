"""The record that every partitioner returns: which part has which vertices, or which columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_PART", "UNREACHED", "Parts"]

#: Owner of a vertex that no part has.
NO_PART = -1
#: Hops to a vertex that a part does not have.
UNREACHED = 255


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A graph divided into parts. Vertices keep their ids, and neighbours their order.

    Attributes:
        num_parts: number of parts, K.
        owner: ``[num_vertices]`` int16, the part that each vertex belongs to, ``NO_PART`` where no
            part has it. A training vertex is trained by its owner. None where every part has the
            whole topology (P3).
        hops: ``[K, num_vertices]`` uint8, the hops that a vertex is away from the part's training
            vertices, ``UNREACHED`` where the part does not have it. A part has the in-neighbours
            of vertices that are fewer than ``num_hops`` away. None where parts have no halo of
            their own.
        num_hops: hops that ``hops`` counts; 0 without.
        columns: ``(first, last + 1)`` of the feature columns of each part (P3); None where rows
            are whole.
        notes: what a report says of how the parts were made, a line each.
    """

    num_parts: int
    owner: NDArray[np.int16] | None
    hops: NDArray[np.uint8] | None = None
    num_hops: int = 0
    columns: tuple[tuple[int, int], ...] | None = None
    notes: tuple[str, ...] = ()

    def train_vertices(self, train_idx: NDArray[np.integer[Any]]) -> list[NDArray[Any]]:
        """Return the training vertices of each part, in the order of ``train_idx`` ``[n]``.

        Raises:
            ValueError: every part has the whole topology, and no vertex of its own.
        """
        if self.owner is None:
            raise ValueError("parts without vertices of their own have no training vertices")
        owners = self.owner[train_idx]
        return [train_idx[owners == part] for part in range(self.num_parts)]
