"""Interleaved measurements of several systems, each in a process of its own.

A benchmark script is started once by its user and, with ``--worker SYSTEM``, once more by itself
for each system. So every system has its own memory allocator, thread pools and environment, as its
users have, while rounds are interleaved: a change of the machine's speed meets all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

#: ``measure(round)`` returns named figures of one round.
Measure = Callable[[int], dict[str, float]]
SEEDS = 1024
FANOUTS = [25, 10]
#: What keeps torch, oneDNN, MKL and own kernels from instructions beyond AVX2: a simulation of a
#: processor without them, as other libraries of peers choose theirs by themselves.
_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "GNNSCALE_SIMD_LEVEL": "v3",
}
_ORDERS: dict[int, Any] = {}


def parser(description: str, *, takes_avx2: bool = False) -> argparse.ArgumentParser:
    """Return the options of every benchmark.

    Args:
        description: of the script.
        takes_avx2: whether it can be told to use no instructions beyond AVX2; see ``interleave``.
    """
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--rounds", type=int, default=7, help="rounds of each system")
    arguments.add_argument("--steps", type=int, default=10, help="mini-batches of a round")
    arguments.add_argument("--threads", type=int, default=2)
    if takes_avx2:
        arguments.add_argument(
            "--avx2", action="store_true", help="let all systems use no instructions beyond AVX2"
        )
    arguments.add_argument("--store", type=Path, help="graph store; default: R-MAT products")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments.add_argument("--worker", help=argparse.SUPPRESS)
    return arguments


def open_graph(store: Path | None) -> Any:
    """Open ``store``, or the R-MAT graph of the sizes of ogbn-products, made on first use."""
    from gnnscale.graph import Graph

    if store is not None:
        return Graph.open(store)
    prepared = subprocess.run(
        [sys.executable, "-m", "gnnscale", "prepare", "dataset=rmat_products"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        # From the root of a checkout, -m would find its sources, which may have no native code.
        cwd=Path(__file__).parent,
    )
    return Graph.open(Path(prepared.stdout.splitlines()[-1]))


def seeds_of(graph: Any, step: int) -> Any:
    """Return the seeds of mini-batch ``step``: the same ones for every system."""
    import numpy as np

    key = len(graph.train_idx)
    if key not in _ORDERS:
        _ORDERS[key] = np.random.Generator(np.random.Philox(0)).permutation(graph.train_idx)
    order = _ORDERS[key]
    first = step * SEEDS % (len(order) - SEEDS)
    return order[first : first + SEEDS]


def serve(measure: Measure) -> None:
    """Answer each line of standard input, a round's number, with the round's figures."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(int(line))), flush=True)


@contextmanager
def installed(system: str) -> Iterator[None]:
    """End this process in one line where ``system``, or what it needs, is not installed."""
    try:
        yield
    except ImportError as error:
        raise SystemExit(f"{system}: {error}") from None


class Worker:
    """A system's process."""

    def __init__(
        self,
        system: str,
        argv: list[str],
        threads: int,
        *,
        python: str = sys.executable,
        **variables: str,
    ) -> None:
        """Start ``argv`` for ``system``, with further environment variables."""
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        environment |= variables
        if system.startswith("gnnscale"):
            environment["OMP_WAIT_POLICY"] = "PASSIVE"  # as `gnnscale train` sets it
        self._process = subprocess.Popen(
            [python, *argv, "--worker", system, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.ready = self._answer() is not None

    def round(self, number: int) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer is None:
            raise SystemExit(f"a worker ended with status {self._process.wait()}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _answer(self) -> dict[str, float] | None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return None


def interleave(
    systems: list[str],
    *,
    rounds: int,
    threads: int,
    argv: list[str] | None = None,
    avx2: bool = False,
) -> dict[str, dict[str, float]]:
    """Run ``rounds`` rounds of every system in turn, after one that does not count.

    With ``avx2`` they may use no instructions beyond AVX2, as far as they can be told.

    Returns:
        The median of each figure of each system; a system that cannot be imported is left out.
    """
    argv = sys.argv if argv is None else argv
    variables = _AVX2 if avx2 else {}
    workers = {name: Worker(name, argv, threads, **variables) for name in systems}
    for name in [name for name, worker in workers.items() if not worker.ready]:
        workers.pop(name).close()
        print(f"{name} is left out: it did not start", file=sys.stderr)
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for number in range(rounds + 1):
        for name, worker in workers.items():
            figures[name].append(worker.round(number))
    for worker in workers.values():
        worker.close()
    return {
        name: {key: statistics.median(each[key] for each in answers[1:]) for key in answers[0]}
        for name, answers in figures.items()
    }


def clock(work: Callable[[int], Any], steps: range) -> float:
    """Return the median seconds of ``work(step)``."""
    times = []
    for step in steps:
        start = time.perf_counter()
        work(step)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def save(path: Path | None, figures: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n")
        print(path)
