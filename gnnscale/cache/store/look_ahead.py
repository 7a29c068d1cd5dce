"""Features whose cached rows follow the batches to come."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.cache_plan import LookAhead
from gnnscale.cache.look_ahead import Belady
from gnnscale.cache.store.static import found_rows
from gnnscale.feature import FeatureStore, HostFeatures
from gnnscale.stages import Traffic

__all__ = ["LookAheadFeatures"]

#: Where rows are found: in the cache, in the batch before, at the host.
_CACHE, _PREVIOUS = 0, 1


class LookAheadFeatures(FeatureStore):
    """The host's features, some rows of which are in a cache that knows the next batches.

    The steps of a run are expected in the order in which they are gathered, each before the
    ``window`` steps before it are gathered. Whatever else is gathered, as a rehearsal does, is
    read at the host, and changes nothing. One thread may expect while another gathers: how far the
    first is ahead plays no part, as long as it is far enough.

    Rows are moved into the cache from batches that have them on the device: nothing crosses the
    link for the cache's own sake.
    """

    def __init__(
        self,
        host: HostFeatures,
        policy: LookAhead,
        *,
        priority: NDArray[np.int32],
        num_threads: int = 1,
    ) -> None:
        """Wrap ``host``; the cache is empty at first.

        Args:
            host: has every row.
            policy: rows of the cache, and steps that are looked ahead.
            priority: ``[num_vertices]`` order of rows that are read equally soon.
            num_threads: threads that decide what is replaced; the result does not depend on it.
        """
        self._host = host
        self._policy = policy
        rows, self._dtype = host.stored
        self._rows = np.empty((policy.num_rows, host.width), rows.dtype)
        self._previous = np.empty((0, host.width), rows.dtype)
        #: Steps that were told of, and the first of them, which ``_belady`` knows; the next to be
        #: gathered is the first. None for a step that reads nothing.
        self._told: deque[NDArray[Any] | None] = deque()
        self._known: deque[NDArray[Any] | None] = deque()
        self._belady = Belady(
            host.num_rows,
            policy.num_rows,
            window=policy.window,
            priority=priority,
            match=policy.match,
            num_threads=num_threads,
        )

    @property
    def window(self) -> int:
        """Steps that are looked ahead."""
        return self._policy.window

    @property
    def num_rows(self) -> int:
        """Number of rows, one for each vertex."""
        return self._host.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._host.width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self._host.row_bytes

    def expect(self, vertices: NDArray[Any] | None) -> None:
        """Tell of the input vertices of the next step, ``[n]``; None where it reads nothing.

        ``gather`` recognises the batch by this very array.
        """
        self._told.append(vertices)

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``, and replace rows of the cache."""
        self._look_ahead()
        if not self._known or self._known[0] is not vertices:
            return self._host.gather(vertices, dtype=dtype, num_threads=num_threads)
        out = ops.empty((len(vertices), self.width), dtype)
        found = ops.gather_cached(
            self._host.stored,
            [(self._rows, self._dtype), (self._previous, self._dtype)],
            self._belady.slots,
            vertices,
            out=out,
            num_threads=num_threads,
        ).tolist()
        self._known.popleft()
        self._replace(vertices, num_threads)
        # What is left of the batch before is on the device as well.
        places = [found[_CACHE] + found[_PREVIOUS], found[-1]]
        return out, found_rows(places, own=_CACHE, row_bytes=self.row_bytes)

    def _look_ahead(self) -> None:
        """Let the policy know the next step that reads anything, and the window after it."""
        while True:
            while self._told and len(self._known) <= self._policy.window:
                vertices = self._told.popleft()
                if vertices is not None:
                    self._belady.expect(vertices)
                self._known.append(vertices)
            if not self._known or self._known[0] is not None:
                return
            self._known.popleft()

    def _replace(self, vertices: NDArray[Any], num_threads: int) -> None:
        """Keep the rows of a batch that are read again soonest."""
        replaced = self._belady.advance()
        self._copy(vertices[replaced.positions], self._rows, replaced.slots, num_threads)
        if self._policy.match:
            self._keep_matching(vertices, num_threads)

    def _keep_matching(self, vertices: NDArray[Any], num_threads: int) -> None:
        """Keep those rows of a batch that the next one shares with it; no other is read again.

        All of them are kept where the next one is not known yet.
        """
        if len(self._previous) < len(vertices):
            self._previous = np.empty((len(vertices), self.width), self._rows.dtype)
        if self._belady.num_expected:
            slots = self._belady.look_up() - self._policy.num_rows
            matching = slots[slots >= 0]
        else:
            matching = np.arange(len(vertices), dtype=np.int32)
        self._copy(vertices[matching], self._previous, matching, num_threads)

    def _copy(
        self,
        vertices: NDArray[Any],
        target: NDArray[Any],
        slots: NDArray[np.int32],
        num_threads: int,
    ) -> None:
        """Copy rows as they are stored; a device has them in its memory."""
        ops.copy_rows(
            self._host.stored, vertices, (target, self._dtype), slots, num_threads=num_threads
        )
