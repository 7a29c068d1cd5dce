"""Test metrics of this project and of DGL, with the same data, split and hyper-parameters.

    python scripts/compare_accuracy.py [--rows cora musae tolokers] [--data DIR] [--json FILE]

Hyper-parameters are those of the experiments in ``gnnscale/configs/experiment``. Both sides report
the test metric under the weights of the best validation epoch, over all neighbours. Exit status 1
says that a difference is larger than allowed.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnnscale.core.hardware import let_idle_threads_sleep, usable_cores

let_idle_threads_sleep()  # which only works before torch is imported

# ruff: noqa: E402
import torch
from benchmarking import save, show
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from torch.nn import functional

from gnnscale.core.errors import ConfigError
from gnnscale.core.metrics import score
from gnnscale.model import GraphSAGE
from gnnscale.options.config import typed
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.records import EpochRecord, StepRecord, TrainResult
from gnnscale.runtime.train import train
from gnnscale.sampler import NeighborSampling
from gnnscale.sampler.seed_order import labelled_vertices

#: Is told the epoch, from 1, and the validation metric.
Progress = Callable[[int, float], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A graph to compare on.

    Attributes:
        experiment: of ``gnnscale/configs/experiment``.
        raw: where a folder of raw files (``--data``) has it.
        seeds: runs of each system.
        systems: keys of ``SYSTEMS``.
        published: mean test metric in the literature, in points.
    """

    experiment: str
    raw: str
    seeds: int
    systems: tuple[str, ...]
    published: float | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far a system is from a reference, in points.

    Attributes:
        points: system minus reference.
        standard_error: of ``points``.
        lowest: limit.
        highest: limit, None where there is none.
    """

    row: str
    system: str
    reference: str
    points: float
    standard_error: float
    lowest: float
    highest: float | None

    @property
    def allowed(self) -> bool:
        """Whether the difference is inside its limits."""
        return self.points >= self.lowest and (self.highest is None or self.points <= self.highest)

    @property
    def limits(self) -> str:
        """The limits in words."""
        if self.highest is None:
            return f"at least {self.lowest:+}"
        return f"{self.lowest:+} to {self.highest:+}"


ROWS = {
    # Kipf and Welling, table 2.
    "cora": Row(
        experiment="cora_gcn",
        raw="planetoid",
        seeds=5,
        systems=("gnnscale", "gnnscale-bf16"),
        published=81.5,
    ),
    "musae": Row(
        experiment="musae_sage",
        raw="musae_git/git_web_ml.zip",
        seeds=3,
        systems=("gnnscale", "gnnscale-bf16", "dgl"),
    ),
    "tolokers": Row(
        experiment="tolokers_sage",
        raw="heterophilous",
        seeds=5,
        systems=("gnnscale", "gnnscale-bf16", "dgl"),
    ),
}
#: System, reference, and the lowest and highest difference allowed, in points.
LIMITS: tuple[tuple[str, str, float, float | None], ...] = (
    ("gnnscale", "published", -1.0, None),
    ("gnnscale", "dgl", -0.5, 0.5),
    ("gnnscale-bf16", "gnnscale", -0.5, 0.5),
)


class Observer:
    """Hands the validation metric on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def started(self, run: TrainResult) -> None:
        """Nothing to hand on."""

    def stepped(self, record: StepRecord) -> None:
        """Nothing to hand on."""

    def trained(self) -> None:
        """Nothing to hand on."""

    def traced(self, spans: Any) -> None:
        pass

    def finished_epoch(self, record: EpochRecord) -> None:
        """Hand on the metric, where the epoch was validated."""
        if record.valid_metric is not None:
            self._progress(record.epoch, record.valid_metric)


def train_gnnscale(config: TrainConfig, progress: Progress) -> float:
    """Train as ``gnnscale train`` does and return the test metric."""
    with tempfile.TemporaryDirectory(prefix="gnnscale-accuracy-") as directory:
        result = train(config, Path(directory), Observer(progress), options={})
    assert result.test_metric is not None
    return result.test_metric


class DglSage(torch.nn.Module):
    """DGL's SAGEConv in layers, ReLU and dropout between them, as in DGL's own examples."""

    def __init__(self, widths: Sequence[int], dropout: float) -> None:
        from dgl.nn import SAGEConv

        super().__init__()
        self.layers = torch.nn.ModuleList(
            SAGEConv(widths[i], widths[i + 1], "mean") for i in range(len(widths) - 1)
        )
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, blocks: Sequence[Any], x: torch.Tensor) -> torch.Tensor:
        """Return the rows of the last block's destinations."""
        for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            if index:
                x = self.dropout(functional.relu(x))
            x = layer(block, x)
        return x


def check_dgl_does_the_same(config: TrainConfig) -> None:
    """Refuse options that ``train_dgl`` does not follow.

    Raises:
        ConfigError: there is one.
    """
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


