"""Test metrics of this project and of DGL, with the same data, split and hyper-parameters.

Hyper-parameters are those of the experiments in ``gnnscale/configs/experiment``. Both sides report
the test metric under the weights of the best validation epoch, over all neighbours. Exit status 1
says that a difference is larger than allowed.
"""

import argparse
import copy
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from benchmarks.peers import DglSage, dgl_graph, features, labels
from benchmarks.runner import composed, data_folder, show, take, tell, train
from gnnscale.core.errors import ConfigError
from gnnscale.core.hardware import usable_cores
from gnnscale.core.metrics import score
from gnnscale.nn import GraphSAGE
from gnnscale.run.config import RunConfig
from gnnscale.sampling import NeighborSampling
from gnnscale.sampling.seed_order import labeled_vertices


class Row(NamedTuple):
    """A graph to compare on, by an experiment of ``gnnscale/configs/experiment``.

    ``raw`` is its place in ``--data``, and ``published`` a mean of the literature, in points.
    """

    experiment: str
    raw: str
    seeds: int
    systems: tuple[str, ...]
    published: float | None = None


@dataclass(frozen=True)
class Difference:
    """How far a system is from a reference, in points, and the limits; no highest is None."""

    row: str
    system: str
    reference: str
    points: float
    standard_error: float
    lowest: float
    highest: float | None

    @property
    def allowed(self) -> bool:
        return self.points >= self.lowest and (self.highest is None or self.points <= self.highest)

    @property
    def limits(self) -> str:
        high = self.highest
        return f"at least {self.lowest:+}" if high is None else f"{self.lowest:+} to {high:+}"


OURS = ("gnnscale", "gnnscale-bf16")
ROWS = {
    # Kipf and Welling, table 2.
    "cora": Row("cora_gcn", "planetoid", 5, OURS, published=81.5),
    "musae": Row("musae_sage", "musae_git/git_web_ml.zip", 3, (*OURS, "dgl")),
    "tolokers": Row("tolokers_sage", "heterophilous", 5, (*OURS, "dgl")),
}
#: System, reference, and the lowest and highest difference allowed, in points.
LIMITS: tuple[tuple[str, str, float, float | None], ...] = (
    ("gnnscale", "published", -1.0, None),
    ("gnnscale", "dgl", -0.5, 0.5),
    ("gnnscale", "pyg", -1.0, 1.0),
    ("gnnscale-bf16", "gnnscale", -0.5, 0.5),
)


def train_gnnscale(*options: str) -> Any:
    return train(*options, "runtime.checkpoint=false").summary["test_metric"]


def check_dgl_does_the_same(config: RunConfig) -> None:
    followed = {
        "model": isinstance(config.model, GraphSAGE) and config.model.norm == "none",
        "sampler": isinstance(config.sampler, NeighborSampling) and not config.sampler.replace,
        "optimizer.schedule": config.optimizer.schedule == "constant",
        "runtime.eval_every": config.runtime.eval_every == 1,
        "runtime.patience": config.runtime.patience is None,
        "runtime.clip_norm": config.runtime.clip_norm is None,
        "runtime.inference": config.runtime.inference == "exact",
    }
    for option, same in followed.items():
        if not same:
            raise ConfigError(f"{option}: has a value that the training in DGL does not follow")


