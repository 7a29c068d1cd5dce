"""Placement rules of operations on unified tensors: computing side and output (table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Output(Enum):
    """Memory of an operation's result."""

    GPU = "gpu"
    UNIFIED = "unified"  #: host memory that the GPU also accesses


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Computing side and output of an operation."""

    on_gpu: bool  #: whether the GPU computes the operation; otherwise the CPU
    output: Output
    #: whether a unified result prefers the GPU for later operations
    propagated_to_cuda: bool = False


def place(*, has_cpu: bool, has_gpu: bool, prefers: Sequence[bool]) -> Placement:
    """Return the placement of an operation (PyTorch-Direct, table 3).

    Args:
        has_cpu: whether an operand is a CPU tensor that is not a scalar.
        has_gpu: whether an operand is a GPU tensor.
        prefers: ``propagated_to_cuda`` of each unified operand, at least one.
    """
    if not has_cpu and has_gpu:  # the second row
        if all(prefers):
            return Placement(on_gpu=True, output=Output.GPU)
        return Placement(on_gpu=True, output=Output.UNIFIED, propagated_to_cuda=True)
    if not has_cpu and all(prefers):  # the third row
        return Placement(on_gpu=True, output=Output.GPU)
    return Placement(on_gpu=any(prefers), output=Output.UNIFIED)
