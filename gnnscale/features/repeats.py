"""Steps whose input vertices repeat: a vertex is an input once for each cut-off."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from gnnscale.core import Array, Int32Array


@dataclass(frozen=True)
class DistinctRows:
    """Distinct rows of a step, and which of them each input of the step reads."""

    vertices: Array  #: ``[k]`` distinct vertices, ascending
    positions: Int32Array  #: ``[n]`` position of each input's vertex in ``vertices``


class RepeatedSteps:
    """Announced steps with repeated vertices, each recognized by the identity of its array."""

    def __init__(self) -> None:
        """Start without steps."""
        self._steps: deque[tuple[Array, DistinctRows]] = deque()

    def announce(self, vertices: Array | None) -> Array | None:
        """Append the step of ``vertices`` ``[n]``; return its distinct vertices. None: no rows."""
        if vertices is None:
            return None
        distinct, positions = np.unique(vertices, return_inverse=True)
        rows = DistinctRows(distinct, positions.astype(np.int32))
        self._steps.append((vertices, rows))
        return rows.vertices

    def take(self, vertices: Array) -> DistinctRows | None:
        """End the next step and return its rows; None: ``vertices`` are not its array."""
        if not self._steps or self._steps[0][0] is not vertices:
            return None
        return self._steps.popleft()[1]
