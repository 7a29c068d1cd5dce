"""Link prediction of this project and of DGL: MRR with the same edges, candidates and options.

GraphSAGE with the dot product of rows; both leave the edges of a mini-batch and their reverses out
of its messages, and report the test MRR under the weights of the best validation epoch. Exit status
1: the means differ by more than a point.
"""

import argparse
import statistics
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.cases.accuracy import points_of, train_best, train_gnnscale
from benchmarks.peers import DglSage, csc, features
from benchmarks.runner import composed, data_folder, show, take
from gnnscale.inference.link_ranking import LinkExaminer
from gnnscale.inference.load_run import open_run_task
from gnnscale.nn.link_decoder import DotProduct

#: Options of each row, and the folder of its raw files.
_CORA = "dataset=planetoid dataset.name=cora sampler.fanouts=[15,10] batch_size=512 epochs=40"
_SLASHDOT = "dataset=snap dataset.name=soc-Slashdot0902 sampler.fanouts=[10,5] batch_size=8192"
ROWS: dict[str, tuple[str, list[str]]] = {
    "cora": ("planetoid", f"{_CORA} optimizer.lr=0.003 model.hidden=64".split()),
    "slashdot": ("snap", f"{_SLASHDOT} epochs=6 optimizer.lr=0.01 model.hidden=64".split()),
}
#: Points by which the means may differ.
ALLOWED = 1.0


def train_dgl(*options: str) -> float:
    """Train in DGL, by its own way of edge prediction, and return the test MRR."""
    import dgl

    config, _ = composed(*options)
    torch.manual_seed(config.seed)
    dgl.seed(config.seed)
    torch.set_num_threads(config.num_threads)
    task = open_run_task(config)
    indptr, src = csc(task.graph)
    dst = torch.arange(task.graph.num_vertices).repeat_interleave(indptr.diff())
    # Of both ends, so that DGL finds an edge by them.
    topology = dgl.graph((src, dst), num_nodes=task.graph.num_vertices)
    x = features(task.graph).float()
    ends = torch.from_numpy(np.array(task.split.train)).long()
    edges = topology.edge_ids(ends[:, 0], ends[:, 1])
    exclude: dict[str, Any] = {"exclude": with_reverses(topology, src, dst)}
    # DGL counts fan-outs from the inputs, this project from the seeds.
    sampler = dgl.dataloading.NeighborSampler(list(config.sampler.fanouts)[::-1])
    exclude["negative_sampler"] = dgl.dataloading.negative_sampler.Uniform(task.num_negatives)
    sampler = dgl.dataloading.as_edge_prediction_sampler(sampler, **exclude)
    how = {"batch_size": config.batch_size, "shuffle": True, "num_workers": 0}
    loader = dgl.dataloading.DataLoader(topology, edges, sampler, **how)
    hidden, num_layers = config.model.hidden, config.model.num_layers
    model = DglSage([task.graph.num_features, *[hidden] * num_layers], config.model.dropout)

    def losses() -> Iterable[torch.Tensor]:
        for inputs, positive, negative, blocks in loader:
            h = model(blocks, x[inputs])
            edges = (positive.edges(), negative.edges())
            scores = [(h[src] * h[dst]).sum(-1) for src, dst in edges]
            targets = torch.cat([torch.ones_like(scores[0]), torch.zeros_like(scores[1])])
            yield functional.binary_cross_entropy_with_logits(torch.cat(scores), targets)

    def measure(split: str) -> float:
        rows = model([topology] * num_layers, x).numpy()
        # What an examiner asks of a predictor and of a model, for rows that are there.
        predictor: Any = SimpleNamespace(logits=lambda vertices: rows[vertices])
        compared: Any = SimpleNamespace(decoder=DotProduct(), widths=(hidden,))
        (found,) = LinkExaminer(task, compared, predictor).measure([split])
        return found["mrr"]

    return train_best(model, config.optimizer.build(model), config.epochs, losses, measure)


def with_reverses(topology: Any, src: torch.Tensor, dst: torch.Tensor) -> Any:
    """Return what adds to numbers of edges those of their reverses, if there are any."""
    reverses = torch.full((len(src),), -1)
    mutual = topology.has_edges_between(dst, src)
    reverses[mutual] = topology.edge_ids(dst[mutual], src[mutual])

    def excluded(edges: torch.Tensor) -> torch.Tensor:
        found = reverses[edges]
        return torch.cat([edges, found[found >= 0]])

    return excluded


SYSTEMS = {"gnnscale": train_gnnscale, "dgl": train_dgl}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("overrides", nargs="*", help="options, as in epochs=10")
    take(parser, seeds=5, data=data_folder())


def run(options: argparse.Namespace) -> Any:
    figures: dict[str, Any] = {}
    for row in options.rows:
        folder, chosen = ROWS[row]
        raw = f"dataset.raw={options.data.absolute() / folder}"
        chosen = [*chosen, raw, "task=links", *options.overrides]
        points = points_of(row, SYSTEMS, chosen, options.seeds)
        means = {name: statistics.mean(each) for name, each in points.items()}
        figures[row] = {**means, "difference": means["gnnscale"] - means["dgl"], "points": points}
    rows = [
        [row, *(f"{each[name]:.2f}" for name in SYSTEMS), f"{each['difference']:+.2f}"]
        for row, each in figures.items()
    ]
    show("test MRR in points, means over seeds", ["graph", *SYSTEMS, "difference"], rows)
    far = [row for row, each in figures.items() if abs(each["difference"]) > ALLOWED]
    return figures | {"missed": [f"{row} differs" for row in far]}
