"""Memory that a worker takes because its graph is large, beside the maps of the graph's files.

    python scripts/bench_worker_memory.py [--vertices 1000000 111000000] [--folder FOLDER]

Stores of few features and two neighbours a vertex are written, of which rows and labels are holes
in files. Each is trained on in a process of its own: opened, checked, sampled and loaded as workers
do, with a GCN, which needs degrees. Anonymous memory is looked at every few milliseconds, so that
pages of mapped files do not count; the figure is its peak above what it was before the store was
opened. Every size has mini-batches of the same seeds and fan-outs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from benchmarking import FANOUTS, SEEDS, save, show

_SLICE = 1 << 22
_DEGREE, _NUM_FEATURES, _NUM_CLASSES = 2, 16, 4
_STEPS = 20


def write_store(folder: Path, num_vertices: int) -> None:
    """Write a graph store: neighbours are spread over all vertices, rows and labels are zeros."""
    from gnnscale.artifact.arrays import map_npy
    from gnnscale.artifact.graph_store import GRAPH_STORE

    num_edges = num_vertices * _DEGREE
    shapes = {
        "indptr": (np.int64, (num_vertices + 1,)),
        "indices": (np.int32, (num_edges,)),
        "features": (np.float32, (num_vertices, _NUM_FEATURES)),
        "labels": (np.int64, (num_vertices,)),
    }
    every = max(num_vertices // 1_000_000, 1) * 4
    ids = np.arange(0, num_vertices - 2, every, dtype=np.int32)
    splits = {"train_idx": ids, "valid_idx": ids[:10_000] + 1, "test_idx": ids[:10_000] + 2}
    entries = {}
    for name, (dtype, shape) in shapes.items():
        array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
        entries[name] = (str(array.dtype), shape)
        if name in ("indptr", "indices"):
            for first in range(0, shape[0], _SLICE):
                numbers = np.arange(first, min(first + _SLICE, shape[0]))
                spread = numbers * _DEGREE if name == "indptr" else numbers * 40503 % num_vertices
                array[first : first + _SLICE] = spread
        array.flush()
    for name, array in splits.items():
        np.save(folder / f"{name}.npy", array)
        entries[name] = (str(array.dtype), array.shape)
    meta = {
        "format_version": GRAPH_STORE.version,
        "name": "sparse",
        "num_vertices": num_vertices,
        "num_edges": num_edges,
        "num_features": _NUM_FEATURES,
        "num_classes": _NUM_CLASSES,
        "feature_dtype": "float32",
        "metric": "accuracy",
        "arrays": {
            name: {
                "shape": shape,
                "dtype": dtype,
                "bytes": (folder / f"{name}.npy").stat().st_size,
                "crc32": 0,
            }
            for name, (dtype, shape) in entries.items()
        },
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    assert map_npy(folder / "indptr.npy")[-1] == num_edges


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return (
        sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
        << 10
    )


@contextmanager
def watched() -> Iterator[list[int]]:
    """Yield a list that has the peak of anonymous memory at its end."""
    seen, ended = [anonymous_bytes()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            seen[0] = max(seen[0], anonymous_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def measure(folder: Path) -> dict[str, int]:
    """Train on the store; return bytes."""
    import torch

    from gnnscale import ops
    from gnnscale.backend.loading import FeatureLoader
    from gnnscale.graph import Graph
    from gnnscale.model import GCN
    from gnnscale.model.trainable import seed_loss
    from gnnscale.sampler import NeighborSampler

    ops.keep_freed_memory()
    model = GCN(hidden=32).build(num_features=_NUM_FEATURES, num_classes=_NUM_CLASSES)
    optimizer = torch.optim.Adam(model.parameters())
    before = anonymous_bytes()
    with watched() as opening:
        graph = Graph.open(folder)
    with watched() as training:
        sampler = NeighborSampler(graph, fanouts=FANOUTS, num_threads=2)
        loader = FeatureLoader(graph, model, num_threads=2)
        generator = np.random.Generator(np.random.Philox(0))
        for step in range(_STEPS):
            places = generator.choice(len(graph.train_idx), SEEDS, replace=False, shuffle=False)
            batch = sampler.sample(graph.train_idx[places], step)
            loss = seed_loss(graph, model(batch, loader.load(batch)), batch.seeds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {"open_bytes": opening[0] - before, "train_bytes": training[0] - before}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--vertices", type=int, nargs="+", default=[1_000_000, 111_000_000])
    arguments.add_argument("--folder", help="where stores are written; default: as tempfile says")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker)))
        return
    figures = {}
    for num_vertices in options.vertices:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            write_store(Path(folder), num_vertices)
            command = [sys.executable, __file__, "--worker", folder]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        figures[num_vertices] = json.loads(answer.stdout.splitlines()[-1])
    rows = [
        [f"{count:,}", *(f"{value / 2**20:.1f}" for value in each.values())]
        for count, each in figures.items()
    ]
    show("Anonymous memory, MiB", ["vertices", "opening", "training"], rows)
    save(options.json, figures)


if __name__ == "__main__":
    main()
