"""How long exact inference takes, by trying each layer on some vertices."""

import math
import time

import numpy as np
import torch

from gnnscale.backend.feature_loading import Vertices
from gnnscale.core import Array
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import EDGE_BYTES, FileRows, MemoryRows, file_bytes
from gnnscale.inference.layers import LayerPass, close
from gnnscale.inference.memory_plan import InferenceWork, SubsetStore, disk_rate

#: Vertices that a layer is tried on, in stretches from all over them.
_TRIED_VERTICES, _STRETCHES = 1 << 17, 8
#: Bytes of the rows that they read: more than caches hold, and soon made.
_TRIED_BYTES = 128 << 20


def estimated_s(
    passes: LayerPass,
    work: InferenceWork,
    graph: Graph,
    store: FeatureStore,
    features: FeatureStore | None = None,
) -> float:
    """Return the seconds of one pass over all layers.

    Each is computed for some of its vertices, hidden ones from rows of zeros, fewer than they will
    be but in the same kind of place.

    Args:
        store: the rows that the first layer reads.
        features: what an encoder makes them of; None without an encoder.
    """
    rate = disk_rate() if work.plan.temporary_bytes else math.inf
    seconds = 0.0
    if work.encoded is not None:
        assert features is not None
        seconds, store = _encoding_s(passes, work, graph, features)
        seconds = max(seconds, _encoded_bytes(work, graph, store) / rate)
    for index, layer in enumerate(work.sizes):
        if index == 0 and work.inputs is not None:
            seconds += max(_first_s(passes, work, graph, store), _written_bytes(work, 0) / rate)
            seconds += 2 * work.inputs.temporary_bytes / rate
            continue
        rows = store if index == 0 else _zeros(work, index - 1, graph.num_vertices)
        try:
            edge_s = _edge_s(passes, index, rows, _some(work.needed[index], graph, rows))
        finally:
            if index > 0 or work.encoded is not None:
                close(rows)
        # The system writes rows to the disk, and reads them ahead, while others are computed.
        moved = _written_bytes(work, index) + _read_bytes(work, index)
        seconds += max(edge_s * (layer.num_edges + layer.num_vertices), moved / rate)
    return seconds


def _first_s(passes: LayerPass, work: InferenceWork, graph: Graph, store: FeatureStore) -> float:
    """Return the seconds of a first layer whose rows are made in passes."""
    tried = _some(work.needed[0], graph, None)
    out = passes.output(0, len(tried))
    try:
        return passes.first(store).estimated_s(
            tried, work.sizes[0], lambda pieces: passes.compute(0, [pieces], out)
        )
    finally:
        close(out)


def _encoding_s(
    passes: LayerPass, work: InferenceWork, graph: Graph, features: FeatureStore
) -> tuple[float, SubsetStore]:
    """Return the seconds in which all rows are encoded, and some that stand for all."""
    count = max(min(graph.num_vertices, _TRIED_BYTES // features.row_bytes), 1)
    close(passes.encode(features, lambda _: None, count // _STRETCHES))
    begin = time.perf_counter()
    rows = passes.encode(features, lambda _: None, count)
    seconds = (time.perf_counter() - begin) * graph.num_vertices / count
    return seconds, SubsetStore(rows, lambda vertices: vertices % count, graph.num_vertices)


def _encoded_bytes(work: InferenceWork, graph: Graph, rows: FeatureStore) -> float:
    """Return the bytes of encoded rows in a file."""
    return file_bytes(graph.num_vertices, rows.width) if work.encoded == "file" else 0.0


def _some(vertices: Vertices, graph: Graph, rows: FeatureStore | None) -> Array:
    """Return some of ``vertices``, in stretches from all over them.

    They are fewer if ``rows`` are read from the disk, which takes as long as all else together;
    None for rows that are not.
    """
    count = _TRIED_VERTICES
    if isinstance(rows, HostFeatures) and rows.from_disk:
        neighbours = 1 + graph.num_edges // max(graph.num_vertices, 1)
        count = max(_STRETCHES, min(count, _TRIED_BYTES // (neighbours * rows.row_bytes)))
    length = count // _STRETCHES
    starts = range(0, max(len(vertices), 1), max(-(-len(vertices) // _STRETCHES), length))
    return np.concatenate(
        [np.asarray(vertices[first : first + length], graph.indices.dtype) for first in starts]
    )


def _edge_s(passes: LayerPass, index: int, rows: FeatureStore, vertices: Array) -> float:
    """Return the seconds that layer ``index`` takes for an edge or a vertex."""
    out = passes.output(index, len(vertices))
    try:
        seconds, count = 0.0, 1
        # What happens the first time, such as that memory is cleared, is not to count.
        for tried in (vertices[: len(vertices) // _STRETCHES], vertices):
            begin, count = time.perf_counter(), len(tried)
            pieces, own = passes.pieces(index, rows, tried), [rows] * passes.num_reads(index)
            for block, _ in passes.compute(index, pieces, out, own):
                count += block.num_edges
            seconds = time.perf_counter() - begin
        return seconds / max(count, 1)
    finally:
        close(out)


def _zeros(work: InferenceWork, hidden: int, num_vertices: int) -> SubsetStore:
    """Return zeros for rows of a hidden layer, those of any vertex."""
    num_rows, (width, num_parts) = len(work.needed[hidden]), work.widths[hidden]
    count = max(min(num_rows, _TRIED_BYTES // file_bytes(1, width)), 1)
    rows: MemoryRows | FileRows
    if work.plan.in_file[hidden]:
        # As many stretches as there will be, and as many sums for each.
        stretch_bytes = work.plan.stream_bytes * count // num_rows
        rows = FileRows(count, width, num_parts=num_parts, stretch_bytes=stretch_bytes)
    else:
        rows = MemoryRows(count, width, num_parts=num_parts)
    zeros = torch.zeros(min(count, _TRIED_VERTICES), num_parts * width)
    for first in range(0, count, len(zeros)):
        rows.write(first, zeros[: count - first])
    return SubsetStore(rows, lambda vertices: vertices % count, num_vertices)


def _written_bytes(work: InferenceWork, index: int) -> float:
    """Return the bytes of layer ``index`` in a file."""
    if index == len(work.widths) or not work.plan.in_file[index]:
        return 0.0
    width, num_parts = work.widths[index]
    return file_bytes(work.sizes[index].num_vertices, width) * num_parts


def _read_bytes(work: InferenceWork, index: int) -> float:
    """Return the bytes that layer ``index`` reads of the disk: a file as often as sums do not fit.

    One that the system has room for is read from memory.
    """
    plan, layer = work.plan, work.sizes[index]
    if index == 0 or not plan.in_file[index - 1] or plan.cached:
        return 0.0
    width, _ = work.widths[index - 1]
    sums = file_bytes(layer.num_vertices, width) + layer.num_edges * EDGE_BYTES
    return file_bytes(len(work.needed[index - 1]), width) * math.ceil(sums / plan.stream_bytes)