class Best:
    """The weights of the best epoch."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model, self._best, self._weights = model, -1.0, model.state_dict()

    def note(self, metric: float) -> None:
        if metric > self._best:
            self._best, self._weights = metric, copy.deepcopy(self._model.state_dict())

    def load(self) -> None:
        self._model.load_state_dict(self._weights)


def train_dgl(*options: str) -> float:
    import dgl

    config, _ = composed(*options)
    check_dgl_does_the_same(config)
    torch.manual_seed(config.seed)
    dgl.seed(config.seed)
    torch.set_num_threads(config.num_threads)
    graph = config.dataset.open()
    topology, x, y = dgl_graph(graph), features(graph).float(), labels(graph)
    of_splits = (labeled_vertices(graph, split) for split in ("train", "valid", "test"))
    train_idx, valid_idx, test_idx = (torch.from_numpy(each).long() for each in of_splits)
    hidden = [config.model.hidden] * (config.model.num_layers - 1)
    model = DglSage([graph.num_features, *hidden, graph.num_classes], config.model.dropout)
    optimizer = config.optimizer.build(model)
    # DGL counts fan-outs from the inputs, this project from the seeds.
    sampler = dgl.dataloading.NeighborSampler(list(config.sampler.fanouts)[::-1])

    @torch.no_grad()
    def measure(vertices: torch.Tensor) -> float:
        model.eval()
        logits = model([topology] * config.model.num_layers, x)
        return score(graph.metric, logits[vertices].numpy(), y[vertices].numpy())

    best = Best(model)
    for _ in range(config.epochs):
        model.train()
        for seeds in train_idx[torch.randperm(len(train_idx))].split(config.batch_size):
            inputs, outputs, blocks = sampler.sample_blocks(topology, seeds)
            loss = functional.cross_entropy(model(blocks, x[inputs]), y[outputs])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        best.note(measure(valid_idx))
    best.load()
    return measure(test_idx)


#: How each system trains, and its overrides of the experiment.
SYSTEMS: dict[str, tuple[Callable[..., float], list[str]]] = {
    "gnnscale": (train_gnnscale, []),
    "gnnscale-bf16": (train_gnnscale, ["runtime.compute_dtype=bfloat16"]),
    "dgl": (train_dgl, []),
}


def points_of(row: Row, system: str, overrides: Sequence[str]) -> list[float]:
    points = []
    train_system, own = SYSTEMS[system]
    for seed in range(row.seeds):
        chosen = (f"config={row.experiment}", *overrides, *own, f"seed={seed}")
        points.append(100 * train_system(*chosen))
        tell(f"{row.experiment} {system} seed {seed}: test {points[-1]:.2f}")
    return points


def differences(name: str, figures: dict[str, list[float]]) -> list[Difference]:
    found = []
    for system, reference, lowest, highest in LIMITS:
        if system in figures and reference in figures:
            mine, theirs = figures[system], figures[reference]
            points = statistics.fmean(mine) - statistics.fmean(theirs)
            error = (_squared_error(mine) + _squared_error(theirs)) ** 0.5
            found.append(Difference(name, system, reference, points, error, lowest, highest))
    return found


def _squared_error(points: Sequence[float]) -> float:
    return statistics.variance(points) / len(points) if len(points) > 1 else 0.0


def print_tables(metrics: dict[str, str], results: Any, found: list[Difference]) -> None:
    rows = []
    for name, figures in results.items():
        for system, points in figures.items():
            spread = f"{statistics.stdev(points):.2f}" if len(points) > 1 else "-"
            mean = f"{statistics.fmean(points):.2f}"
            rows.append([f"{name}, {metrics[name]}", system, mean, spread, str(len(points))])
    show("Test metric, points", ["graph", "system", "mean", "std", "seeds"], rows)
    columns = ["graph", "system", "reference", "difference", "error", "allowed", "is it"]
    rows = []
    for each in found:
        figures = (f"{each.points:+.2f}", f"{each.standard_error:.2f}", each.limits)
        allowed = "yes" if each.allowed else "NO"
        rows.append([each.row, each.system, each.reference, *figures, allowed])
    show("Differences, points", columns, rows)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, help="seeds 0 to N - 1 of each row, not its default")
    take(parser, threads=usable_cores(), data=data_folder())


def run(options: argparse.Namespace) -> Any:
    results: dict[str, dict[str, list[float]]] = {}
    metrics: dict[str, str] = {}
    found: list[Difference] = []
    for name in options.rows:
        row = ROWS[name]
        if options.seeds is not None:
            row = row._replace(seeds=options.seeds)
        raw = (options.data / row.raw).resolve()
        overrides = [f"num_threads={options.threads}", f"dataset.raw='{raw}'"]
        figures = {system: points_of(row, system, overrides) for system in row.systems}
        if row.published is not None:
            figures["published"] = [row.published]
        config, _ = composed(f"config={row.experiment}", *overrides)
        metrics[name] = config.dataset.open().metric
        results[name] = figures
        found += differences(name, figures)
    return report(metrics, results, found)


def report(metrics: dict[str, str], results: Any, found: list[Difference]) -> Any:
    """Print tables, and return what is printed with differences that are larger than allowed."""
    print_tables(metrics, results, found)
    return {
        "test_metric_points": results,
        "metrics": metrics,
        "differences": [{**asdict(each), "allowed": each.allowed} for each in found],
        "missed": [f"{e.row}: {e.system} - {e.reference}" for e in found if not e.allowed],
    }