def train_dgl(config: TrainConfig, progress: Progress) -> float:
    """Train GraphSAGE in DGL with the same hyper-parameters and return the test metric."""
    import dgl
    from peers import dgl_graph, features, labels

    check_dgl_does_the_same(config)
    torch.manual_seed(config.seed)
    dgl.seed(config.seed)
    torch.set_num_threads(config.num_threads)
    graph = config.dataset.open()
    topology, x, y = dgl_graph(graph), features(graph).float(), labels(graph)
    train_idx, valid_idx, test_idx = (
        torch.from_numpy(labelled_vertices(graph, split)).long()
        for split in ("train", "valid", "test")
    )
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

    best, best_weights = -1.0, model.state_dict()
    for epoch in range(1, config.epochs + 1):
        model.train()
        for seeds in train_idx[torch.randperm(len(train_idx))].split(config.batch_size):
            inputs, outputs, blocks = sampler.sample_blocks(topology, seeds)
            loss = functional.cross_entropy(model(blocks, x[inputs]), y[outputs])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        valid = measure(valid_idx)
        if valid > best:
            best, best_weights = valid, copy.deepcopy(model.state_dict())
        progress(epoch, valid)
    model.load_state_dict(best_weights)
    return measure(test_idx)


#: How each system trains, and its overrides of the experiment.
SYSTEMS: dict[str, tuple[Callable[[TrainConfig, Progress], float], list[str]]] = {
    "gnnscale": (train_gnnscale, []),
    "gnnscale-bf16": (train_gnnscale, ["runtime.compute_dtype=bfloat16"]),
    "dgl": (train_dgl, []),
}


def experiment(name: str, overrides: Sequence[str]) -> TrainConfig:
    """Return the options of a shipped experiment."""
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        options = compose("train", [f"experiment={name}", *overrides])
    return typed(options, TrainConfig)


def reporter(label: str, epochs: int) -> Progress:
    """Return a progress function that prints a line every few seconds."""
    last = time.monotonic()

    def progress(epoch: int, valid: float) -> None:
        nonlocal last
        if time.monotonic() - last > 5:
            last = time.monotonic()
            print(f"{label}: epoch {epoch}/{epochs}, valid {valid:.4f}", file=sys.stderr)

    return progress


def run(row: Row, system: str, overrides: Sequence[str]) -> list[float]:
    """Return a system's test metrics, in points, one for each seed."""
    points = []
    train_system, own = SYSTEMS[system]
    for seed in range(row.seeds):
        config = experiment(
            row.experiment, [*overrides, *own, f"seed={seed}", "runtime.checkpoint=false"]
        )
        label = f"{row.experiment} {system} seed {seed}"
        start = time.monotonic()
        points.append(100 * train_system(config, reporter(label, config.epochs)))
        seconds = time.monotonic() - start
        print(f"{label}: test {points[-1]:.2f}, {seconds:.0f} s", file=sys.stderr)
    return points


def differences(name: str, figures: dict[str, list[float]]) -> list[Difference]:
    """Compare the systems of a row, whose figures are test metrics in points."""
    return [
        Difference(
            row=name,
            system=system,
            reference=reference,
            points=statistics.fmean(figures[system]) - statistics.fmean(figures[reference]),
            standard_error=sum(_squared_error(figures[each]) for each in (system, reference))
            ** 0.5,
            lowest=lowest,
            highest=highest,
        )
        for system, reference, lowest, highest in LIMITS
        if system in figures and reference in figures
    ]


def _squared_error(points: Sequence[float]) -> float:
    return statistics.variance(points) / len(points) if len(points) > 1 else 0.0


def print_tables(
    metrics: dict[str, str], results: dict[str, dict[str, list[float]]], found: list[Difference]
) -> None:
    """Show the figures, then what was compared."""
    rows = []
    for name, figures in results.items():
        for system, points in figures.items():
            spread = f"{statistics.stdev(points):.2f}" if len(points) > 1 else "-"
            mean = f"{statistics.fmean(points):.2f}"
            rows.append([f"{name}, {metrics[name]}", system, mean, spread, str(len(points))])
    show("Test metric, points", ["graph", "system", "mean", "std", "seeds"], rows)
    columns = ["graph", "system", "reference", "difference", "error", "allowed", "is it"]
    rows = [
        [
            *(each.row, each.system, each.reference),
            *(f"{each.points:+.2f}", f"{each.standard_error:.2f}"),
            *(each.limits, "yes" if each.allowed else "NO"),
        ]
        for each in found
    ]
    show("Differences, points", columns, rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("GNNSCALE_TEST_DATA"),
        help="folder of raw files; default: GNNSCALE_TEST_DATA, or a download of each graph",
    )
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(argv)
    results: dict[str, dict[str, list[float]]] = {}
    metrics: dict[str, str] = {}
    found: list[Difference] = []
    for name in options.rows:
        row = ROWS[name]
        overrides = [f"num_threads={options.threads}"]
        if options.data is not None:
            overrides.append(f"dataset.raw='{(options.data / row.raw).resolve()}'")
        figures = {system: run(row, system, overrides) for system in row.systems}
        if row.published is not None:
            figures["published"] = [row.published]
        metrics[name] = experiment(row.experiment, overrides).dataset.open().metric
        results[name] = figures
        found += differences(name, figures)
    print_tables(metrics, results, found)
    save(
        options.json,
        {
            "test_metric_points": results,
            "metrics": metrics,
            "differences": [{**asdict(each), "allowed": each.allowed} for each in found],
        },
    )
    return 0 if all(each.allowed for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
