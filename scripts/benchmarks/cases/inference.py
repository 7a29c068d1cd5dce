"""Exact inference of two layers, with the hidden one in memory and in a temporary file.

Ends of edges are drawn with a power law. Features are one row seen as many, so that the first
layer's figure is one of arithmetic and topology. Each place of the hidden layer runs in a process
of its own; ``cores`` is how many that had in the mean.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.runner import in_subprocess, most_of, show, take

_MODELS = ("GraphSAGE", "GCN", "GIN", "GAT", "GATv2")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--degree", type=int, default=15, help="in-neighbours of a vertex")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--classes", type=int, default=47)
    parser.add_argument("--model", choices=_MODELS, default="GraphSAGE")
    parser.add_argument("--places", nargs="+", default=["memory", "file"])
    take(parser, threads=2)


def make_graph(num_vertices: int, degree: int, num_features: int) -> Any:
    """Return a graph whose every vertex has ``degree`` in-neighbours, some much more often."""
    from gnnscale.graph import Graph, Split

    indices = np.empty((num_vertices, degree), np.int32)
    generator = np.random.Generator(np.random.SFC64(0))
    for begin in range(0, num_vertices, 1 << 20):
        part = indices[begin : begin + (1 << 20)]
        rank = generator.random(part.shape, np.float32) ** 2 * num_vertices
        part[:] = np.sort(rank.astype(np.int64) * 2_654_435_761 % num_vertices, axis=1)
    row = generator.random(num_features, np.float32)
    return Graph(
        name="scattered",
        indptr=np.arange(0, num_vertices * degree + 1, degree, dtype=np.int64),
        indices=indices.reshape(-1),
        features=np.lib.stride_tricks.as_strided(row, (num_vertices, num_features), (0, 4)),
        feature_dtype="float32",
        labels=np.zeros(num_vertices, np.int8),
        num_classes=2,
        split=Split(train_idx=np.array([0]), valid_idx=np.array([1]), test_idx=np.array([2])),
    )


def disk_used() -> int:
    """Return the bytes that the disk of temporary files holds."""
    found = os.statvfs(tempfile.gettempdir())
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def measure(place: str, options: dict[str, Any]) -> dict[str, Any]:
    import torch

    import gnnscale.nn
    from gnnscale.inference.layerwise import LayerwiseInference
    from gnnscale.inference.memory_plan import MemoryLimits

    given = argparse.Namespace(**options)
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    graph = make_graph(given.vertices, given.degree, given.features)
    config = getattr(gnnscale.nn, given.model)(hidden=given.hidden, num_layers=2, dropout=0.0)
    model = config.build(num_features=given.features, num_classes=given.classes)
    limits = MemoryLimits(hidden_bytes=0 if place == "file" else sys.maxsize, kept_bytes=0)
    inference = LayerwiseInference(model, graph, num_threads=given.threads, limits=limits)
    predicted_s = inference.estimate_s(None)
    ends, infer = [0.0, 0.0], inference._infer

    def timed(index: int, *arguments: Any) -> Any:
        rows = infer(index, *arguments)
        ends[index] = time.perf_counter()
        return rows

    inference._infer = timed
    begin, begin_cpu = time.perf_counter(), time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    used = disk_used()
    with most_of(disk_used, 0.05) as most:
        logits = inference.logits()
    end, end_cpu = time.perf_counter(), time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = {"first": ends[0] - begin, "second": end - ends[0]}
    return {
        **{f"{layer}_edges_per_s": graph.num_edges / each for layer, each in seconds.items()},
        **{"seconds": end - begin, "cores": (end_cpu - begin_cpu) / (end - begin)},
        **{"predicted_s": predicted_s, "temporary_bytes": most[0] - used},
        "predicted_temporary_bytes": inference.work(None).plan.temporary_bytes,
        **{"peak_rss_bytes": peak << 10, "rss_before_bytes": before << 10},
        "sum": float(logits.double().sum()),
    }


def run(options: argparse.Namespace) -> Any:
    figures = {place: in_subprocess(measure, place, vars(options)) for place in options.places}
    sizes = ("predicted_temporary_bytes", "temporary_bytes", "peak_rss_bytes")
    rows = []
    for place, found in figures.items():
        rates = [found[f"{layer}_edges_per_s"] / 1e6 for layer in ("first", "second")]
        cells = [*(f"{rate:.1f} M" for rate in rates), f"{found['cores']:.2f}"]
        cells += [f"{found['predicted_s']:.1f} / {found['seconds']:.1f}"]
        cells += [f"{found[name] / 1e9:.2f}" for name in sizes]
        rows.append([place, *cells, f"{found['sum']:.6g}"])
    columns = [
        *("hidden in", "edges/s 1", "edges/s 2", "cores", "predicted / actual s"),
        *("predicted disk GB", "disk GB", "peak GB", "sum of logits"),
    ]
    show(f"Exact inference, {options.model}, {options.vertices:,} vertices", columns, rows)
    return figures
