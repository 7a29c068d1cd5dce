"""Preaggregated first-layer rows, computed once per graph and stored (PaGraph's DGL+PP)."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from gnnscale.backend.feature_loading import CHUNK_EDGES, CHUNK_VERTICES, ChunkLoader
from gnnscale.core import Float32Array, GraphError, track
from gnnscale.core.artifact import ArtifactType, Form, check_space, digest, new_folder, size
from gnnscale.core.artifact.npy import ArrayEntry, NpyWriter, read_slices
from gnnscale.core.config.renamed import stored_path
from gnnscale.data.validation import check_features
from gnnscale.features import FeatureStore, HostFeatures, PreaggregatedFeatures
from gnnscale.graph import Graph
from gnnscale.nn import ModelConfig
from gnnscale.nn.conv.linear import LinearAggregationLayer
from gnnscale.partition.store import GraphIdentity, check_graph, describe
from gnnscale.run import artifacts as run_artifacts
from gnnscale.run.artifacts import RunArtifact, reopen_artifact
from gnnscale.sampling import Block

_LOG = logging.getLogger(__name__)
PREAGGREGATED = ArtifactType(
    name="table of aggregated rows",
    header="preaggregated.json",
    version=2,
    folder="preaggregated",
    max_bytes=1 << 20,
)


@dataclass(frozen=True, kw_only=True)
class PreaggregationIdentity:
    """Inputs that determine preaggregated rows."""

    graph: GraphIdentity  #: graph whose features are aggregated, with the content hash
    layer: str  #: class path of the layer, whose aggregation depends on no weight
    width: int  #: elements of an aggregated row


@dataclass(frozen=True, kw_only=True)
class AggregatedRows:
    """Preaggregated rows, mapped from their file."""

    rows: Float32Array  #: ``[num_vertices, width]`` float32, memory-mapped
    identity: PreaggregationIdentity  #: inputs that determine the rows
    content: str  #: hash of the header, with the checksum of the rows


@dataclass(frozen=True, kw_only=True)
class _PreaggregationHeader:
    """Entries of ``preaggregated.json`` except its version."""

    identity: PreaggregationIdentity
    arrays: dict[str, ArrayEntry]


def identify(graph: Graph, *, layer: type[object], width: int) -> PreaggregationIdentity:
    """Return the identity of rows of ``width`` elements that ``layer`` aggregates from ``graph``.

    GraphError: the graph is in no store.
    """
    if graph.content is None:
        raise GraphError(
            f"{graph.name}: expected a graph store to preaggregate, got a graph in memory"
        )
    return PreaggregationIdentity(graph=describe(graph), layer=stored_path(layer), width=width)


def preaggregate(
    model: ModelConfig,
    graph: Graph,
    *,
    num_threads: int,
    chunk_edges: int = CHUNK_EDGES,
    chunk_vertices: int = CHUNK_VERTICES,
) -> Path:
    """Aggregate the features of ``graph`` for a model's first layer; return the rows' directory.

    Stored rows are used again; GraphError if they are damaged, not finite, or of another identity.
    If rows cannot be written, no file is left. About ``chunk_edges`` edges and at most
    ``chunk_vertices`` vertices are aggregated at a time, which bounds memory.
    """
    layer = _first_layer(model, graph)
    identity = identify(graph, layer=type(layer), width=_width(layer, graph))
    path = PREAGGREGATED.directory(None, graph.name, type(layer).__name__, asdict(identity))
    with new_folder(path) as folder:
        if folder is not None:
            chunks = (chunk_edges, chunk_vertices)
            rows = _write_rows(folder, path, layer, graph, identity, num_threads, chunks)
            PREAGGREGATED.write_header(
                folder, {"identity": asdict(identity), "arrays": {"rows": rows}}
            )
    _check_rows(path, graph, identity)
    return path


def _first_layer(model: ModelConfig, graph: Graph) -> LinearAggregationLayer:
    """Build the model's first layer, with any weights: its aggregation depends on none."""
    with torch.random.fork_rng(devices=[]):
        layer = model.build(num_features=graph.num_features, num_classes=1).layer(0)
    assert isinstance(layer, LinearAggregationLayer)
    return layer


def _width(layer: LinearAggregationLayer, graph: Graph) -> int:
    """Return the number of elements of an aggregated row."""
    empty_block = Block(indptr=np.zeros(1, np.int64), indices=np.empty(0, np.int32), num_src=0)
    return layer.aggregation(empty_block, np.empty(0, np.float32)).width(graph.num_features)


def _write_rows(
    folder: Path,
    path: Path,
    layer: LinearAggregationLayer,
    graph: Graph,
    identity: PreaggregationIdentity,
    num_threads: int,
    chunks: tuple[int, int],
) -> ArrayEntry:
    """Aggregate all rows by ``chunks``, (edges, vertices); return the entry of ``rows.npy``."""
    num_bytes = graph.num_vertices * identity.width * np.dtype(np.float32).itemsize
    task = f"aggregating the features of {graph.name} for {type(layer).__name__}"
    check_space(task, folder, disk=num_bytes)
    _LOG.info(f"{task} in {path}: needs {size(num_bytes)} of disk")
    loader = ChunkLoader(graph, num_threads=num_threads, uses_degrees=layer.uses_degrees)
    vertices = np.arange(graph.num_vertices, dtype=graph.indices.dtype)
    loaded = loader.load(
        layer, HostFeatures.of(graph), vertices, chunk_edges=chunks[0], chunk_vertices=chunks[1]
    )
    with (
        NpyWriter(folder / "rows.npy", np.dtype(np.float32), (identity.width,)) as writer,
        track(task, total=len(vertices), unit="vertices") as advance,
    ):
        for _, rows in loaded:
            writer.append(rows.numpy())
            advance(len(rows))
        return writer.close()


def open_rows(path: Path, graph: Graph) -> AggregatedRows:
    """Map the rows of ``graph`` in the directory ``path``; GraphError: they are of another graph.

    The checksum of the rows is not verified; ``AggregatedRows.content`` includes it as stored.
    """
    header = PREAGGREGATED.record(_PreaggregationHeader, PREAGGREGATED.read_header(path), path)
    identity = header.identity
    check_graph(PREAGGREGATED, path, identity.graph, graph)
    forms: dict[str, Form] = {"rows": (np.dtype(np.float32), (graph.num_vertices, identity.width))}
    (rows,) = PREAGGREGATED.arrays(path, header.arrays, forms).values()
    return AggregatedRows(rows=rows, identity=identity, content=digest(asdict(header)))


def _check_rows(path: Path, graph: Graph, identity: PreaggregationIdentity) -> None:
    """Read all rows at ``path``; GraphError if any is not finite, or their identity differs."""
    stored = open_rows(path, graph)
    PREAGGREGATED.check_same(path, asdict(identity), asdict(stored.identity))
    file = path / "rows.npy"
    try:
        for first, rows in read_slices(file, stored.rows):
            check_features(rows, first, file)
    except GraphError as error:
        raise PREAGGREGATED.error_with_hint(path, error) from None


def open_aggregated(
    artifacts: Sequence[RunArtifact], graph: Graph, host: FeatureStore
) -> PreaggregatedFeatures | None:
    """Open a store of the preaggregated rows among ``artifacts``, above ``host``; None: no rows."""
    stored = reopen_artifact(
        artifacts, run_artifacts.PREAGGREGATED, lambda path: open_rows(path, graph)
    )
    return None if stored is None else PreaggregatedFeatures(stored.rows, host)
