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
    """Seconds spent in each stage of the training pipeline (HyScale-GNN, section III)."""

    sample: float = 0.0  #: neighbours of the seeds are picked
    load: float = 0.0  #: features are read from host memory
    exchange: float = 0.0  #: devices trade rows; only in runs that do
    transfer: float = 0.0  #: the mini-batch crosses the link
    propagate: float = 0.0  #: forward and backward propagation
    sync: float = 0.0  #: gradients are summed, and the weights updated

    def add(self, other: StageTimes) -> None:
        """Add ``other`` stage by stage, in place."""
        # Written out, as sums of every step are: a loop over names takes three times as long.
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
    """Where rows, or adjacency lists, came from, and what that moved."""

    hits: Count = 0  #: found in the device's own cache
    peer_hits: Count = 0  #: found in the cache of a peer device
    misses: Count = 0  #: found in neither. Without a cache there are neither hits nor misses
    host_bytes: Count = 0  #: bytes of distinct rows, or lists, that were read in the host's memory
    link_bytes: Count = 0  #: bytes over the link between host and device
    link_requests: Count = 0  #: requests over that link, of the size that the device names
    peer_bytes: Count = 0  #: bytes from peers
    waited_us: Count = 0  #: microseconds that loading waited for them

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
        """The part that a cache answered, the device's or a peer's; None without a cache."""
        asked = self.hits + self.peer_hits + self.misses
        return (self.hits + self.peer_hits) / asked if asked else None


_COUNTS = tuple(field.name for field in fields(Access))
#: Nothing was read.
NO_ACCESS = Access()


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one batch on one device moved."""

    rows: Access = NO_ACCESS  #: feature rows, and rows of hidden features
    lists: Access = NO_ACCESS  #: adjacency lists, and blocks of sampled ones
    #: feature rows that the host reads from a disk, or from other machines: hits are rows that its
    #: memory holds, the link is the one to the disk or the machines
    tier: Access = NO_ACCESS
    #: neighbours that the host samples of lists on a disk: hits are in lists that memory holds, the
    #: link is the one to the disk
    neighbors: Access = NO_ACCESS
    #: the misses of ``tier`` that are read from the disk, if its others come from other machines
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
        """Bytes over the link, rows and lists together."""
        return self.rows.link_bytes + self.lists.link_bytes

    @property
    def link_requests(self) -> int:
        """Requests over the link, rows and lists together."""
        return self.rows.link_requests + self.lists.link_requests

    def counts(self) -> list[int]:
        """Return all counts as a list, for ``from_counts``."""
        every = (self.rows, self.lists, self.tier, self.neighbors, self.disk)
        return [getattr(each, name) for each in every for name in _COUNTS]

    @classmethod
    def from_counts(cls, counts: list[int]) -> Traffic:
        """Rebuild the record from ``counts``."""
        size = len(_COUNTS)
        starts = range(0, 5 * size, size)
        rows, lists, tier, neighbors, disk = (counts[first : first + size] for first in starts)
        return cls(
            rows=Access(**dict(zip(_COUNTS, rows, strict=True))),
            lists=Access(**dict(zip(_COUNTS, lists, strict=True))),
            tier=Access(**dict(zip(_COUNTS, tier, strict=True))),
            neighbors=Access(**dict(zip(_COUNTS, neighbors, strict=True))),
            disk=Access(**dict(zip(_COUNTS, disk, strict=True))),
        )

    def with_link(self, *, row_bytes: int, list_bytes: int, request_bytes: int) -> Traffic:
        """Return this traffic and a transfer over the link, in requests of ``request_bytes``."""

        def crossed(access: Access, num_bytes: int) -> Access:
            return replace(
                access,
                link_bytes=access.link_bytes + num_bytes,
                link_requests=access.link_requests + -(-num_bytes // request_bytes),
            )

        rows, lists = crossed(self.rows, row_bytes), crossed(self.lists, list_bytes)
        return replace(self, rows=rows, lists=lists)


#: Nothing was moved.
NO_TRAFFIC = Traffic()
