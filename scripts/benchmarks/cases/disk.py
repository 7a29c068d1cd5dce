"""An epoch whose features exceed memory: rows from the disk, against what disk and processor can.

Needs root, for control groups, and fio. Each system trains GraphSAGE in a separate group, from a
cold page cache.

- ``memory``: all rows in memory, without a limit: what the processor takes.
- ``look_ahead``, ``out_degree``: policies of ``features=disk``.
- ``mapped``: rows in a mapped file. Its epoch is a forecast by the second half of
  ``--mapped-steps`` steps.
- ``graphbolt``: features in a mapped file; it computes nothing, and the last half of its steps
  counts. ``--graphbolt PYTHON`` has DGL 2.1 and torch 2.2.

A row that is missed counts once. The bound of an epoch is the longer of ``memory``, and of the
missed rows at fio's rate. ``scripts/benchmarks/draw_memory.py`` draws the figures of several
``--parts``.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.cold import MIB, fio_rate, forget_files, limited, require_fio
from benchmarks.runner import SCRIPT, SEEDS, interrupted, prepared, show, take

#: Requests that fio has on their way, as many as the reader of rows.
_DEPTH = 256
_FIO_S = 4
#: Memory of a process that trains, without rows: interpreter, torch, mini-batches, gradients.
_PROCESS_MIB = 1500
OWN = ("look_ahead", "out_degree")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--features", type=int, default=1024, help="features of a vertex")
    parser.add_argument("--parts", default="0.25", help="of the rows that memory holds")
    parser.add_argument("--fanouts", default="[15,10]")
    parser.add_argument("--systems", default="memory,look_ahead,out_degree")
    parser.add_argument("--max-steps", type=int, help="of an epoch; default: all of them")
    parser.add_argument("--mapped-steps", type=int, default=16)
    parser.add_argument("--graphbolt", help="a Python that has DGL 2.1, beside torch 2.2")
    parser.add_argument("--graphbolt-steps", type=int, default=12)
    take(parser, threads=2, rounds=1, store=None)


def epoch(
    store: Path, options: argparse.Namespace, *given: str, prefix: list[str], num_steps: int
) -> Any:
    """Train ``num_steps`` steps of an epoch, and return what they took and read."""
    command = [
        *("dataset=rmat_products", f"dataset.num_features={options.features}"),
        *(f"dataset.store={store}", f"batch_size={SEEDS}", f"sampler.fanouts={options.fanouts}"),
        *("model.hidden=256", "device_plan=cpu", f"num_threads={options.threads}"),
        *("runtime.checkpoint=false", "runtime.inference=sampled", "epochs=1", *given),
    ]
    forget_files()
    if not prefix:  # rows are in memory before it begins
        subprocess.run(["cat", store / "features.npy"], stdout=subprocess.DEVNULL, check=True)
    steps, first_s = interrupted(command, num_steps, prefix=prefix)
    tier: dict[str, int] = {}
    for step in steps:
        for name, count in step["devices"][0].get("traffic", {}).get("tier", {}).items():
            tier[name] = tier.get(name, 0) + count
    seconds = [step["seconds"] for step in steps]
    missing = options.num_steps - num_steps
    took = {"seconds": seconds[-1] + missing * last_half(seconds), "first_step_s": first_s}
    return {**took, "num_steps": num_steps, **tier}


def last_half(ends: list[float]) -> float:
    """Return the mean seconds of a step, of the last half of those that ended then."""
    half = len(ends) // 2
    return (ends[-1] - (ends[half - 1] if half else 0.0)) / (len(ends) - half)


def graphbolt(store: Path, options: argparse.Namespace, prefix: list[str]) -> float:
    """Return the seconds of a step of GraphBolt, without computation."""
    command = [*prefix, options.graphbolt, str(SCRIPT / "graphbolt_disk.py"), f"--store={store}"]
    command += ["--fanouts", options.fanouts, "--threads", str(options.threads)]
    command += ["--seeds", str(SEEDS), "--steps", str(options.graphbolt_steps)]
    forget_files()
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return last_half([json.loads(line)["seconds"] for line in answer.stdout.splitlines()])


def disk_rate(path: Path, request_bytes: int) -> float:
    """Return the bytes a second of fio's random reads of this size, which it rounds up."""
    size = f"--bs={-(-request_bytes // 512) * 512}"
    depth = (f"--iodepth={_DEPTH}", f"--runtime={_FIO_S}", "--time_based")
    return fio_rate(path, "--rw=randread", size, *depth)


