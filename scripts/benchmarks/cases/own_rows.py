"""Rows divided among two machines whose own rows exceed memory: steps from a cold disk.

Needs root, for control groups. Both machines are processes of this one, each in a group with the
memory of its topology and of some rows.

- ``memory``: all rows are in memory, without a limit.
- ``disk``: own rows are read from the disk, some steps ahead.
- ``mapped``: own rows are in a mapped file, beside as many rows of others.

The last half of the steps counts. A run that has not made them after ``--limit-s`` seconds ends.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.cold import MIB, forget_files, limited
from benchmarks.runner import SCRIPT, first_steps, medians, prepared, show, take
from benchmarks.runner import gnnscale as command

_PORT = 29501
#: Memory of a machine's processes beside the topology: two interpreters, and steps on their way.
_PROCESS_MIB = 850
#: Of the rows that a step misses, of either kind.
_COUNTS = ("misses", "link_bytes", "link_requests", "waited_us")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", type=float, default=0.2, help="of all rows, which memory has")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--fanouts", default="[10,5]")
    parser.add_argument("--systems", default="memory,disk,mapped")
    parser.add_argument("--limit-s", type=float, default=180.0)
    parser.add_argument("--parts", type=Path, help="stores of both parts; default: made first")
    take(parser, rounds=3, steps=80, store=None)


def machines(
    parts: Path, folder: Path, limit: int | None, given: list[str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train on both machines; return the first steps."""
    half = options.batch_size // 2
    common = [
        *("features=shared", f"batch_size={2 * half}", "model.hidden=64", "seed=1"),
        *(f"sampler.fanouts={options.fanouts}", "device_plan=cpu_x2", "runtime.drm=false"),
        *(f"device_plan.split=[{half},{half}]", "num_threads=1", "runtime.checkpoint=false"),
        *("runtime.inference=sampled", "runtime.eval_every=100", "epochs=100"),
        f"output={folder}",
    ]
    env = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with ExitStack() as groups:
        started = []
        for number in range(2):
            first = groups.enter_context(limited(limit))
            torchrun = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2"),
                *("--nproc-per-node=1", f"--node-rank={number}", "--master-addr=127.0.0.1"),
                *(f"--master-port={_PORT}", "-m", "gnnscale", "train", "dataset=store"),
                f"dataset.store={parts / str(number)}",
            ]
            log = (folder.parent / f"{folder.name}-{number}.log").open("w")
            started.append(
                subprocess.Popen(
                    [*first, *torchrun, *common, *given],
                    **{"cwd": SCRIPT, "env": env, "stdout": log, "stderr": log},
                    start_new_session=True,
                )
            )
        try:
            steps = first_steps(folder, options.steps, started, options.limit_s)
            if any(each.poll() for each in started):
                raise SystemExit((folder.parent / f"{folder.name}-0.log").read_text()[:3000])
            return steps
        finally:
            for each in started:
                with suppress(ProcessLookupError):
                    os.killpg(each.pid, signal.SIGKILL)
                each.wait()


def measure(steps: list[dict[str, Any]]) -> dict[str, float]:
    """Return what the last half of the steps took, and what a machine read in each."""
    if len(steps) < 2:
        return {"steps": len(steps), "ms": float("inf")}
    half = len(steps) // 2
    starts: dict[int, float] = {}
    total = 0.0
    for step in steps:  # seconds are since the epoch began
        starts[step["epoch"]] = step["at"] = starts.get(step["epoch"] - 1, 0.0) + step["seconds"]
        total = step["at"]
    found = {"steps": len(steps), "ms": 1e3 * (total - steps[half - 1]["at"]) / (len(steps) - half)}
    for part in ("tier", "disk"):
        for name in _COUNTS:
            counts = [
                each["traffic"].get(part, {}).get(name, 0)
                for step in steps[half:]
                for each in step["devices"]
            ]
            found[f"{part}_{name}"] = sum(counts) / len(counts)
    return found


def run(options: argparse.Namespace) -> Any:
    store = options.store or prepared("dataset=rmat_products")
    answers: dict[str, list[dict[str, float]]] = {}
    learnt: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = options.parts
        if parts is None:
            given = ["partitioner=hash", "partitioner.num_parts=2", "part_stores=rows"]
            given += [f"partitioner.store={folder / 'parts'}", "dataset=store"]
            command("partition", *given, f"dataset.store={store}")
            parts = folder / "parts" / "rows"
        sizes = [(parts / str(number) / "features.npy").stat().st_size for number in range(2)]
        rows = round(options.part * sum(sizes))
        limit = rows + (parts / "0" / "indices.npy").stat().st_size + _PROCESS_MIB * MIB
        runs = {
            "memory": (None, 2 * sum(sizes)),
            "disk": (limit, rows),
            "mapped": (limit, max(sizes) + rows),
        }
        for number in range(options.rounds):
            for system in options.systems.split(","):
                forget_files()
                group, memory = runs[system]
                at = folder / f"{system}-{number}"
                steps = machines(parts, at, group, [f"features.memory_bytes={memory}"], options)
                answers.setdefault(system, []).append(measure(steps))
                learnt[system] = [each["loss"] for each in steps]
    figures = {system: medians(found) for system, found in answers.items()}
    count = min(map(len, learnt.values()))
    same = len({tuple(each[:count]) for each in learnt.values()}) == 1
    table = []
    for system, each in figures.items():
        row = [system, f"{each['steps']:.0f}", f"{each['ms']:,.1f}"]
        if "tier_misses" in each:
            network = each["tier_misses"] - each["disk_misses"]
            row += [f"{network:,.0f}", f"{each['disk_misses']:,.0f}"]
            row += [f"{each['disk_link_bytes'] / 1e6:,.1f}"]
            row += [f"{each[f'{part}_waited_us'] / 1e3:,.1f}" for part in ("tier", "disk")]
        table.append([*row, *[""] * (8 - len(row))])
    columns = ["system", "steps", "ms a step", "rows of others", "own of disk", "MB of disk"]
    columns += ["waited ms", "of it disk"]
    title = f"{max(sizes) / 1e6:,.0f} MB of own rows, {rows / 1e6:,.0f} MB of memory for rows"
    show(f"{title}, groups of {limit / 1e6:,.0f} MB", columns, table)
    print(f"the first {count} losses are {'equal' if same else 'not equal'}")
    return {**figures, "equal_losses": same}
