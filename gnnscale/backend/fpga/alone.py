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
from gnnscale.core import Array
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.sampler import MiniBatch

_TRAINS = 1  # ``batch.hpp``
_TIMEOUT_S = 600.0


#: Bytes of a kernel's record of its outcome.
_RESULT_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class PackedStep:
    """What the kernel is called with for one step on one compute unit."""

    #: buffers that the host writes, by the names of the kernel's arguments
    inputs: Mapping[str, Array]
    #: bytes of the buffers that the kernel writes: ``gradients``, ``scratch`` and ``result``
    num_bytes: Mapping[str, int]
    scalars: tuple[int, ...]  #: the arguments after the buffers, in their order


@dataclass(frozen=True, kw_only=True)
class Step:
    """What came of a step."""

    result: NDArray[np.uint32]  #: the outcome's record, the loss among its fields
    gradients: NDArray[np.uint32]  #: the bits of all gradients, as the card lays them out
    counters: Mapping[str, int]  #: of C simulation


def pack_step(limits: ChipLimits, graph: Graph, model: GNN, batch: MiniBatch) -> PackedStep:
    """Lay out a step of training on ``batch`` for one compute unit.

    Raises:
        ConfigError: the model or the mini-batch does not fit the design.
    """
    products = lower(model, aggregated=False)
    limits.check(products)
    weights = WeightLayout(products)
    inputs = FeatureLoader(graph, model, num_threads=1, aggregates=False).load(batch)
    given = (graph, model, products, weights, limits, batch, inputs)
    seeds = range(batch.num_seeds)
    packed = pack_batch(*given, seeds, max_row_bytes=sys.maxsize, num_threads=1)
    random = np.array([batch.seed, batch.step], np.uint64).view(np.int32)
    scale = int(np.float32(1 / batch.num_seeds).view(np.int32))
    return PackedStep(
        inputs={
            "batch": packed.batch,
            "edges": packed.edges,
            "features": packed.features,
            "weights": weights.pack(),
        },
        num_bytes={
            "gradients": weights.num_bytes,
            "scratch": max(packed.scratch_bytes, _RESULT_BYTES),
            "result": _RESULT_BYTES,
        },
        scalars=(packed.num_groups, _TRAINS, *random.tolist(), scale),
    )


def train_alone(
    library: Path, limits: ChipLimits, graph: Graph, model: GNN, batch: MiniBatch
) -> Step:
    """Train on ``batch`` by a library of kernels, in one compute unit and one step.

    Raises:
        ConfigError: the model or the mini-batch does not fit the design.
        BoardError: the kernels have failed.
    """
    return run_step(library, pack_step(limits, graph, model, batch))


def run_step(library: Path, step: PackedStep) -> Step:
    """Run a step by a library of kernels, in one compute unit.

    Raises:
        BoardError: the kernels have failed.
    """
    board = Board(load_csim(), index=0, bitstream=str(library), compute_units=1, slots=1)
    try:
        board.send_weights(step.inputs["weights"])
        for name, num_bytes in step.num_bytes.items():
            board.allocate(0, name, num_bytes)
        board.send(0, 0, *(step.inputs[name] for name in ("batch", "edges", "features")))
        board.start(0, 0, step.scalars)
        result = board.wait(0, _TIMEOUT_S).reshape(-1)
        gradients = board.gradients(0).view(np.uint32).reshape(-1)
        return Step(result=result, gradients=gradients, counters=dict(board.counters(0)))
    finally:
        board.close()
