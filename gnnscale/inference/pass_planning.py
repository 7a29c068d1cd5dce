"""Planning of exact inference: how features are read, and how long it takes.

Features are read in sequential passes, or rows are gathered for each chunk. The time is estimated
from a trial of each layer on sampled vertices.
"""

import logging
import math
import os
import tempfile
import time
from dataclasses import replace

import numpy as np
import torch

from gnnscale.backend import feature_loading as loading
from gnnscale.backend.feature_loading import Vertices
from gnnscale.core import Array, read_memory
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.features.disk import DiskRates, cached_disk_rates, features_file
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import EDGE_BYTES, FileRows, MemoryRows, file_bytes
from gnnscale.inference.layers import LayerPass, close
from gnnscale.inference.memory_plan import (
    InferenceWork,
    InputPlan,
    MemoryLimits,
    SubsetStore,
    needed_vertices,
)
from gnnscale.nn import TrainableModel, TransformFirstLayer, transform_first_layer
from gnnscale.sampling import NeighborSampler

_LOG = logging.getLogger(__name__)

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
    (vertices,) = needed_vertices(
        graph,
        first,
        1,
        chunk_edges=limits.chunk_edges,
        chunk_vertices=limits.chunk_vertices,
        num_threads=num_threads,
    )
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


#: Vertices in a trial of a layer, and number of evenly spaced ranges that contain them.
_TRIAL_VERTICES, _NUM_RANGES = 1 << 17, 8
#: Bytes of rows in a trial: more than processor caches, and quickly allocated.
_TRIAL_BYTES = 128 << 20
#: Bytes written in a trial of the disk.
_DISK_TRIAL_BYTES = 64 << 20


def estimated_s(
    passes: LayerPass,
    work: InferenceWork,
    graph: Graph,
    store: FeatureStore,
    features: FeatureStore | None = None,
) -> float:
    """Return the estimated seconds of exact inference, from a trial of each layer on some vertices.

    In a trial, hidden layers read zeros from a small store, in memory or a file as planned.
    ``store`` has the first layer's inputs, ``features`` the rows that an encoder reads.
    """
    rate = disk_rate() if work.plan.temporary_bytes else math.inf
    seconds = 0.0
    if work.encoded is not None:
        assert features is not None
        seconds, store = _encoding_s(passes, work, graph, features)
        in_file = work.encoded == "file"
        num_bytes = file_bytes(graph.num_vertices, store.width) if in_file else 0
        seconds = max(seconds, num_bytes / rate)
    for index, layer in enumerate(work.sizes):
        if index == 0 and work.inputs is not None:
            seconds += max(_first_s(passes, work, graph, store), _written_bytes(work, 0) / rate)
            seconds += 2 * work.inputs.temporary_bytes / rate
            continue
        rows = store if index == 0 else _zeros(work, index - 1, graph.num_vertices)
        try:
            edge_s = _edge_s(passes, index, rows, _trial_vertices(work.needed[index], graph, rows))
        finally:
            if index > 0 or work.encoded is not None:
                close(rows)
        # Disk accesses overlap with computation.
        moved = _written_bytes(work, index) + _read_bytes(work, index)
        seconds += max(edge_s * (layer.num_edges + layer.num_vertices), moved / rate)
    return seconds


def _first_s(passes: LayerPass, work: InferenceWork, graph: Graph, store: FeatureStore) -> float:
    """Return the seconds of the first layer, computed in passes, estimated from a trial."""
    trial = _trial_vertices(work.needed[0], graph, None)
    out = passes.output(0, len(trial))
    try:
        return passes.first(store).estimated_s(
            trial, work.sizes[0], lambda chunks: passes.compute(0, [chunks], out)
        )
    finally:
        close(out)


