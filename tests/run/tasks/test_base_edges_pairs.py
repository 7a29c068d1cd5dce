"""Copies and reverses of edges, in other parts of a split."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays, random_edge_split
from gnnscale.graph import Graph
from gnnscale.nn.losses import AutoLoss
from gnnscale.run.tasks import base as module
from gnnscale.run.tasks.base import EdgeTask, count_shared_pairs


@given(
    edges=st.lists(st.tuples(*2 * [st.integers(0, 5)]), min_size=3, max_size=40),
    group_edges=st.sampled_from([1, 3, 1 << 24]),
    seed=st.integers(0, 99),
)
def test_shared_pairs_are_counted(edges: Any, group_edges: int, seed: int) -> None:
    train, *parts = np.array_split(np.random.default_rng(seed).permutation(len(edges)), 3)
    known = {tuple(sorted(edges[row])) for row in train}
    expected = [sum(tuple(sorted(edges[row])) in known for row in part) for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_GROUP_EDGES", group_edges)
        assert count_shared_pairs(np.array(edges), train, parts) == expected


def test_shared_pairs_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    source, target = [0, 1, 2, 3, 2], [1, 0, 3, 4, 0]
    graph = from_arrays(
        (np.array(source), np.array(target)),
        np.zeros((5, 1), np.float32),
        edge_labels=np.array([0, 0, 1, 1, 0]),
        edge_split=(np.array([0, 2]), np.array([3]), np.array([1, 4])),
    )
    EdgeTask(graph=graph, loss=AutoLoss()).log_split()
    (record,) = caplog.records
    assert record.message.startswith(
        "task=edges: 1 of 2 test edges of graph join two vertices that a training edge joins too"
    )
    assert record.message.endswith("gnnscale.data.random_edge_split")


def test_a_split_of_a_graph_in_memory_that_shares_no_pair(caplog, tmp_path) -> None:
    """The function that errors and warnings name is the one that keeps pairs in one part."""
    ends = np.random.default_rng(0).integers(9, size=(200, 2))
    labels, rows = np.arange(200) % 2, np.zeros((9, 1), np.float32)
    parts = random_edge_split(labels, ends, (0.5, 0.2), seed=0)

    def made(split: Any) -> Graph:
        return from_arrays((ends[:, 0], ends[:, 1]), rows, edge_labels=labels, edge_split=split)

    EdgeTask(graph=made(parts), loss=AutoLoss()).log_split()
    assert not caplog.records
    with pytest.raises(GraphError, match="random_edge_split"):
        made((None, parts[1], None)).save(tmp_path / "store")
