"""What the checks of native code cost: sampling, load-aggregate and gather with and without them.

The extension is built once more with its checks left out (GNNSCALE_MEASURE_UNCHECKED, in
build/unchecked). Both run in one process, over the same arrays and mini-batches, in turn; who goes
first alternates, since the second finds warmer caches.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from bench.runner import FANOUTS, ROOT, open_graph, seeds_of, show, take
from gnnscale import ops
from gnnscale.ops import _native

SYSTEMS = ("checked", "unchecked")
STAGES = ("sample", "load-aggregate", "gather")


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None)


def build_unchecked() -> ModuleType:
    """Build the extension without its checks and load it under another name."""
    import pybind11

    tree = ROOT / "build" / "unchecked"
    options = [
        *("-DCMAKE_BUILD_TYPE=Release", "-DGNNSCALE_MEASURE_UNCHECKED=ON"),
        *(f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"),
    ]
    cmake = [sys.executable, "-m", "cmake"] if importlib.util.find_spec("cmake") else ["cmake"]
    build = ["--build", tree, "--parallel", "--target", "_native"]
    for arguments in (["-S", ROOT / "native", "-B", tree, *options], build):
        subprocess.run([*cmake, *arguments], check=True, stdout=2)
    (file,) = tree.glob("_native*.so")
    spec: Any = importlib.util.spec_from_file_location("unchecked._native", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def run(options: argparse.Namespace) -> Any:
    checked, unchecked = _native, build_unchecked()
    graph = open_graph(options.store)
    torch.set_num_threads(options.threads)
    systems = {
        name: Stages(native, graph, options.threads)
        for name, native in zip(SYSTEMS, (checked, unchecked), strict=True)
    }
    measure(graph, systems, range(4))  # what is first touched does not count
    steps = range(4, 4 + options.rounds * options.steps)
    figures = {}
    for stage, of in measure(graph, systems, steps).items():
        with_, without = (statistics.median(of[name]) for name in SYSTEMS)
        # Pair by pair, so that a change of the machine's speed meets both.
        ratio = statistics.median(np.array(of["checked"]) / np.array(of["unchecked"]))
        figures[stage] = {"checked_s": with_, "unchecked_s": without, "ratio": float(ratio)}
    rows = [
        [stage, *(f"{1e3 * f[f'{name}_s']:.3f}" for name in SYSTEMS), f"{f['ratio']:.4f}"]
        for stage, f in figures.items()
    ]
    title = f"Cost of the checks, {options.threads} threads, median of {len(steps)} mini-batches"
    show(title, ["stage", "checked, ms", "unchecked, ms", "ratio, pair by pair"], rows)
    return figures
