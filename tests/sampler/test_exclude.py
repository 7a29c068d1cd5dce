from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.dataset import from_arrays
from gnnscale.graph import Graph
from gnnscale.sampler import MiniBatch, NeighborSampler
from gnnscale.sampler.exclude import without_edges


def edges_of(batch: MiniBatch) -> list[list[tuple[int, int]]]:
    """Return the edges of each layer as global ids, in their order."""
    found = []
    for block in batch.blocks:
        dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
        src = batch.input_vertices[block.indices]
        found.append(list(zip(src.tolist(), batch.input_vertices[dst].tolist(), strict=True)))
    return found


def random_graph(seed: int) -> Graph:
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, 30, (2, 150))
    return from_arrays((src, dst), np.zeros((30, 1), np.float32))


def test_only_the_named_edges_go() -> None:
    graph = from_arrays(
        (np.array([1, 2, 2, 0, 3]), np.array([0, 0, 1, 1, 2])), np.zeros((4, 1), np.float32)
    )
    batch = NeighborSampler(graph, fanouts=[-1, -1]).sample(np.array([0]), 0)
    assert edges_of(batch)[1] == [(1, 0), (2, 0)]
    left = without_edges(batch, np.array([2, 3]), np.array([0, 1]))
    assert edges_of(left)[1] == [(1, 0)]
    assert edges_of(left)[0] == [edge for edge in edges_of(batch)[0] if edge != (2, 0)]
    # Others are as they were: no vertex moves.
    assert np.array_equal(left.input_vertices, batch.input_vertices)


@given(
    seed=st.integers(0, 50),
    removed=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40),
)
def test_against_lists(seed: int, removed: list[tuple[int, int]]) -> None:
    batch = NeighborSampler(random_graph(seed), fanouts=[4, 3]).sample(np.array([3, 17, 8]), seed)
    ends = np.array(removed, np.int64).reshape(-1, 2)
    left = without_edges(batch, ends[:, 0], ends[:, 1])
    expected = [[edge for edge in layer if edge not in removed] for layer in edges_of(batch)]
    assert edges_of(left) == expected
    for block in left.blocks:
        assert block.indptr[0] == 0
        assert block.indptr[-1] == len(block.indices)
    first = left.blocks[0]
    if first.edge_vertices is not None:
        assert np.array_equal(first.edge_vertices, left.input_vertices[first.indices])
