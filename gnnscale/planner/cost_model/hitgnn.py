"""HitGNN's performance model of its kernels (section VI-B): equations 3 to 9.

The model of an FPGA consists of n scatter-gather PEs, m multiply-accumulate units, the clock, and
the bandwidths of memory and link. It ignores pipeline fill and drain, and conflicts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale.core import check_range

_MAX_PES, _MAX_MULTIPLIERS = 1 << 10, 1 << 20
#: Floats of a 512-bit word, the input of a PE per cycle (eq. 8).
PE_SIMD = 16
#: S_feat, bytes of a feature (eq. 7).
FEATURE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ComputeDesign:
    """Processing elements of a card, or of one die.

    Attributes:
        n: scatter-gather PEs.
        m: multiply-accumulate units.
    """

    n: int
    m: int

    def __post_init__(self) -> None:
        check_range("design.n", self.n, 1, _MAX_PES)
        check_range("design.m", self.m, 1, _MAX_MULTIPLIERS)


@dataclass(frozen=True, kw_only=True)
class FpgaCard:
    """Clock and bandwidths of an FPGA card, and its share of the input rows, in equations 7 to 9.

    The numbers of its processing elements, n and m, are in ``ComputeDesign``.
    """

    clock_hz: float  #: cycles per second
    bandwidth: float  #: bytes per second of its memory, BW_DDR of eq. 7
    link_bandwidth: float = math.inf  #: bytes per second from the host, BW_PCIe of eq. 7
    #: β of eq. 7: the fraction of a mini-batch's input rows in the card's memory
    local_share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class LayerWorkload:
    """Numbers of vertices, edges and features of one layer of a mini-batch."""

    sources: float  #: |V^{l-1}|
    rows: float  #: |V^l|
    edges: float  #: |A^l|, including self-edges
    width_in: int  #: f^{l-1}, features of a source row
    width_out: int  #: f^l
    #: rows per vertex: 2 with the vertex's own features next to the aggregate (GraphSAGE)
    slots: int = 1

    @property
    def num_weights(self) -> int:
        """Number of elements of the weight matrix."""
        return self.slots * self.width_in * self.width_out

    def in_words(self) -> "LayerWorkload":
        """Return the layer with rows padded to whole words of 16 floats, as in our kernels."""
        words_in, words_out = -(-self.width_in // PE_SIMD), -(-self.width_out // PE_SIMD)
        return replace(self, width_in=words_in * PE_SIMD, width_out=words_out * PE_SIMD)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Pass over a layer with concurrent tasks: the slowest task determines its time (eq. 5, 6)."""

    name: str = ""  #: layer and direction
    memory_s: float = 0.0  #: reads from the card's memory, eq. 7
    link_s: float = 0.0  #: reads over the link, eq. 7, serialized with memory reads
    pe_s: float = 0.0  #: aggregation with n = 1, eq. 8
    multiplier_s: float = 0.0  #: update with m = 1, eq. 9

    def seconds(self, n: Any, m: Any) -> Any:
        """Return the seconds with n PEs and m multiply-accumulate units; n and m may be arrays."""
        load = self.memory_s + self.link_s
        return np.maximum(np.maximum(load, self.pe_s / n), self.multiplier_s / m)

    def limit(self, design: ComputeDesign) -> str:
        """Return the slowest task: ``memory``, ``link``, ``aggregate`` or ``update``."""
        loading = "link" if self.link_s > self.memory_s else "memory"
        tasks = {
            loading: self.memory_s + self.link_s,
            "aggregate": self.pe_s / design.n,
            "update": self.multiplier_s / design.m,
        }
        return max(tasks, key=lambda name: tasks[name])


def phases(card: FpgaCard, layers: Sequence[LayerWorkload]) -> tuple[Phase, ...]:
    """Return the passes of t_FP and t_BP (eq. 5), input layer first; t_LC has no equation."""
    forward = (_forward(card, layer, number) for number, layer in enumerate(layers))
    backward = (
        phase for number, layer in enumerate(layers) for phase in _backward(card, layer, number)
    )
    return (*forward, *backward)


def seconds_of(passes: Sequence[Phase], n: Any, m: Any) -> Any:
    """Return t_GNN (eq. 5), the seconds of ``passes`` with n PEs and m multiply-accumulate units.

    ``n`` and ``m`` may be arrays.
    """
    return sum(phase.seconds(n, m) for phase in passes)


def gnn_seconds(passes: Sequence[Phase], design: ComputeDesign) -> float:
    """Return t_GNN (eq. 5), the seconds of ``passes`` on ``design``."""
    return float(seconds_of(passes, design.n, design.m))


def limits(passes: Sequence[Phase], design: ComputeDesign) -> dict[str, float]:
    """Return for each task the summed seconds of the passes in which it is the slowest."""
    seconds: dict[str, float] = {}
    for phase in passes:
        name = phase.limit(design)
        seconds[name] = seconds.get(name, 0.0) + float(phase.seconds(design.n, design.m))
    return seconds


def _forward(card: FpgaCard, layer: LayerWorkload, number: int) -> Phase:
    """Return the pass of layer ``number`` forward; only layer 0 may read rows over the link."""
    num_bytes = layer.sources * layer.width_in * FEATURE_BYTES
    local = card.local_share if number == 0 else 1.0
    return Phase(
        name=f"layer {number}, forward",
        memory_s=local * num_bytes / card.bandwidth,
        link_s=(1 - local) * num_bytes / card.link_bandwidth,
        pe_s=_pe_seconds(card, layer),
        multiplier_s=_multiplier_seconds(card, layer),
    )


def _backward(card: FpgaCard, layer: LayerWorkload, number: int) -> tuple[Phase, ...]:
    """Return layer ``number``'s backward passes: weights' gradient, and rows' except in layer 0."""
    weights = Phase(
        name=f"layer {number}, gradients of weights", multiplier_s=_multiplier_seconds(card, layer)
    )
    if number == 0:
        return (weights,)
    gradients = layer.rows * layer.slots * layer.width_in * FEATURE_BYTES
    return weights, Phase(
        name=f"layer {number}, gradients of rows",
        memory_s=gradients / card.bandwidth,
        pe_s=_pe_seconds(card, layer),
        multiplier_s=_multiplier_seconds(card, layer),
    )


def _pe_seconds(card: FpgaCard, layer: LayerWorkload) -> float:
    """Return t_compute (eq. 8) of one PE."""
    return layer.edges * layer.width_in / (PE_SIMD * card.clock_hz)


def _multiplier_seconds(card: FpgaCard, layer: LayerWorkload) -> float:
    """Return t_update (eq. 9) of one multiply-accumulate unit."""
    return layer.rows * layer.num_weights / card.clock_hz
