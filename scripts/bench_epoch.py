"""Training iterations of GraphSAGE: sample, load, forward, backward, Adam.

    python scripts/bench_epoch.py [--rounds 7] [--avx2] [--json FILE]

Two layers, 256 hidden features, 1,024 seeds, fan-outs [25, 10], the same seeds for every system.
Each system runs in its own process, as its users run it; one that is not installed is left out. PyG
samples with pyg-lib or with torch-sparse.
"""

from __future__ import annotations

from typing import Any

import torch
from benchmarking import (
    FANOUTS,
    SEEDS,
    clock,
    installed,
    interleave,
    open_graph,
    parser,
    save,
    seeds_of,
    serve,
    show,
)

SYSTEMS = ["gnnscale", "gnnscale-bf16", "dgl", "pyg-lib", "torch-sparse"]
HIDDEN = 256


def gnnscale(graph: Any, threads: int, dtype: torch.dtype = torch.float32) -> Any:
    from gnnscale import ops
    from gnnscale.backend.loading import FeatureLoader
    from gnnscale.model import GraphSAGE
    from gnnscale.model.trainable import seed_loss
    from gnnscale.sampler import NeighborSampler

    ops.keep_freed_memory()
    sampler = NeighborSampler(graph, fanouts=FANOUTS, num_threads=threads)
    config = GraphSAGE(hidden=HIDDEN, dropout=0.0)
    model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
    loader = FeatureLoader(graph, model, num_threads=threads, compute_dtype=dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def iteration(step: int) -> None:
        batch = sampler.sample(seeds_of(graph, step), step)
        loss = seed_loss(graph, model(batch, loader.load(batch)), batch.seeds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return iteration


def dgl(graph: Any, threads: int) -> Any:
    from dgl.dataloading import NeighborSampler
    from peers import dgl_graph, dgl_sage, features, labels

    topology, x, y = dgl_graph(graph), features(graph), labels(graph)
    sampler = NeighborSampler(FANOUTS[::-1])
    model = dgl_sage(graph.num_features, graph.num_classes, HIDDEN)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def iteration(step: int) -> None:
        seeds = torch.from_numpy(seeds_of(graph, step)).long()
        inputs, outputs, blocks = sampler.sample_blocks(topology, seeds)
        logits = model(blocks, torch.index_select(x, 0, inputs))
        loss = torch.nn.functional.cross_entropy(logits, y[outputs])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return iteration


def pyg(graph: Any, library: str) -> Any:
    from peers import pyg_loader, pyg_sage, sample_with

    sample_with(library)
    order = torch.cat([torch.from_numpy(seeds_of(graph, step)).long() for step in range(190)])
    loader = pyg_loader(graph, num_neighbors=FANOUTS, input_nodes=order, batch_size=SEEDS)
    model = pyg_sage(graph.num_features, graph.num_classes, HIDDEN)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)
    batches = iter(loader)

    def iteration(step: int) -> None:
        batch = next(batches)
        loss = torch.nn.functional.cross_entropy(model(batch), batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return iteration


TRAINERS = {
    "gnnscale": gnnscale,
    "gnnscale-bf16": lambda graph, threads: gnnscale(graph, threads, torch.bfloat16),
    "dgl": dgl,
    "pyg-lib": lambda graph, threads: pyg(graph, "pyg-lib"),
    "torch-sparse": lambda graph, threads: pyg(graph, "torch-sparse"),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0], takes_avx2=True).parse_args()
    if options.worker:
        torch.set_num_threads(options.threads)
        with installed(options.worker):
            iteration = TRAINERS[options.worker](open_graph(options.store), options.threads)
        steps = options.steps
        serve(lambda number: {"s": clock(iteration, range(number * steps, (number + 1) * steps))})
        return
    figures = interleave(SYSTEMS, rounds=options.rounds, threads=options.threads, avx2=options.avx2)
    own = figures["gnnscale"]["s"]
    rows = [
        [name, f"{each['s'] * 1e3:.1f}", f"{each['s'] / own:.2f}x"]
        for name, each in figures.items()
    ]
    columns = ["system", "ms an iteration", "gnnscale is"]
    show(f"GraphSAGE, {options.threads} threads", columns, rows)
    save(options.json, figures)


if __name__ == "__main__":
    main()
