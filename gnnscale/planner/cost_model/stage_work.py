"""Amounts of work of the stages of a mini-batch: the numerators of eq. 7, 8, 11 and 12.

P3 (Gandhi and Iyer, OSDI 2021, section 3.2) moves rows of the first hidden layer between devices,
and data parallelism moves input features to devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.nn.cost import BYTES_PER_FEATURE, LayerWork
from gnnscale.planner.cost_model.equations import ACTIVATION_BYTES, BatchSize
from gnnscale.planner.cost_model.workload import Workload

#: Fraction of the last-level cache for features; activations and samples use the remainder.
_FEATURES_IN_CACHE = 0.125
#: Bytes of a cache line.
_LINE = 64


@dataclass(frozen=True, kw_only=True)
class LoadWork:
    """Work of the host to load a mini-batch: rows, bytes, conversions and lookups."""

    rows: float  #: feature rows read, including repeated reads
    missed_rows: float  #: feature rows read from memory instead of the cache
    cached_bytes: float  #: bytes read from the cache
    memory_bytes: float  #: bytes read from memory in whole cache lines, the numerator of eq. 7
    widened: float  #: values converted to float32 from a narrower stored type
    written_bytes: float  #: bytes of the loaded rows, aggregated or raw
    lookups: float  #: degrees looked up


def load_work(workload: Workload, size: BatchSize, *, cache: int) -> LoadWork:
    """Return the host's work to load a mini-batch; ``cache`` is its last-level cache in bytes.

    If the host aggregates, it reads a row per edge: from memory once, then from the cache. An
    eighth of the cache also holds some rows of the feature matrix from earlier mini-batches.
    """
    row_bytes = workload.row_bytes
    if row_bytes % _LINE:
        # Neighboring rows share the cache lines at the ends of a row.
        row_bytes += _LINE
    distinct = size.vertices[0]
    rows = size.edges[0] + size.vertices[1] if workload.aggregates_on_load else distinct
    cached = _FEATURES_IN_CACHE * cache
    missing = max(0.0, 1 - cached / max(workload.num_vertices * workload.row_bytes, 1))
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
    """Return the bytes of rows (with edge features) and of topology over the link, eq. 8.

    If the host aggregates the first layer, |V^1| rows of the first product's width replace
    |V^0|·f^0, and its block is not sent. With a device cache, only missed rows cross, in their
    stored type.
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
    """Return the bytes of the first layer's input and of edge features in device memory."""
    return _loaded_values(workload, size) * BYTES_PER_FEATURE + edge_bytes(workload, size)


def edge_bytes(workload: Workload, size: BatchSize) -> float:
    """Return the bytes of edge features of a mini-batch."""
    return sum(size.edges) * workload.num_edge_features * BYTES_PER_FEATURE


def _loaded_values(workload: Workload, size: BatchSize) -> float:
    """Return the number of elements of the first layer's input, raw or aggregated by the host."""
    if workload.aggregates_on_load:
        return size.vertices[1] * workload.layers[0].loaded_width
    return size.vertices[0] * workload.widths[0]


def batch_bytes(workload: Workload, size: BatchSize) -> float:
    """Return the bytes of device memory that a mini-batch occupies until its step ends."""
    _, topology = transfer_bytes(workload, size)
    return input_bytes(workload, size) + topology + activation_bytes(workload, size)


def list_reads(size: BatchSize) -> float:
    """Return how many times sampling a mini-batch on a device reads adjacency lists.

    This is the number of sampled edges plus the number of destinations, over all layers.
    """
    return sum(size.edges) + sum(size.vertices[1:])


def activation_bytes(workload: Workload, size: BatchSize) -> float:
    """Return the bytes of a mini-batch's hidden rows and messages, and their gradients."""
    if workload.counted is not None:
        return workload.counted.activation_bytes(size.vertices, size.edges)
    hidden = zip(size.vertices[1:], workload.widths[1:], strict=True)
    widths = (layer.message_width + layer.pair_width for layer in workload.layers)
    carried = zip(size.edges, widths, strict=True)
    return sum(ACTIVATION_BYTES * count * width for count, width in (*hidden, *carried))


def propagation_work(
    workload: Workload, size: BatchSize
) -> tuple[tuple[LayerWork, LayerWork], ...]:
    """Return each layer's forward and backward work; with ``workload.counted`` one pair for all."""
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


#: Header of a block: numbers of destinations, sources and edges, and flags of optional arrays:
#: int32.
_HEADER_BYTES = 24
#: Bytes per destination for its number of edges, and per edge for its source.
_INDEX_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class StepBytes:
    """Bytes that all devices receive in a step, by data parallelism and by P3."""

    features: float  #: input rows to the devices, data-parallel
    first_gradients: float  #: gradients of W¹ in a ring all-reduce, data-parallel
    blocks: float  #: input blocks between devices, P3
    partials: float  #: partial products and their gradients between devices, P3

    @property
    def data_parallel(self) -> float:
        """Bytes of data parallelism, where every device has the full first layer."""
        return self.features + self.first_gradients

    @property
    def p3(self) -> float:
        """Bytes of P3, where a device has some columns of the features, and their part of W¹."""
        return self.blocks + self.partials

    @property
    def cheaper(self) -> str:
        """The scheme that moves fewer bytes: ``p3`` or ``data_parallel``."""
        return "p3" if self.p3 < self.data_parallel else "data_parallel"


def step_bytes(
    sizes: Sequence[BatchSize],
    *,
    widths: Sequence[int],
    feature_bytes: float,
    num_first_weights: int,
    id_bytes: int = 4,
) -> StepBytes:
    """Return the bytes of a step, in which device i has a mini-batch of ``sizes[i]``.

    ``widths`` are f^0 to f^L, ``feature_bytes`` and ``id_bytes`` the bytes of a feature and of a
    vertex id, and ``num_first_weights`` the elements of W¹.
    """
    num_peers = len(sizes) - 1
    return StepBytes(
        features=sum(size.vertices[0] for size in sizes) * widths[0] * feature_bytes,
        first_gradients=2 * num_peers * num_first_weights * BYTES_PER_FEATURE,
        blocks=num_peers * sum(block_bytes(size, id_bytes) for size in sizes),
        partials=num_peers * sum(partial_bytes(size, widths[1]) for size in sizes),
    )


def partial_bytes(size: BatchSize, width: int) -> float:
    """Return the bytes of a partial product ``[|V^1|, width]`` and its gradient."""
    return 2 * size.vertices[1] * width * BYTES_PER_FEATURE


def block_bytes(size: BatchSize, id_bytes: int = 4) -> float:
    """Return the bytes of an input block: vertices, edges per destination, and sources."""
    indices = (size.vertices[1] + size.edges[0]) * _INDEX_BYTES
    return _HEADER_BYTES + size.vertices[0] * id_bytes + indices
