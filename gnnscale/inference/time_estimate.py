"""Time estimate of exact inference, from a trial of each layer on sampled vertices."""

import math
import os
import tempfile
import time

import numpy as np
import torch

from gnnscale.backend.feature_loading import Vertices
from gnnscale.core import Array
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import EDGE_BYTES, FileRows, MemoryRows, file_bytes
from gnnscale.inference.layers import LayerPass, close
from gnnscale.inference.memory_plan import InferenceWork, SubsetStore

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
    """Return the estimated seconds of exact inference.

    Each layer is computed for some of its vertices. Hidden layers read zeros in a smaller store of
    the planned kind, memory or file. ``store`` has the first layer's inputs, ``features`` the rows
    that an encoder reads.
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
    """Return the seconds of a transform-first layer with its passes over the features."""
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
    """Return the seconds of encoding all rows, and encoded rows that represent all."""
    count = max(min(graph.num_vertices, _TRIAL_BYTES // features.row_bytes), 1)
    close(passes.encode(features, lambda _: None, count // _NUM_RANGES))
    begin = time.perf_counter()
    rows = passes.encode(features, lambda _: None, count)
    seconds = (time.perf_counter() - begin) * graph.num_vertices / count
    return seconds, SubsetStore(rows, lambda vertices: vertices % count, graph.num_vertices)


def _trial_vertices(vertices: Vertices, graph: Graph, rows: FeatureStore | None) -> Array:
    """Return evenly spaced ranges of ``vertices``, fewer if ``rows`` are read from the disk."""
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
    """Return the measured seconds of layer ``index`` per edge or vertex, for ``vertices``."""
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
    """Return a store of zeros for the rows of a hidden layer."""
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
    """Return the bytes that layer ``index`` writes to a file."""
    if index == len(work.widths) or not work.plan.in_file[index]:
        return 0.0
    width, num_parts = work.widths[index]
    return file_bytes(work.sizes[index].num_vertices, width) * num_parts


def _read_bytes(work: InferenceWork, index: int) -> float:
    """Return the bytes that layer ``index`` reads from the disk, once for each group of sums."""
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
