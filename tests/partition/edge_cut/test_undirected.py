from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gnnscale.graph import Graph, GraphError
from gnnscale.partition.edge_cut.undirected import make_undirected

MakeGraph = Callable[..., Graph]


def test_a_symmetric_graph_lends_its_arrays(bridge: Graph) -> None:
    made = make_undirected(bridge, "METIS", num_threads=2)
    assert made.indptr is bridge.indptr
    assert made.indices is bridge.indices
    assert made.notes == ()
    assert (made.num_vertices, made.num_edges) == (10, 21)
    assert made.weights[4].tolist() == [1, 5, 0]
    assert made.weights[9].tolist() == [1, 4, 1]


def test_what_had_to_change_is_noted(make_graph: MakeGraph) -> None:
    graph = make_graph([(0, 0), (0, 1), (1, 2), (2, 1)], 3, [0])
    graph = replace(
        graph, indptr=np.array([0, 1, 4, 5]), indices=np.array([0, 2, 0, 0, 1], np.int32)
    )
    made = make_undirected(graph, "METIS", num_threads=1)
    assert made.indptr.tolist() == [0, 1, 3, 4]
    assert made.indices.tolist() == [1, 0, 2, 1]
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
