"""Steps of training on the small engine: by C simulation, and with the parts in its processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.backend.fpga.csim.library import seal
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.backend.fpga.step_result import train_alone
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.nn import GCN, GIN, GNN, GraphSAGE
from gnnscale.sampling import NeighborSampler
from rtl.build import Models, compile_cpp
from rtl.parts import PES, SMALL


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of training, by C simulation and with the parts."""

    model: str
    csim_cycles: int
    rtl_cycles: int
    same: bool  #: whether all losses and gradients are


def libraries(folder: Path, archives: Models) -> tuple[Path, Path]:
    """Compile the engine, without the parts and with them."""
    found = []
    for name, models, options in (
        ("csim", {}, ()),
        ("rtl", archives, ("-include", "rtl/in_place.hpp")),
    ):
        path = folder / f"engine_{name}.so"
        compile_cpp(path, SMALL, ["csim/library.cpp"], models, "-shared", *options)
        path.write_bytes(seal(path.read_bytes()))
        found.append(path)
    return found[0], found[1]


def steps(csim: Path, rtl: Path, count: int) -> Iterator[Step]:
    """Run ``count`` steps of models, depths and widths in turn on both."""
    for seed in range(count):
        kind = (GCN, GraphSAGE, GIN)[seed % 3]
        config = kind(
            hidden=(9, 32, 40)[seed // 3 % 3], num_layers=1 + seed % 3, dropout=seed % 2 / 2
        )
        graph = _graph(seed)
        torch.manual_seed(seed)
        model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
        (csim_cycles, wanted), (rtl_cycles, found) = (
            _run(path, graph, model, config.num_layers, seed) for path in (csim, rtl)
        )
        cycles = {"csim_cycles": csim_cycles, "rtl_cycles": rtl_cycles}
        yield Step(model=config.name, same=bool(np.array_equal(wanted, found)), **cycles)


def _graph(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    # A few vertices have most of the edges.
    ends = (rng.random((2, 900)) ** 2 * 200).astype(np.int64)
    rows = rng.standard_normal((200, (7, 33, 64)[seed % 3]), np.float32)
    labels = rng.integers(0, 5, 200)
    return from_arrays((ends[0], ends[1]), rows, labels, train_idx=np.arange(200), num_classes=5)


def _run(
    library: Path, graph: Graph, model: GNN, num_layers: int, seed: int
) -> tuple[int, NDArray[np.uint32]]:
    """Return the cycles of a step, and the bits of its loss and gradients."""
    seeds = np.random.default_rng(seed).choice(200, 5 + seed % 30, replace=False)
    batch = NeighborSampler(graph, fanouts=[5] * num_layers, seed=seed).sample(seeds, 0)
    found = train_alone(library, ChipLimits(n=PES), graph, model, batch)
    return found.counters["cycles"], np.concatenate([found.result, found.gradients])
