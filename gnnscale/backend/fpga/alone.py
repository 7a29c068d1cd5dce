"""A step of training on a single simulated compute unit: what is measured and compared of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnscale.backend.fpga.board import Board
from gnnscale.backend.fpga.csim.build import load_csim
from gnnscale.backend.fpga.layout import ChipLimits, pack_batch
from gnnscale.backend.fpga.lowering import WeightLayout, lower
from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.sampler import MiniBatch

_TRAINS = 1  # ``batch.hpp``
_TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """What came of a step."""

    result: NDArray[np.uint32]  #: the outcome's record, the loss among its fields
    gradients: NDArray[np.uint32]  #: the bits of all gradients, as the card lays them out
    counters: Mapping[str, int]  #: of C simulation


def train_alone(
    library: Path, limits: ChipLimits, graph: Graph, model: GNN, batch: MiniBatch
) -> Step:
    """Train on ``batch`` by a library of kernels, in one compute unit and one step.

    Raises:
        ConfigError: the model or the mini-batch does not fit the design.
        BoardError: the kernels have failed.
    """
    products = lower(model, aggregated=False)
    weights = WeightLayout(products)
    inputs = FeatureLoader(graph, model, num_threads=1, aggregates=False).load(batch)
    given = (graph, model, products, weights, limits, batch, inputs)
    seeds = range(batch.num_seeds)
    packed = pack_batch(*given, seeds, max_row_bytes=sys.maxsize, num_threads=1)
    board = Board(load_csim(), index=0, bitstream=str(library), compute_units=1, slots=1)
    try:
        board.send_weights(weights.pack())
        board.allocate(0, "gradients", weights.num_bytes)
        board.allocate(0, "scratch", max(packed.scratch_bytes, 64))
        board.allocate(0, "result", 64)
        board.send(0, 0, packed.batch, packed.edges, packed.features)
        random = np.array([batch.seed, batch.step], np.uint64).view(np.int32)
        scale = int(np.float32(1 / batch.num_seeds).view(np.int32))
        board.start(0, 0, (packed.num_groups, _TRAINS, *random.tolist(), scale))
        result = board.wait(0, _TIMEOUT_S).reshape(-1)
        gradients = board.gradients(0).view(np.uint32).reshape(-1)
        return Step(result=result, gradients=gradients, counters=dict(board.counters(0)))
    finally:
        board.close()
