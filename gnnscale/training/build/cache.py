"""One worker's caches: the rows and lists that it keeps, and those that it reads at its peers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache import CachePlan, DeviceCache, Uncached
from gnnscale.cache.belady import LookAheadReplay
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.cache.plan import CliqueCache
from gnnscale.core import Array, ConfigError
from gnnscale.distributed.process_group import Group, trade_values
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.features import cached as cached_features
from gnnscale.features.multilevel import DeviceCacheRows, MultiLevelStore
from gnnscale.features.tiered.policies import DeviceCacheFilter
from gnnscale.features.tiered.store import TieredReader, TieredStore
from gnnscale.graph import Graph
from gnnscale.planner import Accelerator, Device
from gnnscale.planner.cost_model.workload import CacheEffect
from gnnscale.run.config import RunConfig

#: Maps the rows of the worker of a rank.
MapRows = Callable[[int], Array]


@contextmanager
def traded_rows(
    num_rows: int | None, width: int, dtype: np.dtype[Any], group: Group
) -> Iterator[MapRows]:
    """Let workers of one machine map each other's rows in the ``with`` block.

    Each fills its own in the block, and reads those of others after it: at its end all workers
    wait for each other. What is mapped stays mapped, and takes memory until no process maps it.

    Args:
        num_rows: this worker's rows, all zeros at first; None for none.
        group: the workers, who all do so at the same time.

    Yields:
        What returns the rows of the worker of a rank, this one's own among them.
    """
    address, mine = None, np.empty((0, width), dtype)
    if num_rows is not None:
        mine, address = cached_features.share_rows(num_rows, width, dtype)
    described = None if address is None else [address.process, address.file, address.num_rows]
    every = trade_values(described, group)

    def mapped(rank: int) -> Array:
        if rank == group.rank:
            return mine
        process, file, rows = every[rank]
        return cached_features.map_rows(
            cached_features.RowsAddress(process=process, file=file, num_rows=rows), width, dtype
        )

    try:
        yield mapped
        group.barrier()
    finally:
        if address is not None:
            os.close(address.file)


@dataclass(frozen=True, kw_only=True)
class OpenedCache:
    """What one worker's device has in its own memory."""

    store: FeatureStore  #: reads rows in the cache, at peers, or at the host
    #: reports where adjacency lists are read; None if the device does not sample
    lists: cached_features.CachedAdjacency | None
    num_bytes: int  #: device memory that rows and lists take
    #: what the device keeps, if it has its cache in its own memory; ``store`` is the host's then
    kept: CliqueCache | None = None
    replay: LookAheadReplay | None = None  #: what the rows of ``kept`` follow

    def counters(self) -> Mapping[str, float]:
        """Return where rows were found since the last call."""
        store = self.store
        if isinstance(store, cached_features.CachedFeatures | MultiLevelStore):
            return store.take_counters()
        return {}

    @property
    def stacked(self) -> MultiLevelStore | None:
        """The store, if it lies above a tier of host memory."""
        return self.store if isinstance(self.store, MultiLevelStore) else None

    @property
    def look_ahead(self) -> cached_features.LookAheadFeatures | None:
        """The store, if its rows follow the batches to come."""
        return self.store if isinstance(self.store, cached_features.LookAheadFeatures) else None


def devices_with_caches(devices: Sequence[Device], plan: CachePlan | None) -> tuple[Device, ...]:
    """Return the devices of a run: those with a cache take rows as they are, or aggregated ones."""
    if plan is None:
        return tuple(devices)
    return tuple(
        replace(device, host_aggregates=plan.of(position).host_aggregates)
        if plan.has(position)
        else device
        for position, device in enumerate(devices)
    )


def find_uncached(config: RunConfig, plan: CachePlan | None) -> Uncached | None:
    """Return the devices that cache nothing although the options ask for caches; None if none.

    Args:
        config: options of the run.
        plan: its cache plan; None: no device of the run holds a cache, or no cache is asked for.
    """
    if plan is not None:
        return plan.uncached
    if not config.asks_for_caches:
        return None
    reason = "no device of device_plan has memory that a link connects"
    return Uncached(num_devices=0, of_devices=0, reason=reason)


