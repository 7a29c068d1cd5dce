"""What the stages of a mini-batch ask of the host: the numerators of eq. 7, 11 and 12."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.plan.perf.equations import BYTES_PER_FEATURE, BatchSize
from gnnscale.plan.perf.workload import Workload

__all__ = ["HostWork", "LoadWork", "load_work", "propagation_work"]

#: An attention layer runs about so many times the operations of another one.
_ATTENTION_LAYERS = 4
#: Products of every row with two vectors, and their gradients: each reads and writes.
_ATTENTION_PASSES = 8
#: Activations and samples take the rest of the last-level cache.
_FEATURES_IN_CACHE = 0.125
#: Bytes of a cache line.
_LINE = 64


@dataclass(frozen=True, kw_only=True)
class LoadWork:
    """What loading a mini-batch asks of the host.

    Attributes:
        rows: rows of features that are read, repetitions included.
        missed_rows: rows of them that come from memory.
        cached_bytes: bytes that come from the cache.
        memory_bytes: bytes that come from memory, the numerator of eq. 7 in whole cache lines.
        lookups: degrees that are looked up.
    """

    rows: float
    missed_rows: float
    cached_bytes: float
    memory_bytes: float
    lookups: float


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """What forward and backward propagation ask of a processor.

    Attributes:
        macs: multiply-accumulates, the numerator of eq. 12.
        aggregate_bytes: bytes of the rows that are aggregated, the numerator of eq. 11.
        stream_bytes: bytes of operands and results of the products, and of attention's scores.
        attention: edges and vertices of attention, times heads.
        num_layers: layers; attention has the operations of several.
    """

    macs: float
    aggregate_bytes: float
    stream_bytes: float
    attention: float
    num_layers: int


def load_work(workload: Workload, size: BatchSize, *, cache: int) -> LoadWork:
    """Return what loading a mini-batch of ``size`` asks of a host with ``cache`` bytes of cache.

    A vertex that several edges lead to comes from memory once, and then from the cache; so does a
    part of all rows where the features nearly fit in it, beside what else a step works on.
    """
    row_bytes = workload.widths[0] * workload.feature_bytes
    if row_bytes % _LINE:
        # The ends of the row share cache lines with other rows.
        row_bytes += _LINE
    distinct = size.vertices[0]
    rows = size.edges[0] + size.vertices[1] if workload.aggregates_on_load else distinct
    kept = _FEATURES_IN_CACHE * cache
    missing = max(0.0, 1 - kept / max(workload.feature_matrix_bytes, 1))
    from_memory = min(distinct, rows) * missing
    return LoadWork(
        rows=rows,
        missed_rows=from_memory,
        cached_bytes=(rows - from_memory) * row_bytes,
        memory_bytes=from_memory * row_bytes,
        lookups=distinct + size.edges[0] if workload.uses_degrees else 0.0,
    )


def propagation_work(workload: Workload, size: BatchSize) -> HostWork:
    """Return what propagating a mini-batch of ``size`` asks of a processor, eq. 10 to 12.

    Beyond the equations: backward propagation takes two products, for the weights' and for the
    input's gradient, which the features do not need; and products read and write their rows.
    """
    macs = aggregate = stream = attention = 0.0
    num_layers = 0
    for index, layer in enumerate(workload.layers):
        sources, targets, edges = size.vertices[index], size.vertices[index + 1], size.edges[index]
        rows = sources if layer.attention else targets
        for number, (width_in, width_out) in enumerate(layer.products):
            passes = 2 if index == 0 and number == 0 else 3
            macs += passes * rows * width_in * width_out
            stream += passes * rows * (width_in + width_out) * BYTES_PER_FEATURE
        num_layers += _ATTENTION_LAYERS if layer.attention else 1
        if layer.attention:
            attention += (edges + targets + sources) * layer.attention
            stream += _ATTENTION_PASSES * rows * layer.products[-1][1] * BYTES_PER_FEATURE
        elif index > 0 or not workload.aggregates_on_load:
            passes = 1 if index == 0 else 2
            aggregate += passes * (edges + targets) * layer.width_in * BYTES_PER_FEATURE
    return HostWork(
        macs=macs,
        aggregate_bytes=aggregate,
        stream_bytes=stream,
        attention=attention,
        num_layers=num_layers,
    )
