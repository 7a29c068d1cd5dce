"""Caches of one worker: cached rows and adjacency lists, its own and its peers'."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache import CachePlan, CliqueCache, DeviceCache, LookAhead, LookAheadReplay, Uncached
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.cache.plan import NO_MEMORY
from gnnscale.core import Array, ConfigError
from gnnscale.distributed.process_group import Group, all_gather_object
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.features import cached as cached_features
from gnnscale.features.multilevel import DeviceCacheRows, MultiLevelStore
from gnnscale.features.tiered.policies import DeviceCacheFilter
from gnnscale.features.tiered.store import TieredStore
from gnnscale.features.typed import TypedStore
from gnnscale.graph import Graph
from gnnscale.planner import Accelerator, Device
from gnnscale.planner.cost_model.workload import CacheEffect
from gnnscale.training.build.row_sources import CachedRowSource, host_rows, row_sources

#: Maps the rows that the worker of a rank shares.
MapRows = Callable[[int], Array]


@contextmanager
def shared_rows(
    num_rows: int | None, width: int, dtype: np.dtype[Any], group: Group
) -> Iterator[MapRows]:
    """Let workers of one machine map each other's rows within the ``with`` block.

    All workers enter the block at the same time, each with a new array of ``num_rows`` zero rows
    (None: no array), and fill it within the block; the block's end is a barrier, after which peers'
    rows are complete. The yielded function maps and returns the rows of the worker of a rank.
    Mapped rows take memory until no process maps them.
    """
    address, own_rows = None, np.empty((0, width), dtype)
    if num_rows is not None:
        own_rows, address = cached_features.share_rows(num_rows, width, dtype)
    described = None if address is None else [address.process, address.file, address.num_rows]
    addresses = all_gather_object(described, group)

    def map_rank(rank: int) -> Array:
        if rank == group.rank:
            return own_rows
        process, file, rows = addresses[rank]
        return cached_features.map_rows(
            cached_features.RowsAddress(process=process, file=file, num_rows=rows), width, dtype
        )

    try:
        yield map_rank
        group.barrier()
    finally:
        if address is not None:
            os.close(address.file)


@dataclass(frozen=True, kw_only=True)
class OpenedCache:
    """Cache of one worker's device: a store that reads through it, cached lists, and its bytes."""

    store: FeatureStore  #: reads rows from the cache, from peers, or from the host
    #: counts reads of cached adjacency lists; None: the host samples
    lists: cached_features.CachedAdjacency | None
    num_bytes: int  #: bytes of device memory for rows and lists
    #: cached rows of the device's clique, if the device fills its own cache; ``store`` then reads
    #: host memory
    clique: CliqueCache | None = None
    replay: LookAheadReplay | None = None  #: host replay of a dynamic cache; None: it is static

    def counters(self) -> Mapping[str, float]:
        """Return hits and misses by name since the last call, and restart them; may be empty."""
        counts: Counter[str] = Counter()
        for store in self.stores:
            if isinstance(store, cached_features.CachedFeatures | MultiLevelStore):
                counts.update(store.take_counters())
        return counts

    @property
    def stores(self) -> tuple[FeatureStore | None, ...]:
        """``store``, or of a graph with types the store of each type; None: rows of no cache."""
        return self.store.stores if isinstance(self.store, TypedStore) else (self.store,)

    @property
    def multilevel(self) -> MultiLevelStore | None:
        """``store`` if it combines the cache with a tiered store in host memory; else None."""
        return self.store if isinstance(self.store, MultiLevelStore) else None

    @property
    def look_ahead(
        self,
    ) -> cached_features.LookAheadFeatures | cached_features.TypedLookAhead | None:
        """``store`` if it is a dynamic cache in host memory above no tiered store; else None."""
        dynamic = cached_features.LookAheadFeatures | cached_features.TypedLookAhead
        return self.store if isinstance(self.store, dynamic) else None


def devices_with_caches(devices: Sequence[Device], plan: CachePlan | None) -> tuple[Device, ...]:
    """Return the devices, with ``host_aggregates`` as the cache plan has chosen for each.

    True: the host aggregates the first layer, and the device's cache is empty. A device without a
    cache in the plan is unchanged.
    """
    if plan is None:
        return tuple(devices)
    return tuple(
        replace(device, host_aggregates=plan.of(position).host_aggregates)
        if plan.has(position)
        else device
        for position, device in enumerate(devices)
    )


def find_uncached(plan: CachePlan | None, *, requested: bool) -> Uncached | None:
    """Return how many devices cache nothing, with the reason; ``requested``: options want caches.

    None: every device that can caches something, or no cache is requested.
    """
    if plan is not None:
        return plan.uncached
    if not requested:
        return None
    return Uncached(num_devices=0, of_devices=0, reason=NO_MEMORY)


