"""Which side computes an operation on unified tensors, and what its result is (table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Output(Enum):
    """What the result of an operation is."""

    GPU = "gpu"
    UNIFIED = "unified"  #: in memory of both sides


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The side that runs an operation, and what it makes."""

    on_gpu: bool  #: whether the GPU computes it, the processor otherwise
    output: Output
    #: whether the result prefers the GPU for what is computed with it, if it is unified
    propagated_to_cuda: bool = False


def place(*, has_cpu: bool, has_gpu: bool, prefers: Sequence[bool]) -> Placement:
    """Return the placement of an operation (PyTorch-Direct, table 3).

    Args:
        has_cpu: whether an operand is a tensor of the processor, and no scalar.
        has_gpu: whether an operand is a tensor of the GPU.
        prefers: of each unified operand, one at least, whether it prefers the GPU
            (``propagated_to_cuda``).
    """
    if not has_cpu and has_gpu:  # the second row
        if all(prefers):
            return Placement(on_gpu=True, output=Output.GPU)
        return Placement(on_gpu=True, output=Output.UNIFIED, propagated_to_cuda=True)
    if not has_cpu and all(prefers):  # the third row
        return Placement(on_gpu=True, output=Output.GPU)
    return Placement(on_gpu=any(prefers), output=Output.UNIFIED)
