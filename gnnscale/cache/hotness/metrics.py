"""The metrics of hotness by name: how hot each vertex is for some of a run's devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.hotness.degree_ratio import degree_ratio
from gnnscale.cache.hotness.inclusion import inclusion_probability
from gnnscale.cache.hotness.pagerank import pagerank
from gnnscale.cache.hotness.random import uniform
from gnnscale.config import ConfigError
from gnnscale.partition import UNREACHED
from gnnscale.sampler.seed_order import labelled_vertices

if TYPE_CHECKING:
    from gnnscale.cache.task import CacheTask

__all__ = ["EXACT", "METRICS", "measure", "smoothed"]

EXACT = "exact"

#: Of what is to be expected, beside what was counted.
_WEIGHT = 4


def measure(name: str, task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    """Return how hot each vertex is, ``[num_vertices]``.

    Args:
        name: one of ``METRICS``.
        task: what caches are planned for.
        devices: positions of the devices whose reads are meant.

    Raises:
        ConfigError: the metric does not go with the run's sampler.
    """
    return _METRICS[name](task, devices)


def _out_degree(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    return _within(task, devices, task.out_degrees)


def _degree_ratio(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    return _within(task, devices, degree_ratio(task.graph))


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
        total += inclusion_probability(
            task.graph,
            seeds,
            task.fanouts,
            batch_size=min(len(seeds), -(-task.batch_size // task.num_devices)),
            num_threads=task.num_threads,
        )
    return total.astype(np.float32)


def _presampled(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    return task.presampled.sum_rows(devices)


def _exact(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    return task.counted_run.sum_rows(devices)


def _random(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    return uniform(task.graph.num_vertices, task.seed)


def smoothed(task: CacheTask, devices: Sequence[int]) -> NDArray[Any]:
    """Return pre-sampled hotness, with what chance gave an epoch evened out.

    A vertex that few batches read may be hot or lucky. So to the batches that read it comes
    ``_WEIGHT`` times the number to be expected, by the probability that a batch has the vertex.
    Samplers for which that is not worked out leave the counts as they are.
    """
    counts = task.presampled.sum_rows(devices)
    if task.fanouts is None:
        return counts
    seeds = np.unique(np.concatenate([train_vertices(task, device) for device in devices]))
    expected = inclusion_probability(
        task.graph,
        seeds,
        task.fanouts,
        batch_size=min(len(seeds), -(-task.batch_size // task.num_devices)),
        num_threads=task.num_threads,
    )
    expected *= _WEIGHT * sum(task.presampled.of(device).num_batches for device in devices)
    expected += counts
    return expected


def train_vertices(task: CacheTask, device: int) -> NDArray[Any]:
    """Return the training vertices of a device; those of all where it may train any of them.

    A device whose part has none helps the others (HitGNN, Algorithm 3).
    """
    train_idx = labelled_vertices(task.graph, "train")
    if task.parts is None or task.parts.owner is None:
        return train_idx
    own = task.parts.train_vertices(train_idx)[device]
    return own if len(own) else train_idx


def _within(task: CacheTask, devices: Sequence[int], hotness: NDArray[Any]) -> NDArray[Any]:
    """Return ``hotness``, with 0 for vertices that no part of ``devices`` has."""
    if task.parts is None or task.parts.hops is None:
        return hotness
    reached = (task.parts.hops[list(devices)] != UNREACHED).any(axis=0)
    return np.where(reached, hotness, 0)


_METRICS: dict[str, Callable[[Any, Sequence[int]], NDArray[Any]]] = {
    "out_degree": _out_degree,
    "degree_ratio": _degree_ratio,
    "pagerank": _pagerank,
    "inclusion": _inclusion,
    "presampled": _presampled,
    EXACT: _exact,
    "random": _random,
}
METRICS = tuple(_METRICS)