def cache_effects(num_devices: int, plan: CachePlan | None) -> list[CacheEffect]:
    """Return bytes and predicted miss fractions of each device's cache of raw rows and lists.

    Fractions of rows are those of their bytes. The effect of a device without such a cache is zero
    bytes, and misses only.
    """
    effects = [CacheEffect() for _ in range(num_devices)]
    if plan is None:
        return effects
    for number, cache in enumerate(plan.devices):
        if cache.host_aggregates:
            continue
        effect = CacheEffect(num_bytes=max(cache.num_bytes, 1))
        if plan.predicted is not None:
            traffic = plan.predicted[number]
            num_bytes, lists = traffic.read_bytes, sum(traffic.lists)
            total, local = sum(num_bytes), num_bytes[cache.device]
            misses = num_bytes[-1] / total if total else 1.0
            effect = replace(
                effect,
                row_misses=misses,
                peer_rows=1 - misses - local / total if total else 0.0,
                list_misses=traffic.lists[-1] / lists if lists else 1.0,
            )
        effects[cache.device] = effect
    return effects


def open_caches(
    plan: CachePlan, graph: Graph, device: Device, group: Group, *, tier: TieredStore | None = None
) -> OpenedCache | None:
    """Fill this worker's cache, and map the caches of its peers; every worker calls this.

    The cache is above ``tier``, or above host memory (None). The result is None if the device has
    no cache of its own. ConfigError if the devices of a clique are on different machines, or rows
    of a graph with types are read from ``tier``; MemoryError if the host that emulates the device
    has too little memory.
    """
    if tier is not None and (graph.types is not None or graph.rows is not None):
        have = "vertices have types" if graph.rows is None else "task rows have cut-offs"
        raise ConfigError(
            f"cache_planner: expected rows in memory below the caches of {graph.name}, whose "
            f"{have}, got rows on disk; cache_planner=none takes them"
        )
    sources = row_sources(graph, None if tier is None else tier.rows)
    parts = [_static_rows(plan, source, group, device.holds_rows) for source in sources]
    entry = plan.of(group.rank) if plan.has(group.rank) else None
    if entry is None or entry.host_aggregates:
        return None
    if device.holds_rows:
        return _cache_on_device(plan, entry, graph, group)
    store: FeatureStore
    if tier is not None:
        store = MultiLevelStore(tier, _device_rows(plan, graph, group, sources[0], parts[0]))
    elif entry.look_ahead is not None:
        store = _dynamic_store(graph, entry.look_ahead, sources)
    else:
        store = _static_store(plan, graph, group, sources, parts)
    lists = None if entry.look_ahead is not None else _lists(plan, graph, device, group)
    return OpenedCache(store=store, lists=lists, num_bytes=entry.num_bytes)


def _dynamic_store(
    graph: Graph, look_ahead: LookAhead, sources: Sequence[CachedRowSource]
) -> FeatureStore:
    """Return the store with an empty dynamic cache of the rows of each of ``sources``."""
    degrees = out_degree(graph)
    stores: dict[int, cached_features.LookAheadFeatures] = {
        source.vertex_type: cached_features.LookAheadFeatures(
            host_rows(graph, source.vertex_type),
            look_ahead.of_type(source.vertex_type),
            priority=degrees[source.vertices],
            repeats=graph.rows is not None,
        )
        for source in sources
    }
    if graph.types is None:
        return stores[0]
    numbers = range(len(graph.types.vertex_types))
    return cached_features.TypedLookAhead(graph.types, [stores.get(number) for number in numbers])


def _static_store(
    plan: CachePlan,
    graph: Graph,
    group: Group,
    sources: Sequence[CachedRowSource],
    parts: Sequence["_StaticRows | None"],
) -> FeatureStore:
    """Return the store that reads the cached rows in ``parts``, each from one of ``sources``."""
    names, position = _members(plan, group.rank)
    caches = []
    for source, static_rows in zip(sources, parts, strict=True):
        assert static_rows is not None
        host = host_rows(graph, source.vertex_type)
        caches.append(
            cached_features.CachedFeatures(
                host, *_with_slots(source, static_rows), own=position, names=names
            )
        )
    if graph.types is None:
        return caches[0]
    stores: list[FeatureStore | None] = [None] * len(graph.types.vertex_types)
    for source, cache in zip(sources, caches, strict=True):
        stores[source.vertex_type] = cache
    return TypedStore(graph.types, stores)


def _members(plan: CachePlan, rank: int) -> tuple[list[str], int]:
    """Return the device names of worker ``rank``'s clique, and its device's position there."""
    clique = plan.clique_of(rank)
    return [plan.of(member).name for member in clique], clique.index(rank)


def _cache_on_device(
    plan: CachePlan, entry: DeviceCache, graph: Graph, group: Group
) -> OpenedCache:
    """Return a cache that the device itself fills later; its ``store`` reads host memory."""
    clique, replay = CliqueCache.of(plan, group.rank), None
    _check_machine(clique.positions, group)
    if entry.look_ahead is not None:
        replay = LookAheadReplay(graph.num_vertices, entry.look_ahead, priority=out_degree(graph))
    return OpenedCache(
        store=HostFeatures.of(graph),
        lists=None,
        num_bytes=entry.num_bytes,
        clique=clique,
        replay=replay,
    )


