"""What all benchmarks share: options, processes, rounds in turn, medians, tables and files.

Each system runs in a process of its own (``--worker SYSTEM``), and rounds are interleaved, so that
a change of the machine's speed meets all systems.
"""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

#: ``measure(round)`` returns named figures of one round.
Measure = Callable[[int], dict[str, float]]
Figures = dict[str, float]
SCRIPT = Path(__file__).parent
ROOT = Path(__file__).parents[2]
CASES = sorted(path.stem for path in (SCRIPT / "cases").iterdir() if path.stem[0] not in "._")
SEEDS = 1024
FANOUTS = [25, 10]
#: What keeps torch, oneDNN, MKL and own kernels from instructions beyond AVX2.
_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "GNNSCALE_SIMD_LEVEL": "v3"}
_AVX2 |= dict.fromkeys(("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"), "AVX2")
_ORDERS: dict[int, Any] = {}
_COMMON: dict[str, dict[str, Any]] = {
    "rounds": {"type": int, "help": "rounds of each system"},
    "steps": {"type": int, "help": "mini-batches of a round"},
    "threads": {"type": int},
    "seeds": {"type": int, "help": "runs of each, with different seeds"},
    "store": {"type": Path, "help": "graph store; default: R-MAT products"},
    "folder": {"help": "where files are written; default: as tempfile says"},
    "data": {"type": Path, "help": "folder of published files; default: GNNSCALE_TEST_DATA"},
    "avx2": {"action": "store_true", "help": "no system uses instructions beyond AVX2"},
}


def take(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add options that several cases have, with these defaults."""
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", default=default, **_COMMON[name])


def data_folder() -> Path:
    return Path(os.environ.get("GNNSCALE_TEST_DATA", ROOT.parent / "shared" / "data")).absolute()


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--call"]:
        module, _, function = arguments[1].partition(":")
        answer = getattr(import_module(module), function)(*json.loads(arguments[2]))
        print(json.dumps(answer), flush=True)
        return 0
    choice = argparse.ArgumentParser(prog="python scripts/benchmarks", description=__doc__)
    choice.add_argument("case", choices=CASES)
    name = choice.parse_args(arguments[:1]).case
    case: Any = import_module(f"benchmarks.cases.{name}")
    prog, form = f"python scripts/benchmarks {name}", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=prog, description=case.__doc__, formatter_class=form)
    case.options(parser)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments[1:])
    if options.worker:
        serve(case.worker, options)
        return 0
    figures = case.run(options)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
        print(options.json)
    missed = figures.get("missed", []) if isinstance(figures, dict) else []
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


# --- graphs and seeds -------------------------------------------------------------------------


def open_graph(store: Path | None) -> Any:
    """Open ``store``, or the R-MAT graph of the sizes of ogbn-products, made on first use."""
    from gnnscale.graph import Graph

    return Graph.open(prepared("dataset=rmat_products") if store is None else store)


def prepared(*options: str) -> Path:
    """Return the store that ``gnnscale prepare`` makes, or has made, by these options."""
    return Path(gnnscale("prepare", *options).splitlines()[-1])


def seeds_of(graph: Any, step: int) -> Any:
    """Return the seeds of mini-batch ``step``: the same ones for every system."""
    import numpy as np

    key = len(graph.train_idx)
    if key not in _ORDERS:
        _ORDERS[key] = np.random.Generator(np.random.Philox(0)).permutation(graph.train_idx)
    order = _ORDERS[key]
    first = step * SEEDS % (len(order) - SEEDS)
    return order[first : first + SEEDS]


# --- runs of gnnscale -------------------------------------------------------------------------


class Run(NamedTuple):
    """What a run has written: lines of its epochs and steps, and its summary."""

    epochs: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    summary: dict[str, Any]


def gnnscale(*arguments: str, **variables: str) -> str:
    """Run a command, with further environment variables, and return what it prints."""
    command = [sys.executable, "-m", "gnnscale", *arguments]
    # From the root of a checkout, -m would find its sources, which may have no native code.
    place: Any = {"cwd": SCRIPT, "env": os.environ | variables}
    run = subprocess.run(command, capture_output=True, text=True, **place)
    if run.returncode:
        raise SystemExit(f"gnnscale {' '.join(arguments)}\n{run.stderr}")
    return run.stdout


def train(*options: str, **variables: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        gnnscale("train", *options, f"hydra.run.dir={folder}", **variables)
        epochs, steps = (
            [json.loads(line) for line in (Path(folder) / name).read_text().splitlines()]
            for name in ("metrics.jsonl", "steps.jsonl")
        )
        return Run(epochs, steps, json.loads((Path(folder) / "summary.json").read_text()))


def complete_lines(file: Path) -> list[Any]:
    """Return the JSON of the complete lines of a file that may not be there yet."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def first_steps(
    run: Path,
    wanted: int,
    processes: Sequence[Any],
    limit_s: float = math.inf,
    look_every_s: float = 0.1,
) -> list[Any]:
    """Wait for ``wanted`` steps of a run; return fewer if a process or the time ends before."""
    end = time.monotonic() + limit_s
    while True:
        ended = any(each.poll() is not None for each in processes) or time.monotonic() > end
        steps = complete_lines(run / "steps.jsonl")
        if ended or len(steps) >= wanted:
            return steps[:wanted]
        time.sleep(look_every_s)


