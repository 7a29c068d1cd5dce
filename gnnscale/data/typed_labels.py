"""Labels and split of the vertices of one or several types, in a graph with types."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gnnscale.core import Array, GraphError
from gnnscale.data.labels import Labels
from gnnscale.graph import Graph, Split, TypeLabels
from gnnscale.graph.store_format import vertex_dtype


def labels_of_all(labels: Labels, vertices: slice, num_vertices: int) -> Array:
    """Return labels ``[num_vertices, ...]`` of all vertices, unknown outside ``vertices``."""
    values = labels.values
    unknown = np.nan if values.dtype.kind == "f" else -1 if values.ndim == 1 else 0
    everywhere = np.full((num_vertices, *values.shape[1:]), unknown, values.dtype)
    everywhere[vertices] = values
    return everywhere


def with_labels_of(
    graph: Graph, labeled: Mapping[str, tuple[Labels, Sequence[Array] | None]]
) -> Graph:
    """Return ``graph`` with the labels and the split of vertex types.

    ``labeled`` has, by type, labels of its first vertices, and the ids of training, validation and
    test, which count from 0 in the type (None: no split). GraphError: one of several types has no
    known label.
    """
    if not labeled:
        return graph
    schema, types = graph.schema, []
    ids: list[list[Array]] = [[], [], []]
    for number, vertex_type in enumerate(schema.vertex_types):
        if vertex_type.name not in labeled:
            continue
        labels, parts = labeled[vertex_type.name]
        if len(labeled) > 1 and not labels.num_classes:
            raise GraphError(f"{graph.name}: labels of {vertex_type.name}: none is known")
        vertices = schema.vertices(number)
        rows = slice(vertices.start, vertices.start + len(labels.values))
        types.append(
            TypeLabels(
                vertex_type=vertex_type.name,
                vertices=vertices,
                values=labels_of_all(labels, rows, schema.num_vertices),
                num_classes=labels.num_classes,
                metric=labels.metric,
                classes=labels.classes,
            )
        )
        for of_part, part in zip(ids, parts or (), strict=False):
            of_part.append(part + vertices.start)
    classes = types[0].classes if len(types) == 1 else None
    dtype = vertex_dtype(schema.num_vertices)
    train, valid, test = (
        np.concatenate([np.empty(0, dtype), *of_part]).astype(dtype) for of_part in ids
    )
    graph = replace(
        graph,
        split=Split(train_idx=train, valid_idx=valid, test_idx=test),
        origin=replace(graph.origin, classes=classes),
    )
    return graph.with_type_labels(types)
