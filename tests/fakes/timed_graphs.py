"""Small graphs with times of edges, and the rules of time in plain Python."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from typed_graphs import SCHEMAS, typed_graph

from gnnscale import Graph
from gnnscale.graph import NO_TIME, GraphSchema, GraphTimes
from gnnscale.sampling.time_rule import TimeRule
from gnnscale.sampling.timed import TimedSampler

#: By edge type and destination: time (None: always known) and source of each edge, as global ids.
TimedLists = dict[tuple[int, int], list[tuple[int | None, int]]]

MIN, MAX = -(2**63), 2**63 - 1


def timed_graph(schema: GraphSchema, lists: TimedLists, **edge_arrays: Any) -> Graph:
    """Return the graph of lists, sorted by time and source, without features of use."""
    ordered = {key: in_order(each) for key, each in lists.items()}
    graph = typed_graph(schema, {key: [u for _, u in each] for key, each in ordered.items()})
    indices, times = np.empty(graph.num_edges, np.int32), np.empty(graph.num_edges, np.int64)
    for (edge_type, v), each in ordered.items():
        numbers = schema.rows(edge_type)
        first = schema.vertices(int(schema.destinations[edge_type])).start
        begin = int(graph.indptr[numbers.start + (v - first) * numbers.step])
        for place, (time, u) in enumerate(each):
            indices[begin + place] = u
            times[begin + place] = NO_TIME if time is None else time
    edges = replace(graph.edges, **edge_arrays)
    known = GraphTimes(unit="s", edges=times)
    return replace(graph, indices=indices, times=known, edges=edges)


def in_order(entries: list[tuple[int | None, int]]) -> list[tuple[int | None, int]]:
    return sorted(entries, key=lambda entry: (MIN if entry[0] is None else entry[0], entry[1]))


def random_timed_lists(
    schema: GraphSchema, generator: np.random.Generator, mean: float, num_times: int
) -> TimedLists:
    """Return lists of random lengths with repeated sources; every third edge type has no times."""
    lists: TimedLists = {}
    for edge_type in range(len(schema.edge_types)):
        sources = schema.vertices(int(schema.sources[edge_type]))
        destinations = schema.vertices(int(schema.destinations[edge_type]))
        is_timed = edge_type % 3 < 2
        for v in range(destinations.start, destinations.stop):
            size = int(generator.poisson(mean)) if sources.stop > sources.start else 0
            drawn = generator.integers(sources.start, max(sources.stop, 1), size).tolist()
            times = generator.integers(-num_times, num_times, size).tolist()
            lists[edge_type, v] = [
                (time if is_timed else None, u) for time, u in zip(times, drawn, strict=True)
            ]
    return lists


@dataclass(frozen=True)
class Unit:
    """A vertex, its cut-off, and the time since which it counts edges."""

    vertex: int
    cutoff: int
    since: int | None = None
    tree: int = 0


@dataclass(frozen=True)
class PlainRule:
    """The definition of a rule, edge by edge."""

    rule: str
    strict: bool
    forward: bool = False
    window: int | None = None

    def allows(self, unit: Unit, time: int | None) -> bool:
        if time is None:
            return True
        if time > unit.cutoff or (self.strict and time == unit.cutoff):
            return False
        if self.window is not None:
            oldest = unit.cutoff - self.window
            if time < oldest or (not self.strict and time == oldest):
                return False
        if unit.since is None:
            return True
        return time > unit.since if self.strict else time >= unit.since

    def source(self, unit: Unit, time: int | None, vertex: int) -> Unit:
        """Return the unit of a source, reached over an edge of ``time``."""
        cutoff, since = unit.cutoff, unit.since
        if time is not None and self.rule == "walk" and self.forward:
            since = time
        elif time is not None and self.rule != "seed":
            cutoff = time
        return Unit(vertex, cutoff, since, unit.tree)


#: A graph of one type of vertices and of edges.
PLAIN = GraphSchema.of({"vertex": 30}, [("vertex", "edge", "vertex")])
#: Seed and step of samples.
SEED, STEP = 7, 3


@st.composite
def rules(draw_from: Callable[..., Any]) -> TimeRule:
    name = draw_from(st.sampled_from(["seed", "destination", "walk"]))
    return TimeRule(
        rule=name,
        bound=draw_from(st.sampled_from(["inclusive", "strict", None])),
        direction=draw_from(st.sampled_from(["backward", "forward"]))
        if name == "walk"
        else "backward",
        window=draw_from(st.sampled_from([None, 1, 3, 8, MAX])),
        strategy=draw_from(st.sampled_from(["uniform", "last"])),
    )


@dataclass
class Case:
    """A random graph with times, seeds as of cut-offs, and options of sampling."""

    schema: GraphSchema
    lists: TimedLists
    fanouts: list[list[int]]
    rule: TimeRule
    seeds: list[tuple[int, int]]

    def sampler(self, **options: Any) -> TimedSampler:
        names = [str(edge_type) for edge_type in self.schema.edge_types]
        fanouts = {name: [hop[r] for hop in self.fanouts] for r, name in enumerate(names)}
        graph = timed_graph(self.schema, self.lists)
        options = {"seed": SEED, "rule": self.rule} | options
        return TimedSampler(graph, fanouts=fanouts, **options)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        vertices, cutoffs = zip(*self.seeds, strict=True)
        return np.array(vertices, np.int64), np.array(cutoffs, np.int64)


@st.composite
def cases(draw_from: Callable[..., Any], fanouts: tuple[int, ...] = (-1, 0, 1, 3, 20)) -> Case:
    schema = draw_from(st.one_of(st.just(PLAIN), SCHEMAS))
    generator = np.random.default_rng(draw_from(st.integers(0, 1000)))
    num_times = draw_from(st.sampled_from([2, 9, 1 << 40]))
    lists = random_timed_lists(
        schema, generator, draw_from(st.sampled_from([2.0, 12.0])), num_times
    )
    of_type = st.lists(
        st.sampled_from(fanouts),
        min_size=len(schema.edge_types),
        max_size=len(schema.edge_types),
    )
    cutoff = st.one_of(
        st.integers(-num_times - 2, num_times + 2), st.sampled_from([MIN + 1, MAX, 0])
    )
    if draw_from(st.booleans()):
        cutoff = st.just(draw_from(cutoff))
    unit = st.tuples(st.integers(0, schema.num_vertices - 1), cutoff)
    return Case(
        schema=schema,
        lists=lists,
        fanouts=draw_from(st.lists(of_type, min_size=1, max_size=3)),
        rule=draw_from(rules()),
        seeds=draw_from(st.lists(unit, min_size=1, max_size=12, unique=True)),
    )
