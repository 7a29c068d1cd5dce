"""Whether the first layer reads features in passes from end to end, or a chunk's rows at a time."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from gnnscale.backend import feature_loading as loading
from gnnscale.core import find_memory
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.features.disk import features_file
from gnnscale.features.disk_bandwidth import DiskRates, rates_of
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import file_bytes
from gnnscale.inference.memory_plan import InferenceWork, InputPlan, MemoryLimits, needed_vertices
from gnnscale.nn import TrainableModel
from gnnscale.nn.transform_first import TransformFirstLayer, made_rows_layer
from gnnscale.sampling import NeighborSampler

_LOG = logging.getLogger(__name__)

#: The part of the available memory that made rows may take, beside what chunks hold.
_MADE_PART = 0.7

#: Chunks whose sources are counted, to know how often a row is read.
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
    """Return ``work`` with the passes that its first layer takes, if these are faster.

    Features that exceed memory are read in passes if that takes the disk less time. Of others, rows
    are made first if all are needed, they fit, and they would be made again in each chunk.
    """
    if type(store) is not HostFeatures or store.columns is not None:
        return work
    if store.from_disk and not isinstance(graph.features, np.memmap):
        return work
    if model.encoder is not None:
        return _with_encoded(work, model, graph, store, limits)
    layer = made_rows_layer(model.layer(0), store.width)
    if layer is None or any(0 in model.reads(index) for index in range(len(work.layers))):
        return work
    first = work.needed[0]
    memory = _memory(work, graph, store, limits)
    if not store.from_disk:
        fits = 4 * layer.width * graph.num_vertices <= memory
        # What is kept for the next call depends on no weight.
        kept = 4 * store.width * graph.num_vertices <= limits.kept_bytes
        if kept or not (isinstance(first, range) and fits and layer.repeats):
            return work
        return _with(work, _planned(layer, first, memory, first))
    (vertices,) = needed_vertices(
        graph,
        first,
        1,
        chunk_edges=limits.chunk_edges,
        chunk_vertices=limits.chunk_vertices,
        num_threads=num_threads,
    )
    # A chunk's rows, of each worker, are in memory too.
    memory -= 4 * limits.file_chunk_edges * 4 * layer.width if limits.made_bytes is None else 0
    if 4 * layer.step * len(vertices) > memory:
        return work
    inputs = _planned(layer, vertices, memory, first)
    rates = rates_of(features_file(graph))
    if rates is None:
        return _with(work, inputs)
    in_passes = _passes_s(inputs, first, graph, store, rates)
    in_chunks = _chunks_s(work, graph, store, limits, rates, num_threads)
    return _with(work, inputs) if in_passes < in_chunks else work


def _with(work: InferenceWork, inputs: InputPlan) -> InferenceWork:
    """Return ``work`` that makes rows of ``inputs`` for its first layer."""
    plan, temporary = work.plan, inputs.temporary_bytes
    if temporary and work.widths and plan.in_file[0]:
        width, num_parts = work.widths[0]
        temporary += num_parts * file_bytes(len(work.needed[0]), width)
    plan = replace(plan, temporary_bytes=max(plan.temporary_bytes, temporary))
    return replace(work, plan=plan, inputs=inputs, layers=[inputs.layer, *work.layers[1:]])


def _with_encoded(
    work: InferenceWork,
    model: TrainableModel,
    graph: Graph,
    store: HostFeatures,
    limits: MemoryLimits,
) -> InferenceWork:
    """Return ``work`` that keeps what the encoder makes, if all rows of it are read."""
    if not isinstance(work.needed[0], range):
        return work
    num_rows, width = graph.num_vertices, model.widths[1]
    if 4 * num_rows * width <= _memory(work, graph, store, limits):
        return replace(work, encoded="memory")
    temporary = work.plan.temporary_bytes + file_bytes(num_rows, width)
    return replace(work, encoded="file", plan=replace(work.plan, temporary_bytes=temporary))


def _memory(work: InferenceWork, graph: Graph, store: HostFeatures, limits: MemoryLimits) -> int:
    """Return the bytes that made rows may take."""
    if limits.made_bytes is not None:
        return limits.made_bytes
    memory = int(find_memory().available * _MADE_PART) - work.plan.memory_bytes
    # Mapped features, of which the system counts what it has as available, are to stay.
    mapped = graph.path is not None and not store.from_disk
    return memory - (graph.feature_bytes + graph.topology_bytes if mapped else 0)


def _planned(
    layer: TransformFirstLayer, vertices: loading.Vertices, memory: int, first: loading.Vertices
) -> InputPlan:
    """Return the plan of as few passes as ``memory`` allows."""
    steps = -(-layer.width // layer.step)
    at_once = min(max(memory // (4 * layer.step * max(len(vertices), 1)), 1), steps)
    num_blocks = -(-steps // at_once)
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
    inputs: InputPlan,
    first: loading.Vertices,
    graph: Graph,
    store: HostFeatures,
    rates: DiskRates,
) -> float:
    """Return the seconds that the disk reads, and moves sums, in passes."""
    pass_s = _in_order_s(inputs.vertices, graph, store, rates)
    own_s = _in_order_s(first, graph, store, rates)
    num_own = inputs.num_passes - len(inputs.blocks)
    moved_s = 2 * inputs.temporary_bytes / rates.bytes_per_s
    return len(inputs.blocks) * pass_s + num_own * own_s + moved_s


def _in_order_s(
    vertices: loading.Vertices, graph: Graph, store: HostFeatures, rates: DiskRates
) -> float:
    """Return the seconds that the disk takes for the rows of ``vertices`` once."""
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
    """Return the seconds that the disk takes for the rows of each chunk, counted of some.

    Pages that memory holds beside the topology and hidden layers are not read.
    """
    chunks = list(loading.cut(graph, work.needed[0], limits.chunk_edges, limits.chunk_vertices))
    sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
    counted = chunks[:: max(len(chunks) // _COUNTED_CHUNKS, 1)]
    num_rows = sum(len(sampler.reach(each, 0).input_vertices) for each in counted)
    num_rows = num_rows * len(chunks) // max(len(counted), 1)
    beside = find_memory().available - graph.topology_bytes - work.plan.memory_bytes
    missed = 1 - min(max(beside / graph.feature_bytes, 0), 1)
    pages = store.row_bytes // _PAGE + 1
    return missed * rates.seconds(num_rows, float(num_rows) * pages * _PAGE)
