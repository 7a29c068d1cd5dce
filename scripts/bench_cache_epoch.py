"""Epochs on an emulated GPU behind PCIe 3 x16, with and without a cache, beside what hits allow.

The GPU is a V100 that is emulated ``--slower`` times slower than it is, link included, so that this
machine keeps up. What a hit rate allows is the epoch without a cache, with as many bytes over the
link as the cache left.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from bench_runtime import train
from benchmarking import show

from gnnscale.core.stages import STAGES, StageTimes
from gnnscale.plan.perf.equations import pipeline_seconds

#: Multiply-accumulates, bytes of memory and bytes of the link of a V100 in a second.
V100 = {"macs_per_s": 7.0e12, "memory_bandwidth": 9.0e11, "link_bandwidth": 1.28e10}
POLICIES = {
    "none": ("cache_planner=none",),
    "pagraph": ("cache_planner=pagraph",),
    "legion": ("cache_planner=legion",),
    "belady": ("cache_planner=belady",),
    "belady + match": ("cache_planner=belady", "cache_planner.match=true"),
}
PREFETCH = "two_stage"


def measured(policy: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return seconds of an epoch's step, of its stages, and what crossed the link."""
    rates = ", ".join(f"{name}: {rate / arguments.slower}" for name, rate in V100.items())
    device = f"{{kind: emulated, {rates}, memory_bytes: 16000000000, host_aggregates: false}}"
    epochs, steps = train(
        "dataset=rmat_products",
        *("batch_size=1024", "sampler.fanouts=[25,10]", f"model.hidden={arguments.hidden}"),
        *("epochs=1", "runtime.checkpoint=false", "runtime.inference=sampled", "runtime.drm=false"),
        *(f"runtime.prefetch={PREFETCH}", f"cache_planner.ratio={arguments.ratio}"),
        *POLICIES[policy],
        f"device_plan.devices=[{device}]",
    )
    (epoch,) = epochs
    (found,) = epoch["devices"]
    return {
        "step_s": epoch["epoch_time_s"] / len(steps),
        "stages": {stage: (found["stage_times_s"][stage] or 0.0) / len(steps) for stage in STAGES},
        "link_bytes": found["traffic"]["rows"]["link_bytes"] / len(steps),
        "list_bytes": found["traffic"]["lists"]["link_bytes"] / len(steps),
        "hit_rate": found["feature_hit_rate"],
        "late_stages": found["counters"]["late_stages"],
        "num_steps": len(steps),
    }


def allowed_s(without: dict[str, Any], found: dict[str, Any]) -> float:
    """Seconds of a step without a cache, but for the bytes that the cache has spared the link."""
    before = without["link_bytes"] + without["list_bytes"]
    after = found["link_bytes"] + found["list_bytes"]
    stages = StageTimes(**without["stages"])
    stages.transfer *= after / before
    return pipeline_seconds(stages, PREFETCH)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--slower", type=float, default=100.0)
    arguments.add_argument("--ratio", type=float, default=0.1, help="rows cached, of all vertices")
    arguments.add_argument("--hidden", type=int, default=16)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES)
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    given = arguments.parse_args()
    found: dict[str, list[dict[str, Any]]] = {policy: [] for policy in given.policies}
    for _ in range(given.rounds):
        for policy in given.policies:
            found[policy].append(measured(policy, given))
    rows = []
    for policy, rounds in found.items():
        step = statistics.median(each["step_s"] for each in rounds)
        allowed = statistics.median(
            allowed_s(*pair) for pair in zip(found["none"], rounds, strict=True)
        )
        rate = rounds[0]["hit_rate"]
        rows.append(
            [
                policy,
                "-" if rate is None else f"{rate:.4f}",
                f"{(rounds[0]['link_bytes'] + rounds[0]['list_bytes']) / 1e6:.1f}",
                f"{step * 1e3:.1f}",
                f"{allowed * 1e3:.1f}",
                f"{allowed / step:.3f}",
                f"{rounds[0]['late_stages']:.0f}",
            ]
        )
    show(
        f"A step on a V100 behind PCIe 3 x16, emulated {given.slower:g} times slower; "
        f"{100 * given.ratio:g} % of the rows cached",
        ["policy", "rows hit", "link MB", "step ms", "allowed ms", "allowed / step", "late stages"],
        rows,
    )
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
