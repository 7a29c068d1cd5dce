"""HitGNN's performance model of its kernels (section VI-B): equations 5 to 9.

It knows of an FPGA's compute unit its n scatter-gather PEs, its m multiply-accumulate units, its
clock and its memory's bandwidth; it knows nothing of fills, drains and conflicts. What the C
simulation counts is held against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

#: Floats of a 512-bit word, which a PE takes in a cycle (eq. 8).
PE_SIMD = 16
#: S_feat, bytes of a feature (eq. 7).
_FEATURE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ComputeUnit:
    """What equations 7 to 9 ask of the hardware."""

    n: int  #: scatter-gather PEs
    m: int  #: multiply-accumulate units
    clock_hz: float  #: cycles per second
    bandwidth: float  #: bytes per second of the unit's memory, BW_DDR of eq. 7.


@dataclass(frozen=True, kw_only=True)
class LayerSize:
    """A layer of a mini-batch."""

    sources: float  #: |V^{l-1}|
    rows: float  #: |V^l|
    edges: float  #: |A^l|, those of rows to themselves included
    width_in: int  #: f^{l-1}, of a source row
    width_out: int  #: f^l
    slots: int = 1  #: sums of each row, 2 if its own features are kept beside them (GraphSAGE)


def _aggregate_seconds(unit: ComputeUnit, rows_read: float, layer: LayerSize) -> float:
    """Return t_aggregate (eq. 6): the larger of loading (eq. 7) and computing (eq. 8).

    All rows are in the unit's own memory, so that β of eq. 7 is 1.
    """
    load = rows_read * layer.width_in * _FEATURE_BYTES / unit.bandwidth
    compute = layer.edges * layer.width_in / (unit.n * PE_SIMD * unit.clock_hz)
    return max(load, compute)


def _update_seconds(unit: ComputeUnit, layer: LayerSize) -> float:
    """Return t_update (eq. 9)."""
    macs = layer.rows * layer.slots * layer.width_in * layer.width_out
    return macs / (unit.m * unit.clock_hz)


def forward_seconds(unit: ComputeUnit, layer: LayerSize) -> float:
    """Return a layer's part of t_FP: aggregation and update are pipelined."""
    return max(_aggregate_seconds(unit, layer.sources, layer), _update_seconds(unit, layer))


def backward_seconds(unit: ComputeUnit, layer: LayerSize, *, first: bool) -> float:
    """Return a layer's part of t_BP: the product for its weights' gradient, and then the other way.

    The gradients of its rows are multiplied with the weights and aggregated over the edges, both
    pipelined; the ``first`` layer needs no such gradients.
    """
    weights = _update_seconds(unit, layer)
    if first:
        return weights
    rows = layer.rows * layer.slots
    return weights + max(_aggregate_seconds(unit, rows, layer), _update_seconds(unit, layer))


def gnn_seconds(unit: ComputeUnit, layers: Sequence[LayerSize]) -> float:
    """Return t_GNN (eq. 5) of a mini-batch, inputs first; the loss, t_LC, has no equation."""
    forward = sum(forward_seconds(unit, layer) for layer in layers)
    backward = (
        backward_seconds(unit, layer, first=number == 0) for number, layer in enumerate(layers)
    )
    return forward + sum(backward)
