"""Seed vertices of a loader, in the forms of PyG and DGL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.api.loader.trees import TreeSampling, check_untimed, read_cutoffs
from gnnscale.core import Array, ConfigError, GraphError, Int64Array, brief
from gnnscale.data.array_inputs import as_array
from gnnscale.data.validation import check_ids
from gnnscale.graph import Graph, GraphSchema


def read_seeds(
    input_nodes: Any, num_vertices: int, name: str = "input_nodes", *, repeats: bool = False
) -> tuple[Array, Int64Array]:
    """Return the seeds ``[n]`` of ``input_nodes``, and the ``input_id`` of each.

    The latter is the seed's position in ``input_nodes``, or its vertex id for a mask or None.
    GraphError, which names the seeds ``name``: they are no vertices, or not distinct ones unless
    ``repeats``.
    """
    nodes = np.arange(num_vertices)
    if input_nodes is not None:
        nodes = as_array(input_nodes, name)
        if not nodes.size and nodes.ndim == 1:  # an empty list is float64 to NumPy
            nodes = nodes.astype(np.int64)
    if nodes.ndim != 1:
        raise GraphError(f"{name}: expected one axis, got {list(nodes.shape)}")
    if nodes.dtype == np.bool_:
        if len(nodes) != num_vertices:
            raise GraphError(
                f"{name}: expected a mask over {num_vertices} vertices, got {len(nodes)}"
            )
        nodes = np.flatnonzero(nodes)
        return nodes, nodes
    check_ids(nodes, num_vertices, name)
    if repeats:
        return nodes, np.arange(len(nodes))
    distinct, counts = np.unique(nodes, return_counts=True)
    if len(distinct) < len(nodes):
        raise GraphError(
            f"{name}: expected distinct ids, got {distinct[counts > 1][0]} more than once; "
            "disjoint=True samples a tree for each"
        )
    return nodes, np.arange(len(nodes))


@dataclass(frozen=True, kw_only=True)
class TypedSeeds:
    """Seeds of one vertex type or several."""

    ids: Array  #: ``[n]`` global ids, type after type
    input_ids: Int64Array  #: ``[n]`` the ``input_id`` of each, counted in each type
    types: tuple[int, ...]  #: numbers of the seeds' types
    #: whether the user gives ids without a type, so that output nodes are no dictionary
    is_plain: bool


def read_typed_seeds(
    input_nodes: Any, schema: GraphSchema, *, allows_plain: bool, repeats: bool = False
) -> TypedSeeds:
    """Return the seeds of ``input_nodes``.

    It is a vertex type (all of its vertices), a pair of a type and its seeds, or a dictionary of
    seeds by type; with ``allows_plain``, and one vertex type, also seeds alone. ConfigError:
    anything else, such as an unknown type. GraphError: as of ``read_seeds`` with ``repeats``.
    """
    names = [vertices.name for vertices in schema.vertex_types]
    is_plain = False
    by_type = {input_nodes: None} if isinstance(input_nodes, str) else input_nodes
    if isinstance(by_type, tuple) and len(by_type) == 2 and isinstance(by_type[0], str):
        by_type = {by_type[0]: by_type[1]}
    if allows_plain and len(names) == 1 and not isinstance(by_type, Mapping):
        by_type, is_plain = {names[0]: input_nodes}, True
    if not isinstance(by_type, Mapping) or not by_type or not set(by_type) <= set(names):
        raise ConfigError(
            f"input_nodes={brief(input_nodes)}: expected a vertex type ({', '.join(names)}), a "
            f"pair such as ({names[0]!r}, ids), or a dictionary of ids by vertex type"
        )
    parts, input_ids, types = [], [], tuple(names.index(name) for name in by_type)
    for number, nodes in zip(types, by_type.values(), strict=True):
        vertices = schema.vertices(number)
        name = "input_nodes" if len(types) == 1 else f"input_nodes[{names[number]!r}]"
        ids, numbers = read_seeds(nodes, vertices.stop - vertices.start, name, repeats=repeats)
        parts.append(ids.astype(np.int64) + vertices.start)
        input_ids.append(numbers)
    return TypedSeeds(
        ids=np.concatenate(parts),
        input_ids=np.concatenate(input_ids),
        types=types,
        is_plain=is_plain,
    )


def read_seed_times(
    input_time: Any, seeds: Array, graph: Graph, trees: TreeSampling | None
) -> Int64Array | None:
    """Return the cut-off of the tree of each of ``seeds`` ``[n]``. None: seeds have no trees.

    Errors are those of ``read_cutoffs``.
    """
    if trees is None:
        check_untimed(input_time, "input_time")
        return None
    return read_cutoffs(input_time, seeds, graph, trees)


def read_typed_seed_times(
    input_time: Any, seeds: TypedSeeds, graph: Graph, trees: TreeSampling | None
) -> Int64Array | None:
    """Return ``read_seed_times`` of seeds of several types, whose times are a dictionary by type.

    ConfigError: its types are not those of the seeds.
    """
    if trees is None or not isinstance(input_time, Mapping):
        return read_seed_times(input_time, seeds.ids, graph, trees)
    names = [graph.schema.vertex_types[number].name for number in seeds.types]
    if set(input_time) != set(names):
        raise ConfigError(
            f"input_time: expected times of {', '.join(names)}, the vertex types of input_nodes, "
            f"got {brief(', '.join(map(str, input_time)))}"
        )
    types = graph.schema.type_of(seeds.ids)
    parts = [
        read_cutoffs(
            *(input_time[name], seeds.ids[types == number], graph, trees),
            option=f"input_time[{name!r}]",
        )
        for name, number in zip(names, seeds.types, strict=True)
    ]
    return np.concatenate(parts)
