"""AUROC of the sign of ratings of Bitcoin OTC from their past, here and in a module of PyG.

An edge is a rating of a user by another. Its sign is predicted from earlier ratings alone, whose
values are features of messages: GIN here, whose sums over sampled edges are scaled to all allowed
edges, and ``GINEConv`` in PyG, over mini-batches of the same sampler, hence with the same rule of
time. The first 70 % of ratings train, the next 15 % validate. Both sides are evaluated over sampled
neighbors, and report the test AUROC under the weights of the best validation epoch. Exit status 1:
the mean is below that of PyG.
"""

import argparse
import csv
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases.accuracy import train_best
from benchmarks.runner import composed, data_folder, show, take, tell, train
from gnnscale.core.hardware import usable_cores
from gnnscale.core.metrics import score
from gnnscale.inference.load_run import open_run_task
from gnnscale.nn.gnn import make_norm
from gnnscale.sampling import MiniBatch, ShuffledOrder

COMMON = (
    *("dataset=tables", "dataset.label=null", "dataset.edge_label=positive"),
    *("dataset.edge_features=[rating]", "dataset.edge_time=time", "dataset.time_unit=s"),
    *("dataset.drop_duplicates=false", "dataset.split=time", "task=edges"),
    *("task.own_features=false", "model=gin", "model.hidden=64", "model.dropout=0.2"),
    *("sampler.fanouts=[20,10]", "batch_size=512", "epochs=8", "optimizer.lr=0.003"),
    *("metrics=[roc_auc]", "runtime.inference=sampled"),
)
#: Shares of ratings before validation, and before the test.
_BOUNDS = (0.7, 0.85)
_EVALUATED = 512


def write_tables(raw: Path, folder: Path) -> list[str]:
    """Write the ratings of ``raw`` as tables; return the options that read and split them."""
    with raw.open() as file:
        rows = sorted(
            (int(float(row[3])), *map(int, row[:3])) for row in list(csv.reader(file))[1:]
        )
    with (folder / "edges.csv").open("w") as file:
        file.write("source,target,rating,positive,time\n")
        for time, source, target, rating in rows:
            file.write(f"{source},{target},{rating / 10},{int(rating > 0)},{time}\n")
    users = sorted({user for row in rows for user in row[1:3]})
    (folder / "vertices.csv").write_text("id,one\n" + "".join(f"{user},1.0\n" for user in users))
    valid, test = (rows[int(share * len(rows))][0] for share in _BOUNDS)
    return [
        f"dataset.raw='{folder}'",
        f"dataset.store='{folder / 'store'}'",
        f"dataset.valid_from='{valid}'",
        f"dataset.test_from='{test}'",
    ]


class PygModel(nn.Module):
    """Layers of ``GINEConv`` over blocks, and an MLP over the rows of both ends.

    The normalization ``norm`` of this project, ReLU and dropout follow every layer but the last.
    """

    def __init__(
        self, num_features: int, edge_dim: int, hidden: int, *, norm: str, dropout: float
    ) -> None:
        super().__init__()
        from torch_geometric.nn import GINEConv

        widths = [num_features, hidden, hidden]
        self.convs = nn.ModuleList(
            GINEConv(
                nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden)),
                edge_dim=edge_dim,
            )
            for width in widths[:-1]
        )
        self.norms = nn.ModuleList(make_norm(norm, hidden) for _ in self.convs[:-1])
        self.outputs = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        self._dropout = dropout

    def forward(
        self, batch: MiniBatch, x: torch.Tensor, edge_features: torch.Tensor
    ) -> torch.Tensor:
        """Return the outputs of the edges ``batch.links``."""
        for number, (conv, block) in enumerate(zip(self.convs, batch.blocks, strict=True)):
            destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
            index = torch.from_numpy(np.stack([block.indices, destinations]).astype(np.int64))
            assert block.edge_rows is not None
            attr = edge_features[torch.from_numpy(block.edge_rows.astype(np.int64))]
            x = conv((x, x[: block.num_dst]), index, attr, size=(len(x), block.num_dst))
            if number < len(self.norms):
                x = functional.dropout(self.norms[number](x).relu(), self._dropout, self.training)
        links = batch.links
        assert links is not None
        ends = links.sources, links.destinations[:, 0]
        source, destination = (x[torch.from_numpy(end.astype(np.int64))] for end in ends)
        return self.outputs(torch.cat([source, destination], dim=1))


