"""One worker's caches: the rows and lists that it keeps, and those that it reads at its peers."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache import CachePlan, DeviceCache, cached_features
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.cache.kept_cache import KeptCache
from gnnscale.cache.replay import LookAheadReplay
from gnnscale.core import Array, ConfigError
from gnnscale.feature import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.plan import Accelerator, Device
from gnnscale.plan.perf.workload import CacheEffect
from gnnscale.runtime.sync.group import Group

#: Maps the rows of the worker of a rank.
MapRows = Callable[[int], Array]


def trade_values(mine: Any, group: Group) -> list[Any]:
    """Return the plain values of each worker, in the order of ranks."""
    gathered = group.gather(json.dumps(mine).encode())
    every = [json.loads(each) for each in gathered] if group.is_rank0 else None
    found: list[Any] = group.broadcast_json(every)
    return found


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
    lists: cached_features.CachedLists | None
    num_bytes: int  #: device memory that rows and lists take
    #: what the device keeps, if it has its cache in its own memory; ``store`` is the host's then
    kept: KeptCache | None = None
    replay: LookAheadReplay | None = None  #: what the rows of ``kept`` follow

    def counters(self) -> Mapping[str, float]:
        """Return where rows were found since the last call."""
        store = self.store
        return store.take_counters() if isinstance(store, cached_features.CachedFeatures) else {}

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


def open_caches(plan: CachePlan, graph: Graph, device: Device, group: Group) -> OpenedCache | None:
    """Fill this worker's cache, and find those of its peers; None if its device has no cache.

    Every worker calls this at the same time.

    Raises:
        ConfigError: the devices of a clique are on different machines.
        MemoryError: there is not enough memory on the host that emulates the device.
    """
    host = HostFeatures.of(graph)
    found = _static_rows(plan, host, group, holds_rows=device.holds_rows)
    own = plan.of(group.rank) if plan.has(group.rank) else None
    if own is None or own.host_aggregates:
        return None
    if device.holds_rows:
        return _kept_by_device(plan, own, graph, group)
    if own.look_ahead is not None:
        priority = out_degree(graph)
        store = cached_features.LookAheadFeatures(host, own.look_ahead, priority=priority)
        return OpenedCache(store=store, lists=None, num_bytes=own.num_bytes)
    assert found is not None
    clique = plan.clique_of(group.rank)
    members, at = [plan.of(each) for each in clique], clique.index(group.rank)
    names = [member.name for member in members]
    return OpenedCache(
        store=cached_features.CachedFeatures(host, *found, own=at, names=names),
        lists=_lists(graph, [_in_order(member.topology) for member in members], at, device),
        num_bytes=own.num_bytes,
    )


def _kept_by_device(plan: CachePlan, own: DeviceCache, graph: Graph, group: Group) -> OpenedCache:
    """Return the cache of a device that fills it by itself."""
    kept, replay = KeptCache.of(plan, group.rank), None
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
    found = _static_rows(plan, HostFeatures.of(graph), group, holds_rows=holds_rows)
    if cache is not None and isinstance(cache.store, cached_features.CachedFeatures):
        assert found is not None
        cache.store.replace(*found)


def _static_rows(
    plan: CachePlan, host: HostFeatures, group: Group, *, holds_rows: bool
) -> tuple[list[Array], ops.RankedSlots] | None:
    """Return the rows of each device of this worker's clique, and the slots of vertices in them.

    None if the worker's device has no cache, one whose rows do not stay, or one in its own memory.
    """
    own = plan.of(group.rank) if plan.has(group.rank) and not holds_rows else None
    dtype = host.stored[0].dtype
    if not plan.has_peers:
        if own is None:
            return None
        rows = np.empty((len(own.features), host.stored_width), dtype)
        _fill(rows, host, own.features)
        return [rows], cached_features.slots_of(host.num_rows, [_in_order(own.features)])
    num_rows = None if own is None else len(own.features)
    with traded_rows(num_rows, host.stored_width, dtype, group) as mapped:
        if own is not None:
            _fill(mapped(group.rank), host, own.features)
        clique = () if own is None else plan.clique_of(group.rank)
        _check_machine(clique, group)
        caches = [mapped(each) for each in clique]
    if own is None:
        return None
    kept = [_in_order(plan.of(each).features) for each in clique]
    return caches, cached_features.slots_of(host.num_rows, kept)


def _fill(rows: Array, host: HostFeatures, vertices: Array) -> None:
    """Copy the rows of ``vertices``, as they are stored, in the order in which they are kept."""
    slots = np.arange(len(vertices), dtype=np.int64)
    _, name = host.stored
    ops.copy_rows(host.stored, _in_order(vertices), (rows, name), slots, num_threads=1)


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
    graph: Graph, topology: Sequence[Array], own: int, device: Device
) -> cached_features.CachedLists | None:
    """Return where a device that samples finds adjacency lists; None if the host samples."""
    if not (isinstance(device, Accelerator) and device.samples):
        return None
    return cached_features.CachedLists(
        cached_features.slots_of(graph.num_vertices, topology),
        num_members=len(topology),
        own=own,
        request_bytes=device.link_request_bytes,
        id_bytes=graph.indices.itemsize,
    )
