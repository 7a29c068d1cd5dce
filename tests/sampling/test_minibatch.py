import numpy as np

from gnnscale.sampling.minibatch import Block, InputFrontier, MiniBatch


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
    reach = InputFrontier.of(batch)
    assert reach.input_vertices is vertices
    assert [indptr.tolist() for indptr in reach.indptrs] == [[0, 2], [0, 1, 2, 2]]
    assert (reach.num_edges, reach.num_lists) == (4, 1 + 3)
