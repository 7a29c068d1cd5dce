from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.dataset import from_arrays
from gnnscale.graph import Graph
from gnnscale.partition import NoPartitioner, Parts
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


def test_training_vertices_belong_to_their_owners() -> None:
    parts = Parts(num_parts=3, owner=np.array([0, 1, 0, 2, 1], np.int16))
    found = parts.train_vertices(np.array([1, 2, 4], np.int32))
    assert [each.tolist() for each in found] == [[2], [1, 4], []]
    assert all(each.dtype == np.int32 for each in found)


def test_parts_of_the_feature_dimension_have_no_training_vertices() -> None:
    parts = Parts(num_parts=2, owner=None, columns=((0, 3), (3, 5)))
    with pytest.raises(ValueError, match="no training vertices"):
        parts.train_vertices(np.arange(3))


def test_every_part_has_everything(tiny_graph: Graph) -> None:
    parts = NoPartitioner().assign(tiny_graph, num_parts=3, num_hops=2, num_threads=1)
    assert parts == Parts(num_parts=3, owner=None)
    forecast = NoPartitioner().forecast(tiny_graph, num_parts=3, num_hops=2, num_threads=1)
    assert (forecast.memory_bytes, forecast.seconds) == (0, 0)