def interrupted(
    options: Sequence[str], wanted: int, *, prefix: Sequence[str] = ()
) -> tuple[list[Any], float]:
    """Train ``wanted`` steps of a run; return them, and the seconds until the first was done."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        command = [*prefix, sys.executable, "-m", "gnnscale", "train", *options]
        command.append(f"hydra.run.dir={folder}")
        start = time.perf_counter()
        run = subprocess.Popen(command, cwd=SCRIPT, stdout=log, stderr=log)
        try:
            first_steps(Path(folder), 1, [run])
            first_s = time.perf_counter() - start
            steps = first_steps(Path(folder), wanted, [run])
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()
        if len(steps) < wanted:
            log.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{log.read()}")
    return steps, first_s


def composed(*overrides: str) -> tuple[Any, dict[str, Any]]:
    """Return the options of ``gnnscale train``: a ``RunConfig``, and the same as plain values."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from gnnscale.core.config.typed import typed
    from gnnscale.core.hardware import usable_cores
    from gnnscale.run.config import RunConfig

    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        words = [re.sub("^config=", "experiment=", each) for each in overrides]
        node = compose("train", words)
    plain: Any = OmegaConf.to_container(node, resolve=True)
    return typed(node, RunConfig), plain


# --- processes --------------------------------------------------------------------------------


def call_of(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """Return the command that calls a function of a case, whose arguments JSON can hold."""
    name = f"{function.__module__}:{function.__name__}"
    return [sys.executable, str(SCRIPT), "--call", name, json.dumps(arguments, default=str)]


def in_subprocess(function: Callable[..., Any], *arguments: Any, prefix: Sequence[str] = ()) -> Any:
    """Call a function of a case in a process of its own, and return its answer."""
    command = [*prefix, *call_of(function, *arguments)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(answer.stdout.splitlines()[-1])


def together(function: Callable[..., Any], size: int, *arguments: Any) -> Any:
    """Call a function in ``size`` processes that meet; return the answer of the first."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(size) as pool:
        given = (size, f"{folder}/meeting", *arguments)
        ranks = [pool.submit(in_subprocess, function, rank, *given) for rank in range(size)]
        answers = [rank.result() for rank in ranks]
    return answers[0]


@contextmanager
def most_of(look: Callable[[], int], every_s: float) -> Iterator[list[int]]:
    """Keep the largest value of ``look`` while the block runs, as the only item of a list."""
    found, done = [look()], threading.Event()

    def watch() -> None:
        while not done.wait(every_s):
            found[0] = max(found[0], look())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        done.set()
        watching.join()


@contextmanager
def installed(system: str) -> Iterator[None]:
    """End this process in one line if ``system``, or what it needs, is not installed."""
    try:
        yield
    except ImportError as error:
        raise SystemExit(f"{system}: {error}") from None


def serve(worker: Callable[[str, argparse.Namespace], Measure], options: Any) -> None:
    """Answer each line of standard input, a round's number, with the round's figures."""
    import torch

    torch.set_num_threads(options.threads)
    with installed(options.worker):
        measure = worker(options.worker, options)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(int(line))), flush=True)


class Worker:
    """A system's process."""

    def __init__(self, system: str, command: Sequence[str], threads: int, **variables: str) -> None:
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        environment |= variables
        if system.startswith("gnnscale"):
            environment["OMP_WAIT_POLICY"] = "PASSIVE"  # as `gnnscale train` sets it
        started = [*command, "--worker", system, "--threads", str(threads)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: Any = subprocess.Popen(started, env=environment, **pipes)
        self.ready = self._answer() is not None

    def round(self, number: int) -> Figures:
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer is None:
            raise SystemExit(f"a worker ended with status {self._process.wait()}")
        return answer

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _answer(self) -> Figures | None:
        lines = (line for line in self._process.stdout if line.startswith("{"))
        return json.loads(next(lines, "null"))


def interleave(
    systems: Iterable[str],
    options: Any,
    command: Sequence[str] = (sys.executable, *sys.argv),
    others: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Figures]:
    """Return medians over ``options.rounds`` rounds of every system that can be imported.

    The first round does not count. ``others`` are commands of systems that need another
    environment.
    """
    variables = _AVX2 if vars(options).get("avx2") else {}
    workers = {
        each: Worker(each, others.get(each, command), options.threads, **variables)
        for each in systems
    }
    for name in [name for name, worker in workers.items() if not worker.ready]:
        workers.pop(name).close()
        print(f"{name} is left out: it did not start", file=sys.stderr)
    figures: dict[str, list[Figures]] = {name: [] for name in workers}
    for number in range(options.rounds + 1):
        for name, worker in workers.items():
            figures[name].append(worker.round(number))
    for worker in workers.values():
        worker.close()
    return {name: medians(answers[1:]) for name, answers in figures.items()}


# --- figures ----------------------------------------------------------------------------------


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the seconds that ``work`` takes, and what it returns."""
    start = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - start, result


def clock(work: Callable[[int], Any], steps: range) -> float:
    return statistics.median(timed(work, step)[0] for step in steps)


def medians(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each figure over the rounds that have it."""
    names = dict.fromkeys(name for each in rounds for name in each)
    return {name: statistics.median(e[name] for e in rounds if name in e) for name in names}


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def show_beside(
    title: str, columns: Sequence[str], values: Mapping[str, float], base: str, scale: float = 1e3
) -> None:
    """Show each value times ``scale``, and its ratio to that of ``base``."""
    rows = [
        [name, f"{each * scale:.1f}", f"{each / values[base]:.2f}x"]
        for name, each in values.items()
    ]
    show(title, columns, rows)


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
