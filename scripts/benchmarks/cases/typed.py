"""Neighbour sampling over a graph with types: millions of sampled edges a second.

An R-MAT graph of 3 vertex types and 6 edge types, of the size of ogbn-products. All systems sample
the same seeds, of the first type, at the same fan-outs for each edge type. Beside them stands the
sampler without types over the same edges, whose fan-outs are in the same ratio and such that it
samples about as many edges of the same seeds: it draws more neighbours of fewer lists. GraphBolt is
measured by ``--graphbolt PYTHON``, a Python that has DGL 2.1 and torch 2.2.

Rounds are long enough that caches are not those which the other systems leave behind.
"""

import argparse
import json
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cases.sampler import rate_of
from benchmarks.runner import SCRIPT, Measure, interleave, show, take

#: Numbers of vertices by type, and edges by edge type: those of ogbn-products together.
VERTICES = {"user": 1_200_000, "item": 1_000_000, "shop": 249_029}
EDGES = {
    ("user", "knows", "user"): 30_000_000,
    ("item", "bought_by", "user"): 30_000_000,
    ("user", "buys", "item"): 30_000_000,
    ("item", "like", "item"): 20_000_000,
    ("shop", "sells", "item"): 7_000_000,
    ("item", "sold_by", "shop"): 6_718_280,
}
FANOUTS = [15, 10]
BATCH_SIZE = 1024


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=60, threads=2)
    parser.add_argument("--graphbolt", help="a Python that has DGL 2.1, beside torch 2.2")
    parser.add_argument("--scale", type=float, default=1.0, help="share of vertices and edges (1)")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)


def lists_of(folder: Path, number: int) -> tuple[Any, Any]:
    """Return offsets and sources, within their types, of an edge type."""
    return np.load(folder / f"{number}-indptr.npy"), np.load(folder / f"{number}-indices.npy")


def write(folder: Path, scale: float) -> None:
    """Write the lists of each edge type: R-MAT edges, folded onto both types."""
    from gnnscale import ops

    for number, ((source, _, destination), num_edges) in enumerate(EDGES.items()):
        sizes = [int(VERTICES[name] * scale) for name in (source, destination)]
        ends = ops.rmat_edges(max(sizes), int(num_edges * scale), 0.57, 0.19, 0.19, number, 2)
        swaps = np.random.default_rng(number).random(len(ends[0])) < 0.5
        src, dst = (np.where(swaps, *pair) for pair in (ends, ends[::-1]))
        src, dst = src % sizes[0], dst % sizes[1]
        order = np.lexsort((src, dst))
        indptr = np.searchsorted(dst[order], np.arange(sizes[1] + 1))
        np.save(folder / f"{number}-indptr.npy", indptr.astype(np.int64))
        np.save(folder / f"{number}-indices.npy", src[order].astype(np.int32))


def typed_graph(folder: Path, scale: float) -> Any:
    """Return the graph of the lists, row by row."""
    from dataclasses import replace

    from gnnscale.data import from_arrays
    from gnnscale.graph import GraphSchema

    schema = GraphSchema.of({name: int(n * scale) for name, n in VERTICES.items()}, EDGES)
    lengths = np.zeros(schema.num_rows, np.int64)
    lists = [lists_of(folder, number) for number in range(len(EDGES))]
    for number, (indptr, _) in enumerate(lists):
        lengths[schema.rows(number)] = np.diff(indptr)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.empty(indptr[-1], np.int32)
    for number, (ends, sources) in enumerate(lists):
        begins = indptr[:-1][schema.rows(number)]
        places = np.arange(len(sources)) + np.repeat(begins - ends[:-1], np.diff(ends))
        first = schema.vertices(int(schema.sources[number])).start
        indices[places] = sources + first
    none = np.empty(0, np.int64)
    bare = from_arrays((none, none), np.zeros((schema.num_vertices, 1), np.float32))
    return replace(bare, indptr=indptr, indices=indices, types=schema)


def untyped_graph(graph: Any) -> Any:
    """Return the graph of the same edges without types: the lists of a vertex follow each other."""
    from dataclasses import replace

    schema = graph.schema
    strides = np.bincount(schema.destinations, minlength=len(schema.vertex_types))
    rows = np.repeat(strides, np.diff(schema.first_vertices))
    ends = graph.indptr[np.concatenate([[0], np.cumsum(rows)])]
    return replace(graph, indptr=ends, types=None)


def seeds_of(scale: float, step: int) -> Any:
    generator = np.random.default_rng(step)
    return generator.choice(int(VERTICES["user"] * scale), BATCH_SIZE, replace=False)


