from dataclasses import replace

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.graph import EdgeData, Graph, topology


def test_weights_are_added_up_list_by_list(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.array([1, 2, 4, 8, 16], np.float32)
    graph = Graph(
        name="graph",
        indptr=np.array([0, 0, 2, 2, 5, 5]),
        indices=np.array([0, 3, 1, 1, 4], np.int32),
        features=np.ones((5, 2), np.float32),
        feature_dtype="float32",
        labels=np.zeros(5, np.int64),
        num_classes=2,
        edges=EdgeData(weights=weights),
    )
    for together in (1, 2, 100):
        monkeypatch.setattr(topology, "_LISTS", together)
        found = replace(graph).weight_sums
        assert (found.tolist(), found.dtype) == ([0, 3, 0, 28, 0], np.float32)
    assert replace(graph, edges=EdgeData()).weight_sums is None
    for damaged in (np.nan, np.inf, -9.0):
        edges = EdgeData(weights=np.array([1, 2, damaged, damaged, 0], np.float32))
        wrong = replace(graph, edges=edges)
        with pytest.raises(GraphError, match=r"graph: damaged, edge_weights: .* of vertex 3 add"):
            _ = wrong.weight_sums
    large = EdgeData(weights=np.array([1, 2, 3e38, 3e38, 0], np.float32))
    message = r"^graph: edge_weights: .* vertex 3 add up to more than fl"
    with pytest.raises(GraphError, match=message):
        _ = replace(graph, edges=large).weight_sums
    for ends in ([0, 0, 2, 2, 6, 6], [0, 0, 2, 1, 5, 5], [-1, 0, 2, 2, 5, 5]):
        wrong = replace(graph, indptr=np.array(ends))
        with pytest.raises(GraphError, match=r"graph: damaged, indptr: lists between vertices"):
            _ = wrong.weight_sums