def train_gnnscale(*options: str) -> float:
    """Train here, and return the test AUROC in points."""
    summary = train(*options, "runtime.checkpoint=false").summary
    return 100 * summary["test_metrics"]["roc_auc"]


def train_pyg(*options: str) -> float:
    """Train in PyG by the same batches, and return the test AUROC in points."""
    config, _ = composed(*options)
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.num_threads)
    task: Any = open_run_task(config)
    graph = task.graph
    given = {"seed": config.seed, "num_threads": config.num_threads}
    order = ShuffledOrder(task.seeds, batch_size=config.batch_size, seed=config.seed)
    sampler = task.sampling(config.sampler, order).sampler(graph, **given)
    x = torch.from_numpy(np.array(graph.features)).float()
    edge_features = torch.from_numpy(np.array(graph.edge_features))
    labels = torch.from_numpy(np.array(graph.edge_labels.labels))
    between: dict[str, Any] = {"norm": config.model.norm, "dropout": config.model.dropout}
    model = PygModel(x.shape[1], edge_features.shape[1], config.model.hidden, **between)
    epochs = iter(range(config.epochs))

    def outputs(batch: MiniBatch) -> torch.Tensor:
        rows = x[torch.from_numpy(batch.input_vertices.astype(np.int64))]
        return model(batch, rows, edge_features)

    def losses() -> Iterable[torch.Tensor]:
        epoch = next(epochs)
        for number, step in enumerate(order.epoch(epoch)):
            batch = sampler.sample(step.seeds, epoch * order.steps_per_epoch + number)
            yield functional.cross_entropy(outputs(batch), labels[torch.from_numpy(step.seeds)])

    def measure(split: str) -> float:
        rows = task.rows(split)
        parts = [*_parts(rows, sampler, outputs)]
        return score("roc_auc", np.concatenate(parts), labels.numpy()[rows])

    optimizer = config.optimizer.build(model)
    return 100 * train_best(model, optimizer, config.epochs, losses, measure)


def _parts(rows: Any, sampler: Any, outputs: Any) -> Iterator[Any]:
    for first in range(0, len(rows), _EVALUATED):
        yield outputs(sampler.sample(rows[first : first + _EVALUATED], 1 << 40)).numpy()


SYSTEMS = {"gnnscale": train_gnnscale, "pyg": train_pyg}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the case."""
    parser.add_argument("--seeds", type=int, default=5, help="runs on each side")
    parser.add_argument("--set", nargs="*", default=[], help="more options of both sides")
    take(parser, threads=usable_cores(), data=data_folder())


def run(options: argparse.Namespace) -> Any:
    """Train on both sides, and print a table."""
    raw = options.data / "relational" / "bitcoin_otc" / "soc-sign-bitcoinotc.csv"
    points: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    with tempfile.TemporaryDirectory() as folder:
        common = [*COMMON, *write_tables(raw.resolve(), Path(folder)), *options.set]
        common.append(f"num_threads={options.threads}")
        for seed in range(options.seeds):
            for system, train_system in SYSTEMS.items():
                points[system].append(train_system(*common, f"seed={seed}"))
                tell(f"{system} seed {seed}: {points[system][-1]:.2f}")
    means = {system: statistics.fmean(values) for system, values in points.items()}
    rows = [
        [system, f"{means[system]:.2f}", _spread(values), str(len(values))]
        for system, values in points.items()
    ]
    show("Test AUROC, points", ["system", "mean", "std", "seeds"], rows)
    best = max(mean for system, mean in means.items() if system != "gnnscale")
    missed = [] if means["gnnscale"] >= best else [f"gnnscale {means['gnnscale'] - best:+.2f}"]
    return {"test_auroc_points": points, "missed": missed}


def _spread(values: list[float]) -> str:
    return f"{statistics.stdev(values):.2f}" if len(values) > 1 else "-"
