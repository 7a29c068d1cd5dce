"""Rows of a slower source for steps whose vertices repeat."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from late_source import NUM_ROWS, ROWS, LateSource, belady, ids

from gnnscale.features.tiered.distinct import DistinctReader
from gnnscale.features.tiered.policies import TierPlanner
from gnnscale.features.tiered.store import TieredStore, WorkerBuffer

step_rows = st.lists(st.integers(0, NUM_ROWS - 1), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(step_rows, min_size=1, max_size=8), num_kept=st.integers(0, 8))
def test_a_row_that_repeats_is_read_once(steps, num_kept) -> None:
    planner = TierPlanner(belady(num_kept, 1), num_kept=num_kept, num_staged=12, window=1)
    reader = DistinctReader(WorkerBuffer(LateSource(), planner, window=1, ahead=1))
    store = TieredStore(reader)
    arrays = [ids(*rows) for rows in steps]
    for array in arrays:
        reader.expect(array)
    reader.expect(None)
    reader.end()
    for array in arrays:
        # Another array, of a profiling run, changes nothing.
        other, _ = store.gather(array.copy(), dtype=torch.float32, num_threads=1)
        found, traffic = store.gather(array, dtype=torch.float32, num_threads=1)
        np.testing.assert_array_equal(found.numpy(), ROWS[array])
        np.testing.assert_array_equal(other.numpy(), ROWS[array])
        assert traffic.tier.misses <= len(np.unique(array))
    reader.close()
