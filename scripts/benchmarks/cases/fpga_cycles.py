"""Cycles of the simulated FPGA kernels beside HitGNN's equations 5 to 9.

For each published graph a random one is made, with the published widths and mean degree. A quarter
of a mini-batch goes through one compute unit of each design, as a die of a U250 gets it. Nothing
here was measured on hardware.
"""

import argparse
import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.runner import FANOUTS, show, take, tell
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.backend.fpga.step_result import train_alone
from gnnscale.data import from_arrays
from gnnscale.fpga_design.dse.explore import BANK_SHARE
from gnnscale.graph import Graph
from gnnscale.nn import GCN, GNN, GraphSAGE
from gnnscale.planner.cost_model import hitgnn
from gnnscale.planner.cost_model.hitgnn import FpgaCard, LayerWorkload, gnn_seconds, phases
from gnnscale.sampling import MiniBatch, NeighborSampler

DESIGNS = ((1, 256), (2, 256), (2, 512), (4, 1024), (8, 2048))
BANDWIDTH = 19.25e9  # bytes per second of one DDR channel of a U250
#: Mean degree, f^0, f^1, f^2: HitGNN's Table IV, HyScale-GNN's Table III.
GRAPHS = {
    **{"Reddit": (100, 602, 128, 41), "Yelp": (20, 300, 128, 100), "Amazon": (168, 200, 128, 107)},
    **{"ogbn-products": (25, 100, 128, 47), "ogbn-papers100M": (15, 128, 256, 172)},
    "MAG240M (homo)": (11, 756, 256, 153),
}


class Point(NamedTuple):
    """A design, a graph and a model."""

    graph: str
    model: str
    n: int
    m: int
    equations: float
    charged: float  # the equations with whole words, and the bandwidth that csim charges
    csim: int
    loss: int  # cycles of it

    @property
    def error(self) -> float:
        return self.csim / self.equations - 1


def random_graph(name: str, num_vertices: int) -> Graph:
    degree, width, _, classes = GRAPHS[name]
    generator = np.random.default_rng(0)
    ends = (generator.random((2, num_vertices * degree // 2)) ** 2 * num_vertices).astype(np.int64)
    edges = (np.concatenate([ends[0], ends[1]]), np.concatenate([ends[1], ends[0]]))
    rows = generator.standard_normal((num_vertices, width), np.float32)
    labels = generator.integers(0, classes, num_vertices)
    named = {"train_idx": np.arange(num_vertices), "num_classes": classes, "name": name}
    return from_arrays(edges, rows, labels, **named)


def sizes_of(batch: MiniBatch, model: GNN, slots: int) -> list[LayerWorkload]:
    """Return the sizes that the equations take; every row has an edge to itself."""
    found = []
    for block, (width_in, width_out) in zip(batch.blocks, pairwise(model.widths), strict=False):
        widths = {"width_in": width_in, "width_out": width_out, "slots": slots}
        edges = block.num_edges + block.num_dst
        found.append(
            LayerWorkload(sources=block.num_src, rows=block.num_dst, edges=edges, **widths)
        )
    return found


def cycles(design: SimulatedDesign, layers: list[LayerWorkload], bandwidth: float) -> float:
    """Return what equations 5 to 9 say of one compute unit."""
    card = FpgaCard(clock_hz=design.clock_hz, bandwidth=bandwidth)
    size = hitgnn.ComputeDesign(n=design.n, m=design.m)
    return gnn_seconds(phases(card, layers), size) * design.clock_hz


def points(num_seeds: int, num_vertices: int) -> Iterator[Point]:
    for name, (_, _, hidden, _) in GRAPHS.items():
        graph = random_graph(name, num_vertices)
        seeds = np.random.default_rng(1).choice(num_vertices, num_seeds, replace=False)
        batch = NeighborSampler(graph, fanouts=FANOUTS, seed=1).sample(seeds, 0)
        for kind, slots in ((GCN, 1), (GraphSAGE, 2)):
            config = kind(hidden=hidden, dropout=0)
            torch.manual_seed(0)
            model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
            for n, m in DESIGNS:
                design = SimulatedDesign(n=n, m=m, compute_units=1)
                layers = sizes_of(batch, model, slots)
                words = [layer.in_words() for layer in layers]
                equations, charged = (
                    cycles(design, sizes, bandwidth)
                    for sizes, bandwidth in ((layers, BANDWIDTH), (words, BANK_SHARE * BANDWIDTH))
                )
                limits = ChipLimits(n=n)
                step = train_alone(library(design), limits, graph, model, batch).counters
                cycles_of = (step["cycles"], step["loss"])
                yield Point(name, config.name, n, m, equations, charged, *cycles_of)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vertices", type=int, default=65536)
    take(parser, seeds=256)


def run(options: argparse.Namespace) -> Any:
    found, rows = [], []
    for each in points(options.seeds, options.vertices):
        found.append(each)
        tell(f"{each.graph} {each.model} {each.n} {each.m}: {each.error:+.1%}")
        cells = [each.graph, each.model, f"{each.n}, {each.m}", f"{each.equations:,.0f}"]
        cells += [f"{each.csim:,d}", f"{each.error:+.1%}", f"{each.csim / each.charged - 1:+.1%}"]
        rows.append([*cells, f"{each.loss / each.csim:.2%}"])
    mean = statistics.fmean(abs(each.error) for each in found)
    charged = statistics.fmean(abs(each.csim / each.charged - 1) for each in found)
    title = f"mean error over {len(found)} points: {mean:.1%}; with what csim charges {charged:.1%}"
    columns = ["graph", "model", "n, m", "eq. 5-9", "csim", "error", "charged", "loss"]
    show(title, columns, rows)
    figures = [each._asdict() | {"error": each.error} for each in found]
    return {"points": figures, "mean_error": mean, "mean_error_charged": charged}
