"""How much of a device's memory its cache may take (PaGraph, section 3.3)."""

from __future__ import annotations

from gnnscale.cache import CachePlannerConfig
from gnnscale.cache.task import row_bytes
from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.plan import Accelerator
from gnnscale.plan.perf.equations import BYTES_PER_PARAMETER, BatchSize
from gnnscale.plan.perf.work import batch_bytes
from gnnscale.plan.perf.workload import Workload

__all__ = ["cache_budget"]


def cache_budget(
    planner: CachePlannerConfig,
    graph: Graph,
    device: Accelerator,
    *,
    workload: Workload,
    first: BatchSize | None,
    in_flight: int,
) -> int:
    """Return the bytes that the cache of ``device`` may take.

    Where the planner names no budget, it is what the device has left: all its memory, minus what
    the model and the mini-batches in flight take at their peak, as the first mini-batch tells, and
    minus a reserve. Where so many do not fit, fewer are in flight.

    Args:
        planner: the policy.
        graph: whose rows are cached.
        device: the device.
        workload: what it trains.
        first: its first mini-batch; None where it has none.
        in_flight: mini-batches that it holds at once, if there is room.

    Raises:
        ConfigError: nothing is left.
    """
    if planner.budget_bytes is not None:
        return planner.budget_bytes
    if planner.ratio is not None:
        return int(min(planner.ratio, 1.0) * graph.num_vertices) * row_bytes(graph)
    batch = 0.0 if first is None else batch_bytes(workload, first)
    model = BYTES_PER_PARAMETER * workload.num_weights
    if planner.keeps_batch and first is not None:
        model += int(first.vertices[0]) * row_bytes(graph)
    free = device.memory_bytes * (1 - planner.reserve) - model
    for count in range(in_flight, 0, -1):
        if free >= count * batch:
            return int(free - count * batch)
    raise ConfigError(
        f"cache_planner={planner.policy}: {device.label} has no memory left for a cache: of "
        f"{device.memory_bytes / 1e6:,.1f} MB the model and a mini-batch take "
        f"{(model + batch) / 1e6:,.1f} MB, and cache_planner.reserve={planner.reserve} keeps a "
        "part free; a smaller batch_size, fewer neighbours (sampler.fanouts) or "
        "cache_planner.budget_bytes allow one"
    )
