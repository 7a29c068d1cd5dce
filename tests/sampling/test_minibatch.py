import numpy as np
import pytest

from gnnscale.ops import SampledHop
from gnnscale.sampling.minibatch import Block, InputFrontier, MiniBatch, to_minibatch, whole_numbers


def test_counts_by_hand() -> None:
    # 7 <- 3, 5; below, 7 <- 3, 3 <- 9, 5 <- nobody.
    upper = Block(indptr=np.array([0, 2]), indices=np.array([1, 2], np.int32), num_src=3)
    lower = Block(indptr=np.array([0, 1, 2, 2]), indices=np.array([1, 3], np.int32), num_src=4)
    vertices = np.array([7, 3, 5, 9])
    batch = MiniBatch(seed=0, step=2, num_seeds=1, input_vertices=vertices, blocks=(lower, upper))
    assert (upper.num_dst, upper.num_edges) == (1, 2)
    assert (lower.num_dst, lower.num_edges) == (3, 2)
    assert batch.seeds.tolist() == [7]
    assert batch.num_edges == 4
    assert batch.num_vertices == 1 + 3 + 4
    assert repr(lower) == "<gnnscale.Block: 2 edges from 4 vertices to 3>"
    shown = "<gnnscale.MiniBatch of step 2: 1 seeds, 4 input vertices, 4 edges in 2 blocks>"
    assert repr(batch) == shown
    reach = InputFrontier.of(batch)
    assert reach.input_vertices is vertices
    assert [indptr.tolist() for indptr in reach.indptrs] == [[0, 2], [0, 1, 2, 2]]
    assert (reach.num_edges, reach.num_lists) == (4, 1 + 3)


def test_lists_are_copied_and_other_types_refused() -> None:
    given = [25, 10]
    assert whole_numbers("fanouts", given) == given
    assert whole_numbers("fanouts", given) is not given
    assert whole_numbers("fanouts", (5,)) == [5]
    with pytest.raises(TypeError, match="fanouts: str, allowed is a list of whole numbers"):
        whole_numbers("fanouts", "25")


def test_hops_from_the_seeds_become_blocks_from_the_inputs() -> None:
    first = SampledHop(np.array([0, 1]), np.array([1], np.int32), 2)
    second = SampledHop(np.array([0, 1, 1]), np.array([2], np.int32), 3, np.ones(1, np.float32))
    edges = np.array([8])
    sampled = (np.array([4, 6, 8]), [first, second], edges)
    batch = to_minibatch(1, sampled, seed=3, step=5)
    assert (batch.seed, batch.step, batch.seeds.tolist()) == (3, 5, [4])
    assert [block.num_src for block in batch.blocks] == [3, 2]
    assert [block.num_dst for block in batch.blocks] == [2, 1]
    assert [block.importance is None for block in batch.blocks] == [False, True]
    # Only the input block reads rows of the graph.
    assert batch.blocks[0].edge_vertices is edges
    assert batch.blocks[1].edge_vertices is None
