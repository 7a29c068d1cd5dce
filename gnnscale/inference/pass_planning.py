"""Planning of exact inference: features are read in passes, or rows are gathered for chunks."""

from dataclasses import replace

import numpy as np

from gnnscale.backend import feature_loading as loading
from gnnscale.core import read_memory
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.features.disk import DiskRates, cached_disk_rates, features_file
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import file_bytes
from gnnscale.inference.memory_plan import (
    InferenceWork,
    InputPlan,
    MemoryLimits,
    needed_vertices,
)
from gnnscale.nn import TrainableModel, TransformFirstLayer, transform_first_layer
from gnnscale.sampling import NeighborSampler

#: Maximum share of the available memory of transformed rows.
_TRANSFORMED_SHARE = 0.7

#: Chunks whose sources are counted to estimate the number of row reads.
_COUNTED_CHUNKS = 8

_PAGE = 4096


def with_passes(
    work: InferenceWork,
    model: TrainableModel,
    graph: Graph,
    store: FeatureStore,
    limits: MemoryLimits,
    *,
    num_threads: int,
) -> InferenceWork:
    """Return ``work`` with a faster plan to read and transform the features, if there is one.

    Features on the disk are read in sequential passes, unless gathering the rows of each chunk
    takes less time at the disk's measured rates. Features in memory are transformed before all
    chunks if the first layer is computed for all vertices, the rows fit into memory, and chunks
    would transform a row repeatedly. A model's encoder, if any, is applied once to all vertices
    before the chunks if the first layer is computed for all vertices.
    """
    if type(store) is not HostFeatures or store.columns is not None:
        return work
    if store.from_disk and not isinstance(graph.features, np.memmap):
        return work
    if model.encoder is not None:
        return _with_encoding(work, model, graph, store, limits)
    layer = transform_first_layer(model.layer(0), store.width)
    if layer is None or any(0 in model.reads(index) for index in range(len(work.layers))):
        return work
    first = work.needed[0]
    memory = _memory_for_rows(work, graph, store, limits)
    if not store.from_disk:
        fits = 4 * layer.width * graph.num_vertices <= memory
        # Cached inputs must not depend on weights.
        cached = 4 * store.width * graph.num_vertices <= limits.kept_bytes
        if cached or not (isinstance(first, range) and fits and layer.repeats):
            return work
        return _with_inputs(work, _plan_passes(layer, first, memory, first))
    (vertices,) = needed_vertices(graph, first, 1, limits, num_threads=num_threads)
    # The rows of four chunks, one per worker, are in memory too.
    memory -= 4 * limits.file_chunk_edges * 4 * layer.width if limits.made_bytes is None else 0
    if 4 * layer.step * len(vertices) > memory:
        return work
    inputs = _plan_passes(layer, vertices, memory, first)
    rates = cached_disk_rates(features_file(graph))
    if rates is None:
        return _with_inputs(work, inputs)
    passes_s = _passes_s(inputs, first, graph, store, rates)
    chunks_s = _chunks_s(work, graph, store, limits, rates, num_threads)
    return _with_inputs(work, inputs) if passes_s < chunks_s else work


def _with_inputs(work: InferenceWork, inputs: InputPlan) -> InferenceWork:
    """Return ``work`` with passes ``inputs`` for its first layer, and disk space for their sums."""
    plan, temporary = work.plan, inputs.temporary_bytes
    if temporary and work.widths and plan.in_file[0]:
        width, num_parts = work.widths[0]
        temporary += num_parts * file_bytes(len(work.needed[0]), width)
    plan = replace(plan, temporary_bytes=max(plan.temporary_bytes, temporary))
    return replace(work, plan=plan, inputs=inputs, layers=[inputs.layer, *work.layers[1:]])


def _with_encoding(
    work: InferenceWork,
    model: TrainableModel,
    graph: Graph,
    store: HostFeatures,
    limits: MemoryLimits,
) -> InferenceWork:
    """Return ``work`` that encodes all rows once, to memory or a file.

    ``work`` is unchanged unless the first layer is computed for all vertices.
    """
    if not isinstance(work.needed[0], range):
        return work
    num_rows, width = graph.num_vertices, model.widths[1]
    if 4 * num_rows * width <= _memory_for_rows(work, graph, store, limits):
        return replace(work, encoded="memory")
    temporary = work.plan.temporary_bytes + file_bytes(num_rows, width)
    return replace(work, encoded="file", plan=replace(work.plan, temporary_bytes=temporary))


