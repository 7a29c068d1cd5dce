"""Timed sampling against rules in plain Python, edge by edge, and against their probabilities."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from timed_graphs import (
    MAX,
    MIN,
    PLAIN,
    SEED,
    STEP,
    Case,
    PlainRule,
    TimedLists,
    Unit,
    cases,
    in_order,
    timed_graph,
)

from gnnscale import ConfigError
from gnnscale.core.artifact.npy import map_npy
from gnnscale.features.disk import choose_resident_lists, open_lists
from gnnscale.graph import GraphSchema, GraphTimes
from gnnscale.graph.time_order import degrees_between
from gnnscale.sampling import LaborSampler, TypedMiniBatch
from gnnscale.sampling.time_rule import TimeRule
from gnnscale.sampling.timed import RowSampler, TimedSampler, distinct_units

WORD, GOLDEN, TIMED = 1 << 64, 0x9E3779B97F4A7C15, 0x7C1D9F4E2AB86D35


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


def plain_rule(rule: TimeRule) -> PlainRule:
    is_strict = rule.bound == "strict" or (rule.bound is None and rule.rule == "destination")
    return PlainRule(rule.rule, is_strict, rule.direction == "forward", rule.window)


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


# --- what PyG's loader gives, from its definition ----------------------------------------------


def pyg_sample(
    lists: TimedLists, own_times: dict[int, int], seed: int, seed_time: int, fanouts: list[int]
) -> list[Counter]:
    """Return what PyG's ``NeighborLoader(time_attr="time")`` takes of a seed, hop by hop.

    Only vertices with ``time <= input_time`` of the seed are neighbours, at every hop, and
    ``temporal_strategy="last"`` takes the newest; a hop expands vertices that the last one reached.
    """
    frontier, hops = [seed], []
    for fanout in fanouts:
        taken: Counter = Counter()
        reached = []
        for v in frontier:
            neighbours = [u for _, u in lists.get((0, v), []) if own_times[u] <= seed_time]
            neighbours.sort(key=lambda u: (own_times[u], u))
            newest = neighbours[max(0, len(neighbours) - fanout) :] if fanout >= 0 else neighbours
            taken.update((v, u) for u in newest)
            reached += newest
        hops.append(taken)
        frontier = sorted(set(reached))
    return hops


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 500), st.sampled_from([[-1, -1], [2, 3], [1, -1]]))
def test_the_rule_of_seeds_is_that_of_pyg(number, fanouts) -> None:
    generator = np.random.default_rng(number)
    own_times = dict(enumerate(generator.integers(0, 12, 30).tolist()))
    lists: TimedLists = {}
    for v in range(30):
        sources = set(generator.integers(0, 30, int(generator.integers(0, 9))).tolist())
        lists[0, v] = [(own_times[u], u) for u in sources]
    seeds, cutoffs = generator.integers(0, 30, 5), generator.integers(0, 14, 5)
    rule = TimeRule(strategy="last")
    sampler = TimedSampler(timed_graph(PLAIN, lists), fanouts=fanouts, rule=rule)
    batch, trees = sampler.sample_trees(seeds, cutoffs, STEP)
    for tree, (seed, cutoff) in enumerate(zip(seeds.tolist(), cutoffs.tolist(), strict=True)):
        expected = pyg_sample(lists, own_times, seed, cutoff, fanouts)
        drawn = drawn_by(batch, PLAIN, trees)
        frontier = {seed}
        for hop, taken in zip(drawn, expected, strict=True):
            pairs = [(to, units) for to, units in hop[0] if to[2] == tree and to[0] in frontier]
            assert Counter((to[0], u[0]) for to, units in pairs for u in units) == taken
            frontier = {u for _, u in taken}


# --- probabilities -------------------------------------------------------------------------------

STAR = GraphSchema.of({"hub": 1, "leaf": 12}, [("leaf", "to", "hub")])
#: Leaf ``u`` sends at time ``u``; of 12 leaves, 3 to 9 are in the window of length 7 before 9.
LEAVES: TimedLists = {(0, 0): [(u, u) for u in range(1, 13)]}
ALLOWED = list(range(3, 10))
WINDOW = TimeRule(window=7)


def star_draws(steps: int, **options: Any) -> list[list[int]]:
    """Return the leaves that the hub draws as of time 9 at each step."""
    weights = options.pop("weights", None)
    graph = timed_graph(STAR, LEAVES, **({} if weights is None else {"weights": weights}))
    sampler = TimedSampler(graph, seed=1, rule=WINDOW, **options)
    hub, now = np.array([0]), np.array([9])
    batches = (sampler.sample_units(hub, now, step) for step in range(steps))
    return [batch.blocks[0].relations[0].edge_vertices.tolist() for batch in batches]


def chi_square(counts: Counter, chances: dict[Any, float]) -> float:
    assert set(counts) <= set(chances)
    steps = sum(counts.values())
    observed = [counts[each] for each in chances]
    return stats.chisquare(observed, [steps * chance for chance in chances.values()]).pvalue


@pytest.mark.parametrize("fanout", [1, 2, 5])
def test_every_allowed_subset_is_equally_likely(fanout) -> None:
    counts = Counter(tuple(sorted(drawn)) for drawn in star_draws(6000, fanouts=[fanout]))
    subsets = list(combinations(ALLOWED, fanout))
    assert chi_square(counts, dict.fromkeys(subsets, 1 / len(subsets))) > 1e-4


def test_draws_with_replacement_are_independent() -> None:
    counts = Counter(tuple(drawn) for drawn in star_draws(6000, fanouts=[2], replace=True))
    pairs = [(u, v) for u in ALLOWED for v in ALLOWED]
    assert chi_square(counts, dict.fromkeys(pairs, 1 / 49)) > 1e-4


WEIGHTS = np.arange(1, 13, dtype=np.float32)


@pytest.mark.parametrize("repeat", [False, True])
def test_weighted_draws_have_the_probabilities_of_the_allowed_weights(repeat) -> None:
    options = {"draws": "weight", "weights": WEIGHTS, "replace": repeat}
    counts = Counter(tuple(drawn) for drawn in star_draws(8000, fanouts=[2], **options))
    total = float(sum(ALLOWED))
    if repeat:
        assert (
            chi_square(counts, {(u, v): u * v / total**2 for u in ALLOWED for v in ALLOWED}) > 1e-4
        )
        return
    pairs: Counter = Counter()
    for drawn, count in counts.items():
        pairs[tuple(sorted(drawn))] += count
    chances = {
        (u, v): u / total * v / (total - u) + v / total * u / (total - v)
        for u, v in combinations(ALLOWED, 2)
    }
    assert chi_square(pairs, chances) > 1e-4


def test_weighted_draws_leave_out_edges_without_weight() -> None:
    weights = np.where(np.arange(12) % 2, 0, 1).astype(np.float32)
    for options in ({"fanouts": [5]}, {"fanouts": [-1]}):
        for drawn in star_draws(5, draws="weight", weights=weights, **options):
            assert sorted(drawn) == [3, 5, 7, 9]
    drawn = star_draws(50, draws="weight", weights=weights, fanouts=[9], replace=True)
    assert {u for each in drawn for u in each} == {3, 5, 7, 9}
    assert {len(each) for each in drawn} == {9}


def test_a_whole_list_draws_by_weight_as_any() -> None:
    """A list that the rule leaves whole draws from its slots, with the same probabilities."""
    schema = GraphSchema.of({"hub": 1, "leaf": 60}, [("leaf", "to", "hub")])
    graph = timed_graph(
        schema, {(0, 0): [(u, u) for u in range(1, 61)]}, weights=np.arange(1, 61, dtype=np.float32)
    )
    sampler = TimedSampler(graph, seed=1, rule=TimeRule(), draws="weight", fanouts=[1])
    counts: Counter = Counter()
    for step in range(6000):
        batch = sampler.sample_units(np.array([0]), np.array([60]), step)
        counts[batch.blocks[0].relations[0].edge_vertices[0] // 10] += 1
    chances = {tens: sum(u for u in range(1, 61) if u // 10 == tens) / 1830 for tens in range(7)}
    assert chi_square(counts, chances) > 1e-4


def labor_lists() -> TimedLists:
    """Two hubs with the same leaves, of which leaf 2 sends thrice, at different times."""
    entries = [(time, 2 + time % 5) for time in range(10)] + [(11, 2)]
    return {(0, 0): entries, (0, 1): entries}


def test_labor_keeps_every_allowed_edge_alike_and_shares_neighbours() -> None:
    schema = GraphSchema.of({"hub": 2, "leaf": 5}, [("leaf", "to", "hub")])
    graph = timed_graph(schema, labor_lists())
    sampler = TimedSampler(graph, seed=1, rule=TimeRule(), draws="labor_hop", fanouts=[3])
    counts: Counter = Counter()
    hubs, cutoffs = np.array([0, 1]), np.array([12, 12])
    for step in range(4000):
        block = sampler.sample_units(hubs, cutoffs, step).blocks[0].relations[0]
        first, second = np.split(block.edge_vertices, 2)
        assert first.tolist() == second.tolist()
        counts.update(first.tolist())
    total = sum(counts.values())
    chances = {2: 3 / 11, **dict.fromkeys(range(3, 7), 2 / 11)}
    for leaf, chance in chances.items():  # drawn without replacement: variances are smaller
        assert abs(counts[leaf] / total - chance) < 4 * (chance * (1 - chance) / total) ** 0.5


def test_labor_of_a_graph_with_times_counts_copies_that_lie_apart() -> None:
    """Also without cut-offs: edges of a repeated neighbour are kept as often as others."""
    entries = [(time, 1) for time in range(0, 20, 2)] + [
        (time, 2 + time // 2) for time in range(1, 21, 2)
    ]
    schema = GraphSchema.of({"vertex": 12}, [("vertex", "edge", "vertex")])
    graph = replace(timed_graph(schema, {(0, 0): entries}), types=None)
    sampler = LaborSampler(graph, fanouts=[5], seed=3)
    kept = [sampler.sample(np.array([0]), step).blocks[0] for step in range(2000)]
    share = sum(int((block.edge_vertices == 1).sum()) for block in kept) / 10_000
    assert abs(share - 0.5) < 0.02


# --- memory, disk and borders --------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(0, 400))
def test_lists_on_the_disk_give_the_samples_of_memory(tmp_path_factory, case, memory_bytes) -> None:
    graph = timed_graph(case.schema, case.lists)
    if not graph.num_edges:
        return
    path = tmp_path_factory.mktemp("lists") / "indices.npy"
    np.save(path, graph.indices)
    stored = replace(graph, indices=map_npy(path))
    reads = np.ones(case.schema.num_rows, np.float32)
    resident = choose_resident_lists(stored, reads, memory_bytes=memory_bytes)
    disk = replace(stored, lists=open_lists(stored, resident.rows, max_gap_bytes=0))
    names = [str(edge_type) for edge_type in case.schema.edge_types]
    fanouts = {name: [hop[r] for hop in case.fanouts] for r, name in enumerate(names)}
    memory, read = (
        TimedSampler(each, fanouts=fanouts, rule=case.rule).sample_units(*case.arrays, STEP)
        for each in (graph, disk)
    )
    assert drawn_by(memory, case.schema) == drawn_by(read, case.schema)


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 99))
def test_damaged_times_lead_to_no_edge_outside_of_a_list(case, number) -> None:
    generator = np.random.default_rng(number)
    graph = timed_graph(case.schema, case.lists)
    times = generator.choice([MIN, MIN + 1, -5, 0, 3, MAX - 1, MAX], graph.num_edges)
    damaged = replace(graph, times=GraphTimes(unit="s", edges=times))
    sampler = TimedSampler(damaged, fanouts=[3, -1], rule=case.rule, num_threads=2)
    batch = sampler.sample_units(*case.arrays, STEP)
    for hop in drawn_by(batch, case.schema):
        for edge_type, pairs in hop.items():
            for to, sources in pairs:
                entries = Counter(u for _, u in case.lists.get((edge_type, to[0]), []))
                assert not Counter(unit[0] for unit in sources) - entries


def test_positions_of_equal_units_are_shared_by_rows(random_graph) -> None:
    schema = GraphSchema.of({"a": 4, "b": 4}, [("a", "to", "b")])
    lists: TimedLists = {(0, v): [(time, time % 4) for time in range(9)] for v in range(4, 8)}
    vertices, cutoffs = np.array([5, 4, 5, 5, 1]), np.array([3, 3, 3, 7, 7])
    timed = TimedSampler(timed_graph(schema, lists), fanouts=[-1], rule=TimeRule())
    sampler = RowSampler(timed, vertices, cutoffs)
    batch = sampler.sample(np.array([3, 0, 4, 2, 1, 0]), STEP)
    assert isinstance(batch, TypedMiniBatch)
    assert batch.rows is not None
    assert batch.rows.numbers.tolist() == [3, 0, 4, 2, 1, 0]
    assert batch.rows.positions.tolist() == [3, 2, 0, 2, 1, 2]
    assert batch.seeds.tolist() == [1, 4, 5, 5]
    assert batch.num_seeds == 4
    assert batch.seed_sizes == (1, 3)
    assert np.diff(batch.blocks[0].relations[0].indptr).tolist() == [4, 4, 8]
    sampler.num_threads = 2
    assert timed.num_threads == sampler.num_threads == 2


def test_distinct_units_of_nothing() -> None:
    none = np.empty(0, np.int64)
    (vertices, cutoffs), positions = distinct_units(none, none)
    assert len(vertices) == len(cutoffs) == len(positions) == 0


SMALL = timed_graph(STAR, LEAVES)


def one_sample(vertices: Any, cutoffs: Any, **options: Any) -> Any:
    sampler = TimedSampler(SMALL, fanouts=[2], rule=TimeRule())
    return sampler.sample_units(np.array(vertices), np.array(cutoffs), STEP, **options)


def test_a_unit_twice_in_a_batch_is_refused_unless_trees_are_disjoint() -> None:
    with pytest.raises(ValueError, match="seeds: 0 with cut-off 4 appears twice in a batch"):
        one_sample([0, 0, 0], [4, 5, 4])
    with pytest.raises(ValueError, match="seeds: 0 appears twice in a batch"):
        one_sample([0, 0], [4, 4])
    assert one_sample([0, 0], [4, 4], disjoint=True).num_seeds == 2


@pytest.mark.parametrize(
    ("cutoffs", "error"),
    [
        ([4, 5], "cutoffs"),
        ([MIN], f"cutoffs: {MIN}"),
        ([4.0], "cutoffs"),
    ],
)
def test_wrong_cutoffs_are_refused(cutoffs, error) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        one_sample([0], cutoffs)


def test_native_cutoffs_need_times() -> None:
    from gnnscale.ops import NativeSampler

    native = NativeSampler(replace(SMALL, times=None))
    arguments: dict[str, Any] = {"replace": False, "seed": 1, "step": 1, "num_threads": 1}
    with pytest.raises(ValueError, match="cutoffs: those of a graph without times"):
        native.sample_typed(np.array([0]), [[1]], cutoffs=np.array([1]), **arguments)
    timed = NativeSampler(SMALL)
    with pytest.raises(ValueError, match="rule: 'never'"):
        timed.sample_typed(np.array([0]), [[1]], cutoffs=np.array([1]), rule="never", **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="window: 0"):
        timed.sample_typed(np.array([0]), [[1]], cutoffs=np.array([1]), window=0, **arguments)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rule": "never"}, "sampler.time=never: allowed are seed, destination, walk"),
        ({"bound": "open"}, "sampler.bound=open: allowed are inclusive, strict"),
        ({"strategy": "first"}, "sampler.strategy=first: allowed are uniform, last"),
        ({"direction": "up"}, "sampler.direction=up: allowed are backward, forward"),
        ({"direction": "forward"}, "sampler.direction=forward: expected sampler.time=walk"),
        ({"window": 0}, "sampler.window=0: expected a whole number of at least 1"),
        ({"window": True}, "sampler.window=True: expected a whole number"),
    ],
)
def test_wrong_rules_are_refused(options, error) -> None:
    with pytest.raises(ConfigError) as caught:
        TimeRule(**options)
    assert error in str(caught.value)


def test_a_rule_for_a_graph_without_times_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        TimedSampler(replace(SMALL, times=None), fanouts=[1], rule=TimeRule())
    assert "sampler.time=seed: expected a graph with times" in str(caught.value)


@pytest.mark.parametrize("options", [{"draws": "labor_hop"}, {"replace": True}])
def test_the_newest_edges_are_not_drawn(options) -> None:
    with pytest.raises(ConfigError, match=r"sampler\.strategy=last: expected uniform"):
        TimedSampler(SMALL, fanouts=[1], rule=TimeRule(strategy="last"), **options)


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
