from typing import Any

import numpy as np
import pytest
from fixture_types import Make
from typed_graphs import typed_graph

from gnnscale.cache.hotness import inclusion
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph, GraphSchema
from gnnscale.sampling import NeighborSampler


def sampled(
    graph: Graph, train: Any, fanouts: list[int], batch_size: int, replace: bool, num_steps: int
) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    sampler = NeighborSampler(graph, fanouts=fanouts, replace=replace, seed=1)
    included, lists = np.zeros((2, num_steps, graph.num_vertices))
    for step in range(num_steps):
        batch = sampler.sample(rng.choice(train, batch_size, replace=False), step)
        included[step, batch.input_vertices] = 1
        for block in batch.blocks:
            reads = np.diff(block.indptr) + 1  # edges, and the offsets
            np.add.at(lists[step], batch.input_vertices[: block.num_dst], reads)
    return included, lists


def tree(num_children: list[int]) -> list[list[int]]:
    lists: list[list[int]] = [[]]
    above = [0]
    for count in num_children:
        below = []
        for v in above:
            lists[v] = list(range(len(lists), len(lists) + count))
            below += lists[v]
            lists += [[] for _ in range(count)]
        above = below
    return lists


@pytest.mark.long
def test_probabilities_and_reads_on_trees_are_those_of_sampling(graph_of) -> None:
    """Exact, since a vertex is in one list alone; the root is a seed of every other batch."""
    for fanouts, replace in (([2, 2, 1], False), ([-1, 1, 2], True), ([2, 4, 1], True)):
        lists, num_steps = tree([4, 3, 2]), 2000
        graph = graph_of([*lists, []])
        train = np.array([0, len(lists)])  # another training vertex, which reads nothing
        found = inclusion(graph, train, fanouts, batch_size=1, replace=replace, num_threads=1)
        assert found.probability.dtype == np.float32
        # All depths are reached, so that every hop counts.
        assert (found.probability > 0).all()
        counts = sampled(graph, train, fanouts, 1, replace, num_steps)
        for counted, expected in zip(counts, (found.probability, found.lists), strict=True):
            error = counted.std(axis=0) / np.sqrt(num_steps)
            assert (np.abs(counted.mean(axis=0) - expected) <= 4.5 * error + 1e-6).all()


def test_probabilities_on_a_graph_are_near_those_of_sampling(random_graph: Make) -> None:
    arguments = (random_graph(), np.arange(0, 300, 3), [3, 2])
    expected, again = (
        inclusion(*arguments, batch_size=4, num_threads=threads).probability for threads in (1, 3)
    )
    assert np.array_equal(expected, again)
    found = sampled(*arguments, 4, False, 3000)[0].mean(axis=0)
    error = np.sqrt(found * (1 - found) / 3000)
    # Those that pick a vertex are not quite independent of each other.
    assert np.mean(np.abs(found - expected) - error) < 0.004
    assert np.corrcoef(found, expected)[0, 1] > 0.99


def test_inclusion_by_hand(graph_of: Make) -> None:
    graph = graph_of([[1], [2], [3], [], [1]])
    found = inclusion(graph, np.array([0]), [-1, -1], batch_size=9, num_threads=1).probability
    assert found.tolist() == [1, 1, 1, 0, 0]
    assert not np.signbit(found).any()
    with pytest.raises(GraphError, match="tiny: damaged, indices: 4 is no vertex"):
        inclusion(graph_of([[1], [4], [], []]), np.array([0]), [2, 2], batch_size=1, num_threads=1)
    graph = graph_of([[1, 2, 3, 4], [5, 6], [], [], [], [], []])
    found = inclusion(graph, np.array([0]), [1, 3], batch_size=1, num_threads=1)
    # 0 traverses 1 edge, then 3. Every fourth time it reaches 1, which traverses its 2, or one of
    # the others, whose lists are empty. Each visit reads offsets.
    assert found.lists.tolist() == [4 + 2, 0.5 + 0.25, 0.25, 0.25, 0.25, 0, 0]
    # 1 is picked by one of the hops at least: 1 - 3/4 * 1/4, and reads 5 and 6 at the last one.
    assert found.probability.tolist() == pytest.approx([1, *[13 / 16] * 4, 0.25, 0.25])


def test_inclusion_by_edge_type() -> None:
    edge_types = [("a", "to", "b"), ("b", "to", "c"), ("a", "by", "c")]
    schema = GraphSchema.of({"a": 3, "b": 2, "c": 2}, edge_types)
    # 5 has b: 3, 4 and a: 0, 1; 3 has a: 2. Lists are of 3, 4, of both types of 5, and of 6.
    lists = {(0, 3): [2], (1, 5): [3, 4], (2, 5): [0, 1]}
    graph, seeds = typed_graph(schema, lists), np.array([5])
    found = inclusion(graph, seeds, [[9, 1, 0], [2, -1, 1]], batch_size=1, num_threads=1)
    # The first hop picks 3 or 4, the second both, one of 0 and 1, and of 3, if it was picked, 2.
    assert found.probability.tolist() == [0.5, 0.5, 0.5, 1, 1, 1, 0]
    assert found.lists.tolist() == [0.5 * (1 + 1), 0.5, (1 + 1) + (2 + 1), 1 + 1, 0, 0]
