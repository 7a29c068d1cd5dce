import numpy as np
import pytest

from gnnscale.ops import SampledHop
from gnnscale.sampling.minibatch import to_minibatch, whole_numbers


def test_lists_are_copied_and_nothing_else_is_taken() -> None:
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
