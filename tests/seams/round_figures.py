"""A machine, its devices, a workload and plans, of round figures: answers follow by hand."""

from __future__ import annotations

import math
from typing import Any

from gnnscale.model.cost import LayerCost
from gnnscale.plan import Accelerator, Device, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.plan.perf.equations import BatchSize, Prediction
from gnnscale.plan.perf.predict import predict
from gnnscale.plan.perf.workload import Workload
from gnnscale.plan.platform import Platform, Processor

__all__ = ["accelerator", "plan_of", "platform", "predicted", "processor", "share", "workload"]

#: What each thread adds.
_RATES = {
    **dict.fromkeys(("memory_bandwidth", "aggregate_bandwidth", "macs_per_s"), 1e9),
    **dict.fromkeys(("rows_per_s", "memory_rows_per_s", "stream_bandwidth"), 1e12),
    **{"attention_per_s": 1e9, "cache_bandwidth": 1e10, "sampled_edges_per_s": 1e6},
}
_FIGURES = {
    **{"name": "round", "cache_bytes": 4, "lookups_per_s": 1e9},
    **dict.fromkeys(("load_s", "update_s", "sync_latency_s"), 0.0),
    **dict.fromkeys(("update_bandwidth", "sync_bandwidth"), 1e12),
    **dict.fromkeys(("compute_contention", "memory_contention"), math.inf),
}


def processor(cores: int = 2, **fields: Any) -> Processor:
    """Return a processor whose rates grow with threads unless told otherwise."""
    threads = sorted({1, cores})
    values: dict[str, Any] = {"cores": cores, "threads": threads, "layer_s": [0.0] * len(threads)}
    values |= {name: [rate * count for count in threads] for name, rate in _RATES.items()}
    return Processor(**(_FIGURES | values | fields))


def platform(cores: int = 2, **fields: Any) -> Platform:
    return Platform(name="round", processor=processor(cores, **fields))


def accelerator(name: str = "accelerator", **fields: Any) -> Emulated:
    values: dict[str, Any] = {"macs_per_s": 1e12, "memory_bandwidth": 1e12}
    values |= {"memory_bytes": 1 << 30, "link_bandwidth": 1e9}
    return Emulated(name=name, **(values | fields))


def workload(*, sampled: bool = False, **fields: Any) -> Workload:
    """Return a workload of 10 neighbours a vertex, in proportion to seeds, and two layers."""

    def size(n: int) -> BatchSize:
        return BatchSize(vertices=(100.0 * n, 10.0 * n, float(n)), edges=(100.0 * n, 10.0 * n))

    first = LayerCost(width_in=20, width_out=8, products=((20, 8),))
    second = LayerCost(width_in=8, width_out=4, products=((8, 4),))
    values: dict[str, Any] = {
        **{"num_seeds": (10, 1000), "sizes": (size(10), size(1000)), "layers": (first, second)},
        "sample_threads": (1, 2) if sampled else (),
        "sample_s": ((1e-3, 1e-1), (5e-4, 5e-2)) if sampled else (),
        **{"num_weights": 20 * 8 + 8 * 4, "num_vertices": 1_000_000, "host_aggregates": False},
    }
    return Workload(**(values | fields))


def share(
    device: Device,
    num_seeds: int = 100,
    prefetch: str = "none",
    threads: tuple[int, int, int] | None = None,
) -> DeviceShare:
    """Return a device's share: a thread for each stage that it has on the host."""
    stages = ("sample", "load", "propagate")
    counts = threads or (1, 1, 0 if isinstance(device, Accelerator) else 1)
    given = Threads(**dict(zip(stages, counts, strict=True)))
    return DeviceShare(device=device, num_seeds=num_seeds, threads=given, prefetch=prefetch)


def plan_of(*shares: DeviceShare) -> DevicePlan:
    return DevicePlan(shares=shares)


def predicted(
    plan: DevicePlan, machine: Platform, work: Workload | None = None, **options: Any
) -> Prediction:
    return predict(plan, [work or workload()] * len(plan.shares), machine, **options)
