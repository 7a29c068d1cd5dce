"""Nominal rates of a host: what plans follow from where nothing that is measured may decide."""

from __future__ import annotations

from gnnscale.plan.platform import Platform, Processor

__all__ = ["nominal_platform"]

#: Rates of one core, rounded from those that ``calibrate`` found for an AMD EPYC (Zen 4). That they
#: are far off elsewhere makes a run slower, and changes nothing of its being repeatable. They are
#: part of what a repeatable run computes: other figures give other plans.
_RATES_OF_A_CORE = {
    "memory_bandwidth": 10e9,
    "cache_bandwidth": 25e9,
    "rows_per_s": 1e9,
    "memory_rows_per_s": 200e6,
    "aggregate_bandwidth": 2e9,
    "stream_bandwidth": 5e9,
    "macs_per_s": 30e9,
    "attention_per_s": 10e6,
    "sampled_edges_per_s": 60e6,
}


def nominal_platform(cores: int) -> Platform:
    """Return a machine of ``cores`` alike, of which t threads do t times the work of one."""
    threads = sorted({1, cores})
    return Platform(
        name="a nominal machine",
        processor=Processor(
            name="nominal",
            cores=cores,
            cache_bytes=32 << 20,
            threads=threads,
            layer_s=[3e-4] * len(threads),
            load_s=2e-4,
            lookups_per_s=20e6,
            update_s=3e-4,
            update_bandwidth=1e9,
            compute_contention=1.0,
            memory_contention=1.0,
            sync_latency_s=3e-4,
            sync_bandwidth=1e9,
            straggler_wait=0.0,
            **{name: [rate * n for n in threads] for name, rate in _RATES_OF_A_CORE.items()},
        ),
    )
