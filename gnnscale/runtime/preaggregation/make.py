"""The first layer's aggregation of all vertices is computed once, and kept: PaGraph's DGL+PP."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.backend.chunks import CHUNK_EDGES, CHUNK_VERTICES, ChunkLoader
from gnnscale.core.progress import track
from gnnscale.dataset.storage.folder import new_folder
from gnnscale.dataset.storage.space import check_space, size
from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.graph_files import ArrayEntry
from gnnscale.model import ModelConfig
from gnnscale.model.layer import LinearAggregationLayer
from gnnscale.model.options import LayeredModel
from gnnscale.npy import NpyWriter
from gnnscale.runtime.preaggregation.store import (
    ROWS_FILE,
    Identity,
    check_rows,
    identify,
    rows_place,
    write_meta,
)
from gnnscale.sampler import Block

__all__ = ["preaggregate"]

_LOG = logging.getLogger(__name__)


def preaggregate(
    model: ModelConfig,
    graph: Graph,
    *,
    num_threads: int,
    chunk_edges: int = CHUNK_EDGES,
    chunk_vertices: int = CHUNK_VERTICES,
) -> Path:
    """Aggregate the features of ``graph`` for a model's first layer, unless that is done already.

    Args:
        model: whose first layer aggregates on load.
        graph: of a store.
        num_threads: threads to use; the result does not depend on it.
        chunk_edges: about so many edges are aggregated in one go, which bounds memory.
        chunk_vertices: about so many vertices, at most.

    Returns:
        The directory of the rows.

    Raises:
        GraphError: they cannot be written, and nothing is left behind; or those that are there are
            of something else, damaged or not finite.
        NoSpaceError: the disk has no room for them.
    """
    layer = _first_layer(model, graph)
    identity = identify(graph, layer=type(layer), width=_width(layer, graph))
    path = rows_place(identity)
    with new_folder(path) as folder:
        if folder is not None:
            chunks = (chunk_edges, chunk_vertices)
            rows = _write_rows(folder, path, layer, graph, identity, num_threads, chunks)
            write_meta(folder, identity, rows)
    check_rows(path, graph, identity)
    return path


def _first_layer(model: ModelConfig, graph: Graph) -> LinearAggregationLayer:
    """Return a layer like the model's first one; no weight plays a part in what it aggregates."""
    assert isinstance(model, LayeredModel)
    with torch.random.fork_rng(devices=[]):
        layer = model.layer(graph.num_features, 1, last=False)
    assert isinstance(layer, LinearAggregationLayer)
    return layer


def _width(layer: LinearAggregationLayer, graph: Graph) -> int:
    """Return the width of an aggregated row."""
    nothing = Block(indptr=np.zeros(1, np.int64), indices=np.empty(0, np.int32), num_src=0)
    return layer.aggregation(nothing, np.empty(0, np.float32)).width(graph.num_features)


def _write_rows(
    folder: Path,
    path: Path,
    layer: LinearAggregationLayer,
    graph: Graph,
    identity: Identity,
    num_threads: int,
    chunks: tuple[int, int],
) -> ArrayEntry:
    """Write ``rows.npy`` into ``folder``, chunk by chunk, and return its entry."""
    num_bytes = graph.num_vertices * identity.width * np.dtype(np.float32).itemsize
    what = f"aggregating the features of {graph.name} for {type(layer).__name__}"
    check_space(what, folder, disk=num_bytes)
    _LOG.info(f"{what} in {path}: needs {size(num_bytes)} of disk")
    loader = ChunkLoader(graph, num_threads=num_threads, uses_degrees=layer.uses_degrees)
    vertices = np.arange(graph.num_vertices, dtype=graph.indices.dtype)
    loaded = loader.load(
        layer,
        HostFeatures.of(graph),
        vertices,
        chunk_edges=chunks[0],
        chunk_vertices=chunks[1],
    )
    writer = NpyWriter(folder / ROWS_FILE, np.dtype(np.float32), (identity.width,))
    try:
        with track(what, total=len(vertices), unit="vertices") as advance:
            for _, rows in loaded:
                writer.append(rows.numpy())
                advance(len(rows))
        entry: dict[str, Any] = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return ArrayEntry(**(entry | {"shape": tuple(entry["shape"])}))
