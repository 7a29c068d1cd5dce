"""Records of a cache plan: content and expected traffic of each device's cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from gnnscale.core import Array

#: Prefix of the row counters by memory, followed by a device's name or ``HOST``.
ROWS_FROM, HOST = "rows from ", "the host"

#: Largest look-ahead, in steps: the limit of every sampler.
MAX_WINDOW = 1 << 15

#: Limits of values in a stored plan; no device's memory and no run's reads exceed them.
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Reads = Annotated[int, Meta(ge=0, le=10**14)]
Share = Annotated[float, Meta(ge=0, le=1)]
Transactions = Annotated[float, Meta(ge=0, le=1 << 60)]


@dataclass(frozen=True, kw_only=True)
class LookAhead:
    """Settings of a dynamic cache, whose content follows from batches sampled ahead of time.

    They are its size in rows, its look-ahead in steps, and whether it reuses the previous batch.
    """

    #: steps to look ahead, at most ``MAX_WINDOW``
    window: Annotated[int, Meta(ge=0, le=MAX_WINDOW)]
    num_rows: int  #: capacity of the cache, in rows
    match: bool  #: whether rows of the previous batch are reused on the device (Match, FastGL)
    #: capacity for each vertex type, ``num_rows`` together. Empty: all rows have equal bytes
    type_rows: tuple[int, ...] = ()

    @property
    def rows_by_type(self) -> tuple[int, ...]:
        """Capacity for each vertex type, in rows; without types, of the cache."""
        return self.type_rows or (self.num_rows,)

    def of_type(self, vertex_type: int) -> "LookAhead":
        """Return the settings of the cache of a vertex type, whose position is in the schema."""
        return replace(self, num_rows=self.rows_by_type[vertex_type], type_rows=())


@dataclass(frozen=True, kw_only=True)
class BatchBytes:
    """Link bytes of a mini-batch's input in two cases: with a cache, and with host aggregation."""

    cached: Bytes  #: missed rows, as they are stored, and the first layer's block
    aggregated: Bytes  #: rows that the host has aggregated


@dataclass(frozen=True, kw_only=True)
class DeviceCache:
    """Planned cache of one device: the vertices whose rows and lists it holds, and its sizes."""

    device: int  #: position in the device plan
    name: str  #: name in reports
    budget_bytes: int  #: largest size of the cache
    features: Array  #: ``[n]`` vertices of the rows in a static cache, hottest first
    topology: Array  #: ``[m]`` vertices of the cached adjacency lists, hottest first
    feature_bytes: int  #: bytes of the cached rows
    topology_bytes: int  #: bytes of the cached lists
    #: size and window of a dynamic cache. None: the cache is static
    look_ahead: LookAhead | None = None
    #: whether the host aggregates the first layer in fewer link bytes; the cache is then empty
    host_aggregates: bool = False
    #: link bytes of a mini-batch in both cases. None: the host cannot aggregate
    batch_bytes: BatchBytes | None = None
    #: bytes beyond the budget for rows that the next mini-batch may share (Match)
    matched_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the cached rows and lists, and of rows kept for the next mini-batch."""
        return self.feature_bytes + self.topology_bytes + self.matched_bytes


@dataclass(frozen=True, kw_only=True)
class TypeReads:
    """Reads of the rows of one vertex type by one device, by the memory that serves them."""

    name: str  #: name of the vertex type
    row_bytes: Bytes  #: bytes of a row
    rows: tuple[Reads, ...]  #: ``[num_devices + 1]``, as in ``CacheTraffic``


@dataclass(frozen=True, kw_only=True)
class CacheTraffic:
    """Reads of rows and lists by one device, each divided by the memory that serves them."""

    #: ``[num_devices + 1]`` feature rows read from each device of the plan, itself included, and
    #: from the host last: a row of the traffic matrix (Legion, figure 10). Rows that no cache may
    #: have, such as learned ones, are left out
    rows: tuple[Reads, ...]
    #: ``[num_devices + 1]`` reads of lists: one per sampled neighbor, and one per visit
    lists: tuple[Reads, ...]
    transactions: Bytes  #: requests over the link, of the device's request size
    link_bytes: Bytes  #: bytes over the link if the host packs rows
    #: reads of each vertex type that has rows, those that no cache may have included. Empty: all
    #: rows have equal bytes
    types: tuple[TypeReads, ...] = ()

    @property
    def read_bytes(self) -> tuple[int, ...]:
        """``[num_devices + 1]`` bytes of rows read; numbers of rows if all have equal bytes."""
        if not self.types:
            return self.rows
        return _sums([[num * entry.row_bytes for num in entry.rows] for entry in self.types])

    @property
    def feature_hit_rate(self) -> float | None:
        """Share of the rows that a cache serves, 0 to 1. None: no reads."""
        return hit_rate(self.rows)

    @property
    def topology_hit_rate(self) -> float | None:
        """Share of the list reads that a cache serves, 0 to 1. None: no reads."""
        return hit_rate(self.lists)


def hit_rate(counts: Sequence[int]) -> float | None:
    """Return the share of reads that caches serve, 0 to 1. None: no reads.

    ``counts`` are reads by the memory that serves them, the host's last.
    """
    total = sum(counts)
    return 1 - counts[-1] / total if total else None


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Expected link transactions for one division of cache memory between lists and rows.

    See Legion, eq. 2 to 8.
    """

    alpha: Share  #: share of the memory for adjacency lists
    n_t: Transactions  #: sampling transactions of an epoch, over all devices
    n_f: Transactions  #: feature transactions of an epoch
    n_total: Transactions  #: ``n_t + n_f``


