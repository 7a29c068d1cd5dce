"""How fast the host is right now: a machine that is shared is not always as fast as calibrated."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import replace

from gnnscale.graph import Graph
from gnnscale.plan.platform import Platform, Processor
from gnnscale.plan.predict import Host
from gnnscale.plan.probes import STEP_PROBES, StepTimes, probe_graph, time_steps

__all__ = ["at_present", "time_probes"]

#: Two of the probes of calibration: GraphSAGE, whose products take most, and GCN, whose rows do.
_PROBES = (STEP_PROBES[5], STEP_PROBES[2])
_GRAPH = (1 << 14, 1 << 17)
_REPEATS = 5


def time_probes(threads: int) -> tuple[StepTimes, ...]:
    """Train the probes for a few steps, a fifth of a second.

    Workers that do so at the same time find out how they slow each other down.

    Args:
        threads: of each stage.
    """
    graph = _graph()
    return tuple(time_steps(probe, graph, threads=threads, repeats=_REPEATS) for probe in _PROBES)


@functools.cache
def _graph() -> Graph:
    return probe_graph(*_GRAPH)


def at_present(
    platform: Platform, steps: Sequence[StepTimes], *, threads: int, workers: int
) -> Platform:
    """Return ``platform`` with rates that explain how long probes took just now.

    Args:
        platform: the host's rates, as calibrated.
        steps: of ``time_probes`` in any number of workers.
        threads: of each stage.
        workers: how many of this machine did it at the same time.
    """
    host = platform.processor
    waits = max(1.0, workers * threads / host.cores)
    propagate = _slowdown(host, steps, threads, "propagate") / waits
    load = _slowdown(host, steps, threads, "load") / waits
    if workers > 1:
        # Alone it was not measured: what is slower is put down to the others.
        contended = replace(
            host,
            compute_contention=max(propagate, 1.0),
            memory_contention=max(load, 1.0),
        )
        return replace(platform, processor=contended)
    scaled = {
        name: [rate / propagate for rate in getattr(host, name)]
        for name in ("macs_per_s", "aggregate_bandwidth", "stream_bandwidth", "attention_per_s")
    }
    scaled["layer_s"] = [seconds * propagate for seconds in host.layer_s]
    return replace(platform, processor=replace(host, **scaled))  # type: ignore[arg-type]


def _slowdown(host: Processor, steps: Sequence[StepTimes], threads: int, stage: str) -> float:
    """Measured over predicted seconds, the median."""
    ratios: list[float] = []
    for step in steps:
        alone = Host(workload=step.workload, processor=host, num_workers=1, emulates=False)
        expected = getattr(alone, stage)(step.size, threads, threads)
        ratios.append(getattr(step, f"{stage}_s") / max(expected, 1e-9))
    return float(statistics.median(ratios))
