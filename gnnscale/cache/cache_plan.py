"""The record that cache planning returns: what each device keeps in its own memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta
from numpy.typing import NDArray

__all__ = [
    "HOST",
    "MAX_WINDOW",
    "ROWS_FROM",
    "BatchBytes",
    "Bytes",
    "CacheFigures",
    "CachePlan",
    "CacheTraffic",
    "CurvePoint",
    "DeviceCache",
    "LookAhead",
    "Reads",
    "Share",
]

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
    """A cache whose content follows the batches to come; sampling is known ahead of time.

    Attributes:
        window: steps that are looked ahead, at most ``MAX_WINDOW``.
        num_rows: rows that the cache holds.
        match: whether rows of the batch before are read where they still lie on the device, beside
            the cache (Match, FastGL).
    """

    window: Annotated[int, Meta(ge=0, le=MAX_WINDOW)]
    num_rows: int
    match: bool


@dataclass(frozen=True, kw_only=True)
class BatchBytes:
    """Bytes over the link of one mini-batch's input: rows, and the block that goes with them.

    Attributes:
        cached: the rows that the cache lacks, as they are stored, and the first layer's block.
        aggregated: the rows that the host has aggregated.
    """

    cached: Bytes
    aggregated: Bytes


@dataclass(frozen=True, kw_only=True)
class DeviceCache:
    """What one device keeps.

    Attributes:
        device: the device's position in the device plan.
        name: what reports call it.
        budget_bytes: memory that it may take.
        features: ``[n]`` vertices whose feature rows it keeps from the start, hottest first.
        topology: ``[m]`` vertices whose adjacency lists it keeps, hottest first.
        feature_bytes, topology_bytes: memory that these take.
        look_ahead: how its rows are replaced while it trains; None where they stay.
        host_aggregates: whether the host aggregates the first layer instead, since that moves less
            over the link than the misses of the cache; it is empty then.
        batch_bytes: what a mini-batch moves either way; None where the host cannot aggregate.
        matched_bytes: memory beyond the budget, for rows of a mini-batch that the next one may
            share (Match): those of the first mini-batch, all of which it could.
    """

    device: int
    name: str
    budget_bytes: int
    features: NDArray[Any]
    topology: NDArray[Any]
    feature_bytes: int
    topology_bytes: int
    look_ahead: LookAhead | None = None
    host_aggregates: bool = False
    batch_bytes: BatchBytes | None = None
    matched_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Memory that the cache takes."""
        return self.feature_bytes + self.topology_bytes + self.matched_bytes


@dataclass(frozen=True, kw_only=True)
class CacheTraffic:
    """What one device reads, by the place where it is found.

    Attributes:
        rows: ``[num_devices + 1]`` feature rows read at each device of the plan, its own included,
            and last those read at the host: a row of the traffic matrix (Legion, figure 10).
        lists: the same of reads in adjacency lists: of each neighbour that is picked, and of the
            offsets of each list, once a visit.
        transactions: requests over the link, of the size that the device names.
        link_bytes: bytes over the link, where the host packs what it sends.
    """

    rows: tuple[Reads, ...]
    lists: tuple[Reads, ...]
    transactions: Bytes
    link_bytes: Bytes

    @property
    def feature_hit_rate(self) -> float | None:
        """The part of the rows that a cache has; None where none is read."""
        return hit_rate(self.rows)

    @property
    def topology_hit_rate(self) -> float | None:
        """The part of the reads in lists that a cache answers; None where none is read."""
        return hit_rate(self.lists)


def hit_rate(found: Sequence[int]) -> float | None:
    """Return the part of ``found`` that is not at the host, which comes last; None of nothing."""
    asked = sum(found)
    return 1 - found[-1] / asked if asked else None


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """What the cost model says of one division of the memory (Legion, eq. 2 to 8).

    Attributes:
        alpha: the part of the memory that adjacency lists get.
        n_t: transactions of sampling, in an epoch of all devices.
        n_f: transactions of reading features.
        n_total: both.
    """

    alpha: Share
    n_t: Transactions
    n_f: Transactions
    n_total: Transactions


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """What every device with a link keeps in its own memory.

    Attributes:
        planner: the policy's name.
        cliques: positions of devices that read each other's caches, and of each one alone that
            reads no other's.
        devices: the caches, in the order of positions.
        alphas: for each clique the part of its memory that adjacency lists get; None where the
            policy keeps none.
        predicted: what each of ``devices`` reads, as the batches that were drawn for planning say;
            None where none were.
        num_epochs: epochs that ``predicted`` counts.
        exact: whether each device is sure to read just that: these are the run's own batches, and
            the split of their seeds among devices is fixed.
        curve: the cost model's answers over ``alpha``, of all cliques together; empty without.
        notes: what a report says of how the plan was made, a line each.
    """

    planner: str
    cliques: tuple[tuple[int, ...], ...]
    devices: tuple[DeviceCache, ...]
    alphas: tuple[float | None, ...]
    predicted: tuple[CacheTraffic, ...] | None
    num_epochs: int = 1
    exact: bool = False
    curve: tuple[CurvePoint, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def alpha(self) -> float | None:
        """The part of all memory that adjacency lists get; None where the policy keeps none."""
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
        """What all devices together are predicted to read; None where nothing is."""
        if not self.predicted:
            return None
        return CacheTraffic(
            rows=_sums([each.rows for each in self.predicted]),
            lists=_sums([each.lists for each in self.predicted]),
            transactions=sum(each.transactions for each in self.predicted),
            link_bytes=sum(each.link_bytes for each in self.predicted),
        )

    @property
    def figures(self) -> CacheFigures:
        """What a run tells of the plan: no vertices."""
        return CacheFigures(
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
    def first_epochs(self) -> int | None:
        """The run's first epochs that ``predicted`` counts; None where it is their average.

        A cache that follows the batches is empty at first, so that it hits less then.
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
class CacheFigures:
    """What is told of a cache plan beside a run.

    Attributes:
        planner: the policy's name.
        alpha: the part of all memory that adjacency lists get; None where the policy keeps none.
        cliques: positions of devices that read each other's caches.
        cache_bytes: memory of all caches.
        host_aggregates: number of devices for which the host aggregates instead.
        predicted: what all devices were predicted to read; None where nothing was.
        num_epochs: epochs that ``predicted`` counts.
        exact: whether each device is sure to read just that.
        first_epochs: the run's first epochs that ``predicted`` counts; None where it is an epoch's
            average over the run.
    """

    planner: str
    alpha: float | None
    cliques: tuple[tuple[int, ...], ...]
    cache_bytes: int
    host_aggregates: int
    predicted: CacheTraffic | None
    num_epochs: int
    exact: bool
    first_epochs: int | None = None


def _sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))