def _memory_for_rows(
    work: InferenceWork, graph: Graph, store: HostFeatures, limits: MemoryLimits
) -> int:
    """Return the maximum bytes of rows that are held in memory, transformed or encoded.

    Before all chunks, the first layer transforms the rows, or the model's encoder encodes them. The
    maximum is ``limits.made_bytes``; None: a share of the available memory, less what the plan and
    mapped files take.
    """
    if limits.made_bytes is not None:
        return limits.made_bytes
    memory = int(read_memory().available * _TRANSFORMED_SHARE) - work.plan.memory_bytes
    # Mapped files count as available memory, but should stay in the page cache.
    mapped = graph.path is not None and not store.from_disk
    return memory - (graph.feature_bytes + graph.topology_bytes if mapped else 0)


def _plan_passes(
    layer: TransformFirstLayer, vertices: loading.Vertices, memory: int, first: loading.Vertices
) -> InputPlan:
    """Return the plan of the fewest passes that fit into ``memory`` bytes.

    A pass transforms the rows of ``vertices`` to some columns; ``first`` are the vertices for which
    the first layer is computed.
    """
    steps = -(-layer.width // layer.step)
    steps_per_pass = min(max(memory // (4 * layer.step * max(len(vertices), 1)), 1), steps)
    num_blocks = -(-steps // steps_per_pass)
    width = -(-steps // num_blocks) * layer.step
    starts = range(0, layer.width, width)
    blocks = [(begin, min(begin + width, layer.width)) for begin in starts]
    temporary = file_bytes(len(first), width) * len(blocks) if len(blocks) > 1 else 0
    return InputPlan(
        layer=layer,
        vertices=vertices,
        blocks=blocks,
        memory_bytes=4 * len(vertices) * min(width, layer.width),
        temporary_bytes=temporary,
    )


def _passes_s(
    inputs: InputPlan, first: loading.Vertices, graph: Graph, store: HostFeatures, rates: DiskRates
) -> float:
    """Return the disk seconds of all passes, and of writing and reading their sums.

    ``first``: vertices for which the first layer is computed; it may read their own features too.
    """
    pass_s = _sequential_s(inputs.vertices, graph, store, rates)
    self_s = _sequential_s(first, graph, store, rates)
    num_self = inputs.num_passes - len(inputs.blocks)
    moved_s = 2 * inputs.temporary_bytes / rates.bytes_per_s
    return len(inputs.blocks) * pass_s + num_self * self_s + moved_s


def _sequential_s(
    vertices: loading.Vertices, graph: Graph, store: HostFeatures, rates: DiskRates
) -> float:
    """Return the disk seconds of reading the rows of ascending ``vertices`` once."""
    if isinstance(vertices, range):
        return graph.feature_bytes / rates.bytes_per_s
    gaps = np.abs(np.diff(vertices)) * store.row_bytes
    num_runs = 1 + int((gaps > max(rates.max_gap_bytes, store.row_bytes)).sum())
    num_bytes = min(
        gaps.sum(where=gaps <= rates.max_gap_bytes) + num_runs * store.row_bytes, 1 << 62
    )
    return rates.seconds(num_runs, float(num_bytes))


def _chunks_s(
    work: InferenceWork,
    graph: Graph,
    store: HostFeatures,
    limits: MemoryLimits,
    rates: DiskRates,
    num_threads: int,
) -> float:
    """Return the disk seconds of gathering the rows of all chunks, estimated from a few chunks.

    Pages that fit into memory next to topology and hidden layers are not counted.
    """
    chunks = list(loading.cut(graph, work.needed[0], limits.chunk_edges, limits.chunk_vertices))
    sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
    counted = chunks[:: max(len(chunks) // _COUNTED_CHUNKS, 1)]
    num_rows = sum(len(sampler.reach(chunk, 0).input_vertices) for chunk in counted)
    num_rows = num_rows * len(chunks) // max(len(counted), 1)
    free = read_memory().available - graph.topology_bytes - work.plan.memory_bytes
    missed = 1 - min(max(free / graph.feature_bytes, 0), 1)
    pages = store.row_bytes // _PAGE + 1
    return missed * rates.seconds(num_rows, float(num_rows) * pages * _PAGE)
