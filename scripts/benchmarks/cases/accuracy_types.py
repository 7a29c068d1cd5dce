"""Macro and micro F1 of models over ACM, here and in PyG, with the same hyper-parameters.

A step trains all training vertices with all their neighbors. Both sides begin with the same
weights, on which results depend where labels are few: those of HGT by 6 points. With ``--start
pyg``, PyG's convolutions have PyG's own initial weights, which are of the same distributions. Both
sides report the test metrics under the weights of the best validation macro F1. Exit status 1: a
mean is further from PyG's than allowed.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases.accuracy import report, train_best
from benchmarks.runner import composed, data_folder, take, tell, train
from gnnscale.core.hardware import usable_cores
from gnnscale.core.metrics import score
from gnnscale.graph import Graph
from gnnscale.nn.typed.pyg_weights import to_pyg
from gnnscale.run.typed_inputs import read_by_type
from gnnscale.sampling import labeled_vertices

MODELS = {
    "rgcn": ("model=rgcn",),
    "rsage": ("model=rsage",),
    "rgat": ("model=rgat", "model.num_heads=4"),
    # Weight decay keeps HGT from learning, here and in PyG.
    "hgt": (
        *("model=hgt", "model.num_heads=4"),
        *("optimizer.lr=0.01", "optimizer.weight_decay=0"),
    ),
}
COMMON = (
    *("dataset=heco", "sampler=full", "batch_size=1000000", "model.hidden=64", "model.dropout=0.5"),
    *("epochs=100", "optimizer.lr=0.005", "optimizer.weight_decay=0.001"),
    "metrics=[macro_f1,micro_f1]",
)
METRICS = ("macro_f1", "micro_f1")


class PygModel(nn.Module):
    """Linear encoders, PyG's convolutions with ReLU and dropout in between, and HGT's outputs."""

    def __init__(self, config: Any, graph: Graph, *, start: str) -> None:
        """Build the model; ``start`` pyg: convolutions have PyG's initial weights."""
        super().__init__()
        types = graph.input_types
        assert types is not None
        schema, widths = types.schema, tuple(types.widths.values())
        model = config.model.build_typed(
            schema=schema, widths=widths, num_classes=graph.num_classes
        )
        self.encoders, self.outputs = model.encoders, model.outputs
        self.convs = nn.ModuleList(to_pyg(layer, schema) for layer in model.layers)
        for conv in self.convs if start == "pyg" else ():
            conv.reset_parameters()
        features: Any = graph.features
        self._features = [torch.tensor(matrix.rows).float() for matrix in features.matrices]
        self.rows = nn.ParameterDict(
            {
                str(number): nn.Parameter(self._features[number].clone())
                for number in features.learned
            }
        )
        self._names = graph.vertex_types
        self._dropout = config.model.dropout
        self._activates_inputs = config.model.activates_inputs
        self._edges = edges_by_type(graph)
        self._joint = joint_edges(graph)

    def forward(self) -> torch.Tensor:
        """Return the outputs of the vertices of all types, type after type."""
        rows = [
            encoder(self.rows.get(str(number), x))
            for number, (encoder, x) in enumerate(zip(self.encoders, self._features, strict=True))
        ]
        if self._activates_inputs:
            rows = [x.relu() for x in rows]
        for index, conv in enumerate(self.convs):
            rows = self._apply(conv, rows)
            if index + 1 < len(self.convs) or self.outputs:
                rows = [x if self._activates_inputs else x.relu() for x in rows]
                rows = [functional.dropout(x, self._dropout, self.training) for x in rows]
        if self.outputs:
            rows = [layer(x) for layer, x in zip(self.outputs, rows, strict=True)]
        return torch.cat(rows)

    def _apply(self, conv: nn.Module, rows: list[torch.Tensor]) -> list[torch.Tensor]:
        if type(conv).__name__ == "RGCNConv":
            out = conv(torch.cat(rows), *self._joint)
            return list(out.split([len(x) for x in rows]))
        by_name = conv(dict(zip(self._names, rows, strict=True)), self._edges)
        return [by_name[name] for name in self._names]


