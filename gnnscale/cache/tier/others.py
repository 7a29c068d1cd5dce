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

    To the planner, own rows have places after those of the policy.
    """

    def __init__(self, policy: Policy, own: Callable[[Array], Array], *, num_kept: int) -> None:
        """Wrap ``policy``.

        Args:
            own: returns of ``[n]`` vertices the number of each row among those of this machine, -1
                for rows of others.
            num_kept: rows that the policy keeps at most.
        """
        self._policy = policy
        self._own = own
        self._num_kept = num_kept
        #: The places of each batch that is expected, those of own rows for now, and the positions
        #: of other machines' rows.
        self._expected: deque[tuple[Int32Array, IntArray]] = deque()

    @property
    def num_expected(self) -> int:
        """Batches that are expected and not served."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        own = self._own(vertices)
        others = np.flatnonzero(own < 0)
        self._policy.expect(vertices[others])
        self._expected.append(((own + self._num_kept).astype(np.int32), others))

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the place of each row of the oldest batch expected, -1 for none."""
        places, others = self._expected[0]
        places[others] = self._policy.look_up()
        return places

    def advance(self) -> Replaced:
        """Serve the oldest batch expected; counts are of other machines' rows."""
        _, others = self._expected.popleft()
        found = self._policy.advance()
        return Replaced(
            counts=found.counts,
            positions=others[found.positions].astype(np.int32),
            slots=found.slots,
        )
