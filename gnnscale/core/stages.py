"""The stages of training, and what a run records of each: seconds, spans and traffic.

``STAGES`` is the one list of stages. A simulator fills the same records as a real run, so one
report compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from gnnscale.core.types import Count


@dataclass(kw_only=True)
class StageTimes:
    """Seconds spent in each stage of training, such as sampling (HyScale-GNN, section III)."""

    sample: float = 0.0  #: sampling of neighbors
    load: float = 0.0  #: reading of features from host memory
    exchange: float = 0.0  #: exchange of feature rows between devices; 0 without one
    transfer: float = 0.0  #: transfer of the mini-batch over the link
    propagate: float = 0.0  #: forward and backward propagation
    sync: float = 0.0  #: all-reduce of gradients, and update of the weights

    def add(self, other: StageTimes) -> None:
        """Add the seconds of each stage of ``other`` to this object's."""
        # Written out: this runs each step, and a loop over names takes three times as long.
        self.sample += other.sample
        self.load += other.load
        self.exchange += other.exchange
        self.transfer += other.transfer
        self.propagate += other.propagate
        self.sync += other.sync


#: The names of all stages, in the order in which a mini-batch passes them.
STAGES = tuple(field.name for field in fields(StageTimes))

#: A stage of one step on one device: ``stage`` is a position in ``STAGES``; ``start`` and ``end``
#: are seconds since the run began.
SPAN = np.dtype(
    [
        ("device", np.int32),
        ("stage", np.int32),
        ("step", np.int64),
        ("start", np.float64),
        ("end", np.float64),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Cache hits, misses, bytes and requests of reads of one kind of data, such as feature rows."""

    hits: Count = 0  #: hits in the device's cache
    peer_hits: Count = 0  #: hits in the cache of a peer device
    misses: Count = 0  #: misses in all caches. Without a cache there are neither hits nor misses
    host_bytes: Count = 0  #: bytes of distinct rows, or lists, read from the host's memory
    link_bytes: Count = 0  #: bytes over the link between host and device
    link_requests: Count = 0  #: requests over that link, of the device's request size
    peer_bytes: Count = 0  #: bytes from peers
    waited_us: Count = 0  #: microseconds that loading waited for the data

    def __add__(self, other: Access) -> Access:
        if other is NO_ACCESS:
            return self
        return Access(
            hits=self.hits + other.hits,
            peer_hits=self.peer_hits + other.peer_hits,
            misses=self.misses + other.misses,
            host_bytes=self.host_bytes + other.host_bytes,
            link_bytes=self.link_bytes + other.link_bytes,
            link_requests=self.link_requests + other.link_requests,
            peer_bytes=self.peer_bytes + other.peer_bytes,
            waited_us=self.waited_us + other.waited_us,
        )

    @property
    def hit_rate(self) -> float | None:
        """Share of lookups that hit the device's own or a peer's cache; None without a lookup."""
        lookups = self.hits + self.peer_hits + self.misses
        return (self.hits + self.peer_hits) / lookups if lookups else None


_COUNTS = tuple(field.name for field in fields(Access))
#: Access without any read.
NO_ACCESS = Access()


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Cache hits and bytes moved for a mini-batch on one device, by kind of data (rows, lists)."""

    rows: Access = NO_ACCESS  #: feature rows, and rows of hidden features
    lists: Access = NO_ACCESS  #: adjacency lists, and sampled blocks
    #: feature rows that the host reads from its tiered store: hits are rows in the memory buffer,
    #: the link is the one to the disk or to other machines
    tier: Access = NO_ACCESS
    #: neighbors sampled from lists on disk: hits are lists in memory, the link is the one to the
    #: disk
    neighbors: Access = NO_ACCESS
    #: misses of ``tier`` read from the local disk, if its other misses come from other machines
    disk: Access = NO_ACCESS

    def __add__(self, other: Traffic) -> Traffic:
        if other is NO_TRAFFIC:
            return self
        return Traffic(
            rows=self.rows + other.rows,
            lists=self.lists + other.lists,
            tier=self.tier + other.tier,
            neighbors=self.neighbors + other.neighbors,
            disk=self.disk + other.disk,
        )

    @property
    def link_bytes(self) -> int:
        """Bytes of feature rows and adjacency lists over the link between host and device."""
        return self.rows.link_bytes + self.lists.link_bytes

    @property
    def link_requests(self) -> int:
        """Requests for feature rows and adjacency lists over the link between host and device."""
        return self.rows.link_requests + self.lists.link_requests

    def counts(self) -> list[int]:
        """Return the counts of all kinds of data as one flat list, which ``from_counts`` reads."""
        accesses = (self.rows, self.lists, self.tier, self.neighbors, self.disk)
        return [getattr(access, name) for access in accesses for name in _COUNTS]

    @classmethod
    def from_counts(cls, counts: list[int]) -> Traffic:
        """Return the ``Traffic`` whose method ``counts`` returned ``counts``."""
        size = len(_COUNTS)
        rows, lists, tier, neighbors, disk = (
            Access(**dict(zip(_COUNTS, counts[first : first + size], strict=True)))
            for first in range(0, 5 * size, size)
        )
        return cls(rows=rows, lists=lists, tier=tier, neighbors=neighbors, disk=disk)

    def with_link(self, *, row_bytes: int, list_bytes: int, request_bytes: int) -> Traffic:
        """Return this traffic plus bytes over the link, and the requests for them."""

        def add_transfer(access: Access, num_bytes: int) -> Access:
            return replace(
                access,
                link_bytes=access.link_bytes + num_bytes,
                link_requests=access.link_requests + -(-num_bytes // request_bytes),
            )

        rows, lists = add_transfer(self.rows, row_bytes), add_transfer(self.lists, list_bytes)
        return replace(self, rows=rows, lists=lists)


#: Traffic without any movement.
NO_TRAFFIC = Traffic()
