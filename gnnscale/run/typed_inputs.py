"""Graphs with types as runs read them: rows of types without features, and what is supported."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, GraphError, read_memory
from gnnscale.core.artifact.files import size
from gnnscale.features import FeatureStoreConfig, LearnedFeaturesConfig
from gnnscale.graph import FeatureMatrix, Graph, GraphSchema, TypedFeatures, damaged_lists
from gnnscale.nn import CustomModel, ModelConfig
from gnnscale.nn.typed_options import TypedModel

#: Options of the learned rows of vertex types without features, but for their length. Adam takes
#: the memory of three tables; with Adagrad, R-GCN on ACM is a point worse.
ROWS_OF_TYPES = LearnedFeaturesConfig(optimizer="adam")
#: Factor of their initial values. Rows that no step reads are noise, unless they are near 0, where
#: weight decay brings them in frameworks that update all rows: 1.5 points of R-GCN on ACM.
_ROW_SCALE = np.float32(0.1)
#: Largest type without features whose rows are learned by default.
_MAX_LEARNED = 10_000_000
#: Largest number of types that an error lists.
_MAX_LISTED = 8


def read_by_type(model: ModelConfig, graph: Graph, *, seed: int | None) -> Graph:
    """Return ``graph`` as ``model`` reads it: with rows of every vertex type, if it reads types.

    A graph without types becomes one with a type of vertices and a type of edges, except for a
    custom model, which reads it as it is. Learned rows have the initial values of ``seed``, or 0
    for None. GraphError: a type without features has no edges, and so no degrees.
    """
    if not isinstance(model, TypedModel | CustomModel):
        return graph
    if graph.types is None:
        if isinstance(model, CustomModel):
            return graph
        features = TypedFeatures(graph.matrices)
        graph = _with_features(replace(graph, types=graph.schema), features)
        if graph.edge_features is not None:
            width = graph.num_edge_features
            of_edges = FeatureMatrix(rows=graph.edge_features, dtype="float32", width=width)
            by_type = TypedFeatures([of_edges])
            edges = replace(graph.edges, features=None, by_type=by_type, labeled_type=0)
            graph = replace(graph, edges=edges)
    missing = [number for number, matrix in enumerate(graph.matrices) if matrix is None]
    if not missing:
        return graph
    matrices, learned = list(graph.matrices), []
    for number in missing:
        kind = model.without_features or _default_rows(graph, number)
        if kind == "learned":
            learned.append(number)
            continue
        rows = degree_rows(graph, number) if kind == "degrees" else _constant(graph, number)
        matrices[number] = FeatureMatrix(rows=rows, dtype="float32", width=int(rows.shape[1]))
    return _with_learned_rows(graph, matrices, learned, model.hidden or ROWS_OF_TYPES.dim, seed)


def _default_rows(graph: Graph, vertex_type: int) -> str:
    """Return the kind of rows of a type without features, if the options do not choose it."""
    count = graph.schema.vertex_types[vertex_type].num_vertices
    return "learned" if count <= _MAX_LEARNED else "degrees"


def row_options(features: FeatureStoreConfig) -> LearnedFeaturesConfig:
    """Return the options of a run's learned rows: ``features``, or those of vertex types."""
    return features if isinstance(features, LearnedFeaturesConfig) else ROWS_OF_TYPES


def learned_rows(features: FeatureStoreConfig, graph: Graph) -> Float32Array | None:
    """Return the table ``[n, dim]`` of rows that a run learns, of all vertices or of some types.

    None: it learns none.
    """
    if isinstance(graph.features, TypedFeatures):
        return graph.features.learned_rows
    return graph.features if features.learns else None


