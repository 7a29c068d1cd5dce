"""Exact inference whose features exceed memory: in passes from end to end, or a chunk at a time.

Needs root, for control groups, and fio. Each untrained model of two layers predicts the test
vertices in a separate group, from a cold page cache. ``chunks`` is the estimate of the way that
reads rows at random places, ``one pass`` the whole file at fio's rate of reads in order.
"""

import argparse
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cold import fio_rate, forget_files, limited, require_fio
from benchmarks.runner import in_subprocess, prepared, show, take

_FIO = ("--rw=read", "--bs=1M", "--iodepth=16", "--runtime=5")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--features", type=int, default=1024, help="features of a vertex")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--models", nargs="+", default=["GraphSAGE", "GCN", "GAT"])
    parser.add_argument("--memory-gb", nargs="+", type=float, default=[4.6], help="of the groups")
    take(parser, threads=2, store=None)


def measure(store: str, name: str, hidden: int, threads: int) -> dict[str, Any]:
    import torch

    import gnnscale.nn
    from gnnscale.graph import Graph
    from gnnscale.inference.layerwise import LayerwiseInference
    from gnnscale.inference.memory_plan import MemoryLimits

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    graph = Graph.open(store)
    config = getattr(gnnscale.nn, name)(hidden=hidden, num_layers=2, dropout=0.0)
    model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
    infer = partial(LayerwiseInference, model, graph, num_threads=threads)
    chunks_s = infer(limits=MemoryLimits(stream_bytes=0)).estimate_s(graph.test_idx)
    inference = infer()
    inputs = inference.work(graph.test_idx).inputs
    predicted_s = inference.estimate_s(graph.test_idx)
    begin, total = time.perf_counter(), 0.0
    for rows in inference.rows(graph.test_idx):
        total += float(rows.double().sum())
    return {
        "seconds": time.perf_counter() - begin,
        "predicted_s": predicted_s,
        "chunks_s": chunks_s,
        "num_passes": 0 if inputs is None else inputs.num_passes,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "sum": total,
    }


def run(options: argparse.Namespace) -> Any:
    require_fio()
    width = f"dataset.num_features={options.features}"
    store = options.store or prepared("dataset=rmat_products", width)
    features = Path(store) / "features.npy"
    found: dict[str, Any] = {}
    rows = []
    for memory_gb in options.memory_gb:
        for name in options.models:
            forget_files()
            with limited(round(memory_gb * 1e9)) as prefix:
                given = (str(store), name, options.hidden, options.threads)
                each = in_subprocess(measure, *given, prefix=prefix)
            each["pass_s"] = features.stat().st_size / fio_rate(features, *_FIO)
            found[f"{name}, {memory_gb} GB"] = each
            cells = [f"{each[key]:.1f}" for key in ("seconds", "predicted_s", "chunks_s", "pass_s")]
            peak = f"{each['peak_rss_bytes'] / 1e9:.2f}"
            rows.append([name, f"{memory_gb}", *cells, str(each["num_passes"]), peak])
    columns = ["model", "group GB", "s", "predicted s", "chunks s", "one pass s", "passes"]
    size = features.stat().st_size / 1e9
    show(f"Exact inference, {size:.1f} GB of features", [*columns, "peak GB"], rows)
    return found