def _encoding_s(
    passes: LayerPass, work: InferenceWork, graph: Graph, features: FeatureStore
) -> tuple[float, SubsetStore]:
    """Return the estimated seconds of encoding all rows, and a store of a trial's encoded rows.

    The store has one of these rows for any vertex.
    """
    count = max(min(graph.num_vertices, _TRIAL_BYTES // features.row_bytes), 1)
    close(passes.encode(features, lambda _: None, count // _NUM_RANGES))
    begin = time.perf_counter()
    rows = passes.encode(features, lambda _: None, count)
    seconds = (time.perf_counter() - begin) * graph.num_vertices / count
    return seconds, SubsetStore(rows, lambda vertices: vertices % count, graph.num_vertices)


def _trial_vertices(vertices: Vertices, graph: Graph, rows: FeatureStore | None) -> Array:
    """Return some of ``vertices`` in evenly spaced ranges.

    They are fewer if ``rows``, which a trial reads for their neighbors, are on the disk.
    """
    count = _TRIAL_VERTICES
    if isinstance(rows, HostFeatures) and rows.from_disk:
        neighbors = 1 + graph.num_edges // max(graph.num_vertices, 1)
        count = max(_NUM_RANGES, min(count, _TRIAL_BYTES // (neighbors * rows.row_bytes)))
    length = count // _NUM_RANGES
    starts = range(0, max(len(vertices), 1), max(-(-len(vertices) // _NUM_RANGES), length))
    return np.concatenate(
        [np.asarray(vertices[first : first + length], graph.indices.dtype) for first in starts]
    )


def _edge_s(passes: LayerPass, index: int, rows: FeatureStore, vertices: Array) -> float:
    """Compute layer ``index`` for ``vertices``; return seconds / (destinations + edges)."""
    out = passes.output(index, len(vertices))
    try:
        seconds, count = 0.0, 1
        # The first run has one-time costs, such as the clearing of memory.
        for trial in (vertices[: len(vertices) // _NUM_RANGES], vertices):
            begin, count = time.perf_counter(), len(trial)
            chunks = passes.chunks(index, rows, trial)
            self_stores = [rows] * passes.num_reads(index)
            for block, _ in passes.compute(index, chunks, out, self_stores):
                count += block.num_edges
            seconds = time.perf_counter() - begin
        return seconds / max(count, 1)
    finally:
        close(out)


def _zeros(work: InferenceWork, hidden: int, num_vertices: int) -> SubsetStore:
    """Return a small store of zeros in place of the rows of hidden layer number ``hidden``."""
    num_rows, (width, num_parts) = len(work.needed[hidden]), work.widths[hidden]
    count = max(min(num_rows, _TRIAL_BYTES // file_bytes(1, width)), 1)
    rows: MemoryRows | FileRows
    if work.plan.in_file[hidden]:
        # The trial has the planned number of ranges.
        range_bytes = work.plan.stream_bytes * count // num_rows
        rows = FileRows(count, width, num_parts=num_parts, range_bytes=range_bytes)
    else:
        rows = MemoryRows(count, width, num_parts=num_parts)
    zeros = torch.zeros(min(count, _TRIAL_VERTICES), num_parts * width)
    for first in range(0, count, len(zeros)):
        rows.write(first, zeros[: count - first])
    return SubsetStore(rows, lambda vertices: vertices % count, num_vertices)


def _written_bytes(work: InferenceWork, index: int) -> float:
    """Return the bytes that layer ``index`` writes to a file; 0: its rows stay in memory."""
    if index == len(work.widths) or not work.plan.in_file[index]:
        return 0.0
    width, num_parts = work.widths[index]
    return file_bytes(work.sizes[index].num_vertices, width) * num_parts


def _read_bytes(work: InferenceWork, index: int) -> float:
    """Return the bytes that layer ``index`` reads of the previous layer's file, from the disk.

    It reads the file once for each group of destinations whose sums fit into memory. 0: the rows
    are in memory or the page cache.
    """
    plan, layer = work.plan, work.sizes[index]
    if index == 0 or not plan.in_file[index - 1] or plan.cached:
        return 0.0
    width, _ = work.widths[index - 1]
    sums = file_bytes(layer.num_vertices, width) + layer.num_edges * EDGE_BYTES
    return file_bytes(len(work.needed[index - 1]), width) * math.ceil(sums / plan.stream_bytes)


def disk_rate() -> float:
    """Return the write bandwidth of the disk of temporary files in bytes/s, from a trial."""
    with tempfile.TemporaryFile(prefix="gnnscale-inference-") as file:
        start = time.perf_counter()
        file.write(bytes(_DISK_TRIAL_BYTES))
        file.flush()
        os.fdatasync(file.fileno())
        return _DISK_TRIAL_BYTES / (time.perf_counter() - start)
