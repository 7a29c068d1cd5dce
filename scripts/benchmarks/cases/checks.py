"""What the checks of native code cost: sampling, load-aggregate and gather with and without them.

The extension is built once more with its checks left out (GNNSCALE_MEASURE_UNCHECKED, in
build/unchecked). Both run in one process, over the same arrays and mini-batches, in turn; who goes
first alternates, since the second finds warmer caches.
"""

import argparse
import importlib.util
import statistics
import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch

from benchmarks.runner import FANOUTS, ROOT, open_graph, seeds_of, show, take, timed
from gnnscale import ops
from gnnscale.ops import _native

SYSTEMS = ("checked", "unchecked")
STAGES = ("sample", "load-aggregate", "gather")


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None)


def build_unchecked() -> ModuleType:
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
        self._native, self._width = native, graph.num_features
        self._rows = (graph.features, graph.feature_dtype)
        self._threads = {"num_threads": threads}
        self._sampler = native.NativeSampler(graph)

    def sample(self, seeds: Any, step: int) -> Any:
        how = {"replace": False, "seed": 0, "step": step, **self._threads}
        return self._sampler.sample_neighbors(seeds, FANOUTS, **how)

    def load(self, sampled: Any) -> None:
        _, hops, edge_vertices = sampled
        indptr, indices, *_ = hops[-1]
        out = ops.empty((len(indptr) - 1, self._width), torch.float32)
        how = {"ids": edge_vertices, "ids_per_edge": True, "out": out, **self._threads}
        self._native.aggregate(self._rows, indptr, indices, **how)

    def gather(self, sampled: Any) -> None:
        out = ops.empty((len(sampled[0]), self._width), torch.float32)
        self._native.gather(self._rows, sampled[0], out=out, **self._threads)


def measure(graph: Any, systems: dict[str, Stages], steps: range) -> Any:
    """Return the seconds of every step of each stage and system."""
    seconds: Any = {stage: {name: [] for name in systems} for stage in STAGES}
    for step in steps:
        names = list(systems) if step % 2 else list(systems)[::-1]
        given: tuple[Any, ...] = (seeds_of(graph, step), step)
        for stage, method in zip(STAGES, (Stages.sample, Stages.load, Stages.gather), strict=True):
            for name in names:
                took, result = timed(method, systems[name], *given)
                seconds[stage][name].append(took)
            given = given if result is None else (result,)
    return seconds


def run(options: argparse.Namespace) -> Any:
    extensions = {"checked": _native, "unchecked": build_unchecked()}
    graph = open_graph(options.store)
    torch.set_num_threads(options.threads)
    systems = {name: Stages(each, graph, options.threads) for name, each in extensions.items()}
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
