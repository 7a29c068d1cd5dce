"""The record that cache planning returns: what each device keeps in its own memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from gnnscale.core import Array

#: Counters of a cache are called by where rows come from: a device by its name, or the host.
ROWS_FROM, HOST = "rows from ", "the host"

#: Steps that may be looked ahead: no sampler knows more.
MAX_WINDOW = 1 << 15

#: Limits of figures in a plan that is read: more is no device's memory, and no run's reads.
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Reads = Annotated[int, Meta(ge=0, le=10**14)]
Share = Annotated[float, Meta(ge=0, le=1)]
Transactions = Annotated[float, Meta(ge=0, le=1 << 60)]


@dataclass(frozen=True, kw_only=True)
class LookAhead:
    """A cache whose content follows the batches to come; sampling is known ahead of time."""

    #: steps that are looked ahead, at most ``MAX_WINDOW``
    window: Annotated[int, Meta(ge=0, le=MAX_WINDOW)]
    num_rows: int  #: rows that the cache holds
    #: whether rows of the batch before are read where they still lie on the device, beside the
    #: cache (Match, FastGL)
    match: bool


@dataclass(frozen=True, kw_only=True)
class BatchBytes:
    """Bytes over the link of one mini-batch's input: rows, and the block that goes with them."""

    cached: Bytes  #: the rows that the cache lacks, as they are stored, and the first layer's block
    aggregated: Bytes  #: the rows that the host has aggregated


@dataclass(frozen=True, kw_only=True)
class DeviceCache:
    """What one device keeps."""

    device: int  #: the device's position in the device plan
    name: str  #: what reports call it
    budget_bytes: int  #: memory that it may take
    #: ``[n]`` vertices whose feature rows it keeps from the start, hottest first
    features: Array
    topology: Array  #: ``[m]`` vertices whose adjacency lists it keeps, hottest first
    #: feature_bytes, topology_bytes: memory that these take
    feature_bytes: int
    topology_bytes: int
    #: how its rows are replaced while it trains; None if they stay
    look_ahead: LookAhead | None = None
    #: whether the host aggregates the first layer instead, since that moves less over the link than
    #: the misses of the cache; it is empty then
    host_aggregates: bool = False
    #: what a mini-batch moves either way; None if the host cannot aggregate
    batch_bytes: BatchBytes | None = None
    #: memory beyond the budget, for rows of a mini-batch that the next one may share (Match): those
    #: of the first mini-batch, all of which it could
    matched_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Memory that the cache takes."""
        return self.feature_bytes + self.topology_bytes + self.matched_bytes


@dataclass(frozen=True, kw_only=True)
class CacheTraffic:
    """What one device reads, by the place where it is found."""

    #: ``[num_devices + 1]`` feature rows read at each device of the plan, its own included, and
    #: last those read at the host: a row of the traffic matrix (Legion, figure 10)
    rows: tuple[Reads, ...]
    #: the same of reads in adjacency lists: of each neighbour that is picked, and of the offsets of
    #: each list, once a visit
    lists: tuple[Reads, ...]
    transactions: Bytes  #: requests over the link, of the size that the device names
    link_bytes: Bytes  #: bytes over the link, if the host packs what it sends

    @property
    def feature_hit_rate(self) -> float | None:
        """The part of the rows that a cache has; None if none is read."""
        return hit_rate(self.rows)

    @property
    def topology_hit_rate(self) -> float | None:
        """The part of the reads in lists that a cache answers; None if none is read."""
        return hit_rate(self.lists)


def hit_rate(found: Sequence[int]) -> float | None:
    """Return the part of ``found`` that is not at the host, which comes last; None of nothing."""
    asked = sum(found)
    return 1 - found[-1] / asked if asked else None


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The cost model's answer for one division of the memory (Legion, eq. 2 to 8)."""

    alpha: Share  #: the part of the memory that adjacency lists get
    n_t: Transactions  #: transactions of sampling, in an epoch of all devices
    n_f: Transactions  #: transactions of reading features
    n_total: Transactions  #: both


@dataclass(frozen=True, kw_only=True)
class Uncached:
    """Devices that cache nothing, although a cache planner or a cache plan is set."""

    num_devices: int
    of_devices: int  #: devices of the plan that could have a cache; 0 if none has memory for one
    reason: str  #: one clause, such as "the host aggregates their first layer"

    @property
    def line(self) -> str:
        """Return what a run says of the devices, in one line."""
        if not self.of_devices:
            return f"nothing is cached: {self.reason}"
        return f"{self.num_devices} of {self.of_devices} devices cache nothing: {self.reason}"


