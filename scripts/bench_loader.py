"""A PyG training loop with only its loader replaced, and the loaders alone.

    python scripts/bench_loader.py [--rounds 5] [--json FILE]

Two layers of PyG's SAGEConv, 256 hidden features, 1,024 seeds, fan-outs [25, 10]. Both loaders run
without worker processes; this project's has one thread in the background.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from benchmarking import FANOUTS, SEEDS, clock, interleave, open_graph, parser, save, serve, show

SYSTEMS = ["gnnscale", "pyg", "gnnscale-loop", "pyg-loop"]
HIDDEN = 256


def make_loader(system: str, graph: Any) -> Any:
    seeds = torch.tensor(graph.train_idx, dtype=torch.int64)
    if system.startswith("gnnscale"):
        from gnnscale import NeighborLoader

        return NeighborLoader(graph, FANOUTS, input_nodes=seeds, batch_size=SEEDS, shuffle=True)
    from peers import pyg_loader

    return pyg_loader(
        graph, num_neighbors=FANOUTS, input_nodes=seeds, batch_size=SEEDS, shuffle=True
    )


def endless(loader: Any) -> Iterator[Any]:
    """Yield the batches of one epoch after another."""
    while True:
        yield from loader


def loader_alone(system: str, graph: Any) -> Any:
    batches = endless(make_loader(system, graph))
    return lambda step: next(batches)


def training_loop(system: str, graph: Any) -> Any:
    from peers import pyg_sage

    batches = endless(make_loader(system, graph))
    model = pyg_sage(graph.num_features, graph.num_classes, HIDDEN)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def iteration(step: int) -> None:
        batch = next(batches)
        logits = model(batch)
        loss = torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return iteration


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    if options.worker:
        torch.set_num_threads(options.threads)
        graph = open_graph(options.store)
        make = training_loop if options.worker.endswith("-loop") else loader_alone
        work = make(options.worker, graph)
        serve(lambda number: {"s": clock(work, range(options.steps))})
        return
    figures = interleave(SYSTEMS, rounds=options.rounds, threads=options.threads)
    rows = []
    for own, peer, what in (
        ("gnnscale", "pyg", "loader alone"),
        ("gnnscale-loop", "pyg-loop", "training loop"),
    ):
        times = [figures[name]["s"] * 1e3 for name in (own, peer) if name in figures]
        ratio = [f"{times[1] / times[0]:.1f}x"] if len(times) == 2 else ["", ""]
        rows.append([what, *(f"{each:.1f}" for each in times), *ratio])
    columns = ["PyG GraphSAGE", "with ours, ms", "with PyG's, ms", "ratio"]
    show(f"NeighborLoader, {options.threads} threads", columns, rows)
    save(options.json, figures)


if __name__ == "__main__":
    main()