def cache_effects(num_devices: int, plan: CachePlan | None) -> list[CacheEffect]:
    """Return what each device's cache takes and spares, as the plan predicts."""
    effects = [CacheEffect() for _ in range(num_devices)]
    if plan is None:
        return effects
    for number, cache in enumerate(plan.devices):
        if cache.host_aggregates:
            continue
        found = CacheEffect(num_bytes=max(cache.num_bytes, 1))
        if plan.predicted is not None:
            traffic = plan.predicted[number]
            rows, lists = sum(traffic.rows), sum(traffic.lists)
            own = traffic.rows[cache.device]
            misses = traffic.rows[-1] / rows if rows else 1.0
            found = replace(
                found,
                row_misses=misses,
                peer_rows=1 - misses - own / rows if rows else 0.0,
                list_misses=traffic.lists[-1] / lists if lists else 1.0,
            )
        effects[cache.device] = found
    return effects


def open_caches(
    plan: CachePlan,
    graph: Graph,
    device: Device,
    group: Group,
    *,
    tier: TieredStore | None = None,
) -> OpenedCache | None:
    """Fill this worker's cache, and find those of its peers; None if its device has no cache.

    Every worker calls this at the same time.

    Args:
        tier: what reads the rows that the cache lacks; None for host memory that has all rows.

    Raises:
        ConfigError: the devices of a clique are on different machines.
        MemoryError: there is not enough memory on the host that emulates the device.
    """
    below = RowsBelow.of(graph, None if tier is None else tier.rows)
    found = _static_rows(plan, below, group, holds_rows=device.holds_rows)
    own = plan.of(group.rank) if plan.has(group.rank) else None
    if own is None or own.host_aggregates:
        return None
    if device.holds_rows:
        return _kept_by_device(plan, own, graph, group)
    store: FeatureStore
    if tier is not None:
        store = MultiLevelStore(tier, _device_rows(plan, graph, group, below, found))
    elif own.look_ahead is not None:
        priority = out_degree(graph)
        host = HostFeatures.of(graph)
        store = cached_features.LookAheadFeatures(host, own.look_ahead, priority=priority)
    else:
        assert found is not None
        names, at = _members(plan, group.rank)
        store = cached_features.CachedFeatures(
            HostFeatures.of(graph), *_with_slots(graph, found), own=at, names=names
        )
    lists = None if own.look_ahead is not None else _lists(plan, graph, device, group)
    return OpenedCache(store=store, lists=lists, num_bytes=own.num_bytes)


def _members(plan: CachePlan, rank: int) -> tuple[list[str], int]:
    """Return the names of the members of a worker's clique, and which of them its device is."""
    clique = plan.clique_of(rank)
    return [plan.of(each).name for each in clique], clique.index(rank)


def _kept_by_device(plan: CachePlan, own: DeviceCache, graph: Graph, group: Group) -> OpenedCache:
    """Return the cache of a device that fills it by itself."""
    kept, replay = CliqueCache.of(plan, group.rank), None
    _check_machine(kept.positions, group)
    if own.look_ahead is not None:
        replay = LookAheadReplay(graph.num_vertices, own.look_ahead, priority=out_degree(graph))
    return OpenedCache(
        store=HostFeatures.of(graph),
        lists=None,
        num_bytes=own.num_bytes,
        kept=kept,
        replay=replay,
    )


def refill(cache: OpenedCache | None, plan: CachePlan, graph: Graph, group: Group) -> None:
    """Fill this worker's cache again, while it may be read; every worker calls this at once."""
    holds_rows = cache is not None and cache.kept is not None
    stacked = None if cache is None else cache.stacked
    below = RowsBelow.of(graph, None if stacked is None else stacked.tier)
    found = _static_rows(plan, below, group, holds_rows=holds_rows)
    if cache is None or plan.of(group.rank).look_ahead is not None:
        return
    if stacked is not None:
        stacked.replace(_device_rows(plan, graph, group, below, found))
    elif isinstance(cache.store, cached_features.CachedFeatures):
        assert found is not None
        cache.store.replace(*_with_slots(graph, found))


