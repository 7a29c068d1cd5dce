"""What the stages of a mini-batch ask for: the numerators of eq. 7, 8, 11 and 12.

Bytes that a step moves: data-parallel, and with a first layer that is split by columns (P3).

P3 (Gandhi and Iyer, OSDI 2021, section 3.2) moves rows of the first hidden layer between devices,
while data parallelism moves input features to them. It is the cheaper one when |V^0|·f^0 is large
against |V^1|·f^1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.nn.cost import BYTES_PER_FEATURE, LayerWork
from gnnscale.planner.cost_model.equations import ACTIVATION_BYTES, BatchSize
from gnnscale.planner.cost_model.workload import Workload

#: Activations and samples take the rest of the last-level cache.
_FEATURES_IN_CACHE = 0.125
#: Bytes of a cache line.
_LINE = 64


@dataclass(frozen=True, kw_only=True)
class LoadWork:
    """What loading a mini-batch asks of the host."""

    rows: float  #: rows of features that are read, repetitions included
    missed_rows: float  #: rows of them that come from memory
    cached_bytes: float  #: bytes that come from the cache
    #: bytes that come from memory, the numerator of eq. 7 in whole cache lines.
    memory_bytes: float
    widened: float  #: values that are stored in a narrower type than float32, and become float32
    written_bytes: float  #: bytes of the rows that are made, aggregated or as they are
    lookups: float  #: degrees that are looked up


def load_work(workload: Workload, size: BatchSize, *, cache: int) -> LoadWork:
    """Return what loading a mini-batch of ``size`` asks of a host with ``cache`` bytes of cache.

    A vertex that several edges lead to comes from memory once, and then from the cache; so does a
    part of all rows if the features nearly fit in it, beside what else a step works on.
    """
    row_bytes = workload.row_bytes
    if row_bytes % _LINE:
        # The ends of the row share cache lines with other rows.
        row_bytes += _LINE
    distinct = size.vertices[0]
    rows = size.edges[0] + size.vertices[1] if workload.aggregates_on_load else distinct
    kept = _FEATURES_IN_CACHE * cache
    missing = max(0.0, 1 - kept / max(workload.feature_matrix_bytes, 1))
    from_memory = min(distinct, rows) * missing
    narrow = workload.feature_bytes < BYTES_PER_FEATURE and not workload.preaggregated
    return LoadWork(
        rows=rows,
        missed_rows=from_memory,
        cached_bytes=(rows - from_memory) * row_bytes,
        memory_bytes=from_memory * row_bytes + edge_bytes(workload, size),
        widened=rows * workload.widths[0] if narrow else 0.0,
        written_bytes=_loaded_values(workload, size) * workload.compute_bytes
        + edge_bytes(workload, size),
        lookups=distinct + size.edges[0] if workload.uses_degrees else 0.0,
    )


def transfer_bytes(workload: Workload, size: BatchSize) -> tuple[float, float]:
    """Return the bytes of rows and of topology that cross the link, the numerator of eq. 8.

    If the host aggregates the first layer, |V^1| rows of the first product's width take the
    place of |V^0|·f^0, and its block is not sent. If the device has a cache, the rows that it
    lacks cross the link as they are stored.
    """
    if workload.aggregates_on_load:
        rows = size.vertices[1] * workload.layers[0].loaded_width * BYTES_PER_FEATURE
        sent = range(1, len(size.edges))
    else:
        rows, sent = input_bytes(workload, size), range(len(size.edges))
        if workload.cache.num_bytes:
            rows = size.vertices[0] * workload.row_bytes * workload.cache.row_misses
            rows += edge_bytes(workload, size)
    topology = sum(8 * (size.vertices[layer + 1] + 1) + 4 * size.edges[layer] for layer in sent)
    return rows, topology


def input_bytes(workload: Workload, size: BatchSize) -> float:
    """Return the bytes of the first layer's input, and of edges, in a device's memory."""
    return _loaded_values(workload, size) * BYTES_PER_FEATURE + edge_bytes(workload, size)


def edge_bytes(workload: Workload, size: BatchSize) -> float:
    """Return the bytes of the features of edges that a mini-batch of ``size`` reads."""
    return sum(size.edges) * workload.num_edge_features * BYTES_PER_FEATURE


def _loaded_values(workload: Workload, size: BatchSize) -> float:
    """Return the elements of the first layer's input."""
    if workload.aggregates_on_load:
        return size.vertices[1] * workload.layers[0].loaded_width
    return size.vertices[0] * workload.widths[0]


def batch_bytes(workload: Workload, size: BatchSize) -> float:
    """Return the device memory that a mini-batch takes until it is finished."""
    _, topology = transfer_bytes(workload, size)
    return input_bytes(workload, size) + topology + activation_bytes(workload, size)


def list_reads(size: BatchSize) -> float:
    """Return the reads of a device that samples: each neighbour, and the offsets of each list."""
    return sum(size.edges) + sum(size.vertices[1:])


def activation_bytes(workload: Workload, size: BatchSize) -> float:
    """Return the bytes of hidden rows and messages, and their gradients, of a mini-batch."""
    if workload.counted is not None:
        return workload.counted.activation_bytes(size.vertices, size.edges)
    hidden = zip(size.vertices[1:], workload.widths[1:], strict=True)
    widths = (layer.message_width + layer.pair_width for layer in workload.layers)
    carried = zip(size.edges, widths, strict=True)
    return sum(ACTIVATION_BYTES * count * width for count, width in (*hidden, *carried))


def propagation_work(
    workload: Workload, size: BatchSize
) -> tuple[tuple[LayerWork, LayerWork], ...]:
    """Return each layer's work, forward and backward, for a mini-batch of ``size``.

    A model that is counted as a whole has both directions of all layers together.
    """
    if workload.counted is not None:
        return ((workload.counted.work(size.vertices, size.edges), LayerWork()),)
    work = []
    for index, layer in enumerate(workload.layers):
        sources, targets, edges = size.vertices[index], size.vertices[index + 1], size.edges[index]
        first = index == 0
        aggregated = first and workload.aggregates_on_load
        work.append(
            (
                layer.forward(edges=edges, targets=targets, sources=sources, aggregated=aggregated),
                layer.backward(edges=edges, targets=targets, sources=sources, first=first),
            )
        )
    return tuple(work)


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
    feature_bytes: float,
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
