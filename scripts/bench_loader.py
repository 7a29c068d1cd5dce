"""A PyG training loop with only its loader replaced, and the loaders alone.

    python scripts/bench_loader.py [--rounds 5] [--avx2] [--json FILE]

Two layers of PyG's SAGEConv, 256 hidden features, 1,024 seeds, fan-outs [25, 10]. Both loaders run
without worker processes; this project's has one thread in the background. PyG samples with pyg-lib
or with torch-sparse; one that is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    serve,
    show,
)

LOADERS = ["gnnscale", "pyg-lib", "torch-sparse"]
HIDDEN = 256


def make_loader(system: str, graph: Any) -> Any:
    seeds = torch.tensor(graph.train_idx, dtype=torch.int64)
    if system == "gnnscale":
        from gnnscale import NeighborLoader

        return NeighborLoader(graph, FANOUTS, input_nodes=seeds, batch_size=SEEDS, shuffle=True)
    from peers import pyg_loader, sample_with

    sample_with(system)
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
    options = parser(__doc__.splitlines()[0], takes_avx2=True).parse_args()
    if options.worker:
        torch.set_num_threads(options.threads)
        graph = open_graph(options.store)
        system = options.worker.removesuffix("-loop")
        with installed(system):
            work = (loader_alone if system == options.worker else training_loop)(system, graph)
        serve(lambda number: {"s": clock(work, range(options.steps))})
        return
    systems = [*LOADERS, *(f"{name}-loop" for name in LOADERS)]
    figures = interleave(systems, rounds=options.rounds, threads=options.threads, avx2=options.avx2)
    rows = [_row(name, figures) for name in figures]
    columns = ["PyG GraphSAGE", "loader", "ms", "gnnscale is"]
    show(f"NeighborLoader, {options.threads} threads", columns, rows)
    save(options.json, figures)


def _row(name: str, figures: dict[str, dict[str, float]]) -> list[str]:
    loader = name.removesuffix("-loop")
    what, own = ("alone", "gnnscale") if loader == name else ("training loop", "gnnscale-loop")
    seconds = figures[name]["s"]
    return [what, loader, f"{seconds * 1e3:.1f}", f"{seconds / figures[own]['s']:.1f}x"]


if __name__ == "__main__":
    main()
