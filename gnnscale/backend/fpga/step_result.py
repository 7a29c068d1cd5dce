"""Training step of a simulated compute unit: its inputs, results and counters."""

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
    """Kernel arguments of one training step on one compute unit."""

    inputs: Mapping[str, Array]  #: buffers written by the host, by argument name
    #: bytes of the buffers written by the kernel: ``gradients``, ``scratch`` and ``result``
    num_bytes: Mapping[str, int]
    scalars: tuple[int, ...]  #: arguments after the buffers, in order


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Loss, gradients and counters of a step on one compute unit."""

    result: NDArray[np.uint32]  #: record of the outcome, which includes the loss
    gradients: NDArray[np.uint32]  #: bits of all gradients in the card's layout
    counters: Mapping[str, int]  #: counters of the C simulation


def pack_step(limits: ChipLimits, graph: Graph, model: GNN, batch: MiniBatch) -> PackedStep:
    """Return the kernel arguments of a training step on ``batch`` in one compute unit."""
    products = lower(model, aggregated=False)
    limits.check(products)
    weights = WeightLayout(products)
    inputs = FeatureLoader(graph, model, num_threads=1, aggregates=False).load(batch)
    arguments = (graph, model, products, weights, limits, batch, inputs)
    seeds = range(batch.num_seeds)
    packed = pack_batch(*arguments, seeds, max_row_bytes=sys.maxsize, num_threads=1)
    random = np.array([batch.seed, batch.step], np.uint64).view(np.int32)
    scale = int(np.float32(1 / batch.num_seeds).view(np.int32))
    return PackedStep(
        inputs={
            **{name: getattr(packed, name) for name in ("batch", "edges", "features")},
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
    """Return the results of a training step on ``batch`` in one simulated compute unit."""
    return run_step(library, pack_step(limits, graph, model, batch))


def run_step(library: Path, step: PackedStep) -> StepResult:
    """Run ``step`` on one compute unit, simulated by the file ``library``; return its results."""
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

#: Kinds of memory words that the simulation counts.
_WORDS = ("feature", "edge", "weight", "gradient", "scratch", "other")
_COUNTS = ("edges", "source_switches", "routing_conflicts", "hazards", "bursts", "burst_gaps")


def check_outcome(result: UInt32Array, device: Fpga) -> float:
    """Return the loss that a compute unit has written to ``result``.

    DeviceError: the unit wrote nothing or refused the mini-batch, or its bitstream has another
    ``n`` or ``m`` than ``device``.
    """
    fields = result[:16].view(np.int32)
    magic, status, stage, n, m = (int(fields[i]) for i in (0, 1, 2, 4, 5))
    if magic != _MAGIC:
        raise DeviceError(
            f"{device.label}: the kernel wrote no outcome; is the bitstream that of gnnscale?"
        )
    if (n, m) != (device.n, device.m):
        raise DeviceError(
            f"{device.label}: expected a bitstream of n={device.n} and m={device.m}, got n={n} "
            f"and m={m}"
        )
    if status:
        raise DeviceError(
            f"{device.label}: the kernel refused stage {stage} of a mini-batch: "
            f"{_STATUS.get(status, f'status {status}')}"
        )
    return float(result[:16].view(np.float32)[3])


def engine_cycles(counted: Mapping[str, int], device: Fpga) -> dict[str, float]:
    """Return the busy cycles of a compute unit's engines, by name: aggregate, update and memory.

    ``counted`` are the unit's counters from the C simulation.
    """
    bandwidth = device.memory_bandwidth / device.compute_units
    word_cycles = max(1.0, _WORD * device.clock_hz / bandwidth)
    return {
        # One row a cycle from the duplicator, one edge a cycle to each PE.
        "aggregate": max(counted["duplicated"], counted["edges"] / device.n),
        "update": counted["multiplying"],
        "memory": counted["transferring"] * word_cycles,
    }


def step_counters(
    counted: Sequence[Mapping[str, int]], kernel_seconds: Sequence[float], device: Fpga
) -> tuple[dict[str, float], dict[str, float]]:
    """Return a step's counters by name, and its seconds by stage, in the device's time.

    A step takes as long as its slowest compute unit; words and events are summed over all units.

    Args:
        counted: counters of each unit from the C simulation; empty on hardware, whose steps then
            have no counters.
        kernel_seconds: duration of each unit's run: of the kernel on hardware, of the simulation
            otherwise. If empty, both results are empty.
    """
    if not kernel_seconds:
        return {}, {}
    if device.bitstream is not None:
        return {}, {"propagate": max(kernel_seconds)}
    slowest = max(counted, key=lambda counts: counts["cycles"])
    counters: dict[str, float] = {
        "csim_cycles": slowest["cycles"],
        "csim_simulating_s": max(kernel_seconds),
    }
    for engine, cycles in engine_cycles(slowest, device).items():
        counters[f"csim_{engine}_cycles"] = cycles
    for name in _WORDS:
        counters[f"csim_{name}_bytes"] = _WORD * sum(counts[f"{name}_words"] for counts in counted)
    for name in _COUNTS:
        counters[f"csim_{name}"] = sum(counts[name] for counts in counted)
    return counters, {"propagate": slowest["cycles"] / device.clock_hz}
