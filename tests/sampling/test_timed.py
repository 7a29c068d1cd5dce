"""Timed sampling against rules in plain Python, edge by edge, and against their probabilities."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from timed_graphs import (
    MAX,
    MIN,
    PlainRule,
    TimedLists,
    Unit,
    in_order,
    random_timed_lists,
    timed_graph,
)
from typed_graphs import SCHEMAS

from gnnscale.graph import GraphSchema
from gnnscale.graph.time_order import degrees_between
from gnnscale.sampling import TypedMiniBatch
from gnnscale.sampling.timed import (
    TimedSampler,
    TimeRule,
)

WORD, GOLDEN, TIMED = 1 << 64, 0x9E3779B97F4A7C15, 0x7C1D9F4E2AB86D35
SEED, STEP = 7, 3
PLAIN = GraphSchema.of({"vertex": 30}, [("vertex", "edge", "vertex")])


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def draw(key: int, index: int) -> int:
    return mix((key + (index % WORD + 1) * GOLDEN) % WORD)


def picks(key: int, size: int, fanout: int, *, repeat: bool) -> list[int]:
    """Return the places that a list of ``size`` allowed edges draws (Floyd's sampling)."""
    if fanout < 0 or (size <= fanout and not repeat) or size == 0:
        return list(range(size))
    if repeat:
        return [draw(key, i) * size >> 64 for i in range(fanout)]
    chosen: list[int] = []
    for i in range(fanout):
        last = size - fanout + i
        place = draw(key, i) * (last + 1) >> 64
        chosen.append(last if place in chosen else place)
    return chosen


Drawn = list[dict[int, list[tuple[Unit, list[Unit]]]]]


@dataclass
class PlainSampler:
    """The contract of timed sampling, unit by unit."""

    schema: GraphSchema
    lists: TimedLists
    fanouts: list[list[int]]
    rule: PlainRule
    last: bool = False
    repeat: bool = False
    reached: list[list[Unit]] = field(default_factory=list)

    def sample(self, seeds: list[Unit]) -> Drawn:
        """Return for each hop, by edge type, the destinations and the units drawn for them."""
        types = range(len(self.schema.vertex_types))
        of = self.schema.type_of(np.array([unit.vertex for unit in seeds], np.int64)).tolist()
        self.reached = [[u for u, t in zip(seeds, of, strict=True) if t == each] for each in types]
        return [self.hop(number, fanouts) for number, fanouts in enumerate(self.fanouts)]

    def hop(self, number: int, fanouts: list[int]) -> dict[int, list[tuple[Unit, list[Unit]]]]:
        key = draw(draw(mix(SEED ^ TIMED), STEP), number)
        destinations = [list(units) for units in self.reached]
        drawn = {}
        for edge_type, fanout in enumerate(fanouts):
            of_type = key if len(fanouts) == 1 else draw(key, edge_type)
            known = self.reached[self.schema.sources[edge_type]]
            pairs = []
            for unit in destinations[self.schema.destinations[edge_type]]:
                sources = self.drawn(of_type, unit, edge_type, fanout)
                pairs.append((unit, sources))
                for source in sources:
                    if source not in known:
                        known.append(source)
            drawn[edge_type] = pairs
        return drawn

    def drawn(self, key: int, unit: Unit, edge_type: int, fanout: int) -> list[Unit]:
        if fanout == 0:
            return []
        entries = in_order(self.lists.get((edge_type, unit.vertex), []))
        allowed = [each for each in entries if self.rule.allows(unit, each[0])]
        key = draw(draw(key, unit.vertex), unit.cutoff)
        if unit.since is not None:
            key = draw(key, unit.since)
        if self.last and fanout >= 0:
            allowed = allowed[max(0, len(allowed) - fanout) :]
            places = list(range(len(allowed)))
        else:
            places = picks(key, len(allowed), fanout, repeat=self.repeat)
        return [self.rule.source(unit, *allowed[place]) for place in places]


def units_of(batch: Any, trees: Any = None) -> list[list[tuple[int, int, int]]]:
    """Return the input units of each vertex type: vertex, cut-off and tree."""
    sizes = batch.type_sizes if isinstance(batch, TypedMiniBatch) else [len(batch.input_vertices)]
    numbers = np.zeros(len(batch.input_vertices), np.int32) if trees is None else trees
    columns = (batch.input_vertices, batch.cutoffs, numbers)
    units = list(zip(*(column.tolist() for column in columns), strict=True))
    ends = np.cumsum(sizes).tolist()
    return [units[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def drawn_by(batch: Any, schema: GraphSchema, trees: Any = None) -> list[dict[int, Any]]:
    """Return what ``PlainSampler.sample`` returns, without the times since which units count."""
    units = units_of(batch, trees)
    hops = []
    for block in reversed(batch.blocks):
        relations = block.relations if isinstance(batch, TypedMiniBatch) else [block]
        hop = {}
        for edge_type, relation in enumerate(relations):
            destinations = units[schema.destinations[edge_type]][: relation.num_dst]
            sources = units[schema.sources[edge_type]]
            lists = np.split(relation.indices, relation.indptr[1:-1])
            pairs = zip(destinations, lists if destinations else [], strict=True)
            hop[edge_type] = [(to, [sources[i] for i in ids.tolist()]) for to, ids in pairs]
        hops.append(hop)
    return hops


def plainly(hops: Drawn) -> list[dict[int, Any]]:
    def bare(unit: Unit) -> tuple[int, int, int]:
        return unit.vertex, unit.cutoff, unit.tree

    return [
        {
            edge_type: [(bare(to), [bare(unit) for unit in sources]) for to, sources in pairs]
            for edge_type, pairs in hop.items()
        }
        for hop in hops
    ]


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


def plain_rule(rule: TimeRule) -> PlainRule:
    is_strict = rule.bound == "strict" or (rule.bound is None and rule.rule == "destination")
    return PlainRule(rule.rule, is_strict, rule.direction == "forward", rule.window)


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


@settings(max_examples=300, deadline=None)
@given(cases(), st.booleans(), st.booleans(), st.sampled_from([1, 2, 3, 8]))
def test_samples_equal_those_of_plain_python(case, disjoint, repeat, num_threads) -> None:
    repeat = repeat and case.rule.strategy == "uniform"
    plain = PlainSampler(
        case.schema,
        case.lists,
        case.fanouts,
        plain_rule(case.rule),
        last=case.rule.strategy == "last",
        repeat=repeat,
    )
    seeds = [Unit(*unit, tree=number if disjoint else 0) for number, unit in enumerate(case.seeds)]
    expected = plain.sample(seeds)
    sampler = case.sampler(replace=repeat, num_threads=num_threads)
    batch, trees = sampler.sample_trees(*case.arrays, STEP, disjoint=disjoint)
    assert drawn_by(batch, case.schema, trees) == plainly(expected)
    reached = [[(unit.vertex, unit.cutoff, unit.tree) for unit in units] for units in plain.reached]
    assert units_of(batch, trees) == reached
    blocks = batch.blocks[0].relations if isinstance(batch, TypedMiniBatch) else [batch.blocks[0]]
    for edge_type, block in enumerate(blocks):
        ids = [unit.vertex for _, sources in expected[-1][edge_type] for unit in sources]
        assert block.edge_vertices.tolist() == ids


def edges_of(hops: list[dict[int, Any]]) -> dict[tuple[int, int, int, int], Counter]:
    """Return what a vertex as of a cut-off draws, by hop and edge type, over all trees."""
    edges: dict[tuple[int, int, int, int], Counter] = {}
    for number, hop in enumerate(hops):
        for edge_type, pairs in hop.items():
            for (vertex, cutoff, _), sources in pairs:
                drawn = Counter(unit[:2] for unit in sources)
                key = (number, edge_type, vertex, cutoff)
                assert edges.setdefault(key, drawn) == drawn
    return edges


def without_since(case: Case) -> bool:
    return case.rule.direction == "backward"


@settings(max_examples=100, deadline=None)
@given(cases().filter(without_since))
def test_merged_trees_have_the_edges_of_disjoint_trees(case) -> None:
    merged, (disjoint, trees) = (
        case.sampler().sample_units(*case.arrays, STEP),
        case.sampler().sample_trees(*case.arrays, STEP),
    )
    trees_drawn = drawn_by(disjoint, case.schema, trees)
    assert edges_of(drawn_by(merged, case.schema)) == edges_of(trees_drawn)
    assert len(merged.input_vertices) <= len(disjoint.input_vertices)
    # Trees share no unit.
    for hop in trees_drawn:
        for to, sources in (pair for pairs in hop.values() for pair in pairs):
            assert {unit[2] for unit in sources} <= {to[2]}


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(1, 5))
def test_draws_do_not_depend_on_the_batch(case, size) -> None:
    sampler = case.sampler()
    vertices, cutoffs = case.arrays
    whole, trees = sampler.sample_trees(vertices, cutoffs, STEP)
    expected = drawn_by(whole, case.schema, trees)
    for first in range(0, len(vertices), size):
        part = slice(first, first + size)
        batch, numbers = sampler.sample_trees(vertices[part], cutoffs[part], STEP)
        for hop, all_hop in zip(
            drawn_by(batch, case.schema, numbers + first), expected, strict=True
        ):
            for edge_type, pairs in hop.items():
                lists = Counter((to, tuple(sources)) for to, sources in all_hop[edge_type])
                assert not Counter((to, tuple(sources)) for to, sources in pairs) - lists


@settings(max_examples=80, deadline=None)
@given(cases(fanouts=(-1,)))
def test_all_neighbours_are_those_that_the_rule_allows(case) -> None:
    """Full fan-outs give the allowed edges and no other, hop by hop, from the definitions alone."""
    rule = plain_rule(replace(case.rule, strategy="uniform"))
    batch, trees = case.sampler().sample_trees(*case.arrays, STEP)
    frontier = {(number, Unit(*unit)) for number, unit in enumerate(case.seeds)}
    for hop in drawn_by(batch, case.schema, trees):
        expected: list[tuple[int, int, int, int, int]] = []
        reached = set(frontier)
        for tree, unit in frontier:
            for edge_type in range(len(case.schema.edge_types)):
                for time, u in case.lists.get((edge_type, unit.vertex), []):
                    if rule.allows(unit, time):
                        source = rule.source(unit, time, u)
                        expected.append((tree, edge_type, unit.vertex, u, source.cutoff))
                        reached.add((tree, source))
        drawn = [
            (to[2], edge_type, to[0], unit[0], unit[1])
            for edge_type, pairs in hop.items()
            for to, sources in pairs
            for unit in sources
        ]
        assert Counter(drawn) == Counter(expected)
        frontier = reached


@settings(max_examples=100, deadline=None)
@given(cases(fanouts=(-1,)))
def test_degrees_count_the_edges_that_the_rule_allows(case) -> None:
    batch = case.sampler().sample_units(*case.arrays, STEP)
    if isinstance(batch, TypedMiniBatch):
        return
    assert (batch.intervals is None) == (case.rule.direction == "forward")
    if batch.intervals is None:
        return
    graph = timed_graph(case.schema, case.lists)
    block = batch.blocks[0]
    reached = slice(block.num_dst)
    degrees = degrees_between(
        graph.indptr,
        graph.times.edges,
        batch.input_vertices[reached],
        batch.intervals[:, reached],
    )
    if case.rule.strategy == "uniform":
        np.testing.assert_array_equal(degrees, np.diff(block.indptr))
