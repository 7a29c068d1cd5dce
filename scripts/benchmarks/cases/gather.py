"""Loading: gather of feature rows, and fused load-aggregate against gather and sparse product.

The rows are those of real mini-batches: each step another one, so that nothing is in cache.
"""

import argparse
from typing import Any

import numpy as np
import torch

from benchmarks.runner import FANOUTS, Measure, clock, interleave, open_graph, seeds_of, show, take

NUM_ROWS = 129_000


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=7, steps=10, threads=2, store=None)


def worker(system: str, options: argparse.Namespace) -> Measure:
    from gnnscale.sampling import NeighborSampler

    graph, steps = open_graph(options.store), range(options.steps)
    sampler = NeighborSampler(graph, fanouts=FANOUTS)
    sampled = [sampler.sample(seeds_of(graph, step), step) for step in steps]
    gather, fused = LOADERS[system](graph, sampled, options.threads)
    block = sampled[0].blocks[0]
    sizes = {"num_src": block.num_src, "num_dst": block.num_dst}
    return lambda _: {"gather_s": clock(gather, steps), "fused_s": clock(fused, steps), **sizes}


def gnnscale(graph: Any, sampled: list[Any], threads: int) -> Any:
    from gnnscale import ops

    rows = (graph.features, graph.feature_dtype)

    def gather(step: int) -> None:
        out = ops.empty((NUM_ROWS, graph.num_features), torch.float32)
        ops.gather(rows, sampled[step].input_vertices[:NUM_ROWS], out=out, num_threads=threads)

    def fused(step: int) -> None:
        ids, block = sampled[step].input_vertices, sampled[step].blocks[0]
        scale = 1 / np.maximum(np.diff(block.indptr), 1).astype(np.float32)
        out = ops.empty((block.num_dst, graph.num_features), torch.float32)
        given = {"ids": ids, "dst_scale": scale, "out": out, "num_threads": threads}
        ops.aggregate(rows, block.indptr, block.indices, **given)

    return gather, fused


def peer(graph: Any, sampled: list[Any], means: Any) -> Any:
    """Return ``gather`` and ``fused`` of a peer; ``means(step, rows)`` aggregates."""
    from benchmarks.peers import features

    x = features(graph)
    ids = [torch.from_numpy(batch.input_vertices).long() for batch in sampled]

    def gather(step: int) -> None:
        torch.index_select(x, 0, ids[step][:NUM_ROWS])

    return gather, lambda step: means(step, torch.index_select(x, 0, ids[step]))


def torch_peer(graph: Any, sampled: list[Any], threads: int) -> Any:
    matrices = []
    for batch in sampled:
        block = batch.blocks[0]
        indptr, indices = (torch.from_numpy(a).long() for a in (block.indptr, block.indices))
        means = (1 / indptr.diff().clamp(min=1)).repeat_interleave(indptr.diff())
        shape = (block.num_dst, block.num_src)
        matrices.append(torch.sparse_csr_tensor(indptr, indices, means, size=shape))
    return peer(graph, sampled, lambda step, rows: matrices[step] @ rows)


def dgl_peer(graph: Any, sampled: list[Any], threads: int) -> Any:
    import dgl.ops

    from gnnscale.nn.adapters import to_dgl_blocks

    blocks = [to_dgl_blocks(batch)[0] for batch in sampled]
    return peer(graph, sampled, lambda step, rows: dgl.ops.copy_u_mean(blocks[step], rows))


LOADERS = {"gnnscale": gnnscale, "torch": torch_peer, "dgl": dgl_peer}


def run(options: argparse.Namespace) -> Any:
    figures = interleave(LOADERS, options)
    own = figures["gnnscale"]
    sizes = f"{own['num_src']:,.0f} rows into {own['num_dst']:,.0f}"
    columns = ["system", f"gather {NUM_ROWS:,} rows, ms", "ratio", f"{sizes}, ms", "ratio"]
    rows = []
    for name, each in figures.items():
        cells = [(each[key], each[key] / own[key]) for key in ("gather_s", "fused_s")]
        rows.append([name, *(c for s, ratio in cells for c in (f"{s * 1e3:.2f}", f"{ratio:.1f}x"))])
    show(f"Loading, {options.threads} threads", columns, rows)
    return figures
