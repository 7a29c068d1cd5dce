from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from gnnscale.model.cost import LayerCost
from gnnscale.plan import Emulated
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.plan.perf.workload import KnownSlices, Workload
from gnnscale.plan.platform import Platform, Processor, Rates, Sharing


@pytest.fixture
def processor() -> Callable[..., Processor]:
    """Build a processor of round figures, whose rates grow with threads unless told otherwise.

    ``fields`` are its own and those of its ``rates`` and ``sharing``.
    """

    def build(cores: int = 2, **fields: Any) -> Processor:
        threads = sorted({1, cores})
        per_thread = {
            "memory_bandwidth": 1e9,
            "cache_bandwidth": 1e10,
            "rows_per_s": 1e12,
            "memory_rows_per_s": 1e12,
            "aggregate_bandwidth": 1e9,
            "stream_bandwidth": 1e12,
            "macs_per_s": 1e9,
            "attention_per_s": 1e9,
            "sampled_edges_per_s": 1e6,
        }
        values: dict[str, Any] = {
            name: [rate * count for count in threads] for name, rate in per_thread.items()
        }
        values |= {
            "name": "round",
            "cores": cores,
            "cache_bytes": 4,
            "threads": threads,
            "layer_s": [0.0] * len(threads),
            "load_s": 0.0,
            "lookups_per_s": 1e9,
            "update_s": 0.0,
            "update_bandwidth": 1e12,
            "compute_contention": math.inf,
            "memory_contention": math.inf,
            "sync_latency_s": 0.0,
            "sync_bandwidth": 1e12,
        } | fields
        parts = {"rates": Rates, "sharing": Sharing}
        for part, record in parts.items():
            own = {each.name for each in dataclasses.fields(record)} & values.keys()
            values[part] = record(**{name: values.pop(name) for name in own})
        return Processor(**values)

    return build


@pytest.fixture
def platform(processor: Callable[..., Processor]) -> Callable[..., Platform]:
    def build(cores: int = 2, **fields: Any) -> Platform:
        return Platform(name="round", processor=processor(cores, **fields))

    return build


@pytest.fixture
def workload() -> Callable[..., Workload]:
    """Build a workload of 10 neighbours a vertex, in proportion to seeds, and two layers."""

    def build(*, sampled: bool = False, **fields: Any) -> Workload:
        num_seeds = (10, 1000)
        values: dict[str, Any] = {
            "slices": KnownSlices(
                num_seeds=num_seeds,
                sizes=tuple(
                    BatchSize(vertices=(100.0 * n, 10.0 * n, float(n)), edges=(100.0 * n, 10.0 * n))
                    for n in num_seeds
                ),
                sample_threads=(1, 2) if sampled else (),
                sample_s=((1e-3, 1e-1), (5e-4, 5e-2)) if sampled else (),
            ),
            "layers": (
                LayerCost(width_in=20, width_out=8, products=((20, 8),)),
                LayerCost(width_in=8, width_out=4, products=((8, 4),)),
            ),
            "num_weights": 20 * 8 + 8 * 4,
            "num_vertices": 1_000_000,
            "host_aggregates": False,
        }
        return Workload(**(values | fields))

    return build


@pytest.fixture
def accelerator() -> Callable[..., Emulated]:
    def build(name: str = "accelerator", **fields: Any) -> Emulated:
        values: dict[str, Any] = {
            "macs_per_s": 1e12,
            "memory_bandwidth": 1e12,
            "memory_bytes": 1 << 30,
            "link_bandwidth": 1e9,
        }
        return Emulated(name=name, **(values | fields))

    return build