def refill(cache: OpenedCache | None, plan: CachePlan, graph: Graph, group: Group) -> None:
    """Copy the rows of a new ``plan`` into this worker's static cache in host memory.

    Every worker calls this; other threads may read the cache meanwhile. Dynamic caches and caches
    that devices fill stay as they are.
    """
    holds_rows = cache is not None and cache.clique is not None
    multilevel = None if cache is None else cache.multilevel
    sources = row_sources(graph, None if multilevel is None else multilevel.tier)
    parts = [_static_rows(plan, source, group, holds_rows) for source in sources]
    if cache is None or plan.of(group.rank).look_ahead is not None:
        return
    if multilevel is not None:
        multilevel.replace(_device_rows(plan, graph, group, sources[0], parts[0]))
        return
    for source, static_rows in zip(sources, parts, strict=True):
        store = cache.stores[source.vertex_type]
        if isinstance(store, cached_features.CachedFeatures):
            assert static_rows is not None
            store.replace(*_with_slots(source, static_rows))


@dataclass(frozen=True, kw_only=True)
class _StaticRows:
    """Cached rows of the devices of a clique, in host memory."""

    rows: list[Array]  #: rows of each member
    vertices: list[Array]  #: vertex of each row, by member


def _static_rows(
    plan: CachePlan, source: CachedRowSource, group: Group, holds_rows: bool
) -> _StaticRows | None:
    """Copy the rows that this worker caches to host memory; return those of its whole clique.

    None: this worker has no cache, or its device copies rows itself (``holds_rows``). All workers
    must call this.
    """
    entry = plan.of(group.rank) if plan.has(group.rank) and not holds_rows else None
    if not plan.has_peers:
        if entry is None:
            return None
        vertices = source.in_order(entry.features)
        rows: Array = np.empty((len(vertices), source.width), source.dtype)
        source.read(vertices, rows)
        return _StaticRows(rows=[rows], vertices=[vertices])
    cached = None if entry is None else source.in_order(entry.features)
    num_rows = None if cached is None else len(cached)
    with shared_rows(num_rows, source.width, source.dtype, group) as map_rank:
        if cached is not None:
            source.read(cached, map_rank(group.rank))
        clique = () if entry is None else plan.clique_of(group.rank)
        _check_machine(clique, group)
        caches = [map_rank(member) for member in clique]
    if entry is None:
        return None
    vertices_by_member = [source.in_order(plan.of(member).features) for member in clique]
    return _StaticRows(rows=caches, vertices=vertices_by_member)


def _with_slots(
    source: CachedRowSource, static_rows: _StaticRows
) -> tuple[list[Array], ops.RankedSlots]:
    num_vertices = source.vertices.stop - source.vertices.start
    return static_rows.rows, cached_features.rank_slots(num_vertices, static_rows.vertices)


def _device_rows(
    plan: CachePlan,
    graph: Graph,
    group: Group,
    source: CachedRowSource,
    static_rows: _StaticRows | None,
) -> DeviceCacheRows:
    """Return arrays of rows and the policy of a device cache above a tiered store.

    A static cache has the ``static_rows`` of its clique; a dynamic cache has rows without values.
    """
    device_filter = DeviceCacheFilter.of(plan, graph, group.rank)
    assert device_filter is not None
    names, position = _members(plan, group.rank)
    look_ahead = device_filter.look_ahead
    if look_ahead is None:
        assert static_rows is not None
        return DeviceCacheRows(
            policy=device_filter.policy(), members=static_rows.rows, own=position, names=names
        )
    rows: Array = np.empty((look_ahead.num_rows, source.width), source.dtype)
    return DeviceCacheRows(
        policy=device_filter.policy(),
        members=[rows],
        names=names,
        window=device_filter.window,
        match=look_ahead.match,
    )


def _check_machine(clique: Sequence[int], group: Group) -> None:
    machines = {rank // group.local_size for rank in clique}
    if len(machines) > 1:
        raise ConfigError(
            f"cache plan: expected devices {list(clique)}, which read each other's memory, on one "
            f"machine, got {len(machines)} machines"
        )


def _lists(
    plan: CachePlan, graph: Graph, device: Device, group: Group
) -> cached_features.CachedAdjacency | None:
    """Return the counter of reads of cached adjacency lists; None: the host samples."""
    if not (isinstance(device, Accelerator) and device.samples):
        return None
    clique = plan.clique_of(group.rank)
    topology = [np.sort(plan.of(member).topology) for member in clique]
    return cached_features.CachedAdjacency(
        cached_features.rank_slots(graph.num_vertices, topology),
        num_members=len(topology),
        own=clique.index(group.rank),
        request_bytes=device.link_request_bytes,
        id_bytes=graph.indices.itemsize,
    )
