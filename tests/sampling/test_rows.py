"""Samplers of task rows, with and without a rule of time."""

import numpy as np
import pytest
from one_line import one_line
from timed_shop import timed_shop

from gnnscale.sampling import LayerSampling, NeighborSampling
from gnnscale.sampling.rows import RowSampling

SHOP = timed_shop(num_users=20, num_items=6)


@pytest.mark.parametrize("time", ["none", "seed"])
def test_rows_share_outputs(time) -> None:
    rows = SHOP.rows
    assert rows is not None
    options = RowSampling(vertices=NeighborSampling(fanouts=[2, 2], time=time), rows=rows)
    assert options.num_layers == 2
    sampler = options.sampler(SHOP, seed=1, num_threads=1)
    numbers = np.array([43, 3, 23, 3])  # user 3 as of three cut-offs
    batch = sampler.sample(numbers, 5)
    assert batch.rows is not None
    np.testing.assert_array_equal(batch.rows.numbers, numbers)
    np.testing.assert_array_equal(batch.seeds[batch.rows.positions], rows.vertices[numbers])
    if time == "none":
        assert (batch.num_seeds, batch.cutoffs) == (1, None)
        return
    assert batch.num_seeds == 3
    np.testing.assert_array_equal(batch.cutoffs[batch.rows.positions], rows.cutoffs[numbers])
    assert len(batch.distinct_inputs) < len(batch.input_vertices)
    sampler.num_threads = 2
    again = sampler.sample(numbers, 5)
    np.testing.assert_array_equal(again.input_vertices, batch.input_vertices)


def test_samplers_without_times_are_refused() -> None:
    assert SHOP.rows is not None
    options = RowSampling(vertices=LayerSampling(layer_sizes=[4]), rows=SHOP.rows)
    with one_line("sampler: expected neighbor", "LayerSampling"):
        options.sampler(SHOP, seed=0, num_threads=1)
