"""``NeighborLoader`` over a graph with types, beside the loaders of PyG and of DGL.

The graph is that of the case ``typed``, with features of all vertices. All loaders gather the rows
of sampled vertices and work in the process itself, without workers and threads in the background.
A hop in PyG's form expands new vertices alone; one in DGL's form expands all.

Rounds are long enough that caches are not those which the other systems leave behind.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import typed
from benchmarks.cases.loader import endless
from benchmarks.cases.typed import BATCH_SIZE, EDGES, FANOUTS, VERTICES, lists_of
from benchmarks.runner import Measure, clock, interleave, show, take

WIDTHS = {"user": 64, "item": 64, "shop": 16}


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=60, threads=2)
    parser.add_argument("--scale", type=float, default=0.2, help="share of vertices and edges")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)


def features(scale: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(int(count * scale), WIDTHS[name], generator=generator)
        for name, count in VERTICES.items()
    }


def hetero_data(folder: Path, scale: float) -> Any:
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for name, rows in features(scale).items():
        data[name].x = rows
    for number, triple in enumerate(EDGES):
        indptr, indices = map(torch.from_numpy, lists_of(folder, number))
        destinations = torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff())
        data[triple].edge_index = torch.stack([indices.long(), destinations])
    return data


def heterograph(folder: Path, scale: float) -> Any:
    import dgl

    rows = features(scale)
    lists = {}
    for number, triple in enumerate(EDGES):
        indptr, indices = map(torch.from_numpy, lists_of(folder, number))
        lists[triple] = ("csc", (indptr, indices.long(), torch.empty(0, dtype=torch.long)))
    graph = dgl.heterograph(lists, {name: len(values) for name, values in rows.items()})
    for name, values in rows.items():
        graph.nodes[name].data["feat"] = values
    return graph


def own(form: str, folder: Path, scale: float, threads: int) -> Any:
    from gnnscale import NeighborLoader, ops

    ops.keep_freed_memory()
    data = (hetero_data if form == "pyg" else heterograph)(folder, scale)
    common: Any = {"batch_size": BATCH_SIZE, "shuffle": True, "num_workers": 0}
    form_options: Any = {"output_format": form, "num_threads": threads}
    return NeighborLoader(data, FANOUTS, "user", **common, **form_options)


def pyg(library: str, folder: Path, scale: float, threads: int) -> Any:
    from torch_geometric.loader import NeighborLoader

    from benchmarks.peers import sample_with

    sample_with(library)
    common: Any = {"batch_size": BATCH_SIZE, "shuffle": True, "is_sorted": True}
    return NeighborLoader(hetero_data(folder, scale), FANOUTS, input_nodes="user", **common)


def dgl_loader(folder: Path, scale: float, threads: int) -> Any:
    import dgl

    graph = heterograph(folder, scale).formats("csc")
    names = {name: ["feat"] for name in VERTICES}
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1], prefetch_node_feats=names)
    seeds = {"user": torch.arange(graph.num_nodes("user"))}
    common: Any = {"batch_size": BATCH_SIZE, "shuffle": True}
    return dgl.dataloading.DataLoader(graph, seeds, sampler, **common)


LOADERS: dict[str, Any] = {
    "gnnscale-pyg": partial(own, "pyg"),
    **{name: partial(pyg, name) for name in ("pyg-lib", "torch-sparse")},
    "gnnscale-dgl": partial(own, "dgl"),
    "dgl": dgl_loader,
}


def worker(system: str, options: argparse.Namespace) -> Measure:
    loader = LOADERS[system](options.folder, options.scale, options.threads)
    batches = endless(loader)
    return lambda number: {"s": clock(lambda step: next(batches), range(options.steps))}


def run(options: argparse.Namespace) -> Any:
    rows, results = [], {}
    with tempfile.TemporaryDirectory() as folder:
        typed.write(Path(folder), options.scale)
        command = (sys.executable, *sys.argv, "--folder", folder)
        for threads in (1, 2):
            options.threads = threads
            figures = results[threads] = interleave(LOADERS, options, command)
            for name, each in figures.items():
                form = "dgl" if name in ("dgl", "gnnscale-dgl") else "pyg"
                ratio = each["s"] / figures[f"gnnscale-{form}"]["s"]
                rows.append([name, str(threads), f"{each['s'] * 1e3:.1f}", f"{ratio:.1f}x"])
    columns = ["loader", "threads", "ms a batch", "gnnscale is"]
    show("NeighborLoader over a graph with types", columns, rows)
    return results
