"""Loading: gather of feature rows, and fused load-aggregate against gather and sparse product.

    python scripts/bench_gather.py [--rounds 7] [--json FILE]

The rows are those of real mini-batches: each step another one, so that nothing is in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from benchmarking import FANOUTS, clock, interleave, open_graph, parser, save, seeds_of, serve, show

SYSTEMS = ["gnnscale", "torch", "dgl"]
NUM_ROWS = 129_000


def batches(graph: Any, steps: int) -> list[Any]:
    from gnnscale.sampler import NeighborSampler

    sampler = NeighborSampler(graph, fanouts=FANOUTS)
    return [sampler.sample(seeds_of(graph, step), step) for step in range(steps)]


def gnnscale(graph: Any, sampled: list[Any], threads: int) -> Any:
    from gnnscale import ops

    rows = (graph.features, graph.feature_dtype)

    def gather(step: int) -> None:
        out = ops.empty((NUM_ROWS, graph.num_features), torch.float32)
        ops.gather(rows, sampled[step].input_vertices[:NUM_ROWS], out=out, num_threads=threads)

    def fused(step: int) -> None:
        batch, block = sampled[step], sampled[step].blocks[0]
        ops.aggregate(
            rows,
            block.indptr,
            block.indices,
            ids=batch.input_vertices,
            dst_scale=1 / np.maximum(np.diff(block.indptr), 1).astype(np.float32),
            out=ops.empty((block.num_dst, graph.num_features), torch.float32),
            num_threads=threads,
        )

    return gather, fused


def torch_peer(graph: Any, sampled: list[Any], threads: int) -> Any:
    from peers import features

    x = features(graph)
    ids = [torch.from_numpy(batch.input_vertices).long() for batch in sampled]
    matrices = []
    for batch in sampled:
        block = batch.blocks[0]
        indptr, indices = (torch.from_numpy(a).long() for a in (block.indptr, block.indices))
        mean = 1 / indptr.diff().clamp(min=1)
        matrices.append(
            torch.sparse_csr_tensor(
                indptr,
                indices,
                mean.repeat_interleave(indptr.diff()),
                size=(block.num_dst, block.num_src),
            )
        )

    def gather(step: int) -> None:
        torch.index_select(x, 0, ids[step][:NUM_ROWS])

    def fused(step: int) -> None:
        matrices[step] @ torch.index_select(x, 0, ids[step])

    return gather, fused


def dgl_peer(graph: Any, sampled: list[Any], threads: int) -> Any:
    import dgl.ops
    from peers import features

    from gnnscale.model.adapters import to_dgl_blocks

    x = features(graph)
    ids = [torch.from_numpy(batch.input_vertices).long() for batch in sampled]
    blocks = [to_dgl_blocks(batch)[0] for batch in sampled]

    def gather(step: int) -> None:
        torch.index_select(x, 0, ids[step][:NUM_ROWS])

    def fused(step: int) -> None:
        dgl.ops.copy_u_mean(blocks[step], torch.index_select(x, 0, ids[step]))

    return gather, fused


LOADERS = {"gnnscale": gnnscale, "torch": torch_peer, "dgl": dgl_peer}


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    if options.worker:
        torch.set_num_threads(options.threads)
        graph = open_graph(options.store)
        sampled = batches(graph, options.steps)
        gather, fused = LOADERS[options.worker](graph, sampled, options.threads)
        block = sampled[0].blocks[0]
        steps = range(options.steps)
        serve(
            lambda number: {
                "gather_s": clock(gather, steps),
                "fused_s": clock(fused, steps),
                "num_src": block.num_src,
                "num_dst": block.num_dst,
            }
        )
        return
    figures = interleave(SYSTEMS, rounds=options.rounds, threads=options.threads)
    own = figures["gnnscale"]
    rows = [
        [
            name,
            f"{each['gather_s'] * 1e3:.2f}",
            f"{each['gather_s'] / own['gather_s']:.1f}x",
            f"{each['fused_s'] * 1e3:.2f}",
            f"{each['fused_s'] / own['fused_s']:.1f}x",
        ]
        for name, each in figures.items()
    ]
    sizes = f"{own['num_src']:,.0f} rows into {own['num_dst']:,.0f}"
    columns = ["system", f"gather {NUM_ROWS:,} rows, ms", "ratio", f"{sizes}, ms", "ratio"]
    show(f"Loading, {options.threads} threads", columns, rows)
    save(options.json, figures)


if __name__ == "__main__":
    main()
