import numpy as np
from typed_graphs import typed_graph

from gnnscale.data import from_arrays
from gnnscale.graph import GraphSchema
from gnnscale.inference.known_edges import KnownTargets, known_pairs


def test_positions_by_hand() -> None:
    graph = from_arrays(([0, 0, 2, 3], [1, 2, 1, 0]), np.zeros((4, 1), np.float32))
    sources = np.array([3, 0], np.int32)
    known = KnownTargets(sources, known_pairs(graph, None), num_vertices=4)
    assert known.num_pairs == 3
    rows, columns = known.positions(sources, np.array([0, 2, 3]))
    assert {*zip(rows.tolist(), columns.tolist(), strict=True)} == {(0, 0), (1, 1)}
    rows, columns = known.positions(sources[1:], np.array([1]))
    assert (rows.tolist(), columns.tolist()) == ([0], [0])


def test_positions_are_those_of_all_pairs() -> None:
    generator = np.random.default_rng(0)
    pairs = generator.integers(0, 50, (400, 2)).astype(np.int32)
    sources = generator.permutation(50)[:20].astype(np.int32)
    candidates = np.flatnonzero(generator.random(50) < 0.5)
    known = KnownTargets(sources, [pairs[:100], pairs[100:]], num_vertices=50)
    found = np.zeros((20, len(candidates)), np.bool_)
    found[known.positions(sources, candidates)] = True
    edges = {tuple(pair) for pair in pairs.tolist()}
    expected = [[(a, b) in edges for b in candidates.tolist()] for a in sources.tolist()]
    assert found.tolist() == expected
    none = KnownTargets(sources, [], num_vertices=50)
    assert none.positions(sources, candidates)[0].tolist() == []


def test_known_edges_are_of_one_edge_type() -> None:
    types = [("user", "buys", "item"), ("item", "like", "item"), ("item", "by", "user")]
    schema = GraphSchema.of({"user": 2, "item": 3}, types)
    graph = typed_graph(schema, {(0, 2): [0, 1], (0, 4): [0], (1, 4): [2, 3], (2, 1): [4]})
    pairs = [np.concatenate([*known_pairs(graph, None, number)]).tolist() for number in range(3)]
    assert pairs == [[[0, 2], [1, 2], [0, 4]], [[2, 4], [3, 4]], [[4, 1]]]
