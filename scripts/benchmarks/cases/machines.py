"""Rows divided among machines, over a network of limited rate.

Machines are network namespaces of this one; ``tc tbf`` limits what each sends and receives. Needs
root, and ip and tc of iproute2. The computation of a step is measured under the same load, by a run
in which each machine has the whole store (``whole``). A step is expected to take the longer of that
and of its rows' bytes at the network's rate. Bytes on the wire are what the interfaces count, less
those of the run with the whole store.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from fault_injection.machines import Network, address

from benchmarks.runner import complete_lines, gnnscale, prepared, show

_PORT = 29500
#: Epochs of each run; the first fills the caches.
_EPOCHS = 3


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--machines", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--gbit", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--vertices", type=int, default=600_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanouts", default="[10,5]")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--memory-mib", type=int, default=96, help="of each for others' rows")


def train(net: Network, stores: list[str], folder: Path, words: list[str]) -> None:
    """Train on all machines, each of which has its store."""
    processes, logs = [], []
    for number, (name, store) in enumerate(zip(net.machines, stores, strict=True)):
        torchrun = [
            *("-m", "torch.distributed.run", f"--nnodes={len(stores)}", "--nproc-per-node=1"),
            *(f"--node-rank={number}", f"--master-addr={address(0)}", f"--master-port={_PORT}"),
        ]
        options = ["dataset=store", f"dataset.store={store}", f"hydra.run.dir={folder}"]
        logs.append(folder.parent / f"{folder.name}-{number}.log")
        variables = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "LOG": str(logs[-1])}
        command = (*torchrun, "-m", "gnnscale", "train", *words, *options)
        processes.append(net.begin(name, *command, **variables))
    while any(each.poll() is None for each in processes):
        if any(each.poll() for each in processes):
            for each in processes:
                each.terminate()
        time.sleep(0.2)
    if any(each.returncode for each in processes):
        raise SystemExit(f"{' '.join(words)}\n{logs[0].read_text()[:3000]}")


def losses(folder: Path) -> list[float]:
    return [step["loss"] for step in complete_lines(folder / "steps.jsonl")]


def difference(left: list[float], right: list[float]) -> float:
    return max(abs(a - b) / abs(a) for a, b in zip(left, right, strict=True))


def step_s(folder: Path) -> float:
    """Return the seconds of a step, mean of all epochs but the first."""
    epochs = complete_lines(folder / "metrics.jsonl")
    seconds = statistics.fmean(each["epoch_time_s"] for each in epochs[1:])
    return seconds * len(epochs) / len(losses(folder))


def row_bytes(folder: Path) -> tuple[float, float]:
    """Return the bytes of rows over the network in a step, and those of the busiest machine.

    Full steps of all epochs but the first count, in which caches are filled.
    """
    found = [step for step in complete_lines(folder / "steps.jsonl") if step["epoch"] > 1]
    seeds = [sum(each["seeds"] for each in step["devices"]) for step in found]
    steps = [
        [each["traffic"].get("tier", {}).get("link_bytes", 0) for each in step["devices"]]
        for step, count in zip(found, seeds, strict=True)
        if count == max(seeds)
    ]
    return statistics.fmean(map(sum, steps)), statistics.fmean(map(max, steps))


def summary(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())


def disk(folder: str) -> int:
    return sum(each.stat().st_size for each in Path(folder).iterdir())


def run(options: argparse.Namespace) -> Any:
    graph = [
        *("dataset=planted_partition", f"dataset.num_vertices={options.vertices}"),
        *(f"dataset.num_edges={10 * options.vertices}", f"dataset.num_features={options.features}"),
        "dataset.train_fraction=0.05",
    ]
    whole = str(prepared(*graph))
    with tempfile.TemporaryDirectory() as folder:
        cases = [(count, gbit) for count in options.machines for gbit in options.gbit]
        found = []
        for each in cases:
            found.append(case(options, graph, whole, Path(folder), *each))
            print(json.dumps(found[-1]), flush=True)
    names = [f"{each['machines']} at {each['gbit']:g} Gbit/s" for each in found]
    lines = [[name, *(f"{each[name]:.4g}" for each in found)] for name in [*found[0]][2:]]
    show("rows divided among machines", ["", *names], lines)
    return found


def case(
    options: argparse.Namespace, graph: list[str], whole: str, folder: Path, count: int, gbit: float
) -> dict[str, Any]:
    """Compare divided rows with the whole store, on machines and on one."""
    partitioned = ["partitioner=hash", f"partitioner.num_parts={count}"]
    made = gnnscale("partition", *graph, *partitioned, "part_stores=rows")
    parts = Path(made.splitlines()[-1]) / "rows"
    devices = ",".join(["cpu"] * count)
    common = [
        *(f"device_plan.devices=[{devices}]", f"batch_size={options.batch_size}"),
        *(f"sampler.fanouts={options.fanouts}", f"model.hidden={options.hidden}"),
        *("model.dropout=0", "runtime.drm=false", "num_threads=1"),
        *("runtime.prefetch=one_stage", "seed=1", f"runtime.eval_every={_EPOCHS}"),
        "runtime.inference=sampled",  # which takes no part in what is compared
    ]
    own = max((parts / str(number) / "features.npy").stat().st_size for number in range(count))
    shared = ["features=shared", f"features.memory_bytes={(options.memory_mib << 20) + own}"]
    key = f"{count}-{gbit:g}"
    one = folder / f"one-{key}"
    of_one = [f"epochs={_EPOCHS}", "dataset=store", f"dataset.store={whole}"]
    gnnscale("train", *common, *of_one, f"hydra.run.dir={one}")
    runs = {
        "whole": ([whole] * count, []),
        "shared": ([str(parts / str(n)) for n in range(count)], shared),
    }
    wire: dict[str, dict[int, int]] = {}
    for name, (stores, more) in runs.items():
        wire[name] = {}
        for epochs in (1, _EPOCHS):
            with Network(machines=[f"m{n}" for n in range(count)], gbit=gbit) as net:
                before = net.received()
                words = [*common, f"epochs={epochs}", *more]
                train(net, stores, folder / f"{name}-{key}-{epochs}", words)
                wire[name][epochs] = net.received() - before
    divided, plain = (folder / f"{name}-{key}-{_EPOCHS}" for name in ("shared", "whole"))
    reference, learnt = losses(one), losses(divided)
    if len(reference) != len(learnt):
        raise SystemExit(f"{len(reference)} steps on one machine, {len(learnt)} on {count}")
    figures, first = (
        summary(folder / f"shared-{key}-{epochs}")["network"] for epochs in (_EPOCHS, 1)
    )
    num_steps = len(learnt) // _EPOCHS
    # The wire is compared over all epochs but the first.
    counted = num_steps * (_EPOCHS * figures["bytes"] - first["bytes"])
    on_wire = [wire[name][_EPOCHS] - wire[name][1] for name in ("shared", "whole")]
    rows, busiest = row_bytes(divided)
    link_s = busiest / (gbit / 8 * 1e9)
    compute_s, measured_s = step_s(plain), step_s(divided)
    memory = {
        # The last machine, which does not evaluate.
        name: summary(run)["devices"][-1]["peak_rss_bytes"] / 1e6
        for name, run in (("shared", divided), ("whole", plain))
    }
    return {
        "machines": count,
        "gbit": gbit,
        "largest difference of a loss": difference(reference, learnt),
        "the same with the whole store": difference(reference, losses(plain)),
        "rows MB a step": rows / 1e6,
        "expected / measured": figures["expected"] / figures["bytes"],
        "on the wire / measured": (on_wire[0] - on_wire[1]) / counted,
        "step ms": 1e3 * measured_s,
        "step ms with the whole store": 1e3 * compute_s,
        "bytes / link, ms": 1e3 * link_s,
        "step / max": measured_s / max(compute_s, link_s),
        "memory MB (peak RSS)": memory["shared"],
        "memory MB with the whole store": memory["whole"],
        "disk MB": disk(str(parts / "0")) / 1e6,
        "disk MB of the whole store": disk(whole) / 1e6,
        "features MB of a machine": (parts / "0" / "features.npy").stat().st_size / 1e6,
        "features MB of the whole store": (Path(whole) / "features.npy").stat().st_size / 1e6,
    }
