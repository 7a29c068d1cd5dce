"""Typed sampling against a sampler in plain Python, which draws as native code documents."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from scipy import stats
from typed_graphs import Lists, random_lists, typed_graph

from gnnscale import GraphError
from gnnscale.core.artifact.npy import map_npy
from gnnscale.features.disk import choose_resident_lists, open_lists, take_reads
from gnnscale.graph import GraphSchema
from gnnscale.sampling import NeighborSampler, TypedBlock, TypedMiniBatch, TypedSampler

WORD, GOLDEN = 1 << 64, 0x9E3779B97F4A7C15
SEED, STEP = 7, 3


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def draw(key: int, index: int) -> int:
    return mix((key + (index + 1) * GOLDEN) % WORD)


def picks(key: int, size: int, fanout: int, *, replace: bool) -> list[int]:
    """Return the places that a list of ``size`` neighbours draws (Floyd's sampling)."""
    if fanout < 0 or (size <= fanout and not replace) or size == 0:
        return list(range(size))
    if replace:
        return [draw(key, i) * size >> 64 for i in range(fanout)]
    chosen: list[int] = []
    for i in range(fanout):
        last = size - fanout + i
        place = draw(key, i) * (last + 1) >> 64
        chosen.append(last if place in chosen else place)
    return chosen


@dataclass
class PlainSampler:
    """The contract of typed sampling, vertex by vertex."""

    schema: GraphSchema
    lists: Lists
    fanouts: list[list[int]]
    replace: bool = False
    reached: list[list[int]] = field(default_factory=list)

    def sample(self, seeds: list[int]) -> list[dict[int, list[list[int]]]]:
        """Return, for each hop, the drawn neighbours of each destination by edge type."""
        types = range(len(self.schema.vertex_types))
        of = self.schema.type_of(np.array(seeds, np.int64)).tolist()
        self.reached = [[v for v, t in zip(seeds, of, strict=True) if t == each] for each in types]
        return [self.hop(number, fanouts) for number, fanouts in enumerate(self.fanouts)]

    def hop(self, number: int, fanouts: list[int]) -> dict[int, list[list[int]]]:
        key = draw(draw(mix(SEED ^ GOLDEN), STEP), number)
        destinations = [list(each) for each in self.reached]
        found = {}
        for edge_type, fanout in enumerate(fanouts):
            of_type = key if len(fanouts) == 1 else draw(key, edge_type)
            drawn = []
            for v in destinations[self.schema.destinations[edge_type]]:
                sources = sorted(self.lists[edge_type, v])
                places = picks(draw(of_type, v), len(sources), fanout, replace=self.replace)
                drawn.append([sources[place] for place in places])
            found[edge_type] = drawn
            known = self.reached[self.schema.sources[edge_type]]
            for u in (u for each in drawn for u in each):
                if u not in known:
                    known.append(u)
        return found


def drawn(batch: TypedMiniBatch, block: TypedBlock, schema: GraphSchema) -> dict:
    """Return the global ids of a block's sampled neighbours, by edge type and destination."""
    found = {}
    for edge_type, relation in enumerate(block.relations):
        ids = batch.vertices(int(schema.sources[edge_type]))[relation.indices]
        lists = [each.tolist() for each in np.split(ids, relation.indptr[1:-1])]
        found[edge_type] = lists if relation.num_dst else []
        assert relation.num_dst == block.dst_sizes[schema.destinations[edge_type]]
        assert relation.num_src == block.src_sizes[schema.sources[edge_type]]
    return found


@st.composite
def schemas(draw_from) -> GraphSchema:
    names = ["a", "b", "c"][: draw_from(st.integers(1, 3))]
    counts = {name: draw_from(st.integers(0, 30)) for name in names}
    counts[names[0]] += 1
    triples = st.tuples(st.sampled_from(names), st.sampled_from("rst"), st.sampled_from(names))
    return GraphSchema.of(counts, draw_from(st.lists(triples, min_size=1, max_size=5, unique=True)))


@settings(max_examples=60, deadline=None)
@given(schemas(), st.data())
def test_samples_equal_those_of_plain_python(schema, data) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 100)))
    lists = random_lists(schema, generator, data.draw(st.sampled_from([0.0, 2.0, 40.0])))
    graph = typed_graph(schema, lists)
    fanout = st.sampled_from([-1, 0, 1, 3, 20, 40])
    hop = st.lists(fanout, min_size=len(schema.edge_types), max_size=len(schema.edge_types))
    fanouts = data.draw(st.lists(hop, min_size=1, max_size=3))
    vertex = st.integers(0, schema.num_vertices - 1)
    seeds = data.draw(st.lists(vertex, min_size=1, max_size=20, unique=True))
    with_replacement = data.draw(st.booleans())
    plain = PlainSampler(schema, lists, fanouts, with_replacement)
    expected = plain.sample(seeds)
    names = [str(each) for each in schema.edge_types]
    sampler = TypedSampler(
        graph,
        fanouts={name: [hop[r] for hop in fanouts] for r, name in enumerate(names)},
        replace=with_replacement,
        seed=SEED,
        num_threads=data.draw(st.sampled_from([1, 2, 8])),
    )
    batch = sampler.sample(np.array(seeds), STEP)
    for number, reached in enumerate(plain.reached):
        assert batch.vertices(number).tolist() == reached
        assert set(batch.seeds_of(number).tolist()) <= set(seeds)
    found = [drawn(batch, block, schema) for block in reversed(batch.blocks)]
    assert found == expected
    sources = [block.edge_vertices for block in batch.blocks[0].relations]
    last = [np.concatenate([[], *each]) for each in expected[-1].values()]
    assert [each.tolist() for each in sources] == [each.tolist() for each in last]


