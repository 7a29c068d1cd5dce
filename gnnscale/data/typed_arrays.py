"""Graphs with types of vertices and edges, in memory, from arrays and tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, GraphError, IntArray, brief, standard_arithmetic
from gnnscale.data import array_inputs, validation
from gnnscale.data.interop import read_labels_of_edges
from gnnscale.data.labels import Labels
from gnnscale.data.peer_fields import Triple
from gnnscale.data.split_input import SplitInput
from gnnscale.data.task_rows import with_checked_rows
from gnnscale.data.time_inputs import TypedTimes, read_typed_times
from gnnscale.data.typed_edges import typed_topology
from gnnscale.data.typed_labels import with_labels_of
from gnnscale.graph import (
    FeatureMatrix,
    Graph,
    GraphSchema,
    Origin,
    TaskRows,
    TimeUnit,
    TypedFeatures,
)
from gnnscale.graph.store_format import METRICS


@standard_arithmetic()
def from_typed_arrays(
    features: Mapping[str, Any],
    edges: Mapping[Triple, Any],
    labels: tuple[str, Any] | Mapping[str, Any] | None = None,
    *,
    num_vertices: Mapping[str, int] | None = None,
    edge_weights: Mapping[Triple, Any] | None = None,
    edge_features: Mapping[Triple, Any] | None = None,
    edge_labels: tuple[Triple, Any] | None = None,
    edge_split: tuple[Any, Any, Any] | None = None,
    vertex_times: Mapping[str, Any] | None = None,
    edge_times: Mapping[Triple, Any] | None = None,
    time_unit: TimeUnit | None = None,
    rows: tuple[str, TaskRows] | None = None,
    split: str | Mapping[str, Any] | SplitInput | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "graph",
    number_edges: bool = False,
    advises: bool = True,
) -> Graph:
    """Return a Graph with types of vertices and edges, of arrays for each type.

    Example:
        >>> import numpy as np
        >>> graph = from_typed_arrays(
        ...     {"user": np.ones((3, 4), np.float32), "item": None},
        ...     {("user", "buys", "item"): ([0, 1, 2], [0, 0, 1])},
        ...     ("user", [0, 1, 1]),
        ...     num_vertices={"item": 2},
        ... )
        >>> graph.num_vertices, str(graph.schema.edge_types[0])
        (5, 'user-buys-item')

    Args:
        features: by vertex type ``[num_vertices, num_features]``, as ``from_arrays`` takes them;
            None: the type has no features. Its keys, in order, are the vertex types.
        edges: by ``(source type, relation, destination type)`` the pair ``(src, dst)`` of ids,
            counted from 0 in each type; ``src[i]`` sends messages to ``dst[i]``.
        labels: a vertex type and its labels, as ``from_arrays`` takes them; or the labels of each
            of several types, by name. None: no labels.
        num_vertices: number of vertices of the types without features.
        edge_weights: by edge type ``[num_edges]`` finite, non-negative numbers; if given, of all.
        edge_features: by edge type ``[num_edges, num_features]`` or ``[num_edges]`` finite numbers,
            made float32 unless they are float16. Types left out, or with None, have none.
        edge_labels: an edge type and the labels of its edges, as ``from_arrays`` takes them.
        edge_split: ids or masks of training, validation and test edges of that type; None: none,
            or with ``split="random"`` a random split.
        vertex_times: by vertex type ``[num_vertices]`` times from which vertices are known,
            integers or datetime64. Types left out, or with None, are known at all times.
        edge_times: by edge type ``[num_edges]`` times from which edges are known, likewise; an edge
            is not known before its source.
        time_unit: unit of integers, ``s`` if None; dates state their own.
        rows: a vertex type and rows to predict, whose ``vertices`` count from 0 in the type.
        split: ``random``, or a dictionary of ids or masks of the labeled type by ``train``,
            ``valid`` and ``test``; with labels of several types, such a dictionary by type.
        num_classes, metric, name, number_edges, advises: as in ``from_arrays``; the first two need
            labels of one type.

    Raises:
        GraphError: an argument is invalid, such as an id out of range, or an unknown type.
    """
    matrices = {
        vertex_type: _matrix(rows, f"{name}: {vertex_type}", advises)
        for vertex_type, rows in features.items()
    }
    sizes = {
        vertex_type: _size(vertex_type, matrix, num_vertices or {}, name)
        for vertex_type, matrix in matrices.items()
    }
    schema = GraphSchema.of(sizes, edges)
    ends = [
        edge_ends(triple, pair, sizes, f"{name}: {'-'.join(triple)}")
        for triple, pair in edges.items()
    ]
    times = read_typed_times(
        *(schema, vertex_times or {}, edge_times or {}, [len(src) for src, _ in ends]),
        unit=time_unit,
        name=name,
    )
    graph = typed_topology(
        schema,
        ends,
        name=name,
        weights=_weights(edges, edge_weights, ends, name),
        features=_edge_features(edges, edge_features or {}, ends, name, advises=advises),
        number_edges=number_edges,
        times=times,
    )
    matrix: Any = TypedFeatures([*matrices.values()])
    present = matrix.present
    dtype = present[0].dtype if present else "float32"
    graph = replace(graph, features=matrix, feature_dtype=dtype)
    graph = graph if rows is None else with_checked_rows(graph, rows[1], rows[0])
    if edge_labels is not None:
        ends_by_type = dict(zip(edges, ends, strict=True))
        graph = _with_edge_labels(graph, ends_by_type, *edge_labels, edge_split, split, times)
    elif edge_split is not None:
        raise GraphError(f"{name}: edge_split without edge_labels")
    if not labels:
        return graph
    by_type = labels if isinstance(labels, Mapping) else dict([labels])
    return _with_labels(graph, by_type, split, num_classes=num_classes, metric=metric)


def _with_labels(
    graph: Graph,
    labels: Mapping[str, Any],
    split: Any,
    *,
    num_classes: int | None,
    metric: str | None,
) -> Graph:
    """Return ``graph`` with ``labels`` by vertex type, and their split."""
    splits = _splits_by_type(split, labels, graph.name)
    if len(labels) > 1 and (num_classes, metric) != (None, None):
        raise GraphError(
            f"{graph.name}: num_classes, metric: expected None with labels of several types, "
            f"{', '.join(labels)}"
        )
    labeled = {
        vertex_type: _type_labels(
            graph, vertex_type, values, splits[vertex_type], num_classes=num_classes, metric=metric
        )
        for vertex_type, values in labels.items()
    }
    source = next(iter(splits.values())).source
    names = " and ".join(f"labels of {vertex_type}" for vertex_type in labels)
    graph = replace(graph, origin=Origin(split=replace(source, labels=names)))
    return with_labels_of(graph, labeled)


def _splits_by_type(split: Any, labels: Mapping[str, Any], name: str) -> dict[str, SplitInput]:
    """Return the split of each type that has ``labels``; GraphError: no valid split."""
    if isinstance(split, Mapping) and split and split.keys() <= labels.keys():
        lacking = next((of for of in labels if of not in split), None)
        if lacking is not None:
            raise GraphError(f"{name}: split: expected of each labeled type, missing of {lacking}")
        parts = dict(split)
    else:
        if len(labels) > 1 and isinstance(split, Mapping):
            raise GraphError(
                f"{name}: split: expected dictionaries by vertex type ({', '.join(labels)}), got "
                f"{brief(', '.join(map(str, split)))}"
            )
        parts = dict.fromkeys(labels, split)
    return {
        of: part if isinstance(part, SplitInput) else SplitInput().chosen(part, None, name)
        for of, part in parts.items()
    }


def _with_edge_labels(
    graph: Graph,
    ends: Mapping[Triple, tuple[IntArray, IntArray]],
    triple: Triple,
    values: Any,
    edge_split: Any,
    split: Any,
    times: TypedTimes | None,
) -> Graph:
    """Return ``graph`` with labels of the edges of one type, and their split.

    ``ends`` are sources and destinations by edge type, ids within their types, ``times`` those of
    the graph.
    """
    if triple not in ends:
        raise GraphError(
            f"{graph.name}: labels of edges of {brief(triple)}: no such edge type, allowed are "
            f"{', '.join('-'.join(edges) for edges in ends)}"
        )
    number, schema = list(ends).index(triple), graph.schema
    firsts = schema.first_vertices[[schema.sources[number], schema.destinations[number]]]
    pairs = (np.stack(ends[triple], axis=1) + firsts).astype(graph.indices.dtype)
    is_random = split == "random" or (isinstance(split, SplitInput) and split.is_random)
    labels = read_labels_of_edges(values, edge_split, pairs, is_random=is_random, name=graph.name)
    of_rows = None if times is None else times.edges[number]
    edges = replace(graph.edges, ends=pairs, labels=labels, labeled_type=number, row_times=of_rows)
    return replace(graph, edges=edges)


def _type_labels(
    graph: Graph,
    vertex_type: str,
    values: Any,
    split: SplitInput,
    *,
    num_classes: int | None = None,
    metric: str | None = None,
) -> tuple[Labels, tuple[Array, Array, Array]]:
    """Return the labels of a type, and the ids of its split, which count from 0 in the type.

    Arguments are as in ``from_typed_arrays``.
    """
    name, schema = graph.name, graph.schema
    names = [vertices.name for vertices in schema.vertex_types]
    if vertex_type not in names:
        raise GraphError(
            f"{name}: labels of {brief(vertex_type)}: no such vertex type, allowed are "
            f"{', '.join(names)}"
        )
    if metric is not None and metric not in METRICS:
        raise GraphError(f"{name}: metric={brief(metric)!r}: expected one of {', '.join(METRICS)}")
    count = schema.vertex_types[names.index(vertex_type)].num_vertices
    labels = array_inputs.graph_labels(
        values,
        num_classes=num_classes,
        metric=metric,
        num_vertices=count,
        name=name,
        what=f"labels of {vertex_type}",
    )
    parts = split.read(labels, count, name)
    return labels, (parts.train_idx, parts.valid_idx, parts.test_idx)


def _matrix(rows: Any, name: str, advises: bool) -> FeatureMatrix | None:
    if rows is None:
        return None
    dtype: Any
    stored, dtype = array_inputs.feature_rows(rows, name, advises=advises)
    width = int(stored.shape[1])
    return FeatureMatrix(rows=stored, dtype=dtype, width=width) if width else None


def _size(
    vertex_type: str, matrix: FeatureMatrix | None, num_vertices: Mapping[str, int], name: str
) -> int:
    """Return the number of vertices of a type; GraphError: it is not given, or differs."""
    number = num_vertices.get(vertex_type)
    if matrix is None and number is None:
        raise GraphError(
            f"{name}: {vertex_type}: no features; num_vertices says how many vertices there are"
        )
    if matrix is not None and number not in (None, len(matrix.rows)):
        raise GraphError(
            f"{name}: {vertex_type}: {len(matrix.rows)} rows of features for {number} vertices"
        )
    size = len(matrix.rows) if matrix is not None else int(number or 0)
    if size < 0:
        raise GraphError(f"{name}: {vertex_type}: num_vertices={size}: expected at least 0")
    return size


def edge_ends(
    triple: Triple, pair: Any, sizes: Mapping[str, int], what: str
) -> tuple[IntArray, IntArray]:
    """Return sources and destinations of an edge type, of a pair of arrays or an array ``[2, n]``.

    ``sizes`` are the numbers of vertices by type. GraphError, which names the edges ``what``: an id
    is out of range.
    """
    if len(pair) != 2:
        raise GraphError(f"{what}: expected (src, dst), got {len(pair)} rows")
    src, dst = (
        array_inputs.vertex_ids(ids, sizes[vertex_type], f"{what}: {end}, of type {vertex_type}")
        for ids, vertex_type, end in zip(
            pair, (triple[0], triple[2]), ("sources", "destinations"), strict=True
        )
    )
    if len(src) != len(dst):
        raise GraphError(f"{what}: {len(src)} edge sources, {len(dst)} destinations")
    return src, dst


def _weights(
    edges: Mapping[Triple, Any],
    weights: Mapping[Triple, Any] | None,
    ends: Sequence[tuple[IntArray, IntArray]],
    name: str,
) -> list[Float32Array] | None:
    """Return the weights of each edge type; None: there are none."""
    if not weights:
        return None
    for triple in (*weights, *edges):
        if triple not in edges or triple not in weights:
            raise GraphError(
                f"{name}: edge weights of {'-'.join(triple)}: expected of the edge types that have "
                "edges, and of all of them"
            )
    return [
        _checked_weights(weights[triple], len(src), f"{name}: weights of {'-'.join(triple)}")
        for triple, (src, _) in zip(edges, ends, strict=True)
    ]


def _edge_features(
    edges: Mapping[Triple, Any],
    features: Mapping[Triple, Any],
    ends: Sequence[tuple[IntArray, IntArray]],
    name: str,
    *,
    advises: bool,
) -> TypedFeatures | None:
    """Return the features of each edge type; None: no edge has any."""
    for triple in features:
        if triple not in edges:
            raise GraphError(
                f"{name}: features of edges of {brief(triple)}: no such edge type, allowed are "
                f"{', '.join('-'.join(of) for of in edges)}"
            )
    matrices: list[FeatureMatrix | None] = []
    for triple, (src, _) in zip(edges, ends, strict=True):
        values, what = features.get(triple), f"{name}: {'-'.join(triple)}"
        if values is None:
            matrices.append(None)
            continue
        rows = array_inputs.edge_features(
            *(values, len(src), what), keeps_float16=True, advises=advises
        )
        dtype: Any = str(rows.dtype)
        matrices.append(FeatureMatrix(rows=rows, dtype=dtype, width=int(rows.shape[1])))
    has_features = any(matrix is not None for matrix in matrices)
    return TypedFeatures(matrices) if has_features else None


def _checked_weights(weights: Any, num_edges: int, what: str) -> Float32Array:
    values = array_inputs.as_array(weights, what)
    values = values[:, 0] if values.shape[1:] == (1,) else values
    return validation.check_weights(values, num_edges, what)
