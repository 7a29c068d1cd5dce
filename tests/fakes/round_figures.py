"""A machine, its devices, a workload and plans, of round figures: answers follow by hand."""

import math
from dataclasses import fields as fields_of
from typing import Any

from gnnscale.nn.cost import LayerCost
from gnnscale.planner import Accelerator, Device, DevicePlan, DeviceShare, Emulated, Threads
from gnnscale.planner.cost_model.equations import BatchSize, Prediction
from gnnscale.planner.cost_model.predict import predict
from gnnscale.planner.cost_model.workload import KnownSlices, Workload
from gnnscale.planner.platform import Platform
from gnnscale.planner.processor import Processor, Rates, Sharing

__all__ = ["accelerator", "plan_of", "platform", "predicted", "processor", "share", "workload"]

#: What each thread adds.
_RATES = {
    **{"memory_bandwidth": 1e9, "cache_bandwidth": 1e10, "stream_bandwidth": 1e12},
    **{"rows_per_s": 1e12, "memory_rows_per_s": 1e12, "aggregate_bandwidth": 1e9},
    **{"macs_per_s": 1e9, "attention_per_s": 1e9, "sampled_edges_per_s": 1e6},
}
_FIGURES = {
    **{"name": "round", "cache_bytes": 4, "load_s": 0.0, "lookups_per_s": 1e9},
    **{"update_s": 0.0, "update_bandwidth": 1e12, "sync_latency_s": 0.0, "sync_bandwidth": 1e12},
    **{"compute_contention": math.inf, "memory_contention": math.inf},
}


def processor(cores: int = 2, **fields: Any) -> Processor:
    """Return a processor whose rates grow with threads.

    ``fields`` are its own, and those of its ``rates`` and ``sharing``.
    """
    threads = sorted({1, cores})
    values: dict[str, Any] = {"cores": cores, "threads": threads, "layer_s": [0.0] * len(threads)}
    values |= {name: [rate * count for count in threads] for name, rate in _RATES.items()}
    return Processor(**grouped(_FIGURES | values | fields, rates=Rates, sharing=Sharing))


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
        "num_seeds": (10, 1000),
        "sizes": (size(10), size(1000)),
        "layers": (first, second),
        "sample_threads": (1, 2) if sampled else (),
        "sample_s": ((1e-3, 1e-1), (5e-4, 5e-2)) if sampled else (),
        "num_weights": 20 * 8 + 8 * 4,
        "num_vertices": 1_000_000,
        "host_aggregates": False,
    }
    return Workload(**grouped(values | fields, slices=KnownSlices))


def grouped(values: dict[str, Any], **records: type[Any]) -> dict[str, Any]:
    """Return ``values`` in which the fields of each of ``records`` are one record."""
    values = dict(values)
    for name, record in records.items():
        own = {each.name for each in fields_of(record)} & values.keys()
        values.setdefault(name, record(**{each: values.pop(each) for each in own}))
    return values


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