def test_one_type_of_each_is_the_graph_without_types(random_graph) -> None:
    graph = random_graph()
    seeds = np.arange(0, 300, 7)
    plain = NeighborSampler(graph, fanouts=[5, 3], seed=2).sample(seeds, 9)
    typed = TypedSampler(graph, fanouts=[5, 3], seed=2).sample(seeds, 9)
    assert np.array_equal(plain.input_vertices, typed.input_vertices)
    for block, of_types in zip(plain.blocks, typed.blocks, strict=True):
        (relation,) = of_types.relations
        assert np.array_equal(block.indptr, relation.indptr)
        assert np.array_equal(block.indices, relation.indices)
        assert (block.num_src,) == of_types.src_sizes


@settings(max_examples=25, deadline=None)
@given(schemas(), st.data())
def test_lists_on_the_disk_give_the_samples_of_memory(tmp_path_factory, schema, data) -> None:
    lists = random_lists(schema, np.random.default_rng(data.draw(st.integers(0, 9))), 6.0)
    graph = typed_graph(schema, lists)
    if not len(graph.indices):
        return
    path = tmp_path_factory.mktemp("lists") / "indices.npy"
    np.save(path, graph.indices)
    stored = replace(graph, indices=map_npy(path))
    reads = np.float32(
        data.draw(
            st.lists(st.integers(0, 3), **dict.fromkeys(("min_size", "max_size"), schema.num_rows))
        )
    )
    memory_bytes = data.draw(st.integers(0, 600))
    resident = choose_resident_lists(stored, reads, memory_bytes=memory_bytes)
    disk = replace(stored, lists=open_lists(stored, resident.rows, max_gap_bytes=0))
    assert disk.lists.num_bytes - 8 <= max(memory_bytes, 16 * (schema.num_rows // 64 + 1))
    fanouts = {
        str(edges): data.draw(st.sampled_from([[2, 3], [-1, 0], [0, 9]]))
        for edges in schema.edge_types
    }
    seeds = np.arange(0, schema.num_vertices, 2)
    memory, read = (
        TypedSampler(each, fanouts=fanouts, seed=4).sample(seeds, 1) for each in (graph, disk)
    )
    assert np.array_equal(memory.input_vertices, read.input_vertices)
    for block, other in zip(memory.blocks, read.blocks, strict=True):
        assert drawn(memory, block, schema) == drawn(read, other, schema)
    counted = take_reads(disk.lists)
    assert counted.hits + counted.misses == sum(block.num_edges for block in memory.blocks)


STAR = GraphSchema.of({"hub": 1, "leaf": 12}, [("leaf", "to", "hub"), ("leaf", "by", "hub")])
LEAVES: Lists = {(0, 0): list(range(1, 13)), (1, 0): list(range(1, 13))}
WEIGHTS = np.tile(np.arange(1, 13, dtype=np.float32), 2)


@pytest.mark.parametrize("draws", ["uniform", "weight", "labor_hop"])
def test_every_neighbour_has_its_chance(draws) -> None:
    graph = typed_graph(STAR, LEAVES, weights=WEIGHTS)
    sampler = TypedSampler(graph, fanouts=[1], draws=draws, seed=1)
    pairs = np.zeros((12, 12))
    for step in range(4000):
        batch = sampler.sample(np.array([0]), step)
        ids = batch.vertices(1)
        one, other = (ids[relation.indices[0]] - 1 for relation in batch.blocks[0].relations)
        pairs[one, other] += 1
    chances = WEIGHTS[:12].astype(float) / 78 if draws == "weight" else np.full(12, 1 / 12)
    for axis in (0, 1):
        assert stats.chisquare(pairs.sum(axis), 4000 * chances).pvalue > 1e-4
    if draws == "labor_hop":  # lists share the leaves' numbers
        assert np.trace(pairs) == 4000
    else:
        expected = 4000 * np.outer(chances, chances)
        assert stats.chisquare(pairs.ravel(), expected.ravel()).pvalue > 1e-4


def test_weights_and_rows_of_edges_come_with_them() -> None:
    rows = np.arange(24, dtype=np.uint32)[::-1].copy()
    features = np.zeros((24, 1), np.float32)
    graph = typed_graph(STAR, LEAVES, weights=WEIGHTS, rows=rows, features=features)
    batch = TypedSampler(graph, fanouts=[-1]).sample(np.array([0]), 0)
    first, second = batch.blocks[0].relations
    assert Counter(first.edge_rows.tolist()) == Counter(range(12, 24))
    assert Counter(second.edge_rows.tolist()) == Counter(range(12))


@pytest.mark.parametrize(
    ("fanouts", "line"),
    [
        ({"leaf-to-hub": [1], "leaf-of-hub": [1]}, "leaf-of-hub is no edge type, allowed are"),
        ({("leaf", "of", "hub"): [1]}, "leaf-of-hub is no edge type, allowed are"),
        ([], "at least one hop"),
        (2, "expected a list of whole numbers"),
        *(([number], "sampler.fanouts=[") for number in (-2, 1.5, "a", 2**31)),
        ({"leaf-to-hub": [1]}, "leaf-by-hub is missing; one 0 a hop leaves an edge type out"),
        ({"leaf-to-hub": [1], "leaf-by-hub": [1, 2]}, "has 2 hops, leaf-to-hub has 1"),
    ],
)
def test_fanouts_that_are_refused(fanouts, line) -> None:
    graph = typed_graph(STAR, LEAVES)
    with one_line(line):
        TypedSampler(graph, fanouts=fanouts)


def test_a_neighbour_of_another_type_is_damage() -> None:
    graph = typed_graph(STAR, {(0, 0): [1, 2], (1, 0): [0]})
    line = "0 is no vertex of the edge's source type, whose vertices are 1 to 12"
    with one_line(line, error=GraphError):
        TypedSampler(graph, fanouts=[-1]).sample(np.array([0]), 0)
