"""What the devices of a run train, as the performance model sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gnnscale.cache import CachePlan
from gnnscale.core.hardware import multiplies_bfloat16
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.plan import Device
from gnnscale.plan.perf.counted import CountedWork
from gnnscale.plan.perf.workload import CacheEffect, Workload, unmeasured_workload
from gnnscale.runtime.cache.open import cache_effects
from gnnscale.runtime.settings import TrainConfig

__all__ = ["counted_work", "workloads_of"]


def counted_work(
    config: TrainConfig,
    graph: Graph,
    model: TrainableModel,
    devices: Sequence[Device],
    caches: CachePlan | None,
    *,
    rank: int,
) -> CountedWork | None:
    """Return what the work of device ``rank`` takes by count; None where seconds are measured."""
    if not config.runtime.deterministic:
        return None
    effects = cache_effects(len(devices), caches)
    workloads = workloads_of(config, unmeasured_workload(graph, model), devices, effects)
    return CountedWork(workloads[rank], rank=rank, cores=config.host_threads)


def workloads_of(
    config: TrainConfig,
    workload: Workload,
    devices: Sequence[Device],
    effects: Sequence[CacheEffect],
) -> list[Workload]:
    """Return the workload of each device.

    Args:
        config: the run's options.
        workload: the graph and the model.
        devices: the trainers, in the order of ranks.
        effects: what each device's cache takes and spares.
    """
    workload = replace(
        workload,
        preaggregated=config.features.preaggregates,
        compute_dtype=config.runtime.compute_dtype if multiplies_bfloat16() else "float32",
    )
    if config.partitioner.divides == "columns":
        workload = replace(workload, num_sharing=len(devices))
    pairs = zip(devices, effects, strict=True)
    return [replace(workload.on(device), cache=effect) for device, effect in pairs]
