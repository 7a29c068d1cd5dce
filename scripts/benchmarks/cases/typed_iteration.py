"""Training iterations of R-SAGE and R-GCN beside DGL's: sample, load, forward, backward, Adam.

The graph is that of the case ``typed``, with 128 features and a label of each vertex. Two layers
read the features, or with encoders a linear layer of each vertex type before them. The model of DGL
computes the same: ``HeteroGraphConv`` of ``SAGEConv``, or of ``GraphConv`` beside a linear layer of
the own rows of each vertex type. Both systems take the same seeds, in the process itself, without
threads in the background. Beside elapsed time stands processor time, which other processes of a
machine change less.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.cases import typed
from benchmarks.cases.loader import endless
from benchmarks.cases.typed import EDGES, FANOUTS, VERTICES, lists_of, seeds_of
from benchmarks.runner import Measure, clock, interleave, show, take
from benchmarks.training import Trainer, with_adam

MODELS = ("rsage", "rgcn")
WIDTH, NUM_CLASSES = 128, 47
#: Mini-batches with different seeds; then the same seeds come again.
NUM_BATCHES = 200


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=5, steps=6, threads=2)
    parser.add_argument("--scale", type=float, default=0.2, help="share of vertices and edges")
    parser.add_argument("--hidden", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)


def features(scale: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(int(count * scale), WIDTH, generator=generator)
        for name, count in VERTICES.items()
    }


def labels(scale: float) -> torch.Tensor:
    """Return labels of the vertices of the first type, that of the seeds."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(NUM_CLASSES, (int(VERTICES["user"] * scale),), generator=generator)


class Own:
    """Sampler, features and models of this project."""

    def __init__(self, folder: Path, scale: float, threads: int, fanouts: list[int]) -> None:
        from gnnscale import ops
        from gnnscale.features import HostFeatures
        from gnnscale.features.typed import TypedStore
        from gnnscale.sampling import TypedSampler

        ops.keep_freed_memory()  # as every training run does
        self._scale, self._threads = scale, threads
        graph = typed.typed_graph(folder, scale)
        stores = [HostFeatures(rows.numpy(), "float32") for rows in features(scale).values()]
        self.schema, self._labels = graph.schema, labels(scale)
        self._store = TypedStore(graph.schema, stores)
        self._sampler = TypedSampler(graph, fanouts=fanouts, num_threads=threads)
        self._steps = count()

    def model(self, name: str, hidden: int, *, encodes: bool) -> nn.Module:
        from gnnscale.nn import RGCN, RSAGE
        from gnnscale.nn.typed.relational import RGCNLayer, RSAGELayer

        torch.manual_seed(0)
        if encodes:
            config: Any = (RSAGE if name == "rsage" else RGCN)(hidden=hidden, dropout=0.0)
            widths = (WIDTH,) * len(VERTICES)
            return config.build_typed(schema=self.schema, widths=widths, num_classes=NUM_CLASSES)
        make: Any = RSAGELayer if name == "rsage" else RGCNLayer
        layers = make(self.schema, WIDTH, hidden), make(self.schema, hidden, NUM_CLASSES)
        return nn.ModuleList(layers)

    def batch(self) -> tuple[torch.Tensor, Any]:
        """Return the labels of a mini-batch's seeds, and what ``logits`` takes."""
        step = next(self._steps)
        seeds = seeds_of(self._scale, step % NUM_BATCHES)
        batch = self._sampler.sample(seeds, step)
        return self._labels[torch.from_numpy(seeds)], (batch,)

    def logits(self, model: Any, batch: Any) -> torch.Tensor:
        how: Any = {"dtype": torch.float32, "num_threads": self._threads}
        if not isinstance(model, nn.ModuleList):
            return model(batch, model.load(self._store, batch, None, aggregates=True, **how))
        rows, _ = self._store.gather_types(batch, **how)
        hidden = model[0](rows, batch.blocks[0])
        return model[1]([part.relu_() for part in hidden], batch.blocks[1])[0]


