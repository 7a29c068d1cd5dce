"""Test metrics of this project and of DGL, with the same data, split and hyper-parameters.

Hyper-parameters are those of the experiments in ``gnnscale/configs/experiment``. Both sides report
the test metric under the weights of the best validation epoch. Exit status 1: a difference is
larger than allowed.
"""

import argparse
import copy
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
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


def train_best(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    epochs: int,
    losses: Callable[[], Iterable[torch.Tensor]],
    measure: Callable[[str], float],
) -> float:
    """Train by the ``losses`` of an epoch; return the test metric of the best validation epoch."""

    @torch.no_grad()
    def metric(split: str) -> float:
        model.eval()
        return measure(split)

    best, weights = -1.0, model.state_dict()
    for _ in range(epochs):
        model.train()
        for loss in losses():
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if (found := metric("valid")) > best:
            best, weights = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return metric("test")


def opened(config: RunConfig) -> Any:
    """Return a run's graph, features, labels and labelled vertices of each split, as tensors."""
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.num_threads)
    graph = config.dataset.open()
    splits = {
        split: torch.from_numpy(labeled_vertices(graph, split)).long()
        for split in ("train", "valid", "test")
    }
    found = SimpleNamespace(graph=graph, x=features(graph).float(), y=labels(graph), **splits)

    def score_of(split: str, logits: torch.Tensor) -> float:
        vertices = getattr(found, split)
        return score(graph.metric, logits[vertices].numpy(), found.y[vertices].numpy())

    found.score = score_of
    return found


def train_dgl(*options: str) -> float:
    import dgl

    config, _ = composed(*options)
    check_dgl_does_the_same(config)
    dgl.seed(config.seed)
    given = opened(config)
    topology, num_layers = dgl_graph(given.graph), config.model.num_layers
    hidden = [config.model.hidden] * (num_layers - 1)
    widths = [given.graph.num_features, *hidden, given.graph.num_classes]
    model = DglSage(widths, config.model.dropout)
    # DGL counts fan-outs from the inputs, this project from the seeds.
    sampler = dgl.dataloading.NeighborSampler(list(config.sampler.fanouts)[::-1])

    def losses() -> Iterable[torch.Tensor]:
        order = given.train[torch.randperm(len(given.train))]
        for seeds in order.split(config.batch_size):
            inputs, outputs, blocks = sampler.sample_blocks(topology, seeds)
            yield functional.cross_entropy(model(blocks, given.x[inputs]), given.y[outputs])

    def measure(split: str) -> float:
        return given.score(split, model([topology] * num_layers, given.x))

    return train_best(model, config.optimizer.build(model), config.epochs, losses, measure)


def train_bf16(*options: str) -> Any:
    return train_gnnscale(*options, "runtime.compute_dtype=bfloat16")


SYSTEMS: dict[str, Callable[..., float]] = {
    **{"gnnscale": train_gnnscale, "gnnscale-bf16": train_bf16, "dgl": train_dgl}
}


def points_of(
    name: str, systems: Mapping[str, Callable[..., float]], options: Sequence[str], seeds: int
) -> dict[str, list[float]]:
    """Train every system with every seed in turn, and return the test metrics in points."""
    points: dict[str, list[float]] = {system: [] for system in systems}
    for seed in range(seeds):
        for system, train_system in systems.items():
            points[system].append(100 * train_system(*options, f"seed={seed}"))
            tell(f"{name} {system} seed {seed}: test {points[system][-1]:.2f}")
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


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, help="seeds 0 to N - 1 of each row, not its default")
    take(parser, threads=usable_cores(), data=data_folder())


def run(options: argparse.Namespace) -> Any:
    results, metrics = {}, {}
    for name in options.rows:
        row = ROWS[name]
        raw = (options.data / row.raw).resolve()
        chosen = [f"config={row.experiment}", f"num_threads={options.threads}"]
        chosen.append(f"dataset.raw='{raw}'")
        systems = {system: SYSTEMS[system] for system in row.systems}
        results[name] = points_of(name, systems, chosen, options.seeds or row.seeds)
        if row.published is not None:
            results[name]["published"] = [row.published]
        metrics[name] = composed(*chosen)[0].dataset.open().metric
    return report(metrics, results)


def report(metrics: dict[str, str], results: dict[str, dict[str, list[float]]]) -> Any:
    """Print tables, and return what is printed with differences that are larger than allowed."""
    rows = []
    for name, figures in results.items():
        for system, points in figures.items():
            spread = f"{statistics.stdev(points):.2f}" if len(points) > 1 else "-"
            mean = f"{statistics.fmean(points):.2f}"
            rows.append([f"{name}, {metrics[name]}", system, mean, spread, str(len(points))])
    show("Test metric, points", ["graph", "system", "mean", "std", "seeds"], rows)
    found = [each for name, figures in results.items() for each in differences(name, figures)]
    rows = []
    for each in found:
        cells = [f"{each.points:+.2f}", f"{each.standard_error:.2f}", each.limits]
        allowed = "yes" if each.allowed else "NO"
        rows.append([each.row, each.system, each.reference, *cells, allowed])
    columns = ["graph", "system", "reference", "difference", "error", "allowed", "is it"]
    show("Differences, points", columns, rows)
    return {
        "test_metric_points": results,
        "metrics": metrics,
        "differences": [{**asdict(each), "allowed": each.allowed} for each in found],
        "missed": [f"{e.row}: {e.system} - {e.reference}" for e in found if not e.allowed],
    }
