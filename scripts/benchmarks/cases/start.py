"""How long it takes until a small run trains, and until it is over: Cora, 200 epochs.

Each command runs as its user would start it, for the second time on the machine. "First step" is
seen from outside, when ``metrics.jsonl`` has its first line, after the first epoch of one step.
``--base`` is another checkout, with its extension built, which is measured in turn.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.cases.checkouts import base_path, base_python
from benchmarks.runner import ROOT, medians, show, take

#: Seconds that a user of two cores should wait at most.
TARGETS = {"first step": 2.5, "whole command": 5.0, "first step, four workers": 5.0}
TARGETS |= {"whole command, four workers": 5.0, "sweep of ten seeds": 25.0}


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=5)
    parser.add_argument("--sweeps", type=int, default=1, help="rounds that sweep as well")
    parser.add_argument("--base", type=Path, help="root of another checkout to compare with")
    parser.add_argument("--raw", type=Path, help="published files; downloaded by default")
    parser.add_argument("--options", nargs="*", default=["config=cora_gcn"], help="of the run")


class System:
    """A checkout, with a ``GNNSCALE_HOME`` of its own."""

    def __init__(self, root: Path, folder: Path, options: list[str], raw: Path | None) -> None:
        self.name = str(root)
        self._folder = folder
        own = {"GNNSCALE_HOME": str(folder / "home"), "PYTHONPATH": base_path(root.absolute())}
        self._environment = os.environ | own
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        own_files = [] if raw is None else [f"dataset.raw={raw.absolute()}"]
        self._options = [*options, *own_files]
        self._number = 0

    def run(self, *options: str) -> tuple[float, float]:
        """Run a command; return the seconds to its first epoch's end and to its own."""
        self._number += 1
        directory = self._folder / str(self._number)
        command = [base_python(), "-m", "gnnscale", "train", *self._options, *options]
        command += [f"hydra.run.dir={directory}", f"hydra.sweep.dir={directory}"]
        pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        begin, place = time.perf_counter(), self._folder
        process = subprocess.Popen(command, env=self._environment, cwd=place, **pipes)
        first = _seconds_until_filled(directory / "metrics.jsonl", process, begin)
        _, errors = process.communicate()
        seconds = time.perf_counter() - begin
        if process.returncode:
            raise SystemExit(f"{self.name}: {errors}")
        return first, seconds


def _seconds_until_filled(file: Path, process: subprocess.Popen[str], begin: float) -> float:
    while process.poll() is None:
        if file.exists() and file.stat().st_size:
            return time.perf_counter() - begin
        time.sleep(0.002)
    return float("nan")


def figures(system: System, *, sweep: bool) -> dict[str, float]:
    found = {}
    for who, chosen in (("", ()), (", four workers", ("device_plan=cpu_x4",))):
        found[f"first step{who}"], found[f"whole command{who}"] = system.run(*chosen)
    if sweep:
        _, found["sweep of ten seeds"] = system.run("-m", "seed=range(10)")
    return found


def run(options: argparse.Namespace) -> Any:
    roots = {"this checkout": ROOT} | ({"base": options.base} if options.base else {})
    with tempfile.TemporaryDirectory() as place:
        systems = {}
        for label, root in roots.items():
            (folder := Path(place) / label).mkdir()
            systems[label] = System(root, folder, options.options, options.raw)
            systems[label].run()
            systems[label].run("device_plan=cpu_x4")
        rounds: dict[str, list[dict[str, float]]] = {label: [] for label in systems}
        for number in range(options.rounds):
            for label, system in systems.items():
                rounds[label].append(figures(system, sweep=number < options.sweeps))
    found = {label: medians(each) for label, each in rounds.items()}
    rows = [
        [name, f"{limit:.1f}", *(f"{each[name]:.2f}" for each in found.values())]
        for name, limit in TARGETS.items()
        if all(name in each for each in found.values())
    ]
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    title = f"seconds, medians of {options.rounds} rounds, {cores} cores, load {load:.1f}"
    show(title, ["", "target", *found], rows)
    return {"rounds": rounds, "medians": found}
