"""Test metrics of every model here and in PyG, on whole graphs, with the same hyper-parameters.

A step trains all training vertices with all their neighbours, so that no sampling comes between.
PyG's module is what ``gnnscale export format=pyg`` prints, with dropout of hidden rows, and begins
with PyG's own initial weights, or with those of this project (``--start gnnscale``): a difference
that is left then is one of training. Both sides report the test metric under the weights of the
best validation epoch. Exit status 1 says that a mean is further from PyG's than allowed.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from benchmarks.cases.accuracy import Best, Difference, differences, report, train_gnnscale
from benchmarks.peers import features, labels
from benchmarks.runner import composed, data_folder, take
from gnnscale.core.hardware import usable_cores
from gnnscale.core.metrics import score
from gnnscale.inference.export.pyg_modules import PYG
from gnnscale.sampling.seed_order import labeled_vertices


class Row(NamedTuple):
    """A graph, and how long models train on it."""

    raw: str  #: its place in ``--data``
    options: tuple[str, ...]


ROWS = {
    "cora": Row(
        "planetoid",
        (
            *("dataset=planetoid", "dataset.name=cora", "dataset.normalize_features=true"),
            *("epochs=100", "optimizer.weight_decay=5e-4"),
        ),
    ),
    "musae": Row("musae_git/git_web_ml.zip", ("dataset=musae", "epochs=30")),
    "tolokers": Row(
        "heterophilous", ("dataset=heterophilous", "dataset.name=tolokers", "epochs=40")
    ),
}
#: One step an epoch, of all training vertices with all neighbours.
COMMON = ("sampler=full", "batch_size=1000000", "optimizer.lr=0.01")
WIDE = ("model.hidden=32", "model.dropout=0.5")
MODELS: dict[str, tuple[str, ...]] = {
    "gatv2": ("model=gatv2", *WIDE, "model.num_heads=4"),
    "sage-pool": ("model=sage", *WIDE, "model.aggregator=pool"),
    "sgc": ("model=sgc",),
    "appnp": ("model=appnp", *WIDE),
    "gcn-residual": (
        *("model=gcn", *WIDE, "model.residual=true"),
        *("model.num_layers=3", "sampler.fanouts=[-1,-1,-1]"),
    ),
    "sage-jumping": ("model=sage", *WIDE, "model.jumping=cat"),
}


def pyg_module(config: Any, num_features: int, num_classes: int, *, start: str = "pyg") -> Any:
    """Return the module that an export prints, as PyG initialises it, or as a run here begins."""
    torch.manual_seed(config.seed)
    model = config.model.build(num_features=num_features, num_classes=num_classes)
    program = PYG.snippet(config.model, model.widths, Path("weights"))
    lines = [line for line in program.splitlines() if not line.startswith(("model.load", "logits"))]
    made: dict[str, Any] = {}
    torch.manual_seed(config.seed)
    exec("\n".join(lines), made)
    for each in getattr(made["model"], "convs", ()):
        # PyG's basic model drops attention, too, which is not dropped here.
        each.dropout = 0.0
    if config.model.name == "APPNP":
        # Its perceptron is of torch's layers and not of PyG's: Glorot, as PyG's convolutions are.
        for each in (made["model"].lin1, made["model"].lin2):
            torch.nn.init.xavier_uniform_(each.weight)
            torch.nn.init.zeros_(each.bias)
    if start == "gnnscale":
        made["model"].load_state_dict(PYG.weights(config.model, model))
    return made["model"]


def edges(graph: Any, *, in_rows: bool) -> torch.Tensor:
    """Return the edges as PyG takes them: ``in_rows`` as a sparse matrix, or ``[2, num_edges]``.

    Given a matrix, PyG multiplies it with the rows of vertices. Otherwise it makes a row for every
    edge, which takes 9 GB for the features of MUSAE. Its attention takes no matrix.
    """
    indptr, indices = (np.array(each, np.int64) for each in (graph.indptr, graph.indices))
    if not in_rows:
        dst = np.repeat(np.arange(graph.num_vertices), np.diff(indptr))
        return torch.from_numpy(np.stack([indices, dst]))
    lists, values = map(torch.from_numpy, (indptr, indices)), torch.ones(len(indices))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        size = [graph.num_vertices] * 2
        return torch.sparse_csr_tensor(*lists, values, size=size, check_invariants=True)


def train_pyg(*options: str, start: str = "pyg") -> float:
    """Train in PyG, a step an epoch, and return the test metric."""
    config, _ = composed(*options)
    torch.set_num_threads(config.num_threads)
    graph = config.dataset.open()
    x, y = features(graph).float(), labels(graph)
    of_splits = (labeled_vertices(graph, split) for split in ("train", "valid", "test"))
    train_idx, valid_idx, test_idx = (torch.from_numpy(each).long() for each in of_splits)
    edge_index = edges(graph, in_rows=config.model.name != "GATv2")
    model = pyg_module(config, graph.num_features, graph.num_classes, start=start)
    rate, decay = config.optimizer.lr, config.optimizer.weight_decay
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)

    @torch.no_grad()
    def measure(vertices: torch.Tensor, logits: torch.Tensor) -> float:
        return score(graph.metric, logits[vertices].numpy(), y[vertices].numpy())

    best = Best(model)
    for _ in range(config.epochs):
        model.train()
        loss = functional.cross_entropy(model(x, edge_index)[train_idx], y[train_idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            best.note(measure(valid_idx, model(x, edge_index)))
    best.load()
    with torch.no_grad():
        return measure(test_idx, model(x, edge_index))


def points_of(name: str, chosen: Sequence[str], seeds: int, start: str) -> dict[str, list[float]]:
    """Return the test metrics of both sides, in points, seed by seed."""
    found: dict[str, list[float]] = {"gnnscale": [], "pyg": []}
    for seed in range(seeds):
        peer = partial(train_pyg, start=start)
        for system, train in (("gnnscale", train_gnnscale), ("pyg", peer)):
            begin = time.perf_counter()
            found[system].append(100 * train(*chosen, f"seed={seed}"))
            seconds = time.perf_counter() - begin
            line = f"{name} {system} seed {seed}: test {found[system][-1]:.2f}, {seconds:.0f} s"
            sys.stderr.write(f"{line}\n")
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each model on each side")
    parser.add_argument("--start", choices=["pyg", "gnnscale"], default="pyg", help="PyG's weights")
    take(parser, threads=usable_cores(), data=data_folder())


def run(options: argparse.Namespace) -> Any:
    results: dict[str, dict[str, list[float]]] = {}
    metrics: dict[str, str] = {}
    found: list[Difference] = []
    for name in options.rows:
        row = ROWS[name]
        raw = (options.data / row.raw).resolve()
        common = [*row.options, *COMMON, f"num_threads={options.threads}", f"dataset.raw='{raw}'"]
        metric = composed(*common)[0].dataset.open().metric
        for model in options.models:
            each = f"{name} {model}"
            metrics[each] = metric
            results[each] = points_of(each, [*common, *MODELS[model]], options.seeds, options.start)
            found += differences(each, results[each])
    return report(metrics, results, found)