def _aggregation_reason(caches: Sequence[DeviceCache]) -> str:
    """Return why the host aggregates for the devices of ``caches``, with bytes if known."""
    reason = "the host aggregates the first layer for them"
    priced = [cache.batch_bytes for cache in caches if cache.batch_bytes is not None]
    if priced:
        aggregated = sum(each.aggregated for each in priced) // len(priced)
        cached = sum(each.cached for each in priced) // len(priced)
        reason += (
            f", since a mini-batch then moves {aggregated:,} bytes over the link, and {cached:,} "
            "with a cache of this size"
        )
    return f"{reason}; host_aggregates: false of a device keeps its cache"


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """What every device with a link keeps in its own memory."""

    planner: str  #: the policy's name
    #: positions of devices that read each other's caches, and of each one alone that reads no
    #: other's
    cliques: tuple[tuple[int, ...], ...]
    devices: tuple[DeviceCache, ...]  #: the caches, in the order of positions
    #: for each clique the part of its memory that adjacency lists get; None if the policy keeps
    #: none
    alphas: tuple[float | None, ...]
    #: what each of ``devices`` reads, as the batches that were drawn for planning say; None if none
    #: were
    predicted: tuple[CacheTraffic, ...] | None
    num_epochs: int = 1  #: epochs that ``predicted`` counts
    #: whether each device is sure to read just that: these are the run's own batches, and the split
    #: of their seeds among devices is fixed
    exact: bool = False
    #: the cost model's answers over ``alpha``, of all cliques together; empty without
    curve: tuple[CurvePoint, ...] = ()
    notes: tuple[str, ...] = ()  #: what a report says of how the plan was made, a line each

    @property
    def alpha(self) -> float | None:
        """The part of all memory that adjacency lists get; None if the policy keeps none."""
        pairs = [
            (alpha, sum(self.of(each).budget_bytes for each in clique))
            for alpha, clique in zip(self.alphas, self.cliques, strict=True)
            if alpha is not None
        ]
        total = sum(budget for _, budget in pairs)
        if not pairs:
            return None
        return sum(alpha * budget for alpha, budget in pairs) / total if total else 0.0

    @property
    def predicted_total(self) -> CacheTraffic | None:
        """What all devices together are predicted to read; None if nothing is."""
        if not self.predicted:
            return None
        return CacheTraffic(
            rows=_sums([each.rows for each in self.predicted]),
            lists=_sums([each.lists for each in self.predicted]),
            transactions=sum(each.transactions for each in self.predicted),
            link_bytes=sum(each.link_bytes for each in self.predicted),
        )

    @property
    def figures(self) -> CacheStats:
        """The summary that a run reports, without vertices."""
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
        """The devices that cache nothing, and why; None if every device keeps something."""
        aggregated = [cache for cache in self.devices if cache.host_aggregates]
        empty = [each for each in self.devices if each.host_aggregates or not each.num_bytes]
        if not empty:
            return None
        reason = "no feature row and no adjacency list fits into their caches"
        if aggregated:
            reason = _aggregation_reason(aggregated)
        return Uncached(num_devices=len(empty), of_devices=len(self.devices), reason=reason)

    @property
    def first_epochs(self) -> int | None:
        """The run's first epochs that ``predicted`` counts; None if it is their average.

        A cache that follows the batches is empty at first, so it hits less then.
        """
        ahead = any(cache.look_ahead is not None for cache in self.devices)
        return self.num_epochs if ahead or self.exact else None

    def of(self, device: int) -> DeviceCache:
        """Return the cache of the device at position ``device``, which must have one."""
        return next(each for each in self.devices if each.device == device)

    def has(self, device: int) -> bool:
        """Return whether the device at position ``device`` has a cache, empty or not."""
        return any(each.device == device for each in self.devices)

    @property
    def has_peers(self) -> bool:
        """Whether any device reads another's cache."""
        return any(len(clique) > 1 for clique in self.cliques)

    def clique_of(self, device: int) -> tuple[int, ...]:
        """Return the clique of the device at position ``device``."""
        return next(clique for clique in self.cliques if device in clique)


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """What a run reports of its cache plan."""

    planner: str  #: the policy's name
    #: the part of all memory that adjacency lists get; None if the policy keeps none
    alpha: float | None
    cliques: tuple[tuple[int, ...], ...]  #: positions of devices that read each other's caches
    cache_bytes: int  #: memory of all caches
    host_aggregates: int  #: number of devices for which the host aggregates instead
    predicted: CacheTraffic | None  #: what all devices were predicted to read; None if nothing was
    num_epochs: int  #: epochs that ``predicted`` counts
    exact: bool  #: whether each device is sure to read just that
    #: the run's first epochs that ``predicted`` counts; None if it is an epoch's average over the
    #: run
    first_epochs: int | None = None


def _sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


@dataclass(frozen=True, kw_only=True)
class CliqueCache:
    """The caches of a clique: vertices ascend, so that all members know each other's slots."""

    names: tuple[str, ...]  #: of the members in reports
    positions: tuple[int, ...]  #: of the members in the device plan
    features: tuple[Array, ...]  #: ``[n_k]`` vertices whose feature rows each member keeps
    topology: tuple[Array, ...]  #: ``[m_k]`` vertices whose adjacency lists each member keeps
    own: int  #: which member the device is
    #: how its rows follow the batches, of which it keeps none at first; None if they stay
    look_ahead: LookAhead | None = None

    @classmethod
    def of(cls, plan: CachePlan, position: int) -> CliqueCache:
        """Return what the device at ``position``, which has a cache, keeps and reads."""
        clique = plan.clique_of(position)
        members = [plan.of(each) for each in clique]
        return cls(
            names=tuple(each.name for each in members),
            positions=clique,
            features=tuple(np.sort(each.features) for each in members),
            topology=tuple(np.sort(each.topology) for each in members),
            own=clique.index(position),
            look_ahead=plan.of(position).look_ahead,
        )