@dataclass(frozen=True, kw_only=True)
class RowsBelow:
    """The rows that caches keep copies of, as they are stored."""

    width: int  #: elements of a row
    dtype: np.dtype[Any]  #: the NumPy type of an element
    read: Callable[[Array, Array], None]  #: copies the row of ``vertices[i]`` to ``rows[i]``

    @classmethod
    def of(cls, graph: Graph, tier: TieredReader | None) -> RowsBelow:
        """Return the rows of a tier, or those of a graph in host memory."""
        if tier is not None:
            return cls(width=tier.source.width, dtype=tier.source.dtype, read=tier.read)

        def copy(vertices: Array, rows: Array) -> None:
            if len(vertices):
                stored = HostFeatures.of(graph).stored
                slots = np.arange(len(vertices), dtype=np.int64)
                ops.copy_rows(stored, vertices, (rows, stored[1]), slots, num_threads=1)

        return cls(width=int(graph.features.shape[1]), dtype=graph.features.dtype, read=copy)


@dataclass(frozen=True, kw_only=True)
class _StaticRows:
    """What the devices of a clique keep."""

    rows: list[Array]  #: of each member
    kept: list[Array]  #: their vertices, in the order of the rows


def _static_rows(
    plan: CachePlan, below: RowsBelow, group: Group, *, holds_rows: bool
) -> _StaticRows | None:
    """Return the rows of each device of this worker's clique.

    None if the worker's device has no cache, one whose rows do not stay, or one in its own memory.
    """
    own = plan.of(group.rank) if plan.has(group.rank) and not holds_rows else None
    if not plan.has_peers:
        if own is None:
            return None
        kept = _in_order(own.features)
        rows: Array = np.empty((len(kept), below.width), below.dtype)
        below.read(kept, rows)
        return _StaticRows(rows=[rows], kept=[kept])
    num_rows = None if own is None else len(own.features)
    with traded_rows(num_rows, below.width, below.dtype, group) as mapped:
        if own is not None:
            below.read(_in_order(own.features), mapped(group.rank))
        clique = () if own is None else plan.clique_of(group.rank)
        _check_machine(clique, group)
        caches = [mapped(each) for each in clique]
    if own is None:
        return None
    return _StaticRows(rows=caches, kept=[_in_order(plan.of(each).features) for each in clique])


def _with_slots(graph: Graph, found: _StaticRows) -> tuple[list[Array], ops.RankedSlots]:
    return found.rows, cached_features.slots_of(graph.num_vertices, found.kept)


def _device_rows(
    plan: CachePlan, graph: Graph, group: Group, below: RowsBelow, found: _StaticRows | None
) -> DeviceCacheRows:
    """Return what this worker's device has above a tier; no rows yet if they follow."""
    above = DeviceCacheFilter.of(plan, graph, group.rank)
    assert above is not None
    names, at = _members(plan, group.rank)
    ahead = above.look_ahead
    if ahead is None:
        assert found is not None
        return DeviceCacheRows(policy=above.policy(), members=found.rows, own=at, names=names)
    rows: Array = np.empty((ahead.num_rows, below.width), below.dtype)
    return DeviceCacheRows(
        policy=above.policy(), members=[rows], names=names, window=above.window, match=ahead.match
    )


def _in_order(vertices: Array) -> Array:
    """Return the order in which a device keeps the rows of ``vertices``, the same for all peers.

    Rows that lie in the order of their vertices are found with least memory.
    """
    return np.sort(vertices)


def _check_machine(clique: Sequence[int], group: Group) -> None:
    machines = {each // group.local_size for each in clique}
    if len(machines) > 1:
        raise ConfigError(
            f"cache plan: devices {list(clique)} read each other's memory, but their workers are "
            f"on {len(machines)} machines"
        )


def _lists(
    plan: CachePlan, graph: Graph, device: Device, group: Group
) -> cached_features.CachedAdjacency | None:
    """Return where a device that samples finds adjacency lists; None if the host samples."""
    if not (isinstance(device, Accelerator) and device.samples):
        return None
    clique = plan.clique_of(group.rank)
    topology = [_in_order(plan.of(each).topology) for each in clique]
    return cached_features.CachedAdjacency(
        cached_features.slots_of(graph.num_vertices, topology),
        num_members=len(topology),
        own=clique.index(group.rank),
        request_bytes=device.link_request_bytes,
        id_bytes=graph.indices.itemsize,
    )
