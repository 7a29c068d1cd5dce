"""Adjacency lists of which some lie in the device's own memory, or in that of a peer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.core.stages import Access
from gnnscale.sampler import MiniBatch


class CachedLists:
    """Counts where a device that samples by itself reads adjacency lists.

    Each picked neighbour is one read, and so are the offsets of each list (Legion counts an edge as
    a transaction). A miss is read at the host, each by one request.
    """

    def __init__(
        self,
        places: ops.RankedSlots | NDArray[np.int32] | None,
        *,
        num_members: int,
        own: int,
        request_bytes: int,
        id_bytes: int = 4,
        num_threads: int = 1,
    ) -> None:
        """Prepare to count.

        Args:
            places: the slots of the lists in the members' caches; or ``[num_vertices]`` the member
                that has each list, -1 for none; None without a cache.
            num_members: devices of the clique.
            own: which of them this device is.
            request_bytes: bytes of a request over the link.
            id_bytes: bytes of a neighbour.
            num_threads: does not change the result.
        """
        self._places = places
        self._own = own
        self._request_bytes = request_bytes
        self._id_bytes = id_bytes
        self._num_threads = num_threads
        self._starts = np.arange(num_members + 1, dtype=np.int64)
        if isinstance(places, ops.RankedSlots):
            self._starts = places.starts

    @classmethod
    def none(cls, request_bytes: int) -> CachedLists:
        """Return the counter of a device without a cache of lists: it reads all at the host."""
        return cls(None, num_members=0, own=0, request_bytes=request_bytes)

    def read(self, batch: MiniBatch) -> Access:
        """Return the reads of sampling ``batch``, by place."""
        if self._places is None:
            reads = sum(block.num_edges + block.num_dst for block in batch.blocks)
            return self._access([0], reads, cached=False)
        found = np.zeros(len(self._starts), np.int64)
        for block in batch.blocks:
            # One read more than edges from each list: its offsets.
            ends = block.indptr + np.arange(len(block.indptr))
            found += ops.count_slots(
                self._places,
                batch.input_vertices[: block.num_dst],
                self._starts,
                weights=ends,
                num_threads=self._num_threads,
            )
        return self._access(found.tolist(), int(found[-1]), cached=True)

    def _access(self, found: Sequence[int], reads: int, *, cached: bool) -> Access:
        """Return the access of reads by place, the host's last."""
        peers = sum(found[:-1]) - found[self._own] if cached else 0
        return Access(
            hits=found[self._own] if cached else 0,
            peer_hits=peers,
            misses=reads if cached else 0,
            host_bytes=reads * self._id_bytes,
            link_bytes=reads * self._request_bytes,
            link_requests=reads,
            peer_bytes=peers * self._id_bytes,
        )
