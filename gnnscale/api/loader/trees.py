"""Trees of seeds, and their times: PyG's disjoint and temporal sampling."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

import numpy as np

from gnnscale.core import ConfigError, GraphError, Int64Array, IntArray, brief, check_choice
from gnnscale.data.array_inputs import as_array
from gnnscale.data.time_inputs import read_times
from gnnscale.graph import NO_TIME, Graph, GraphTimes
from gnnscale.sampling.time_rule import Strategy

#: Cut-off of seeds without times: every edge is known by then.
ALWAYS = int(np.iinfo(np.int64).max)
#: Name or triple of a type.
Type = TypeVar("Type")
Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TreeSampling:
    """Sampling of a tree for each seed of a batch, in place of one subgraph of all seeds."""

    #: attribute of the times of vertices or edges, which bounds trees by their seeds' times. None:
    #: trees have no bounds
    time_attr: str | None
    takes_newest: bool  #: take the newest edges in place of drawn ones


@dataclass(frozen=True, kw_only=True)
class SeedTrees:
    """Cut-offs and numbers of the trees of a batch's seeds."""

    cutoffs: Int64Array  #: ``[num_seeds]`` time of the newest edges that a tree may have
    numbers: Int64Array  #: ``[num_seeds]`` number that the vertices of a tree have in the batch

    @classmethod
    def in_order(cls, cutoffs: Int64Array) -> "SeedTrees":
        """Return trees as of ``cutoffs`` that have the numbers of their seeds."""
        return cls(cutoffs=cutoffs, numbers=np.arange(len(cutoffs)))


def read_tree_sampling(
    time_attr: Any, temporal_strategy: Any, disjoint: Any, *, replace: bool, by_weight: bool
) -> TreeSampling | None:
    """Return how trees are sampled, by the arguments of a loader. None: seeds have no trees.

    As in PyG, ``time_attr`` implies ``disjoint``. ConfigError: an argument has an invalid value, or
    the newest edges are taken, and edges are drawn by weight or repeatedly.
    """
    if time_attr is not None and not isinstance(time_attr, str):
        raise ConfigError(
            f"time_attr={brief(time_attr)}: expected the name of an attribute of vertices or edges"
        )
    if not isinstance(disjoint, bool | np.bool_):
        raise ConfigError(f"disjoint={brief(disjoint)}: expected True or False")
    check_choice("temporal_strategy", temporal_strategy, get_args(Strategy))
    takes_newest = time_attr is not None and temporal_strategy == "last"
    for option, is_set in (("replace", replace), ("weight_attr", by_weight)):
        if takes_newest and is_set:
            raise ConfigError(f"temporal_strategy='last': expected 'uniform' with {option}")
    if time_attr is None and not disjoint:
        return None
    return TreeSampling(time_attr=time_attr, takes_newest=takes_newest)


def time_fields(
    name: str, vertices: Mapping[str, Fields], edges: Mapping[Type, Fields]
) -> tuple[dict[str, Any], dict[Type, Any]]:
    """Return the attribute ``name`` by vertex type, or by edge type, of the types that have it.

    ConfigError: neither vertices nor edges have it, or both.
    """
    of_vertices = {key: fields[name] for key, fields in vertices.items() if name in fields}
    of_edges = {key: fields[name] for key, fields in edges.items() if name in fields}
    if of_vertices and of_edges:
        raise ConfigError(
            f"time_attr={name!r}: expected an attribute of vertices or of edges, got one of both"
        )
    if not of_vertices and not of_edges:
        all_fields = (*vertices.values(), *edges.values())
        listed = ", ".join(dict.fromkeys(key for fields in all_fields for key in fields))
        raise ConfigError(
            f"time_attr={name!r}: expected an attribute of vertices or edges, got none of "
            f"{brief(listed)}"
        )
    return of_vertices, of_edges


def with_times(graph: Graph) -> Graph:
    """Return ``graph`` with times of edges, which native sampling of trees needs.

    Edges without times get time 0, in memory that is not filled: none is after ``ALWAYS``.
    """
    if graph.times is not None:
        return graph
    return replace(graph, times=GraphTimes(unit="step", edges=np.zeros(graph.num_edges, np.int64)))


def read_cutoffs(
    values: Any, seeds: IntArray, graph: Graph, trees: TreeSampling, option: str = "input_time"
) -> Int64Array:
    """Return the cut-off ``[n]`` of each seed's tree.

    Args:
        values: times of the seeds. None: the own times of these vertices.
        seeds: ``[n]`` vertices of ``graph``, which has times if ``trees`` use them.
        graph: graph of the seeds.
        trees: sampling of trees.
        option: name of the values in errors.

    Raises:
        ConfigError: there are values and no ``time_attr``; or no values, and vertices without
            times; or the number or unit of values is wrong.
        GraphError: values are no times.
    """
    if trees.time_attr is None or graph.times is None:
        check_untimed(values, option)
        return np.full(len(seeds), ALWAYS)
    if values is None:
        return _own_times(seeds, graph, trees.time_attr, option)
    array = as_array(values, option)
    if len(array.shape) == 0 or len(array) != len(seeds):
        raise ConfigError(
            f"{option}: expected a time for each of {len(seeds)} seeds, got {list(array.shape)}"
        )
    times, unit = read_times(array, len(seeds), option), graph.times.unit
    if times.unit not in (None, unit):
        raise ConfigError(
            f"{option}: expected times in {unit} as those of the graph, got {times.unit}; "
            f"astype('datetime64[{unit}]') converts dates"
        )
    return times.values


def check_untimed(values: Any, option: str) -> None:
    """Raise ConfigError if there are times of seeds, for a loader without ``time_attr``."""
    if values is not None:
        raise ConfigError(f"{option}={brief(values)}: expected None without time_attr")


def _own_times(seeds: IntArray, graph: Graph, time_attr: str, option: str) -> Int64Array:
    """Return the times of vertices ``seeds``; ConfigError: they have none."""
    vertices = None if graph.times is None else graph.times.vertices
    times = np.full(len(seeds), NO_TIME) if vertices is None else vertices[seeds]
    if (times == NO_TIME).any():
        raise ConfigError(
            f"{option}=None: expected a time for each seed, since the seeds' vertices have no "
            f"{time_attr!r}"
        )
    return times


def times_of_vertices(graph: Graph, ids: slice) -> Int64Array | None:
    """Return the times of the vertices ``ids`` of a type. None: the type has no times."""
    if graph.times is None or graph.times.vertices is None:
        return None
    times = graph.times.vertices[ids]
    return None if (times == NO_TIME).all() else times


def check_graph_times(graph: Graph, time_attr: str) -> None:
    """Raise GraphError unless ``time_attr`` names the times of ``graph``, and it has times."""
    if graph.times is None:
        raise GraphError(f"time_attr={time_attr!r}: expected None, since {graph.name} has no times")
    if time_attr != "time":
        raise GraphError(f"time_attr={time_attr!r}: expected 'time', the times of {graph.name}")
