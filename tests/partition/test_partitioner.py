from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnscale.config import ConfigError
from gnnscale.dataset import from_arrays
from gnnscale.graph import Graph
from gnnscale.partition.partitioner import MAX_PARTS, check_num_parts


@pytest.fixture
def three() -> Graph:
    """Five vertices without edges, three of which train."""
    none = np.empty(0, np.int64)
    features = np.zeros((5, 2), np.float32)
    return from_arrays(
        (none, none), features, np.zeros(5, np.int64), train_idx=np.array([0, 1, 4]), num_classes=1
    )


def test_every_part_needs_a_training_vertex(three: Graph) -> None:
    check_num_parts(three, 3)
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=4: .* has 3 training vertices"):
        check_num_parts(three, 4)


def test_a_training_vertex_without_a_label_trains_no_part(three: Graph) -> None:
    unlabelled = replace(three, labels=np.array([0, 0, 0, 0, -1]))
    check_num_parts(unlabelled, 2)
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=3: .* has 2 training vertices"):
        check_num_parts(unlabelled, 3)


def test_owners_fit_into_16_bits() -> None:
    assert np.iinfo(np.int16).max > MAX_PARTS
