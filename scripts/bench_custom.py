"""A module of PyG's, and one of DGL's, in our runtime beside the loop that its library shows.

    python scripts/bench_custom.py [--rounds 3] [--epochs 3] [--json FILE] [OPTION=VALUE ...]

Two layers of SAGEConv, 256 hidden features, on the default graph of ``gnnscale train`` or the one
that options name. The runtime trains each module as ``model=custom``; the loops are a loader and an
optimizer, without workers of their own. PyG's loader needs pyg-lib or torch-sparse, and is left out
without; its module is also trained over this project's loader. Every figure is the median epoch,
the first of each round aside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarking import save, show
from torch import nn

HIDDEN = 256
#: The systems, by library: in our runtime, and in a loop with the library's loader or with ours.
SYSTEMS = {
    "built-in": ["sage"],
    "PyG": ["pyg", "pyg-loop", "pyg-our-loop"],
    "DGL": ["dgl", "dgl-loop"],
}
MODULES = {"pyg": "torch_geometric.nn:GraphSAGE", "dgl": f"{Path(__file__).resolve()}:DGLSAGE"}
_PLAIN = ("runtime.checkpoint=false", "runtime.inference=sampled")


class DGLSAGE(nn.Module):
    """Two layers of DGL's SAGEConv, in the form of its examples."""

    def __init__(self, in_feats: int, n_hidden: int, n_classes: int) -> None:
        super().__init__()
        from dgl.nn import SAGEConv

        self.layers = nn.ModuleList(
            [SAGEConv(in_feats, n_hidden, "mean"), SAGEConv(n_hidden, n_classes, "mean")]
        )

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        x = self.layers[0](blocks[0], x).relu()
        return self.layers[1](blocks[1], x)


def in_runtime(system: str, epochs: int, options: list[str]) -> list[float]:
    """Return the seconds of each epoch of ``gnnscale train``."""
    chosen = [f"model={system}"]
    if system in MODULES:
        chosen = ["model=custom", f"model.module={MODULES[system]}", f"model.hidden={HIDDEN}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gnnscale", "train", *options, *chosen, *_PLAIN]
        command += [f"epochs={epochs}", f"runtime.eval_every={epochs}", f"hydra.run.dir={folder}"]
        run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if run.returncode:
            raise SystemExit(f"{' '.join(command)}\n{run.stderr}")
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch_time_s"] for line in lines]


def loop(system: str, epochs: int, options: list[str]) -> list[float]:
    """Return the seconds of each epoch of a library's own loop."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from gnnscale.core.hardware import usable_cores
    from gnnscale.options.config import typed
    from gnnscale.runtime.settings import TrainConfig

    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        config = typed(compose("train", options), TrainConfig)
    torch.set_num_threads(config.num_threads)
    graph = config.dataset.open()
    sizes = (graph.num_features, HIDDEN, graph.num_classes)
    model, batches = _of_library(system, graph, sizes, config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)
    seconds = []
    for _ in range(epochs):
        start = time.perf_counter()
        for logits, labels in batches():
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            loss.item()
            optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds


def _of_library(system: str, graph: Any, sizes: tuple[int, int, int], config: Any) -> Any:
    """Return the model, and what yields logits and labels of an epoch's mini-batches."""
    seeds = torch.tensor(graph.train_idx, dtype=torch.int64)
    arguments = {"batch_size": config.batch_size, "shuffle": True}
    fanouts = list(config.sampler.fanouts)
    if system.startswith("pyg"):
        import peers
        from torch_geometric.nn import GraphSAGE

        from gnnscale import NeighborLoader

        make = NeighborLoader if system == "pyg-our-loop" else peers.pyg_loader
        loader = make(graph, num_neighbors=fanouts, input_nodes=seeds, **arguments)
        model = GraphSAGE(sizes[0], sizes[1], len(fanouts), sizes[2])

        def of_pyg() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            for batch in loader:
                hops = {
                    "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
                    "num_sampled_edges_per_hop": batch.num_sampled_edges,
                }
                logits = model(batch.x, batch.edge_index, **hops)[: batch.batch_size]
                yield logits, batch.y[: batch.batch_size]

        return model, of_pyg
    import dgl
    import peers

    whole = peers.dgl_graph(graph)
    whole.ndata["feat"], whole.ndata["label"] = peers.features(graph), peers.labels(graph)
    # DGL counts fan-outs from the inputs.
    sampler = dgl.dataloading.NeighborSampler(
        fanouts[::-1], prefetch_node_feats=["feat"], prefetch_labels=["label"]
    )
    loader = dgl.dataloading.DataLoader(whole, seeds, sampler, **arguments)
    model = DGLSAGE(*sizes)

    def of_dgl() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _, _, blocks in loader:
            yield model(blocks, blocks[0].srcdata["feat"]), blocks[-1].dstdata["label"]

    return model, of_dgl


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=3, help="of a round; the first is aside")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments.add_argument("--loop", help=argparse.SUPPRESS)
    asked, options = arguments.parse_known_args()
    if asked.loop:
        print(json.dumps(loop(asked.loop, asked.epochs, options)))
        return
    seconds: dict[str, list[float]] = {}
    for number in range(asked.rounds):
        for system in [each for systems in SYSTEMS.values() for each in systems]:
            print(f"round {number + 1} of {asked.rounds}: {system}", file=sys.stderr)
            if "loop" not in system:
                found = in_runtime(system, asked.epochs, options)
            else:
                command = [sys.executable, __file__, "--loop", system]
                command += ["--epochs", str(asked.epochs), *options]
                run = subprocess.run(command, capture_output=True, text=True)
                if run.returncode:
                    print(f"{system} is left out: {run.stderr.splitlines()[-1]}", file=sys.stderr)
                    continue
                found = json.loads(run.stdout.splitlines()[-1])
            seconds.setdefault(system, []).extend(found[1:])
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    rows = []
    for library, systems in SYSTEMS.items():
        own = medians[systems[0]]
        for name in systems:
            if name in medians:
                ratio = f"{medians[name] / own:.2f}"
                rows.append([library, name, f"{medians[name]:.2f}", ratio])
    columns = ["library", "loop", "s an epoch", "of ours"]
    show("Modules in our runtime and in their own loops", columns, rows)
    save(asked.json, medians)


if __name__ == "__main__":
    main()
