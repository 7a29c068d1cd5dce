"""A module of PyG's, and one of DGL's, in our runtime beside the loop that its library shows.

The runtime trains each module as ``model=custom``; the loops are a loader and an optimizer. PyG's
module is also trained over this project's loader. Every figure is the median epoch, the first of
each round aside.
"""

import argparse
import statistics
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks import peers
from benchmarks.runner import composed, in_subprocess, installed, show, take, tell, timed, train

HIDDEN = 256
#: The systems, by library: in our runtime, and in a loop with the library's loader or with ours.
SYSTEMS = {"built-in": ["sage"], "PyG": ["pyg", "pyg-loop", "pyg-our-loop"]}
SYSTEMS |= {"DGL": ["dgl", "dgl-loop"]}
MODULES = {"pyg": "torch_geometric.nn:GraphSAGE", "dgl": f"{peers.__file__}:DglExample"}
_PLAIN = ("runtime.checkpoint=false", "runtime.inference=sampled")


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=3)
    parser.add_argument("--epochs", type=int, default=3, help="of a round; the first is aside")
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")


def in_runtime(system: str, epochs: int, options: list[str]) -> list[float]:
    chosen = [f"model={system}"]
    if system in MODULES:
        chosen = ["model=custom", f"model.module={MODULES[system]}", f"model.hidden={HIDDEN}"]
    found = train(*options, *chosen, *_PLAIN, f"epochs={epochs}", f"runtime.eval_every={epochs}")
    return [each["epoch_time_s"] for each in found.epochs]


def loop(system: str, epochs: int, options: list[str]) -> list[float]:
    config, _ = composed(*options)
    torch.set_num_threads(config.num_threads)
    graph = config.dataset.open()
    sizes = (graph.num_features, HIDDEN, graph.num_classes)
    with installed(system):
        model, losses = _of_library(system, graph, sizes, config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def epoch() -> None:
        for loss in losses():
            optimizer.zero_grad()
            loss.backward()
            loss.item()
            optimizer.step()

    return [timed(epoch)[0] for _ in range(epochs)]


def _of_library(system: str, graph: Any, sizes: tuple[int, int, int], config: Any) -> Any:
    """Return the model, and what yields the losses of an epoch's mini-batches."""
    seeds = torch.tensor(graph.train_idx, dtype=torch.int64)
    arguments = {"batch_size": config.batch_size, "shuffle": True}
    fanouts = list(config.sampler.fanouts)
    if system.startswith("pyg"):
        from torch_geometric.nn import GraphSAGE

        from gnnscale import NeighborLoader

        make = NeighborLoader if system == "pyg-our-loop" else peers.pyg_loader
        loader = make(graph, num_neighbors=fanouts, input_nodes=seeds, **arguments)
        model = GraphSAGE(sizes[0], sizes[1], len(fanouts), sizes[2])

        return model, lambda: (peers.pyg_loss(model, batch) for batch in loader)
    import dgl

    whole = peers.dgl_graph(graph)
    whole.ndata["feat"], whole.ndata["label"] = peers.features(graph), peers.labels(graph)
    ahead = {"prefetch_node_feats": ["feat"], "prefetch_labels": ["label"]}
    # DGL counts fan-outs from the inputs.
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], **ahead)
    loader = dgl.dataloading.DataLoader(whole, seeds, sampler, **arguments)
    model = peers.DglExample(*sizes)

    def losses() -> Iterator[torch.Tensor]:
        for _, _, blocks in loader:
            logits = model(blocks, blocks[0].srcdata["feat"])
            yield nn.functional.cross_entropy(logits, blocks[-1].dstdata["label"])

    return model, losses


def run(options: argparse.Namespace) -> Any:
    seconds: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for system in [each for systems in SYSTEMS.values() for each in systems]:
            tell(f"round {number + 1} of {options.rounds}: {system}")
            arguments = (system, options.epochs, options.options)
            own = partial(in_subprocess, loop) if "loop" in system else in_runtime
            try:
                found = own(*arguments)
            except subprocess.CalledProcessError:
                tell(f"{system} is left out")
                continue
            seconds.setdefault(system, []).extend(found[1:])
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    rows = []
    for library, systems in SYSTEMS.items():
        for name in (each for each in systems if each in medians):
            ratio = medians[name] / medians[systems[0]]
            rows.append([library, name, f"{medians[name]:.2f}", f"{ratio:.2f}"])
    columns = ["library", "loop", "s an epoch", "of ours"]
    show("Modules in our runtime and in their own loops", columns, rows)
    return medians
