"""Sums of the gradients of equal rows; ``test_group.py`` exchanges them between processes."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.training.gradient_sync import sum_by_vertex


def test_rows_of_equal_vertices_are_summed_in_their_order() -> None:
    # In float32, (1 - 1e8) + 1e8 is 0, and another order gives 1.
    gradients = torch.tensor([[1.0], [5.0], [-1e8], [7.0], [1e8]])
    vertices, sums = sum_by_vertex(torch.tensor([9, 2, 9, 4, 9]), gradients)
    assert vertices.tolist() == [2, 4, 9]
    assert sums.total(torch.float32, num_threads=1).tolist() == [[5.0], [7.0], [0.0]]


@given(st.lists(st.integers(0, 9), max_size=30))
def test_sums_are_those_of_a_dense_table(ids) -> None:
    gradients = torch.arange(2.0 * len(ids)).view(-1, 2)
    vertices, sums = sum_by_vertex(torch.tensor(ids, dtype=torch.int32), gradients)
    dense = torch.zeros(10, 2).index_add_(0, torch.tensor(ids, dtype=torch.int64), gradients)
    assert vertices.tolist() == sorted(set(ids))
    found = sums.total(torch.float32, num_threads=2)
    np.testing.assert_array_equal(found, dense[torch.from_numpy(vertices).long()])
