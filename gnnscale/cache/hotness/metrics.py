"""The metrics of hotness by name: how hot each vertex is for some of a run's devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.hotness.degree import degree_ratio, pagerank, train_vertices, uniform
from gnnscale.cache.hotness.inclusion import inclusion
from gnnscale.core.errors import ConfigError
from gnnscale.partition import UNREACHED

if TYPE_CHECKING:
    from gnnscale.cache.task import CacheTask

EXACT = "exact"


def measure(name: str, task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    """Return ``[num_vertices]``, how hot each vertex is for ``devices`` by metric ``name``.

    Raises:
        ConfigError: the metric does not go with the run's sampler.
    """
    return _METRICS[name](task, devices)


def _pagerank(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    seeds = np.unique(np.concatenate([train_vertices(task, device) for device in devices]))
    return pagerank(task.graph, seeds, num_threads=task.num_threads)


def _inclusion(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    if task.fanouts is None:
        raise ConfigError(
            "cache_planner.hotness=inclusion: is worked out for sampler=neighbor and full alone"
        )
    total = np.zeros(task.graph.num_vertices)
    for device in devices:
        seeds = train_vertices(task, device)
        total += inclusion(
            task.graph,
            seeds,
            task.fanouts,
            batch_size=min(len(seeds), -(-task.batch_size // task.num_devices)),
            replace=task.replace,
            num_threads=task.num_threads,
        ).probability
    return total.astype(np.float32)


def _within(task: CacheTask, devices: Sequence[int], hotness: NDArray[Any]) -> NDArray[Any]:
    """Return ``hotness``, with 0 for vertices that no part of ``devices`` has."""
    if task.parts is None or task.parts.hops is None:
        return hotness
    reached = (task.parts.hops[list(devices)] != UNREACHED).any(axis=0)
    return np.where(reached, hotness, 0)


_METRICS: dict[str, Callable[[Any, Sequence[int]], NDArray[Any]]] = {
    "out_degree": lambda task, devices: _within(task, devices, task.out_degrees),
    "degree_ratio": lambda task, devices: _within(task, devices, degree_ratio(task.graph)),
    "pagerank": _pagerank,
    "inclusion": _inclusion,
    "presampled": lambda task, devices: task.presampled.sum_rows(devices),
    "expected": lambda task, devices: task.expected.sum_rows(devices),
    EXACT: lambda task, devices: task.counted_run.sum_rows(devices),
    "random": lambda task, devices: uniform(task.graph.num_vertices, task.seed),
}
METRICS = tuple(_METRICS)
