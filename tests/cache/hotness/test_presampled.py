from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnscale.cache.hotness import presample, presampled
from gnnscale.graph import Graph
from gnnscale.sampler import Block, MiniBatch, NeighborSampler


def batch(input_vertices: list[int], *hops: tuple[list[int], list[int], int]) -> MiniBatch:
    """Make a mini-batch of hops ``(indptr, indices, num_src)`` from the seeds outwards."""
    blocks = tuple(
        Block(indptr=np.array(indptr), indices=np.array(indices, np.int32), num_src=num_src)
        for indptr, indices, num_src in reversed(hops)
    )
    return MiniBatch(
        seed=0,
        step=0,
        num_seeds=blocks[-1].num_dst,
        input_vertices=np.array(input_vertices),
        blocks=blocks,
    )


def test_counts_by_hand() -> None:
    # 7 and 2 are seeds; 7 reads 2 and 5; then 7 reads 5, 2 reads 7 and 0, 5 reads nothing.
    first = batch([7, 2, 5, 0], ([0, 2, 2], [1, 2], 3), ([0, 1, 3, 3], [2, 0, 3], 4))
    second = batch([5, 2], ([0, 3], [1, 1, 0], 2))
    found = presample([(1, first), (0, second), (1, second)], num_devices=3, num_vertices=8)
    assert [each.tolist() for each in found.feature_hotness] == [
        [0, 0, 1, 0, 0, 1, 0, 0],
        [1, 0, 2, 0, 0, 2, 0, 1],
        [0] * 8,
    ]
    assert [each.tolist() for each in found.topology_hotness] == [
        [0, 0, 0, 0, 0, 3, 0, 0],
        [0, 0, 2, 0, 0, 3, 0, 3],
        [0] * 8,
    ]
    assert found.traversed_edges == (3, 8, 0)
    assert {each.dtype for each in found.feature_hotness + found.topology_hotness} == {
        np.dtype(np.int32)
    }


def test_sampled_batches_are_counted_edge_by_edge(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    sampler = NeighborSampler(graph, fanouts=[4, 3], seed=1)
    batches = [sampler.sample(np.arange(5) * 7 + step, step) for step in range(9)]
    features, topology = np.zeros((2, graph.num_vertices), np.int64)
    for each in batches:
        features += np.bincount(each.input_vertices, minlength=graph.num_vertices)
        for block in each.blocks:
            for i in range(block.num_dst):
                topology[each.input_vertices[i]] += block.indptr[i + 1] - block.indptr[i]
    found = presample(((0, each) for each in batches), num_devices=1, num_vertices=len(features))
    assert np.array_equal(found.feature_hotness[0], features)
    assert np.array_equal(found.topology_hotness[0], topology)
    assert found.traversed_edges == (int(topology.sum()),)


def test_counts_end_where_int32_does() -> None:
    counts = np.array([2**31 - 3, 5], np.int32)
    for _ in range(2):
        presampled._add(counts, np.array([0]), 2)
    assert counts.tolist() == [2**31 - 1, 5]