def edges_by_type(graph: Graph) -> dict[tuple[str, str, str], torch.Tensor]:
    """Return the edges of each type, ids within types, as PyG's ``HeteroConv`` takes them."""
    from gnnscale.data import to_pyg as graph_to_pyg

    data = graph_to_pyg(graph)
    return {triple: data[triple].edge_index for triple in data.edge_types}


def joint_edges(graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all edges with their types, and a self-edge of a type of its own for each vertex."""
    schema, parts, types = graph.schema, [], []
    for number, (triple, index) in enumerate(edges_by_type(graph).items()):
        firsts = [schema.first_vertices[graph.vertex_types.index(triple[end])] for end in (0, 2)]
        parts.append(index + torch.tensor(firsts)[:, None])
        types.append(torch.full((index.shape[1],), number))
    vertices = torch.arange(graph.num_vertices)
    parts.append(torch.stack([vertices, vertices]))
    own = np.asarray(schema.type_of(vertices.numpy())) + len(schema.edge_types)
    types.append(torch.from_numpy(own))
    return torch.cat(parts, dim=1), torch.cat(types)


def train_gnnscale(*options: str) -> dict[str, float]:
    """Train here, and return the test metrics."""
    metrics: dict[str, float] = train(*options, "runtime.checkpoint=false").summary["test_metrics"]
    return metrics


def train_pyg(*options: str, start: str = "gnnscale") -> dict[str, float]:
    """Train in PyG, a step an epoch, and return the test metrics; see ``PygModel``."""
    config, _ = composed(*options)
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.num_threads)
    graph = read_by_type(config.model, config.dataset.open(), seed=config.seed)
    labels = torch.from_numpy(np.array(graph.labels))
    ids = {
        part: torch.from_numpy(np.array(labeled_vertices(graph, part))).long()
        for part in ("train", "valid", "test")
    }
    model = PygModel(config, graph, start=start)
    rate, decay = config.optimizer.lr, config.optimizer.weight_decay
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)

    def losses() -> Iterable[torch.Tensor]:
        yield functional.cross_entropy(model()[ids["train"]], labels[ids["train"]])

    def measure(split: str, metric: str = METRICS[0]) -> float:
        return score(metric, model()[ids[split]].numpy(), labels[ids[split]].numpy())

    train_best(model, optimizer, config.epochs, losses, measure)
    with torch.no_grad():
        return {metric: measure("test", metric) for metric in METRICS}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the case."""
    parser.add_argument("--labels", nargs="+", type=int, default=[20, 60], help="labels a class")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=5, help="runs of each model on each side")
    parser.add_argument("--start", choices=["gnnscale", "pyg"], default="gnnscale", help="weights")
    take(parser, threads=usable_cores(), data=data_folder())


def run(options: argparse.Namespace) -> Any:
    """Train all models on both sides, and print tables."""
    results, metrics = {}, {}
    systems = {"gnnscale": train_gnnscale, "pyg": partial(train_pyg, start=options.start)}
    raw = (options.data / "relational" / "acm").resolve()
    for count in options.labels:
        common = [*COMMON, f"dataset.labels_per_class={count}", f"dataset.raw='{raw}'"]
        common += [f"num_threads={options.threads}"]
        for model in options.models:
            name = f"ACM, {count} labels a class, {model}"
            points = points_by_metric(name, systems, [*common, *MODELS[model]], options.seeds)
            for metric, figures in points.items():
                metrics[f"{name} {metric}"] = metric
                results[f"{name} {metric}"] = figures
    return report(metrics, results)


def points_by_metric(
    name: str,
    systems: Mapping[str, Callable[..., dict[str, float]]],
    options: list[str],
    seeds: int,
) -> dict[str, dict[str, list[float]]]:
    """Train all systems with every seed in turn; return the test metrics in points."""
    points: dict[str, dict[str, list[float]]] = {
        metric: {system: [] for system in systems} for metric in METRICS
    }
    for seed in range(seeds):
        for system, train_system in systems.items():
            for metric, value in train_system(*options, f"seed={seed}").items():
                points[metric][system].append(100 * value)
            tell(f"{name} {system} seed {seed}: {points[METRICS[0]][system][-1]:.2f}")
    return points
