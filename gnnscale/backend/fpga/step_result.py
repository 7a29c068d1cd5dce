"""A step of training on a single simulated compute unit: what is measured and compared of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnscale.backend.base import DeviceError
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.backend.fpga.board import OpenBoard
from gnnscale.backend.fpga.csim.build import load_csim
from gnnscale.backend.fpga.layout import ChipLimits, pack_batch
from gnnscale.backend.fpga.lowering import WeightLayout, lower
from gnnscale.core import Array, UInt32Array
from gnnscale.graph import Graph
from gnnscale.nn import GNN
from gnnscale.planner import Fpga
from gnnscale.sampling import MiniBatch

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
class StepResult:
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
) -> StepResult:
    """Train on ``batch`` by a library of kernels, in one compute unit and one step.

    Raises:
        ConfigError: the model or the mini-batch does not fit the design.
        BoardError: the kernels have failed.
    """
    return run_step(library, pack_step(limits, graph, model, batch))


def run_step(library: Path, step: PackedStep) -> StepResult:
    """Run a step by a library of kernels, in one compute unit.

    Raises:
        BoardError: the kernels have failed.
    """
    board = OpenBoard(load_csim(), index=0, bitstream=str(library), compute_units=1, slots=1)
    try:
        board.send_weights(step.inputs["weights"])
        for name, num_bytes in step.num_bytes.items():
            board.allocate(0, name, num_bytes)
        board.send(0, 0, *(step.inputs[name] for name in ("batch", "edges", "features")))
        board.start(0, 0, step.scalars)
        result = board.wait(0, _TIMEOUT_S).reshape(-1)
        gradients = board.gradients(0).view(np.uint32).reshape(-1)
        return StepResult(result=result, gradients=gradients, counters=dict(board.counters(0)))
    finally:
        board.close()


#: ``Outcome`` of fpga/include/gnnscale_fpga/batch.hpp.
_MAGIC = 0x474E4E53
_STATUS = {
    1: "its rows do not fit on the chip",
    2: "its output rows are too wide",
    3: "the model has too many layers",
}
_WORD = 64

#: Words of device memory that the simulation counts, by what they are.
_WORDS = ("feature", "edge", "weight", "gradient", "scratch", "other")
_COUNTS = ("edges", "source_switches", "routing_conflicts", "hazards", "bursts", "burst_gaps")


def check_outcome(result: UInt32Array, device: Fpga) -> float:
    """Return the loss in a compute unit's result.

    Args:
        result: words of 32 bits, of which the first sixteen are the outcome.

    Raises:
        DeviceError: the kernel wrote none, found something wrong, or is of another design.
    """
    fields = result[:16].view(np.int32)
    magic, status, stage, n, m = (int(fields[i]) for i in (0, 1, 2, 4, 5))
    if magic != _MAGIC:
        raise DeviceError(
            f"{device.label}: the kernel wrote no outcome; is the bitstream that of gnnscale?"
        )
    if (n, m) != (device.n, device.m):
        raise DeviceError(
            f"{device.label}: the bitstream has n={n} and m={m}, and the plan n={device.n} and "
            f"m={device.m}"
        )
    if status:
        raise DeviceError(
            f"{device.label}: the kernel refused stage {stage} of a mini-batch: "
            f"{_STATUS.get(status, f'status {status}')}"
        )
    return float(result[:16].view(np.float32)[3])


def engine_cycles(counted: Mapping[str, int], device: Fpga) -> dict[str, float]:
    """Return for how many cycles each engine of a compute unit had work."""
    bandwidth = device.memory_bandwidth / device.compute_units
    word_cycles = max(1.0, _WORD * device.clock_hz / bandwidth)
    return {
        # A row a cycle from the duplicator, an edge a cycle to each PE.
        "aggregate": max(counted["duplicated"], counted["edges"] / device.n),
        "update": counted["multiplying"],
        "memory": counted["transferring"] * word_cycles,
    }


def step_counters(
    counted: Sequence[Mapping[str, int]], waited: Sequence[float], device: Fpga
) -> tuple[dict[str, float], dict[str, float]]:
    """Return a step's figures and its seconds by the device's own clock.

    A step takes as long as its slowest compute unit. Words and events are those of all units.

    Args:
        counted: what the simulation counted, for each compute unit; empty on hardware.
        waited: seconds of each compute unit's run: on hardware those of the kernel, in simulation
            those that simulating took.
    """
    if not waited:
        return {}, {}
    if device.bitstream is not None:
        return {}, {"propagate": max(waited)}
    slowest = max(counted, key=lambda each: each["cycles"])
    counters: dict[str, float] = {
        "csim_cycles": slowest["cycles"],
        "csim_simulating_s": max(waited),
    }
    for engine, cycles in engine_cycles(slowest, device).items():
        counters[f"csim_{engine}_cycles"] = cycles
    for name in _WORDS:
        counters[f"csim_{name}_bytes"] = _WORD * sum(each[f"{name}_words"] for each in counted)
    for name in _COUNTS:
        counters[f"csim_{name}"] = sum(each[name] for each in counted)
    return counters, {"propagate": slowest["cycles"] / device.clock_hz}