def _with_learned_rows(
    graph: Graph,
    matrices: list[FeatureMatrix | None],
    missing: list[int],
    dim: int,
    seed: int | None,
) -> Graph:
    """Return ``graph`` with ``matrices``, and one table of learned rows for the ``missing`` ones.

    ConfigError: the table exceeds the free memory.
    """
    if not missing:
        return _with_features(graph, TypedFeatures(matrices))
    counts = [graph.schema.vertex_types[number].num_vertices for number in missing]
    total = sum(counts)
    num_bytes = 4 * total * dim * ROWS_OF_TYPES.tables
    if num_bytes > (available := read_memory().available):
        raise ConfigError(
            f"model.hidden={dim}: expected learned rows of at most {size(available)}, the free "
            f"memory, got {size(num_bytes)} with Adam's state for {total:,} vertices without "
            "features; model.without_features=degrees learns none"
        )
    table: Float32Array = np.zeros((total, dim), np.float32)
    if seed is not None:
        table = replace(ROWS_OF_TYPES, dim=dim).draw(total, seed=seed)
        table *= _ROW_SCALE
    first = 0
    for number, count in zip(missing, counts, strict=True):
        rows = table[first : first + count]
        matrices[number] = FeatureMatrix(rows=rows, dtype="float32", width=dim)
        first += count
    return _with_features(graph, TypedFeatures(matrices, learned=missing, learned_rows=table))


def _with_features(graph: Graph, features: TypedFeatures) -> Graph:
    rows: Any = features
    return replace(graph, features=rows)


def _constant(graph: Graph, vertex_type: int) -> Float32Array:
    return np.ones((graph.schema.vertex_types[vertex_type].num_vertices, 1), np.float32)


def degree_rows(graph: Graph, vertex_type: int) -> Float32Array:
    """Return ``log(1 + degree)`` of the vertices of a type, a column for each edge type at it.

    The columns are ``[n, k]`` float32: in-degrees by the edge types that end at the type, then
    out-degrees by those that start at it. GraphError: no edge type does, or ``graph`` is a part.
    """
    schema = graph.schema
    if graph.degrees is not None:
        raise GraphError(
            f"{graph.path or graph.name}: model.without_features=degrees: expected a full graph, "
            "got one part; model.without_features=learned reads no degrees"
        )
    columns: list[Array] = []
    for number in np.flatnonzero(schema.destinations == vertex_type).tolist():
        rows = schema.rows(number)
        starts = np.asarray(graph.indptr[rows.start : rows.stop : rows.step])
        ends = np.asarray(graph.indptr[rows.start + 1 : rows.stop + 1 : rows.step])
        columns.append(ends - starts)
    for number in np.flatnonzero(schema.sources == vertex_type).tolist():
        columns.append(_out_degrees(graph, schema, number))
    if not columns:
        raise GraphError(
            f"{graph.name}: vertices of type {schema.vertex_types[vertex_type].name} have neither "
            "features nor edges"
        )
    degrees: Float32Array = np.log1p(np.stack(columns, axis=1).astype(np.float32))
    return degrees


#: Number of adjacency lists whose sources are counted at a time.
_LISTS = 1 << 16


def _out_degrees(graph: Graph, schema: GraphSchema, edge_type: int) -> Array:
    """Return the number of edges of a type from each vertex of its source type."""
    sources, rows = schema.vertices(int(schema.sources[edge_type])), schema.rows(edge_type)
    counts = np.zeros(sources.stop - sources.start, np.int64)
    for first in range(rows.start, rows.stop, rows.step * _LISTS):
        part = range(first, min(first + rows.step * _LISTS, rows.stop), rows.step)
        offsets = np.asarray(graph.indptr[part.start : part[-1] + 2])
        edges = np.asarray(graph.indices[offsets[0] : offsets[-1]])
        is_of_type = np.zeros(len(offsets) - 1, np.bool_)
        is_of_type[:: rows.step] = True
        ids = edges[np.repeat(is_of_type, np.diff(offsets))] - sources.start
        if len(ids) and not 0 <= ids.min() <= ids.max() < len(counts):
            raise damaged_lists(graph)
        counts += np.bincount(ids, minlength=len(counts))
    return counts


def check_reads_types(model: ModelConfig, name: str, types: Sequence[str]) -> None:
    """Raise ConfigError unless ``model`` reads a graph ``name`` with these vertex types, if any."""
    if types and not isinstance(model, TypedModel | CustomModel):
        listed = ", ".join(types[:_MAX_LISTED]) + (", ..." if len(types) > _MAX_LISTED else "")
        raise ConfigError(
            f"model: expected rgcn, rsage, rgat, hgt or custom, as vertices of {name} have types "
            f"({listed}), got {model.name}; add model=rsage"
        )
