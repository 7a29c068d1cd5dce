"""A compute unit's report of a step: its status and loss, and in C simulation its counts."""

from collections.abc import Mapping, Sequence

import numpy as np

from gnnscale.backend.base import DeviceError
from gnnscale.core import UInt32Array
from gnnscale.plan import Fpga

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
