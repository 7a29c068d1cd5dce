from __future__ import annotations

import numpy as np
import pytest

from gnnscale.partition import Parts


def test_training_vertices_belong_to_their_owners() -> None:
    parts = Parts(num_parts=3, owner=np.array([0, 1, 0, 2, 1], np.int16))
    found = parts.train_vertices(np.array([1, 2, 4], np.int32))
    assert [each.tolist() for each in found] == [[2], [1, 4], []]
    assert all(each.dtype == np.int32 for each in found)


def test_parts_of_the_feature_dimension_have_no_training_vertices() -> None:
    parts = Parts(num_parts=2, owner=None, columns=((0, 3), (3, 5)))
    with pytest.raises(ValueError, match="no training vertices"):
        parts.train_vertices(np.arange(3))
