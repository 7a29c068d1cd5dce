"""Test metrics of every model here and in PyG, on whole graphs, with the same hyper-parameters.

A step trains all training vertices with all their neighbours. PyG's module is what ``gnnscale
export format=pyg`` prints; with ``--start gnnscale`` it begins with this project's initial weights.
Both sides report the test metric under the weights of the best validation epoch. Exit status 1: a
mean is further from PyG's than allowed.
"""

import argparse
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from benchmarks.cases.accuracy import opened, points_of, report, train_best, train_gnnscale
from benchmarks.runner import composed, data_folder, take
from gnnscale.core.hardware import usable_cores
from gnnscale.inference.export.module_export import Program
from gnnscale.inference.export.pyg_modules import PYG


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
    program = PYG.snippet(Program(config=config.model, widths=model.widths, file=Path("weights")))
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

    Without a matrix PyG makes a row for every edge; its attention takes no matrix.
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
    given = opened(config)
    edge_index = edges(given.graph, in_rows=config.model.name != "GATv2")
    sizes = (given.graph.num_features, given.graph.num_classes)
    model = pyg_module(config, *sizes, start=start)
    rate, decay = config.optimizer.lr, config.optimizer.weight_decay
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)

    def losses() -> Iterable[torch.Tensor]:
        logits = model(given.x, edge_index)
        yield functional.cross_entropy(logits[given.train], given.y[given.train])

    def measure(split: str) -> float:
        return given.score(split, model(given.x, edge_index))

    return train_best(model, optimizer, config.epochs, losses, measure)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each model on each side")
    parser.add_argument("--start", choices=["pyg", "gnnscale"], default="pyg", help="PyG's weights")
    take(parser, threads=usable_cores(), data=data_folder())


def run(options: argparse.Namespace) -> Any:
    results, metrics = {}, {}
    systems = {"gnnscale": train_gnnscale, "pyg": partial(train_pyg, start=options.start)}
    for name in options.rows:
        row = ROWS[name]
        raw = (options.data / row.raw).resolve()
        common = [*row.options, *COMMON, f"num_threads={options.threads}", f"dataset.raw='{raw}'"]
        metric = composed(*common)[0].dataset.open().metric
        for model in options.models:
            each, chosen = f"{name} {model}", [*common, *MODELS[model]]
            metrics[each] = metric
            results[each] = points_of(each, systems, chosen, options.seeds)
    return report(metrics, results)
