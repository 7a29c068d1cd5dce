import numpy as np
import pytest

from gnnscale.run.tasks.links import hits_at, mean_reciprocal_rank, ranks


def test_ranks_by_hand() -> None:
    scores = np.array([[3.0, 1, 2, 0], [1, 3, 2, 0], [2, 2, 2, 5], [np.nan, 1, 2, 3]])
    found = ranks(scores)
    # The third is behind 5 and shares three places with two others: the second to the fourth.
    assert found.tolist() == [1, 3, 3, 4]
    assert mean_reciprocal_rank(found) == pytest.approx((1 + 1 / 3 + 1 / 3 + 1 / 4) / 4)
    assert hits_at(found, 1) == 0.25
    assert hits_at(found, 3) == 0.75