@dataclass(frozen=True, kw_only=True)
class Uncached:
    """Number of devices without cached data, although a planner or plan is set, and the reason."""

    num_devices: int  #: devices without cached data
    of_devices: int  #: devices of the plan that may have a cache; 0 if none has memory for one
    reason: str  #: a clause, such as "the host aggregates their first layer"

    @property
    def line(self) -> str:
        """Line about the devices for the log of a run."""
        if not self.of_devices:
            return f"nothing is cached: {self.reason}"
        return f"{self.num_devices} of {self.of_devices} devices cache nothing: {self.reason}"


#: Clause on device plans without a device for which a cache is planned.
NO_MEMORY = "no device of device_plan has memory that a link connects; cpu devices read host memory"


def _aggregation_reason(caches: Sequence[DeviceCache]) -> str:
    """Return a clause on host aggregation for ``caches``, with its link bytes and a cache's."""
    reason = "the host aggregates the first layer for them"
    priced = [cache.batch_bytes for cache in caches if cache.batch_bytes is not None]
    if priced:
        aggregated = sum(num_bytes.aggregated for num_bytes in priced) // len(priced)
        cached = sum(num_bytes.cached for num_bytes in priced) // len(priced)
        reason += (
            f", since a mini-batch then moves {aggregated:,} bytes over the link, and {cached:,} "
            "with a cache of this size"
        )
    return f"{reason}; host_aggregates: false of a device keeps its cache"


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """Plan of the caches of all devices that have a link to the host."""

    planner: str  #: name of the policy
    #: positions of devices that read each other's caches; a device without peers is a clique
    cliques: tuple[tuple[int, ...], ...]
    devices: tuple[DeviceCache, ...]  #: caches, by position
    #: share of each clique's memory for adjacency lists. None: the policy caches no lists
    alphas: tuple[float | None, ...]
    #: expected reads of each of ``devices``, from presampled batches. None: no prediction
    predicted: tuple[CacheTraffic, ...] | None
    num_epochs: int = 1  #: epochs that ``predicted`` counts
    exact: bool = False  #: whether the prediction is certain, for a fixed split of the run's seeds
    #: the cost model's results over ``alpha``, summed over cliques; empty without a model
    curve: tuple[CurvePoint, ...] = ()
    notes: tuple[str, ...] = ()  #: lines of a report about the making of the plan

    @property
    def alpha(self) -> float | None:
        """Share of all cache memory for adjacency lists. None: the policy caches no lists."""
        pairs = [
            (alpha, sum(self.of(device).budget_bytes for device in clique))
            for alpha, clique in zip(self.alphas, self.cliques, strict=True)
            if alpha is not None
        ]
        total = sum(budget for _, budget in pairs)
        if not pairs:
            return None
        return sum(alpha * budget for alpha, budget in pairs) / total if total else 0.0

    @property
    def predicted_total(self) -> CacheTraffic | None:
        """Sum over all devices of their expected reads. None: no prediction."""
        if not self.predicted:
            return None
        return CacheTraffic(
            rows=_sums([traffic.rows for traffic in self.predicted]),
            lists=_sums([traffic.lists for traffic in self.predicted]),
            transactions=sum(traffic.transactions for traffic in self.predicted),
            link_bytes=sum(traffic.link_bytes for traffic in self.predicted),
            types=tuple(
                replace(entries[0], rows=_sums([entry.rows for entry in entries]))
                for entries in zip(*(traffic.types for traffic in self.predicted), strict=True)
            ),
        )

    @property
    def figures(self) -> "CacheStats":
        """Summary of the plan for a run's report: policy, bytes and expected reads."""
        return CacheStats(
            planner=self.planner,
            alpha=self.alpha,
            cliques=self.cliques,
            cache_bytes=sum(cache.num_bytes for cache in self.devices),
            host_aggregates=sum(cache.host_aggregates for cache in self.devices),
            predicted=self.predicted_total,
            num_epochs=self.num_epochs,
            exact=self.exact,
            first_epochs=self.first_epochs,
        )

    @property
    def uncached(self) -> Uncached | None:
        """Number of devices without cached data, and the reason.

        None: every device caches some data. A plan may have no devices.
        """
        if not self.devices:
            return Uncached(num_devices=0, of_devices=0, reason=NO_MEMORY)
        empty = [cache for cache in self.devices if cache.host_aggregates or not cache.num_bytes]
        without_budget = [cache for cache in empty if not cache.budget_bytes]
        aggregated = [cache for cache in empty if cache.host_aggregates and cache.budget_bytes]
        unfilled = len(empty) - len(without_budget) - len(aggregated)
        reasons = [
            *(["the budget of their caches is 0 bytes"] if without_budget else []),
            *([_aggregation_reason(aggregated)] if aggregated else []),
            *(["no feature row and no adjacency list fits into their caches"] if unfilled else []),
        ]
        if not empty:
            return None
        reason = "; or ".join(reasons)
        return Uncached(num_devices=len(empty), of_devices=len(self.devices), reason=reason)

    @property
    def first_epochs(self) -> int | None:
        """Number of epochs, from the run's first, whose reads ``predicted`` counts.

        None: ``predicted`` has the reads of a mean epoch.
        """
        is_dynamic = any(cache.look_ahead is not None for cache in self.devices)
        return self.num_epochs if is_dynamic or self.exact else None

    def of(self, device: int) -> DeviceCache:
        """Return the planned cache of the device at position ``device``, which must have one."""
        return next(cache for cache in self.devices if cache.device == device)

    def has(self, device: int) -> bool:
        """Return whether the device at position ``device`` has a cache in the plan, maybe empty."""
        return any(cache.device == device for cache in self.devices)

    @property
    def has_peers(self) -> bool:
        """Whether any device reads another's cache."""
        return any(len(clique) > 1 for clique in self.cliques)

    def clique_of(self, device: int) -> tuple[int, ...]:
        """Return the positions of all devices in the clique of the one at position ``device``."""
        return next(clique for clique in self.cliques if device in clique)


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """Summary of a cache plan for reports."""

    planner: str  #: name of the policy
    #: share of all cache memory for adjacency lists. None: the policy caches no lists
    alpha: float | None
    cliques: tuple[tuple[int, ...], ...]  #: positions of devices that read each other's caches
    cache_bytes: int  #: bytes of all caches
    host_aggregates: int  #: number of devices with host aggregation
    predicted: CacheTraffic | None  #: expected reads of all devices. None: no prediction
    num_epochs: int  #: epochs that ``predicted`` counts
    exact: bool  #: whether the prediction is certain
    #: number of the run's first epochs in ``predicted``. None: a mean epoch
    first_epochs: int | None = None


def _sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


@dataclass(frozen=True, kw_only=True)
class CliqueCache:
    """Cached vertices of each member of a clique, as one member sees them.

    Vertices ascend, and a row's slot is its vertex's index, so all members compute the same slots.
    """

    names: tuple[str, ...]  #: the members' names in reports
    positions: tuple[int, ...]  #: the members' positions in the device plan
    features: tuple[Array, ...]  #: ``[n_k]`` vertices of each member's cached rows
    topology: tuple[Array, ...]  #: ``[m_k]`` vertices of each member's cached adjacency lists
    member: int  #: index of this device among the members
    #: size and window of a dynamic cache, empty at first. None: the cache is static
    look_ahead: LookAhead | None = None

    @classmethod
    def of(cls, plan: CachePlan, position: int) -> "CliqueCache":
        """Return the caches of the clique of the device at ``position``, that device's included.

        The plan must have a cache for the device.
        """
        clique = plan.clique_of(position)
        members = [plan.of(device) for device in clique]
        return cls(
            names=tuple(member.name for member in members),
            positions=clique,
            features=tuple(np.sort(member.features) for member in members),
            topology=tuple(np.sort(member.topology) for member in members),
            member=clique.index(position),
            look_ahead=plan.of(position).look_ahead,
        )
