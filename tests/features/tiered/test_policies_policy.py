"""Rows that stay, as a policy of a tier."""

import numpy as np

from gnnscale.features.tiered.policies import StaticPolicy


def test_the_same_rows_are_found_in_every_batch():
    policy = StaticPolicy(6, np.array([4, 1], np.int64))
    policy.expect(np.array([1, 2, 4], np.int64))
    policy.expect(np.array([5], np.int64))
    assert policy.num_expected == 2
    assert policy.look_up().tolist() == [1, -1, 0]
    replaced = policy.advance()
    assert (replaced.counts.num_hits, replaced.counts.num_misses) == (2, 1)
    assert len(replaced.positions) == len(replaced.slots) == 0
    assert policy.look_up().tolist() == [-1]
