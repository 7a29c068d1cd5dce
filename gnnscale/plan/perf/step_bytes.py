"""Bytes that a step moves: data-parallel, and with a first layer that is split by columns (P3).

P3 (Gandhi and Iyer, OSDI 2021, section 3.2) moves rows of the first hidden layer between devices,
while data parallelism moves input features to them. It is the cheaper one when |V^0|·f^0 is large
against |V^1|·f^1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.model.cost import BYTES_PER_FEATURE
from gnnscale.plan.perf.equations import BatchSize

#: Destinations, sources, edges, and which optional arrays there are: int32 each.
_HEADER_BYTES = 24
#: A destination's number of edges, and an edge's source.
_INDEX_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class StepBytes:
    """Bytes of a step over all devices, either way; each where it is received."""

    features: float  #: of input rows to the devices, data-parallel
    first_gradients: float  #: of the gradients of W¹, data-parallel: a ring of the devices
    blocks: float  #: of input blocks between devices, P3
    partials: float  #: of partial products and of their gradients between devices, P3

    @property
    def data_parallel(self) -> float:
        """Bytes when every device has the whole first layer."""
        return self.features + self.first_gradients

    @property
    def p3(self) -> float:
        """Bytes when each device has some columns of it, and of the features in its memory."""
        return self.blocks + self.partials

    @property
    def cheaper(self) -> str:
        """Which way moves fewer bytes: ``p3`` or ``data_parallel``."""
        return "p3" if self.p3 < self.data_parallel else "data_parallel"


def step_bytes(
    sizes: Sequence[BatchSize],
    *,
    widths: Sequence[int],
    feature_bytes: int,
    num_first_weights: int,
    id_bytes: int = 4,
) -> StepBytes:
    """Return what a step moves whose devices have mini-batches of ``sizes``."""
    others = len(sizes) - 1
    return StepBytes(
        features=sum(size.vertices[0] for size in sizes) * widths[0] * feature_bytes,
        first_gradients=2 * others * num_first_weights * BYTES_PER_FEATURE,
        blocks=others * sum(block_bytes(size, id_bytes) for size in sizes),
        partials=others * sum(partial_bytes(size, widths[1]) for size in sizes),
    )


def partial_bytes(size: BatchSize, width: int) -> float:
    """Bytes of a partial product ``[|V^1|, width]`` that one device sends, and of its gradient."""
    return 2 * size.vertices[1] * width * BYTES_PER_FEATURE


def block_bytes(size: BatchSize, id_bytes: int = 4) -> float:
    """Bytes of an input block: its vertices, a count a destination, and a source an edge."""
    indices = (size.vertices[1] + size.edges[0]) * _INDEX_BYTES
    return _HEADER_BYTES + size.vertices[0] * id_bytes + indices