def run(options: argparse.Namespace) -> Any:
    require_fio()
    width = f"dataset.num_features={options.features}"
    store = options.store or prepared("dataset=rmat_products", width)
    meta = json.loads((store / "meta.json").read_text())
    features = store / "features.npy"
    steps_per_epoch = -(-meta["arrays"]["train_idx"]["shape"][0] // SEEDS)
    options.num_steps = options.max_steps or steps_per_epoch
    figures: dict[str, Any] = {
        "num_steps": options.num_steps,
        "row_bytes": features.stat().st_size // meta["num_vertices"],
        "feature_bytes": features.stat().st_size,
        "parts": [],
    }
    systems = options.systems.split(",")
    if "memory" in systems:
        figures["memory"] = measure("memory", store, options, 0)
    for part in map(float, options.parts.split(",")):
        rows_bytes = round(part * figures["feature_bytes"])
        own = {
            name: measure(name, store, options, rows_bytes) for name in systems if name != "memory"
        }
        limit = _limit(store, rows_bytes)
        figures["parts"].append({"part": part, "limit_bytes": limit, "systems": own})
        _report(figures, figures["parts"][-1], features)
        if options.graphbolt is not None:
            with limited(limit) as prefix:
                step_s = graphbolt(store, options, prefix)
            own["graphbolt"] = {"step_s": step_s}
            ours = own["look_ahead"]["seconds"] / own["look_ahead"]["num_steps"]
            rows = [["graphbolt, no computation", f"{step_s:.2f}", f"{step_s / ours:.1f}x"]]
            show("a step", ["system", "seconds", "of look_ahead's"], rows)
    return figures


def _limit(store: Path, rows_bytes: int) -> int:
    return rows_bytes + _PROCESS_MIB * MIB + (store / "indices.npy").stat().st_size


def measure(system: str, store: Path, options: argparse.Namespace, rows_bytes: int) -> Any:
    """Return the round of ``system`` whose epoch is the median, with so much memory for rows."""
    given, num_steps = ["features=host"], options.num_steps
    if system in OWN:
        given = [f"features.policy={system}", f"features.memory_bytes={rows_bytes}"]
        given = ["features=disk", *given]
    elif system == "mapped":
        num_steps = min(options.mapped_steps, num_steps)
        # A run that finds too little memory would read from the disk by itself.
        given += ["runtime.deterministic=true"]
    rounds = []
    for _ in range(options.rounds):
        with limited(None if system == "memory" else _limit(store, rows_bytes)) as prefix:
            rounds.append(epoch(store, options, *given, prefix=prefix, num_steps=num_steps))
    return sorted(rounds, key=lambda each: each["seconds"])[(len(rounds) - 1) // 2]


def _report(figures: dict[str, Any], part: dict[str, Any], features: Path) -> None:
    """Add the bound of each system of ``part``, and show them."""
    rows = []
    compute_s = figures["memory"]["seconds"] if "memory" in figures else 0.0
    if compute_s:
        rows.append(["memory", f"{compute_s:.1f}", f"{figures['memory']['first_step_s']:.1f}"])
    for name, each in part["systems"].items():
        shown = [name, f"{each['seconds']:.1f}", f"{each['first_step_s']:.1f}"]
        if each.get("misses"):
            size = each["link_bytes"] / each["link_requests"]
            rate = disk_rate(features, round(size))
            read_s = each["misses"] * figures["row_bytes"] / rate
            each |= {"fio_bytes_per_s": rate, "bound_s": max(compute_s, read_s)}
            own_rate = each["link_bytes"] / each["seconds"]
            hit = each["hits"] / (each["hits"] + each["misses"])
            shown += [f"{hit:.1%}", f"{size:,.0f}", f"{own_rate / 1e6:,.0f}", f"{rate / 1e6:,.0f}"]
            shown += [f"{each['waited_us'] / 1e6:.1f}", f"{read_s:.1f}"]
            shown += [f"{each['seconds'] / each['bound_s']:.2f}x"]
        rows.append(shown)
    columns = ["system", "epoch s", "first step s", "in memory", "bytes a request", "MB/s"]
    columns += ["fio MB/s", "waited s", "missed at fio's rate s", "of the bound"]
    rows = [[*row, *[""] * (len(columns) - len(row))] for row in rows]
    title = (
        f"{figures['feature_bytes'] / 1e9:.1f} GB of features, {part['part']:.0%} in memory, "
        f"group of {part['limit_bytes'] / 1e9:.1f} GB"
    )
    show(title, columns, rows)