def own(folder: Path, scale: float, threads: int, *, typed: bool) -> Any:
    from gnnscale import ops
    from gnnscale.sampling import NeighborSampler, TypedSampler

    ops.keep_freed_memory()
    graph = typed_graph(folder, scale)
    sampler: Any = TypedSampler(graph, fanouts=FANOUTS, num_threads=threads)
    if not typed:
        num_edges, plain = _num_edges(sampler, scale), untyped_graph(graph)
        first, second = FANOUTS
        samplers = [
            NeighborSampler(plain, fanouts=[n, n * second // first], num_threads=threads)
            for n in range(first, 3 * first)
        ]
        sampler = min(samplers, key=lambda sampler: abs(_num_edges(sampler, scale) - num_edges))

    def sample(seeds: Any, step: int) -> tuple[int, int]:
        batch = sampler.sample(seeds, step)
        return batch.num_edges, len(batch.input_vertices)

    return sample


def _num_edges(sampler: Any, scale: float) -> int:
    """Return the number of edges of a few mini-batches."""
    return sum(sampler.sample(seeds_of(scale, step), step).num_edges for step in range(3))


def dgl_sampler(folder: Path, scale: float, threads: int, dtype: Any) -> Any:
    import dgl

    lists = {
        names: ("csc", (*map(torch.from_numpy, lists_of(folder, number)), torch.empty(0)))
        for number, names in enumerate(EDGES)
    }
    lists = {
        names: ("csc", (indptr.to(dtype), indices.to(dtype), none.to(dtype)))
        for names, (_, (indptr, indices, none)) in lists.items()
    }
    sizes = {name: int(number * scale) for name, number in VERTICES.items()}
    graph = dgl.heterograph(lists, sizes, idtype=dtype)
    graph = graph.formats("csc")
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])

    def sample(seeds: Any, step: int) -> tuple[int, int]:
        chosen = {"user": torch.from_numpy(seeds).to(dtype)}
        inputs, _, blocks = sampler.sample_blocks(graph, chosen)
        return sum(block.num_edges() for block in blocks), sum(map(len, inputs.values()))

    return sample


SAMPLERS: dict[str, Any] = {
    "gnnscale": partial(own, typed=True),
    "gnnscale without types": partial(own, typed=False),
    "dgl": partial(dgl_sampler, dtype=torch.int64),
    "dgl-int32": partial(dgl_sampler, dtype=torch.int32),
}


def worker(system: str, options: argparse.Namespace) -> Measure:
    torch.set_num_threads(options.threads)
    sample = SAMPLERS[system](options.folder, options.scale, options.threads)
    return rate_of(sample, options.steps, cache(partial(seeds_of, options.scale)))


def run(options: argparse.Namespace) -> Any:
    rows, results = [], {}
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        write(options.folder, options.scale)
        others = _graphbolt(options)
        for threads in (1, 2):
            options.threads = threads
            command = (sys.executable, *sys.argv, "--folder", folder)
            found = results[threads] = interleave([*SAMPLERS, *others], options, command, others)
            own_rate = found["gnnscale"]["edges_per_s"]
            for name, each in found.items():
                rate = each["edges_per_s"]
                figures = (f"{rate / 1e6:.1f}", f"{each['edges']:.0f}", f"{each['inputs']:.0f}")
                rows.append([name, str(threads), *figures, f"{own_rate / rate:.2f}x"])
    columns = ["system", "threads", "M edges/s", "edges", "inputs", "gnnscale is"]
    show("Neighbour sampling with types", columns, rows)
    return results


def _graphbolt(options: argparse.Namespace) -> dict[str, list[str]]:
    """Write the seeds of all rounds, and return the command of GraphBolt's worker."""
    if options.graphbolt is None:
        return {}
    steps = range((options.rounds + 1) * options.steps)
    seeds = np.array([seeds_of(options.scale, step) for step in steps])
    np.save(options.folder / "seeds.npy", seeds.reshape(options.rounds + 1, options.steps, -1))
    sizes = [int(number * options.scale) for number in VERTICES.values()]
    schema = {"vertices": dict(zip(VERTICES, sizes, strict=True)), "edges": list(EDGES)}
    (options.folder / "schema.json").write_text(json.dumps(schema))
    command = [options.graphbolt, str(SCRIPT / "graphbolt_typed.py")]
    command += ["--folder", str(options.folder), "--fanouts", json.dumps(FANOUTS)]
    return {"graphbolt": command}
