from dataclasses import replace

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut.multilevel import balances, improve, make_undirected, max_weights


def test_a_symmetric_graph_lends_its_arrays(bridge: Graph) -> None:
    made = make_undirected(bridge, "METIS", num_threads=2)
    assert made.indptr is bridge.indptr
    assert made.indices is bridge.indices
    assert made.notes == ()
    assert (made.num_vertices, made.num_edges) == (10, 21)
    assert (made.weights[4].tolist(), made.weights[9].tolist()) == ([1, 5, 0], [1, 4, 1])


def test_changes_of_edges_are_noted(bridge: Graph) -> None:
    lists = np.array([0, 2, 0, 0, 1], np.int32)
    bridge = bridge.with_split(train_idx=np.array([0]))
    graph = replace(bridge, indptr=np.array([0, 1, 4, 5]), indices=lists)
    made = make_undirected(graph, "METIS", num_threads=1)
    assert (made.indptr.tolist(), made.indices.tolist()) == ([0, 1, 3, 4], [1, 0, 2, 1])
    assert made.notes == (
        "left out for METIS: 1 self-loops, 1 repeated edges",
        "made symmetric for METIS: 1 edges had no reverse",
    )
    # Degrees are those of the graph that is trained on.
    assert made.weights[:, 1].tolist() == [1, 3, 1]


def test_a_damaged_topology_is_one_line(bridge: Graph) -> None:
    indices = bridge.indices.copy()
    indices[3] = 10
    with pytest.raises(GraphError, match=r"^made: damaged, indices: 10"):
        make_undirected(replace(bridge, indices=indices), "METIS", num_threads=1)


@pytest.mark.parametrize(
    ("shares", "limits", "most"),
    [
        ([1, 1], (1.25, 1.05, 1.05), [[6, 21, 5]] * 2),
        # No part is held below its share.
        ([1, 1, 1], (1.0, 1.0, 1.0), [[4, 14, 4]] * 3),
        ([4, 1], (1.0, 1.0, 1.0), [[8, 32, 8], [2, 8, 2]]),
    ],
)
def test_parts_may_weigh_their_share_and_a_little_more(shares, limits, most) -> None:
    weights = np.array([[1, 4, 1]] * 10)
    assert max_weights(weights, np.array(shares, float), limits).tolist() == most


def test_a_balance_is_the_largest_over_the_mean() -> None:
    owner = np.array([0] * 6 + [1] * 4)
    weights = np.stack([np.ones(10, np.int64), np.arange(10), np.zeros(10, np.int64)], 1)
    assert balances(weights, owner, 2) == pytest.approx((1.2, 30 / 22.5, 1.0))


def test_parts_get_balanced_with_the_lowest_cut(bridge: Graph) -> None:
    graph = make_undirected(bridge, "test", num_threads=1)
    owner = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 1], np.int32)
    most = max_weights(graph.weights, np.ones(2))
    found = improve(graph, owner, most, num_rounds=10, num_threads=1)
    assert found.within
    assert (found.cut, found.owner.tolist()) == (1, [0] * 5 + [1] * 5)
    assert owner.tolist() == [0] * 7 + [1] * 3
