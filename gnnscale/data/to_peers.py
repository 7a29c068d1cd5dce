"""Graphs of PyG and DGL from a ``Graph``."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnscale.core import Array, Int64Array, import_dgl
from gnnscale.data.peer_fields import TypedFields
from gnnscale.graph import (
    MAX_QUANTIZED,
    NO_TIME,
    FeatureMatrix,
    Graph,
    ShardedFeatures,
    TypedFeatures,
    as_float32,
)
from gnnscale.graph.labels import labeled_vertices

if TYPE_CHECKING:
    import dgl
    import torch_geometric.data

#: Names of the masks of training, validation and test.
_MASKS = ("train_mask", "val_mask", "test_mask")


def to_pyg(graph: Graph) -> "torch_geometric.data.Data | torch_geometric.data.HeteroData":
    """Return ``graph`` as PyG's ``HeteroData`` if it has types, else as ``Data``.

    The fields are ``x``, ``y``, ``train_mask``, ``val_mask``, ``test_mask``, ``edge_index``,
    ``edge_weight``, ``edge_attr``, and ``time`` of vertices and ``edge_time`` of edges, from which
    they are known, in ``graph.times.unit``; as far as the graph has them. Edges are in the order of
    their numbers in the input if the graph has ``edge_ids``, else by destination. Features of
    float32, float16 and uint8 in memory are shared, int8 and int4 become float32. Labels of edges,
    rows of a task, names of classes and the users' ids are left out.

    Raises:
        GraphError: the graph has the feature rows of one part only.
        ImportError: PyG is not installed.
    """
    try:
        from torch_geometric.data import Data, HeteroData
    except ImportError:
        raise ImportError("PyG is not installed; pip install '.[pyg]'") from None
    fields = _fields(graph, "x", "y")
    data = Data() if graph.types is None else HeteroData()
    for name, values in fields.vertices.items():
        sizes = {} if "x" in values else {"num_nodes": fields.num_vertices[name]}
        _store(data, name).update(values | sizes)
    for triple, ends in fields.edges.items():
        values = {"edge_index": torch.stack(ends)} | fields.edge_fields[triple]
        _store(data, triple).update(values)
    return data


def _store(data: Any, key: Any) -> Any:
    return data[key] if hasattr(data, "node_types") else data


def to_dgl(graph: Graph) -> "dgl.DGLGraph":
    """Return ``graph`` as a DGL graph, heterogeneous if it has types.

    Data of vertices are ``feat``, ``label``, ``train_mask``, ``val_mask`` and ``test_mask``, of
    edges ``edge_weight`` and ``edge_attr``, of both ``time`` and ``edge_time``, as far as the graph
    has them; further see ``to_pyg``.

    Raises:
        GraphError: the graph has the feature rows of one part only.
        ImportError: DGL is not installed.
    """
    library = import_dgl()
    fields = _fields(graph, "feat", "label")
    if graph.types is None:
        (ends,) = fields.edges.values()
        peer = library.graph(ends, num_nodes=graph.num_vertices)
        peer.ndata.update(*fields.vertices.values())
        peer.edata.update(*fields.edge_fields.values())
        return peer
    peer = library.heterograph(fields.edges, num_nodes_dict=fields.num_vertices)
    for name, values in fields.vertices.items():
        peer.nodes[name].data.update(values)
    for triple, values in fields.edge_fields.items():
        peer.edges[triple].data.update(values)
    return peer


def _fields(graph: Graph, features: str, labels: str) -> TypedFields:
    """Return data by type, under the names ``features`` and ``labels``; without types, of one."""
    schema = graph.schema
    vertices: dict[str, dict[str, Any]] = {}
    arrays = [graph.of_target(name).labels for name in graph.targets] or [graph.labels]
    labeled = [(labeled_vertices(array, schema), array) for array in arrays]
    for number, vertex_type in enumerate(schema.vertex_types):
        rows, matrix = schema.vertices(number), _matrix(graph, number)
        values = {} if matrix is None else {features: _rows(matrix)}
        for span, array in labeled:
            if span == rows and span.stop > span.start:
                values[labels] = _tensor(array[rows])
        vertices[vertex_type.name] = values | _masks(graph, rows) | _vertex_times(graph, rows)
    edges, edge_fields = {}, {}
    for number, edge_type in enumerate(schema.edge_types):
        triple = (edge_type.source, edge_type.relation, edge_type.destination)
        positions, dst = _edges(graph, number)
        first = schema.vertices(int(schema.sources[number])).start
        src = graph.indices[positions].astype(np.int64) - first
        edges[triple] = (torch.from_numpy(src), torch.from_numpy(dst))
        edge_fields[triple] = _edge_data(graph, positions, number)
    return TypedFields(
        vertices=vertices,
        num_vertices={vertices.name: vertices.num_vertices for vertices in schema.vertex_types},
        edges=edges,
        edge_fields=edge_fields,
    )


def _matrix(graph: Graph, vertex_type: int) -> FeatureMatrix | None:
    """Return the features of a vertex type; None: it has none."""
    features: object = graph.features
    if isinstance(features, TypedFeatures):
        return features.matrices[vertex_type]
    if isinstance(features, ShardedFeatures):
        raise features.refused()
    dtype: Any = graph.feature_dtype
    width = graph.num_features
    return FeatureMatrix(rows=graph.features, dtype=dtype, width=width) if width else None


def _rows(matrix: FeatureMatrix) -> torch.Tensor:
    """Return features as a tensor of their type; int8 and int4 as float32."""
    if matrix.dtype in MAX_QUANTIZED:
        return torch.from_numpy(as_float32(matrix.rows, matrix.dtype, matrix.width))
    if matrix.dtype == "bfloat16":
        return _tensor(matrix.rows.view(np.int16)).view(torch.bfloat16)
    return _tensor(matrix.rows)


def _tensor(array: Array) -> torch.Tensor:
    # torch has no tensors that are read-only, as those mapped from a store are.
    return torch.from_numpy(array if array.flags.writeable else np.array(array))


def _masks(graph: Graph, vertices: slice) -> dict[str, torch.Tensor]:
    """Return the masks of the split over the vertices of a type, none if it has no such vertex."""
    masks = {}
    parts = (graph.train_idx, graph.valid_idx, graph.test_idx)
    for name, ids in zip(_MASKS, parts, strict=True):
        mask = np.zeros(vertices.stop - vertices.start, np.bool_)
        mask[ids[(ids >= vertices.start) & (ids < vertices.stop)] - vertices.start] = True
        masks[name] = torch.from_numpy(mask)
    return masks if any(mask.any() for mask in masks.values()) else {}


def _vertex_times(graph: Graph, vertices: slice) -> dict[str, torch.Tensor]:
    """Return the times of the vertices of a type, none if they are known at all times."""
    if graph.times is None or graph.times.vertices is None:
        return {}
    times = graph.times.vertices[vertices]
    return {"time": _tensor(times)} if len(times) and times[0] != NO_TIME else {}


def _edges(graph: Graph, edge_type: int) -> tuple[Int64Array, Int64Array]:
    """Return positions in ``indices``, and destinations within their type, of an edge type."""
    rows = graph.schema.rows(edge_type)
    starts = graph.indptr[:-1][rows]
    lengths = graph.indptr[1:][rows] - starts
    firsts = np.cumsum(lengths) - lengths
    positions = np.repeat(starts - firsts, lengths) + np.arange(lengths.sum())
    dst = np.repeat(np.arange(len(lengths)), lengths)
    if graph.edge_ids is None:
        return positions, dst
    order = np.argsort(graph.edge_ids[positions], kind="stable")
    return positions[order], dst[order]


def _edge_data(graph: Graph, positions: Int64Array, edge_type: int) -> dict[str, torch.Tensor]:
    """Return weights and features of the edges at ``positions`` of ``indices``, of one type."""
    data = {}
    if graph.edge_weights is not None:
        data["edge_weight"] = torch.from_numpy(graph.edge_weights[positions])
    if graph.times is not None:
        times = graph.times.edges[positions]
        if len(times) and times[0] != NO_TIME:
            data["edge_time"] = torch.from_numpy(times)
    features, by_type = graph.edge_features, graph.edges.by_type
    if by_type is not None:
        matrix = by_type.matrices[edge_type]
        features = None if matrix is None else matrix.rows
    if graph.edge_rows is not None and features is not None:
        data["edge_attr"] = torch.from_numpy(features[graph.edge_rows[positions]])
    return data
