"""Times of vertices and edges in a user's arrays, checked, and all in one unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.core import GraphError, Int64Array, IntArray, brief
from gnnscale.data import array_inputs
from gnnscale.data.peer_fields import Triple
from gnnscale.graph import NO_TIME, TIME_UNITS, GraphSchema, TimeUnit
from gnnscale.graph.time_order import edge_times

#: Units of NumPy's datetime64 that times have.
_UNITS: dict[str, TimeUnit] = {"D": "day", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}


@dataclass(frozen=True)
class TimeValues:
    """Checked times, and the unit that they state."""

    values: Int64Array  #: ``[n]``, none of them ``NO_TIME``
    unit: TimeUnit | None = None  #: None: they are integers in a unit that the user states


def read_times(values: Any, count: int, what: str) -> TimeValues:
    """Return ``count`` times, integers or datetime64, as int64.

    GraphError, in which ``what`` names them: another number or type, or some are NaT.
    """
    array = array_inputs.as_array(values, what)
    array = array[:, 0] if array.shape[1:] == (1,) else array
    if array.ndim != 1 or len(array) != count:
        raise GraphError(f"{what}: expected {count}, got {list(array.shape)}")
    if array.dtype.kind not in "iuM" and count:  # an empty list is float64 to NumPy
        raise GraphError(
            f"{what}: expected integers or datetime64, got {array.dtype}; "
            "astype('datetime64[s]') converts dates"
        )
    if array.dtype.kind == "u" and count and array.max() > np.iinfo(np.int64).max:
        raise GraphError(f"{what}: expected integers below 2^63, got {array.max()}")
    unit = _datetime_unit(array.dtype, what)
    times = np.ascontiguousarray(array).astype(np.int64, copy=False)
    missing = int(np.count_nonzero(times == NO_TIME))
    if missing:
        raise GraphError(f"{what}: expected a time each, got NaT for {missing} of {count}")
    return TimeValues(times, unit)


def _datetime_unit(dtype: np.dtype[Any], what: str) -> TimeUnit | None:
    """Return the unit of a type of datetime64. None: it is another type."""
    if dtype.kind != "M":
        return None
    unit, multiple = np.datetime_data(dtype)
    if unit not in _UNITS or multiple != 1:
        raise GraphError(
            f"{what}: expected datetime64 of {', '.join(_UNITS)}, got {dtype}; "
            "astype('datetime64[s]') converts it"
        )
    return _UNITS[unit]


def common_unit(times: Mapping[str, TimeValues], stated: Any, name: str) -> TimeUnit:
    """Return the one unit of ``times``, which errors name by their keys.

    Integers are in the unit ``stated`` or, if that is None, in seconds. GraphError, naming the
    graph ``name``: there are two units, or the stated one is none.
    """
    if stated is not None and stated not in TIME_UNITS:
        raise GraphError(
            f"{name}: time_unit={brief(stated)}: expected one of {', '.join(TIME_UNITS)}"
        )
    units: dict[str, TimeUnit] = {what: of.unit or stated or "s" for what, of in times.items()}
    first = next(iter(units))
    for what, unit in units.items():
        if unit != units[first]:
            raise GraphError(
                f"{name}: expected times of one unit, got {first} in {units[first]}, {what} in "
                f"{unit}; astype('datetime64[s]') converts dates"
            )
    if stated not in (None, units[first]):
        raise GraphError(
            f"{name}: time_unit={stated}: expected the unit of {first}, which is {units[first]}"
        )
    return units[first]


@dataclass(frozen=True, kw_only=True)
class TypedTimes:
    """Times of the vertices and edges of a graph with types, in one unit."""

    unit: TimeUnit
    #: by vertex type ``[num_vertices]`` times from which vertices are known. None: always
    vertices: Sequence[Int64Array | None]
    #: by edge type ``[num_edges]`` own times of edges in their order. None: they have none
    edges: Sequence[Int64Array | None]

    def of_edges(self, schema: GraphSchema, number: int, src: IntArray) -> Int64Array | None:
        """Return the time ``[num_edges]`` from which each edge of a type is known. None: always.

        ``src`` are the sources of edge type ``number``, counted from 0 in their type.
        """
        return edge_times(self.edges[number], self.vertices[int(schema.sources[number])], src)

    def of_all_vertices(self, schema: GraphSchema) -> Int64Array | None:
        """Return the times of all vertices ``[num_vertices]``. None: no type has times."""
        if all(times is None for times in self.vertices):
            return None
        result = np.full(schema.num_vertices, NO_TIME)
        for number, times in enumerate(self.vertices):
            if times is not None:
                result[schema.vertices(number)] = times
        return result


def read_typed_times(
    schema: GraphSchema,
    vertex_times: Mapping[str, Any],
    own_times: Mapping[Triple, Any],
    num_edges: Sequence[int],
    *,
    unit: Any,
    name: str,
) -> TypedTimes | None:
    """Return the times of the types of ``schema``, None: no type has times.

    Args:
        schema: types of vertices and edges.
        vertex_times: times by vertex type, integers or datetime64. None: the type has none.
        own_times: times of edges by edge type, likewise.
        num_edges: number of edges of each type.
        unit: unit of integers. None: seconds.
        name: name of the graph, for errors.

    Raises:
        GraphError: times are invalid, of an unknown type, or in two units.
    """
    counts = [vertices.num_vertices for vertices in schema.vertex_types]
    names = [vertices.name for vertices in schema.vertex_types]
    triples = [edges.triple for edges in schema.edge_types]
    of_vertices = _by_type(vertex_times, names, counts, f"{name}: times of vertices of")
    of_edges = _by_type(own_times, triples, num_edges, f"{name}: times of edges of")
    named = dict(zip((f"vertices of {of}" for of in names), of_vertices, strict=True))
    named |= zip((f"edges of {edges}" for edges in schema.edge_types), of_edges, strict=True)
    present = {what: times for what, times in named.items() if times is not None}
    if not present:
        return None
    return TypedTimes(
        unit=common_unit(present, unit, name),
        vertices=[None if times is None else times.values for times in of_vertices],
        edges=[None if times is None else times.values for times in of_edges],
    )


def _by_type(
    times: Mapping[Any, Any], types: Sequence[Any], counts: Sequence[int], what: str
) -> list[TimeValues | None]:
    """Return the times of each of ``types``, of which there are ``counts`` vertices or edges."""
    named = {of: of if isinstance(of, str) else "-".join(of) for of in types}
    for of in times:
        if of not in named:
            listed = ", ".join(named.values())
            raise GraphError(f"{what} {brief(of)}: no such type, allowed are {listed}")
    return [
        None if times.get(of) is None else read_times(times[of], count, f"{what} {named[of]}")
        for of, count in zip(types, counts, strict=True)
    ]
