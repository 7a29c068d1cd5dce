"""From vertices in the order of their hotness to what each device of a clique keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.cache_plan import CacheTraffic, DeviceCache
from gnnscale.cache.hotness.presampled import Presampled
from gnnscale.cache.hotness.slices import sum_at
from gnnscale.cache.task import CacheDevice, CacheTask

__all__ = ["deal", "feature_cache", "hottest_rows", "predict_traffic", "share_out"]


def hottest_rows(task: CacheTask, hotness: NDArray[Any], num_rows: int) -> NDArray[Any]:
    """Return the ``num_rows`` hottest vertices; of equally hot ones those of most out-neighbours.

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
    owner = ops.share_out(
        order,
        local,
        capacities=np.array(capacities, np.int64),
        bytes_per_vertex=task.row_bytes,
        num_threads=task.num_threads,
    )
    return split_by_owner(order, owner, len(capacities))


def deal(order: NDArray[Any], capacities: Sequence[int]) -> list[NDArray[Any]]:
    """Deal vertices to devices in turn, as far as each has room (Quiver's hash within a clique).

    Args:
        order: vertices, hottest first.
        capacities: rows of each device.

    Returns:
        The vertices of each device, hottest first.
    """
    rooms = [min(room, len(order)) for room in capacities]
    turns = np.concatenate([np.arange(room, dtype=np.int64) for room in rooms])
    devices = np.repeat(np.arange(len(rooms)), rooms)
    # The seats in the order in which they are taken: turn by turn, device by device.
    seats = devices[np.lexsort((devices, turns))][: len(order)]
    return split_by_owner(order[: len(seats)], seats, len(capacities))


def split_by_owner(order: NDArray[Any], owner: NDArray[Any], num: int) -> list[NDArray[Any]]:
    """Return the vertices of each of ``num`` owners in the order of ``order``; -1 owns none."""
    return [order[owner == each] for each in range(num)]


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
        topology_bytes=task.list_bytes(topology),
    )


def predict_traffic(
    task: CacheTask,
    caches: Sequence[DeviceCache],
    cliques: Sequence[Sequence[int]],
    counted: Presampled,
) -> tuple[CacheTraffic, ...]:
    """Return what each device would read where, of the batches that were counted."""
    found = []
    for cache in caches:
        clique = next(each for each in cliques if cache.device in each)
        members = {each.device: each for each in caches if each.device in clique}
        reads, device = counted.of(cache.device), task.device_at[cache.device]
        at_rows = _by_place(task, reads.rows, {k: v.features for k, v in members.items()})
        at_lists, sampling = [0] * (task.num_devices + 1), 0.0
        if device.samples:
            at_lists = _by_place(task, reads.edges, {k: v.topology for k, v in members.items()})
            # The offsets of a list are read once a visit; H_T counts the edges alone.
            at_host = at_lists[-1] / reads.num_edges if reads.num_edges else 1
            sampling = counted.transactions_of(cache.device) * at_host
        rows = at_rows[-1] * device.row_transactions(task.row_bytes)
        found.append(
            CacheTraffic(
                rows=tuple(at_rows),
                lists=tuple(at_lists),
                transactions=round(rows + sampling),
                link_bytes=at_rows[-1] * task.row_bytes,
            )
        )
    return tuple(found)


def _by_place(
    task: CacheTask, counts: NDArray[np.int32], kept: dict[int, NDArray[Any]]
) -> list[int]:
    """Add up ``counts`` of the vertices that each device of a clique keeps, and of all others."""
    at = [0] * (task.num_devices + 1)
    for device, vertices in kept.items():
        at[device] = sum_at(counts, vertices)
    at[-1] = int(counts.sum(dtype=np.int64)) - sum(at)
    return at
