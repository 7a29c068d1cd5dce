"""A policy for rows of which this machine has some by itself: only the others take its places."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from gnnscale.cache.belady import Replaced
from gnnscale.cache.tier.planner import Policy
from gnnscale.core import Array, Int32Array, IntArray


class OthersRows:
    """Asks another policy about the rows of other machines; own ones are never held a second time.

    To the planner, own rows are missing rows that do not stay. They cost no request.
    """

    def __init__(self, policy: Policy, is_own: Callable[[Array], Array]) -> None:
        """Wrap ``policy``.

        Args:
            is_own: returns of ``[n]`` vertices whether this machine has each row.
        """
        self._policy = policy
        self._is_own = is_own
        #: Positions of other machines' rows in each batch that is expected, and rows of the batch.
        self._expected: deque[tuple[IntArray, int]] = deque()

    @property
    def num_expected(self) -> int:
        """Batches that are expected and not served."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        others = np.flatnonzero(~self._is_own(vertices))
        self._policy.expect(vertices[others])
        self._expected.append((others, len(vertices)))

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the place of each row of the oldest batch expected, -1 for none."""
        others, count = self._expected[0]
        places = np.full(count, -1, np.int32)
        places[others] = self._policy.look_up()
        return places

    def advance(self) -> Replaced:
        """Serve the oldest batch expected; counts are of other machines' rows."""
        others, _ = self._expected.popleft()
        found = self._policy.advance()
        return Replaced(
            counts=found.counts,
            positions=others[found.positions].astype(np.int32),
            slots=found.slots,
        )
