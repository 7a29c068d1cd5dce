"""Sampling with relabelling, topology on the card and over the link, beside the native sampler."""

import time
from typing import Any

import torch

from benchmarks.cuda.bench import Bench
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.sampling import NeighborSampler, NeighborSampling


def run(bench: Bench) -> None:
    graph, sizes = bench.graph, bench.sizes
    batches = [graph.train_idx[i * sizes.seeds :][: sizes.seeds] for i in range(sizes.steps)]
    batches = [each for each in batches if len(each) == sizes.seeds][:32]
    rate = _rate(bench, DeviceGraph.copy_of(graph, bench.engine.device), batches)
    bench.note("sample.edges_per_s", rate, "edges/s")
    unified = DeviceGraph(
        name="unified",
        indptr=bench.engine.reached(graph.indptr, torch.int64),
        indices=bench.engine.reached(graph.indices, torch.int32),
    )
    bench.note("sample.unified_edges_per_s", _rate(bench, unified, batches), "edges/s")
    native = NeighborSampler(graph, fanouts=list(sizes.fanouts), num_threads=bench.cores)
    native.sample(batches[0], 0)
    start = time.perf_counter()
    edges = sum(native.sample(seeds, step).num_edges for step, seeds in enumerate(batches))
    known = edges / (time.perf_counter() - start)
    bench.note("sample.native_edges_per_s", known, "edges/s")
    bench.note("sample.of_native", rate / known)


def _rate(bench: Bench, graph: DeviceGraph, batches: list[Any]) -> float:
    sizes = bench.sizes
    sampling = NeighborSampling(fanouts=list(sizes.fanouts))
    how: Any = {"seed": 0, "max_seeds": sizes.seeds, "device": bench.engine.device}
    sampler = CudaSampler(graph, bench.engine.kernels, sampling, **how)
    seeds = [torch.from_numpy(each).to(bench.engine.device) for each in batches]
    edges = 0
    for step, each in enumerate(seeds):
        edges += sum(sampler.sample(each, step).sizes().num_edges)

    def all_of_them() -> None:
        for step, each in enumerate(seeds):
            sampler.sample(each, step)

    return edges / bench.seconds(all_of_them, rounds=3)
