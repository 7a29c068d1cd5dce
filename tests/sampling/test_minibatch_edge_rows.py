from dataclasses import replace

import numpy as np
import pytest

from gnnscale.data import from_arrays
from gnnscale.graph import EdgeData, Graph
from gnnscale.ops import NativeSampler
from gnnscale.sampling import LayerSampler, MiniBatch, NeighborSampler, WeightedSampler
from gnnscale.sampling.edge_removal import without_edges

SIZE, NUM_EDGES = 60, 900


@pytest.fixture(scope="module")
def graph() -> Graph:
    """No edge is there twice; an edge and its reverse share a row, which both ends determine."""
    generator = np.random.default_rng(0)
    low, high = np.sort(generator.integers(0, SIZE, (NUM_EDGES, 2)), axis=1).T
    pairs = np.unique(np.stack([low, high], axis=1)[low != high], axis=0)
    src, dst = np.concatenate([pairs, pairs[:, ::-1]]).T
    made = from_arrays(
        (src, dst), np.zeros((SIZE, 1), np.float32), edge_weights=generator.random(len(src)) + 0.1
    )
    ends = np.repeat(np.arange(SIZE), np.diff(made.indptr)), made.indices
    rows = row_of(*ends).astype(np.uint32)
    features = np.zeros((SIZE**2, 2), np.float32)
    return replace(made, edges=replace(made.edges, rows=rows, features=features))


def row_of(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.minimum(one, other).astype(np.int64) * SIZE + np.maximum(one, other)


def check(batch: MiniBatch) -> None:
    for block in batch.blocks:
        dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
        ids = batch.input_vertices
        assert block.num_edges
        assert block.edge_rows.dtype == np.uint32
        assert block.edge_rows.tolist() == row_of(ids[block.indices], ids[dst]).tolist()
        assert block.num_bytes >= block.indices.nbytes + block.edge_rows.nbytes


@pytest.mark.parametrize("num_threads", [1, 2, 8])
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("kind", [NeighborSampler, WeightedSampler])
def test_rows_are_those_of_the_edges_that_were_drawn(graph, kind, replaces, num_threads) -> None:
    options = {"fanouts": [7, -1, 3], "replace": replaces, "num_threads": num_threads}
    batch = kind(graph, **options).sample(np.arange(0, SIZE, 3), 5)
    check(batch)
    # Nothing but the rows depends on whether edges have features.
    plain = kind(graph.without_edge_features(), **options).sample(np.arange(0, SIZE, 3), 5)
    assert plain.input_vertices.tolist() == batch.input_vertices.tolist()
    assert all(block.edge_rows is None for block in plain.blocks)


def test_rows_of_layers(graph: Graph) -> None:
    check(LayerSampler(graph, layer_sizes=[20, 30]).sample(np.arange(9), 1))


def test_rows_of_edges_that_are_left_out_go_with_them(graph: Graph) -> None:
    batch = NeighborSampler(graph, fanouts=[-1]).sample(np.arange(9), 0)
    src, dst = graph.indices[: graph.indptr[2]], np.repeat([0, 1], np.diff(graph.indptr[:3]))
    left = without_edges(batch, src[::2], dst[::2])
    assert left.num_edges == batch.num_edges - len(src[::2])
    check(left)


def test_a_graph_without_such_rows_is_refused(graph: Graph) -> None:
    plain = graph.without_edge_features()
    sampler = NativeSampler(plain)
    with pytest.raises(ValueError, match="edge_rows: True, allowed are False for a graph whose"):
        sampler.sample_layers(np.arange(2), [2], seed=0, step=0, edge_rows=True)
    wrong = replace(plain, edges=EdgeData(rows=graph.edge_rows[:-1], features=graph.edge_features))
    with pytest.raises(ValueError, match=r"edge_rows: .* entries, must be"):
        NativeSampler(wrong)
    wrong = replace(plain, edges=EdgeData(rows=graph.edge_rows.astype(np.int32)))
    with pytest.raises(TypeError, match="edge_rows: int32, allowed is uint32"):
        NativeSampler(wrong)
