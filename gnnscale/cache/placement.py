"""From vertices in the order of their hotness to what each device of a clique keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.cache_plan import CacheTraffic, DeviceCache
from gnnscale.cache.hotness import expected, presampled
from gnnscale.cache.task import CacheDevice, CacheTask, list_bytes


def hottest_rows(task: CacheTask, hotness: NDArray[Any], num_rows: int) -> NDArray[Any]:
    """Return the ``num_rows`` hottest vertices, equally hot ones by out-degree.

    Vertices that no batch of an estimate has may yet be read: they come last, by out-degree.
    """
    return ops.hottest(
        hotness,
        task.out_degrees,
        capacity=num_rows,
        bytes_per_vertex=1,
        num_threads=task.num_threads,
    )[:num_rows]


def share_out(
    task: CacheTask,
    order: NDArray[Any],
    local: Sequence[NDArray[Any]],
    capacities: Sequence[int] | NDArray[np.int64],
) -> list[NDArray[Any]]:
    """Share rows out by local preference (Legion, Algorithm 1); see ``ops.share_out``."""
    shared = ops.share_out(
        order,
        local,
        capacities=np.array(capacities, np.int64),
        bytes_per_vertex=task.row_bytes,
        num_threads=task.num_threads,
    )
    return split_by_owner(order, shared.member, len(capacities), num_threads=task.num_threads)


def deal(order: NDArray[Any], capacities: Sequence[int]) -> list[NDArray[Any]]:
    """Deal vertices, hottest first, to devices in turn up to ``capacities`` rows each.

    This is Quiver's hash within a clique. Returns each device's vertices, hottest first.
    """
    rooms = [min(room, len(order)) for room in capacities]
    turns = np.concatenate([np.arange(room, dtype=np.int64) for room in rooms])
    devices = np.repeat(np.arange(len(rooms)), rooms)
    # The seats in the order in which they are taken: turn by turn, device by device.
    seats = devices[np.lexsort((devices, turns))][: len(order)]
    return split_by_owner(order[: len(seats)], seats, len(capacities))


def split_by_owner(
    order: NDArray[Any], owner: NDArray[Any], num: int, *, num_threads: int = 1
) -> list[NDArray[Any]]:
    """Return the vertices of each of ``num`` owners in the order of ``order``; -1 owns none."""
    member = owner.astype(np.int16, copy=False)
    return ops.split_by_member(order, member, num_members=num, num_threads=num_threads)


def feature_cache(
    task: CacheTask, device: CacheDevice, features: NDArray[Any], topology: NDArray[Any]
) -> DeviceCache:
    """Return the cache of ``device`` with these vertices."""
    return DeviceCache(
        device=device.position,
        name=device.name,
        budget_bytes=device.budget_bytes,
        features=features,
        topology=topology,
        feature_bytes=len(features) * task.row_bytes,
        topology_bytes=list_bytes(task.graph, topology),
    )


def predict_traffic(
    task: CacheTask,
    caches: Sequence[DeviceCache],
    cliques: Sequence[Sequence[int]],
    reads: presampled.Presampled | expected.CountedReads,
) -> tuple[CacheTraffic, ...]:
    """Return where each device finds what it reads."""
    found = []
    for cache in caches:
        clique = next(each for each in cliques if cache.device in each)
        members = {each.device: each for each in caches if each.device in clique}
        reader = cache.device
        rows = {each: reads.rows_at(reader, kept.features) for each, kept in members.items()}
        lists: dict[int, float] = {}
        if task.device_at[reader].samples:
            lists = {each: reads.lists_at(reader, kept.topology) for each, kept in members.items()}
        found.append(traffic(task, reader, reads, rows, lists))
    return tuple(found)


def traffic(
    task: CacheTask,  # what is planned for
    reader: int,  # the device's position
    reads: presampled.Presampled | expected.CountedReads,  # what all devices read
    rows: Mapping[int, float],  # rows that it reads at each device
    lists: Mapping[int, float],  # its reads of lists at each device; unused if the host samples
) -> CacheTraffic:
    """Return what the device at position ``reader`` reads."""
    device = task.device_at[reader]
    at_rows = _by_place(task, rows, reads.num_rows(reader))
    at_lists = [0] * (task.num_devices + 1)
    if device.samples:
        at_lists = _by_place(task, lists, reads.num_list_reads(reader))
    return CacheTraffic(
        rows=tuple(at_rows),
        lists=tuple(at_lists),
        transactions=round(at_rows[-1] * device.row_transactions(task.row_bytes)) + at_lists[-1],
        link_bytes=at_rows[-1] * task.row_bytes,
    )


def _by_place(task: CacheTask, kept: Mapping[int, float], total: int) -> list[int]:
    """Return whole numbers of reads by device, the host's last."""
    at = [0] * (task.num_devices + 1)
    for device, reads in kept.items():
        at[device] = round(reads)
    at[-1] = max(total - sum(at), 0)
    return at
