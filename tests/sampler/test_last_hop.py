from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gnnscale.graph import Graph
from gnnscale.sampler import LayerSampling, NeighborSampling, without_last_hop


@pytest.mark.parametrize("fanouts", [[-1], [3, -1], [-1, -1], [4, 2, -1]])
@pytest.mark.parametrize("replace", [False, True])
def test_what_is_left_is_what_the_whole_sampling_has(
    random_graph: Callable[..., Graph], fanouts: list[int], replace: bool
) -> None:
    graph, seeds = random_graph(), np.arange(0, 60, 3)
    config = NeighborSampling(fanouts=fanouts, replace=replace)
    shorter = without_last_hop(config)
    assert shorter is not None
    assert shorter.num_layers == len(fanouts)
    whole = config.sampler(graph, seed=5, num_threads=1).sample(seeds, 7)
    left = shorter.sampler(graph, seed=5, num_threads=2).sample(seeds, 7)
    assert (left.seed, left.step, left.num_seeds) == (5, 7, len(seeds))
    # V^1: the destinations of the first layer.
    num_first = whole.blocks[0].num_dst
    assert left.input_vertices.tolist() == whole.input_vertices[:num_first].tolist()
    assert left.input_vertices.dtype == whole.input_vertices.dtype
    first, *others = left.blocks
    assert (first.num_src, first.num_dst, first.num_edges) == (num_first, num_first, 0)
    assert len(others) == len(fanouts) - 1
    for mine, its in zip(others, whole.blocks[1:], strict=True):
        assert mine.indptr.tolist() == its.indptr.tolist()
        assert mine.indices.tolist() == its.indices.tolist()
        assert mine.num_src == its.num_src


def test_by_hand(tiny_graph: Graph) -> None:
    shorter = without_last_hop(NeighborSampling(fanouts=[-1, -1]))
    assert shorter is not None
    batch = shorter.sampler(tiny_graph, seed=0, num_threads=1).sample(np.array([4, 0]), 0)
    assert batch.input_vertices.tolist() == [4, 0, 1, 2]
    assert batch.blocks[0].indptr.tolist() == [0] * 5
    assert batch.blocks[1].indices.tolist() == [0, 2, 3]
    assert batch.num_edges == 3
    assert batch.num_vertices == 2 + 4 + 4


def test_only_a_hop_of_all_neighbours_can_be_left_out() -> None:
    assert without_last_hop(NeighborSampling(fanouts=[-1, 5])) is None
    assert without_last_hop(LayerSampling(layer_sizes=[10, 10])) is None


@pytest.mark.parametrize("fanouts", [[-1], [2, -1]])
def test_seeds_are_looked_at_and_threads_can_change(tiny_graph: Graph, fanouts: list[int]) -> None:
    shorter = without_last_hop(NeighborSampling(fanouts=fanouts))
    assert shorter is not None
    sampler = shorter.sampler(tiny_graph, seed=0, num_threads=1)
    for seeds, message in (([5], "seeds: 5 is not a vertex"), ([0, 0], "seeds: 0 appears twice")):
        with pytest.raises(ValueError, match=message):
            sampler.sample(np.array(seeds), 0)
    assert sampler.num_threads == 1
    sampler.num_threads = 2
    assert sampler.num_threads == 2
    assert sampler.sample(np.array([], np.int64), 0).num_vertices == 0
