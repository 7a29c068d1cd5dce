from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.dataset import from_arrays
from gnnscale.graph import Graph, GraphError
from gnnscale.partition.figures import edges
from gnnscale.partition.figures.edges import cut_matrix, halo_sizes, num_passes


@st.composite
def divided(draw: st.DrawFn) -> tuple[Graph, np.ndarray, int]:
    """A graph of a few vertices, an owner of each or none, and the number of parts."""
    num_vertices = draw(st.integers(1, 12))
    num_parts = draw(st.integers(1, 5))
    ids = st.integers(0, num_vertices - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), max_size=40))
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    owner = draw(
        st.lists(st.integers(-1, num_parts - 1), min_size=num_vertices, max_size=num_vertices)
    )
    features = np.zeros((num_vertices, 1), np.float32)
    return from_arrays((src, dst), features), np.array(owner, np.int16), num_parts


def neighbors(graph: Graph, vertex: int) -> list[int]:
    return graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist()


def halos(graph: Graph, owner: np.ndarray, num_parts: int) -> list[set[int]]:
    return [
        {
            source
            for vertex in np.flatnonzero(owner == part)
            for source in neighbors(graph, vertex)
            if owner[source] != part
        }
        for part in range(num_parts)
    ]


@given(case=divided(), slice_edges=st.integers(1, 50), max_bytes=st.integers(0, 60))
def test_counts_are_those_of_sets(
    case: tuple[Graph, np.ndarray, int], slice_edges: int, max_bytes: int
) -> None:
    graph, owner, num_parts = case
    expected = np.zeros((num_parts, num_parts), np.int64)
    for vertex in range(graph.num_vertices):
        for source in neighbors(graph, vertex):
            if owner[source] >= 0 and owner[vertex] >= 0:
                expected[owner[source], owner[vertex]] += 1
    sets = halos(graph, owner, num_parts)
    anywhere = set(np.flatnonzero(owner >= 0)).union(*sets)
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edges, "_SLICE_EDGES", slice_edges)
        assert (cut_matrix(graph, owner, num_parts, seen.append) == expected).all()
        assert sum(seen) == graph.num_edges
        seen.clear()
        sizes, total = halo_sizes(graph, owner, num_parts, seen.append, max_bytes=max_bytes)
    assert sizes.tolist() == [len(each) for each in sets]
    assert total == len(anywhere)
    assert sum(seen) == num_passes(graph, num_parts, max_bytes) * graph.num_edges


def test_the_cut_of_a_tiny_graph(tiny_graph: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 4 <- 4
    owner = np.array([0, 0, 1, 1, -1], np.int16)
    assert cut_matrix(tiny_graph, owner, 2).tolist() == [[1, 1], [2, 1]]
    sizes, anywhere = halo_sizes(tiny_graph, owner, 2)
    assert (sizes.tolist(), anywhere) == ([2, 1], 4)


@pytest.mark.parametrize("bad", [-1, 5])
def test_an_id_that_no_vertex_has(tiny_graph: Graph, bad: int) -> None:
    indices = tiny_graph.indices.copy()
    indices[3] = bad
    graph = dataclasses.replace(tiny_graph, indices=indices)
    owner = np.zeros(5, np.int16)
    with pytest.raises(GraphError, match=rf"^tiny: damaged, indices: {bad} is no vertex"):
        cut_matrix(graph, owner, 1)
    message = rf"^tiny: neighbour {bad} is out of range, the graph has 5 vertices$"
    with pytest.raises(GraphError, match=message):
        halo_sizes(graph, owner, 1)
