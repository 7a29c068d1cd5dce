"""What the checks of native code cost: sampling, load-aggregate and gather with and without them.

    python scripts/bench_checks.py [--rounds 7] [--steps 20] [--threads 2] [--json FILE]

The extension is built once more with its checks left out (GNNSCALE_MEASURE_UNCHECKED, in
build/unchecked). Both run in one process, over the same arrays and mini-batches, in turn; who goes
first alternates, since the second finds warmer caches.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from benchmarking import FANOUTS, open_graph, parser, save, seeds_of, show

from gnnscale import _native, ops

ROOT = Path(__file__).parents[1]
SYSTEMS = ("checked", "unchecked")
STAGES = ("sample", "load-aggregate", "gather")


def build_unchecked() -> ModuleType:
    """Build the extension without its checks and load it under another name."""
    tree = ROOT / "build" / "unchecked"
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGNNSCALE_MEASURE_UNCHECKED=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={_pybind11_folder()}",
    ]
    cmake = [sys.executable, "-m", "cmake"] if importlib.util.find_spec("cmake") else ["cmake"]
    subprocess.run([*cmake, "-S", ROOT / "native", "-B", tree, *options], check=True, stdout=2)
    subprocess.run(
        [*cmake, "--build", tree, "--parallel", "--target", "_native"], check=True, stdout=2
    )
    (file,) = tree.glob("_native*.so")
    spec = importlib.util.spec_from_file_location("unchecked._native", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pybind11_folder() -> str:
    import pybind11

    return str(pybind11.get_cmake_dir())


class Stages:
    """The three stages over one of the two extensions."""

    def __init__(self, native: Any, graph: Any, threads: int) -> None:
        self._native = native
        self._rows = (graph.features, graph.feature_dtype)
        self._width = graph.num_features
        self._threads = threads
        self._sampler = native.NativeSampler(graph)

    def sample(self, seeds: Any, step: int) -> Any:
        return self._sampler.sample_neighbors(
            seeds, FANOUTS, replace=False, seed=0, step=step, num_threads=self._threads
        )

    def load(self, sampled: Any) -> None:
        _, hops, edge_vertices = sampled
        indptr, indices, *_ = hops[-1]
        self._native.aggregate(
            self._rows,
            indptr,
            indices,
            ids=edge_vertices,
            ids_per_edge=True,
            out=ops.empty((len(indptr) - 1, self._width), torch.float32),
            num_threads=self._threads,
        )

    def gather(self, sampled: Any) -> None:
        out = ops.empty((len(sampled[0]), self._width), torch.float32)
        self._native.gather(self._rows, sampled[0], out=out, num_threads=self._threads)


def timed(times: list[float], work: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``work`` and add the seconds that it took to ``times``."""
    start = time.perf_counter()
    result = work(*arguments)
    times.append(time.perf_counter() - start)
    return result


def measure(
    graph: Any, systems: dict[str, Stages], steps: range
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of every step of each stage and system."""
    seconds: dict[str, dict[str, list[float]]] = {
        stage: {name: [] for name in systems} for stage in STAGES
    }
    for step in steps:
        seeds = seeds_of(graph, step)
        names = list(systems) if step % 2 else list(systems)[::-1]
        for name in names:
            sampled = timed(seconds["sample"][name], systems[name].sample, seeds, step)
        for name in names:
            timed(seconds["load-aggregate"][name], systems[name].load, sampled)
        for name in names:
            timed(seconds["gather"][name], systems[name].gather, sampled)
    return seconds


def main() -> None:
    arguments = parser(__doc__ or "").parse_args()
    checked, unchecked = _native, build_unchecked()
    graph = open_graph(arguments.store)
    torch.set_num_threads(arguments.threads)
    systems = {
        name: Stages(native, graph, arguments.threads)
        for name, native in zip(SYSTEMS, (checked, unchecked), strict=True)
    }
    measure(graph, systems, range(4))  # what is first touched does not count
    steps = range(4, 4 + arguments.rounds * arguments.steps)
    seconds = measure(graph, systems, steps)
    figures = {}
    for stage, of in seconds.items():
        with_, without = (statistics.median(of[name]) for name in SYSTEMS)
        # Pair by pair, so that a change of the machine's speed meets both.
        ratio = statistics.median(np.array(of["checked"]) / np.array(of["unchecked"]))
        figures[stage] = {"checked_s": with_, "unchecked_s": without, "ratio": float(ratio)}
    show(
        f"Cost of the checks, {arguments.threads} threads, median of {len(steps)} mini-batches",
        ["stage", "checked, ms", "unchecked, ms", "ratio, pair by pair"],
        [
            [
                stage,
                f"{1e3 * f['checked_s']:.3f}",
                f"{1e3 * f['unchecked_s']:.3f}",
                f"{f['ratio']:.4f}",
            ]
            for stage, f in figures.items()
        ],
    )
    save(arguments.json, figures)


if __name__ == "__main__":
    main()
