import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays


def test_a_graph_is_shown_in_one_line() -> None:
    graph = from_arrays(
        ([0, 1], [1, 2]), np.ones((3, 2), np.float32), [0.5, 1.5, 2.5], train_idx=[0, 1]
    )
    assert repr(graph) == (
        "<gnnscale.Graph 'graph': 3 vertices, 2 edges, 2 features, 1 regression targets, "
        "2/0/0 train/valid/test>"
    )


def test_a_graph_in_memory_that_trains_without_labels_names_its_own_parts(tmp_path):
    ends = np.array([0, 1, 2]), np.array([1, 2, 0])
    x, targets = np.ones((4, 1), np.float32), np.array([0.5, np.nan, 1, 2], np.float32)
    split = {"train_idx": [0, 1], "valid_idx": [2], "test_idx": [3]}
    graph = from_arrays(ends, x, targets, **split)
    with pytest.raises(GraphError) as error:
        graph.save(tmp_path / "store")
    assert str(error.value) == (
        "graph: vertex 1 of train_idx has no label; 1 of 2 lack one; leave them out of train_idx"
    )
    edges = from_arrays(ends, x, edge_labels=np.array([1, -1, 0]), edge_split=([0], [1], [2]))
    with pytest.raises(GraphError, match=r"^graph: edge 1 of edge_split\[1\] has no label; 1 of"):
        edges.save(tmp_path / "store")
    test = from_arrays(ends, x, targets, train_idx=[0], valid_idx=[2], test_idx=[1, 3])
    test.save(tmp_path / "store")