class DglLayer(nn.Module):
    """Layer of DGL's modules by edge type, and of a linear layer of own rows if they have none."""

    def __init__(self, name: str, width_in: int, width_out: int) -> None:
        from dgl.nn import GraphConv, HeteroGraphConv, SAGEConv

        super().__init__()
        sizes = (width_in, width_out)
        of_neighbors: Any = partial(SAGEConv, *sizes, "mean")
        if name == "rgcn":
            more = {"bias": False, "allow_zero_in_degree": True}
            of_neighbors = partial(GraphConv, *sizes, norm="right", **more)
        self.conv = HeteroGraphConv({relation: of_neighbors() for _, relation, _ in EDGES})
        own_types = VERTICES if name == "rgcn" else ()
        self.own = nn.ModuleDict({each: nn.Linear(*sizes, bias=False) for each in own_types})
        self.bias = nn.Parameter(torch.zeros(width_out)) if name == "rgcn" else None

    def forward(self, block: Any, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        out = self.conv(block, rows)
        for name, layer in self.own.items():
            if size := block.num_dst_nodes(name):
                own = layer(rows[name][:size]) + self.bias
                out[name] = own + out[name] if name in out else own
        return out


class DglModel(nn.Module):
    """Two layers, after a linear layer of each vertex type if the model ``encodes``."""

    def __init__(self, name: str, hidden: int, *, encodes: bool) -> None:
        super().__init__()
        types = VERTICES if encodes else ()
        self.encoders = nn.ModuleDict({each: nn.Linear(WIDTH, hidden) for each in types})
        width = hidden if encodes else WIDTH
        layers = DglLayer(name, width, hidden), DglLayer(name, hidden, NUM_CLASSES)
        self.layers = nn.ModuleList(layers)

    def forward(self, blocks: Any, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        if self.encoders:
            rows = {name: self.encoders[name](part) for name, part in rows.items()}
        hidden = self.layers[0](blocks[0], rows)
        hidden = {name: part.relu_() for name, part in hidden.items()}
        return self.layers[1](blocks[1], hidden)["user"]


class Dgl:
    """Sampler, loader and models of DGL."""

    def __init__(self, folder: Path, scale: float, threads: int, fanouts: list[int]) -> None:
        import dgl

        lists = {}
        for number, names in enumerate(EDGES):
            indptr, indices = map(torch.from_numpy, lists_of(folder, number))
            lists[names] = ("csc", (indptr, indices.long(), torch.empty(0, dtype=torch.long)))
        sizes = {name: int(number * scale) for name, number in VERTICES.items()}
        graph = dgl.heterograph(lists, sizes).formats("csc")
        for name, rows in features(scale).items():
            graph.nodes[name].data["feat"] = rows
        graph.nodes["user"].data["label"] = labels(scale)
        ahead: Any = {"prefetch_node_feats": {name: ["feat"] for name in VERTICES}}
        ahead["prefetch_labels"] = {"user": ["label"]}
        # DGL counts fan-outs from the inputs.
        sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], **ahead)
        seeds = np.concatenate([seeds_of(scale, step) for step in range(NUM_BATCHES)])
        chosen = {"user": torch.from_numpy(seeds)}
        size = len(seeds) // NUM_BATCHES
        self._batches = endless(dgl.dataloading.DataLoader(graph, chosen, sampler, batch_size=size))

    def model(self, name: str, hidden: int, *, encodes: bool) -> nn.Module:
        torch.manual_seed(0)
        return DglModel(name, hidden, encodes=encodes)

    def batch(self) -> tuple[torch.Tensor, Any]:
        """Return the labels of a mini-batch's seeds, and what ``logits`` takes."""
        _, _, blocks = next(self._batches)
        rows = {name: blocks[0].srcnodes[name].data["feat"] for name in VERTICES}
        return blocks[-1].dstnodes["user"].data["label"], (blocks, rows)

    def logits(self, model: nn.Module, blocks: Any, rows: Any) -> torch.Tensor:
        return model(blocks, rows)


SYSTEMS: dict[str, Any] = {"gnnscale": Own, "dgl": Dgl}


def trainer(system: Any, name: str, hidden: int, *, encodes: bool) -> Trainer:
    model = system.model(name, hidden, encodes=encodes)

    def loss_of(step: int) -> torch.Tensor:
        targets, inputs = system.batch()
        return nn.functional.cross_entropy(system.logits(model, *inputs), targets)

    return model, loss_of


def worker(system: str, options: argparse.Namespace) -> Measure:
    torch.set_num_threads(options.threads)
    made = SYSTEMS[system](options.folder, options.scale, options.threads, FANOUTS)
    steps = {
        f"{name}, {hidden}{', encoders' if encodes else ''}": with_adam(
            *trainer(made, name, hidden, encodes=encodes)
        )
        for name in options.models
        for hidden in options.hidden
        for encodes in (False, True)
    }

    def measure(number: int) -> dict[str, float]:
        figures = {}
        for name, step in steps.items():
            start = time.process_time()
            figures[name] = clock(step, range(options.steps))
            figures[f"{name}: cpu"] = (time.process_time() - start) / options.steps
        return figures

    return measure


def run(options: argparse.Namespace) -> Any:
    results = {}
    columns = ["model, hidden", "system", "ms", "CPU ms", "gnnscale is", "by CPU"]
    with tempfile.TemporaryDirectory() as folder:
        typed.write(Path(folder), options.scale)
        command = (sys.executable, *sys.argv, "--folder", folder)
        for threads in (1, 2):
            options.threads = threads
            results[threads] = interleave(SYSTEMS, options, command)
            show(f"Training iterations, {threads} threads", columns, _rows(results[threads]))
    return results


def _rows(figures: dict[str, dict[str, float]]) -> list[list[str]]:
    own, rows = figures["gnnscale"], []
    for name in (each for each in own if not each.endswith(": cpu")):
        names = (name, f"{name}: cpu")
        for system, found in figures.items():
            milliseconds = (f"{found[each] * 1e3:.1f}" for each in names)
            ratios = (f"{found[each] / own[each]:.2f}x" for each in names)
            rows.append([name, system, *milliseconds, *ratios])
    return rows
