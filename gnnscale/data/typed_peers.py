"""Graphs with types of vertices and edges, in memory, from objects of PyG, DGL and OGB."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnnscale.core import GraphError, brief
from gnnscale.data.array_inputs import is_instance_of
from gnnscale.data.peer_fields import (
    PeerGraph,
    PeerOptions,
    Triple,
    TypedFields,
    dictionary_fields,
    hetero_fields,
    heterograph_fields,
    is_hetero_data,
    time_field,
)
from gnnscale.data.split_input import SplitInput
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.data.validation import PART_NAMES
from gnnscale.graph import Graph

_LOG = logging.getLogger(__name__)


def typed_graph(single: PeerGraph, options: PeerOptions) -> Graph:
    """Return a Graph with the types of ``single``, for whose graph ``has_types`` is true.

    Errors are those of ``from_typed_arrays``, and of attributes that do not fit.
    """
    name = options.name
    try:
        fields = _fields(single.graph)
    except GraphError as error:
        raise GraphError(f"{name}: {error}") from None
    if single.labels is not None:
        fields = _with_labels(fields, single.labels, options)
    edge_features = _edge_features(fields, options)
    weights = _weights(fields, options)
    vertex_times, edge_times = _times(fields, options)
    features = _features(fields, options)
    targets = _targets(fields, options)
    if options.advises:
        _tell_unread(fields, features, targets, options)
        if len(targets) > 1:
            names = " and ".join(targets)
            _LOG.info("%s: labels of %s; target=%r reads one", options.name, names, targets[0])
    split = {target: _split(fields, target, targets, options) for target in targets}
    return from_typed_arrays(
        features,
        fields.edges,
        {target: fields.vertices[target][options.labels] for target in targets} or None,
        num_vertices=fields.num_vertices,
        edge_weights=weights,
        edge_features=edge_features,
        vertex_times=vertex_times,
        edge_times=edge_times,
        time_unit=options.time_unit,
        split=split or None,
        metric=options.metric,
        name=name,
        number_edges=options.number_edges,
        advises=options.advises,
    )


def _fields(graph: Any) -> TypedFields:
    if is_hetero_data(graph):
        return hetero_fields(graph)
    if is_instance_of(graph, "dgl", "DGLGraph"):
        return heterograph_fields(graph)
    return dictionary_fields(graph)


def _with_labels(fields: TypedFields, labels: Any, options: PeerOptions) -> TypedFields:
    """Return ``fields`` with labels by vertex type; GraphError: they are not so."""
    if not isinstance(labels, Mapping) or not labels.keys() <= fields.vertices.keys():
        listed = ", ".join(fields.vertices)
        raise GraphError(
            f"{options.name}: labels: expected a dictionary by vertex type ({listed}), got "
            f"{brief(labels.keys() if isinstance(labels, Mapping) else labels)}"
        )
    vertices = {
        name: values | ({options.labels: labels[name]} if name in labels else {})
        for name, values in fields.vertices.items()
    }
    return replace(fields, vertices=vertices)


def _features(fields: TypedFields, options: PeerOptions) -> dict[str, Any]:
    """Return the features of each vertex type (None: it has none).

    GraphError: no type has the attribute that the user names.
    """
    key = options.features
    features = {
        name: None if key is None else values.get(key) for name, values in fields.vertices.items()
    }
    missing = all(rows is None for rows in features.values())
    if missing and key is not None and key not in options.optional:
        raise GraphError(f"{options.name}: no vertex type has {key!r}; features=None reads none")
    # A type without vertices has no row by which to check the others.
    return {name: rows if fields.num_vertices[name] else None for name, rows in features.items()}


def _targets(fields: TypedFields, options: PeerOptions) -> list[str]:
    """Return the vertex types that have labels, or the one of them that the user chooses.

    GraphError: the chosen one has none, or no type has, and the user names labels or a split.
    """
    name, target = options.name, options.target
    labeled = [
        of for of, values in fields.vertices.items() if values.get(options.labels) is not None
    ]
    if target is not None and target not in fields.vertices:
        raise GraphError(
            f"{name}: target={brief(target)}: no such vertex type, allowed are "
            f"{', '.join(fields.vertices)}"
        )
    if target is not None and target not in labeled:
        raise GraphError(
            f"{name}: target={target}: {fields.name(target, options.labels)} is missing"
        )
    if not labeled and options.labels not in options.optional:
        raise GraphError(f"{name}: no vertex type has {options.labels!r}")
    if not labeled and (options.split is not None or options.mask is not None):
        raise GraphError(f"{name}: split, mask: expected none, since no vertex type has labels")
    return labeled if target is None else [target]


def _split(
    fields: TypedFields, target: str, targets: Sequence[str], options: PeerOptions
) -> SplitInput:
    """Return the split of one of the labeled types, of the graph or the one that the user gives.

    GraphError: a part by vertex types names other types than ``targets``.
    """
    split = options.split
    if isinstance(split, Mapping):
        split = {
            part: _ids(ids, part, target, targets, options.name) for part, ids in split.items()
        }
    vertices = fields.vertices[target]
    of_graph = SplitInput.of_fields(vertices, fields.form(target), options.name)
    return of_graph.chosen(split, options.mask, options.name)


def _ids(ids: Any, part: object, target: str, targets: Sequence[str], name: str) -> Any:
    if not isinstance(ids, Mapping) and len(targets) == 1:
        return ids
    by_type = ids if isinstance(ids, Mapping) else {}
    if not by_type or {*by_type} - {*targets}:
        listed = ", ".join(map(str, by_type)) or "no type"
        raise GraphError(
            f"{name}: split[{part!r}]: expected ids of {', '.join(targets)}, got of {listed}"
        )
    return by_type.get(target)


def _edge_features(fields: TypedFields, options: PeerOptions) -> dict[Triple, Any]:
    """Return the features of the edge types that have some.

    GraphError: no edge type has the attribute that the user names.
    """
    key = options.edge_features
    if key is None or key == options.edge_weight:
        return {}
    features = {
        triple: values[key]
        for triple, values in fields.edge_fields.items()
        if values.get(key) is not None
    }
    if not features and key not in options.optional:
        raise GraphError(f"{options.name}: no edge type has {brief(key)!r}")
    return features


def _weights(fields: TypedFields, options: PeerOptions) -> dict[Triple, Any] | None:
    """Return the weights of each edge type; None: there are none. GraphError: some lack them."""
    name, key = options.name, options.edge_weight
    if key is None:
        return None
    weights = {triple: values.get(key) for triple, values in fields.edge_fields.items()}
    lacking = ["-".join(triple) for triple, values in weights.items() if values is None]
    if len(lacking) == len(weights) and key in options.optional:
        return None
    if lacking:
        raise GraphError(
            f"{name}: edge_weight={key}: expected of all edge types, missing of "
            f"{brief(', '.join(lacking))}; edge_weight=None reads no weights"
        )
    return weights


def _times(fields: TypedFields, options: PeerOptions) -> tuple[dict[str, Any], dict[Triple, Any]]:
    """Return the times of the vertex types and of the edge types that have some.

    GraphError: a type has two attributes of times, or no type has the one that the user names.
    """
    vertices = {
        of: time_field(values, options.vertex_times, fields.form(of), options.name)
        for of, values in fields.vertices.items()
    }
    edges = {
        triple: time_field(values, options.edge_times, fields.form(triple), options.name)
        for triple, values in fields.edge_fields.items()
    }
    lacking = [
        (what, keys[0])
        for what, keys, times in (
            ("vertex", options.vertex_times, vertices),
            ("edge", options.edge_times, edges),
        )
        if keys and all(values is None for values in times.values())
    ]
    # One option of from_pyg names the field of both.
    if options.needs_times and len(lacking) > (not fields.is_of_dgl):
        what, key = lacking[0]
        raise GraphError(f"{options.name}: no {what} type has {brief(key)!r}")
    return vertices, edges


def _tell_unread(
    fields: TypedFields, features: Mapping[str, Any], targets: Sequence[str], options: PeerOptions
) -> None:
    """Log attributes that are not read; as a warning those of vertices without features."""
    parts = {key for keys in PART_NAMES for key in keys}
    names: dict[bool, list[str]] = {True: [], False: []}  # by whether the type has features
    for of, values in fields.vertices.items():
        used = {options.features, "num_nodes", *options.vertex_times} | (
            {options.labels, *parts} if of in targets else set()
        )
        names[features[of] is not None] += _unread(fields, of, values, used)
    for triple, values in fields.edge_fields.items():
        used = {options.edge_weight, options.edge_features, *options.edge_times}
        names[True] += _unread(fields, triple, values, used)
    if names[False]:
        _LOG.warning(
            "%s: not read, of vertices without features: %s; features are to be %r",
            *(options.name, brief(", ".join(names[False])), options.features),
        )
    if names[True]:
        _LOG.info("%s: not read: %s", options.name, brief(", ".join(names[True])))


def _unread(
    fields: TypedFields, of: str | Triple, values: Mapping[str, Any], used: set[Any]
) -> list[str]:
    return [
        fields.name(of, key)
        for key, array in values.items()
        if array is not None and key not in used and not key.startswith("_")
    ]
