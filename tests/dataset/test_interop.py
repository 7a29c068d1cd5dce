from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnscale.dataset import from_arrays, from_dgl, from_pyg
from gnnscale.graph import GraphError

SRC, DST = np.array([2, 0, 1, 0]), np.array([1, 1, 0, 2])
X = np.arange(6, dtype=np.float32).reshape(3, 2)


def check(graph):
    assert graph.indptr.tolist() == [0, 1, 3, 4]
    assert graph.indices.tolist() == [1, 0, 2, 0]
    assert graph.indices.dtype == np.int32
    assert graph.labels.tolist() == [0, 1, 1]
    assert graph.num_classes == 2
    assert graph.train_idx.tolist() == [2]
    assert graph.valid_idx.tolist() == [0]
    assert graph.test_idx.tolist() == []


def test_from_arrays():
    graph = from_arrays((SRC, DST), X, np.array([0, 1, 1]), train_idx=[2], valid_idx=[0])
    check(graph)
    assert np.shares_memory(graph.features, X)


def test_without_labels():
    graph = from_arrays((SRC, DST), X)
    assert graph.labels.tolist() == [-1, -1, -1]
    assert graph.num_classes == 0
    assert len(graph.train_idx) == 0


def test_multilabel_and_metric():
    labels = np.array([[0, 1], [1, 1], [0, 0]])
    assert from_arrays((SRC, DST), X, labels).metric == "micro_f1"
    assert from_arrays((SRC, DST), X, labels, metric="roc_auc").metric == "roc_auc"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_features_are_shared(dtype):
    features = torch.from_numpy(X).to(dtype)
    graph = from_arrays((SRC, DST), features)
    assert graph.feature_dtype == str(dtype).removeprefix("torch.")
    assert graph.features.__array_interface__["data"][0] == features.data_ptr()


def test_from_pyg():
    geometric = pytest.importorskip("torch_geometric.data")
    x = torch.from_numpy(X)
    data = geometric.Data(
        x=x,
        edge_index=torch.from_numpy(np.stack([SRC, DST])),
        y=torch.tensor([[0], [1], [1]]),
        train_mask=torch.tensor([False, False, True]),
        val_mask=torch.tensor([True, False, False]),
    )
    graph = from_pyg(data)
    check(graph)
    assert graph.features.__array_interface__["data"][0] == x.data_ptr()
    with pytest.raises(GraphError, match="graph: has no edge_index"):
        from_pyg(geometric.Data(x=x))
    with pytest.raises(GraphError, match="graph: has no features 'x'"):
        from_pyg(geometric.Data(edge_index=data.edge_index))


def test_from_dgl():
    dgl = pytest.importorskip("dgl")
    peer = dgl.graph((torch.from_numpy(SRC), torch.from_numpy(DST)))
    peer.ndata["feat"] = torch.from_numpy(X)
    peer.ndata["label"] = torch.tensor([0, 1, 1])
    peer.ndata["train_mask"] = torch.tensor([False, False, True])
    peer.ndata["val_mask"] = torch.tensor([True, False, False])
    check(from_dgl(peer))
    with pytest.raises(GraphError, match="graph: has no features 'x'"):
        from_dgl(peer, features="x")
    several = dgl.heterograph({("a", "r", "b"): ([0], [0]), ("b", "s", "a"): ([0], [0])})
    with pytest.raises(GraphError, match="several vertex or edge types"):
        from_dgl(several)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": (SRC, DST + 1)}, "graph: edge destinations: vertex id 3 is out of range"),
        ({"edges": (SRC - 1, DST)}, "graph: edge sources: vertex id -1 is negative"),
        ({"edges": (SRC[1:], DST)}, "graph: 3 edge sources, 4 destinations"),
        ({"edges": (SRC * 1.0, DST)}, "graph: edge sources: vertex ids are float64"),
        ({"features": X.astype(np.float64)}, "features are float64"),
        ({"features": X[:, 0]}, "features are \\[3\\]"),
        ({"features": np.full((3, 2), np.nan, np.float32)}, "feature 0 of vertex 0 is nan"),
        ({"features": torch.full((3, 2), torch.inf).bfloat16()}, "features must be finite"),
        ({"labels": np.array([0, 1])}, "labels: 2 labels for 3 vertices"),
        ({"labels": np.array([0.0, 1, 1])}, "labels are float64"),
        ({"train_idx": np.array([5])}, "train split: vertex id 5 is out of range"),
        ({"metric": "mse"}, "metric 'mse', allowed are accuracy"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(GraphError, match=message):
        from_arrays(**({"edges": (SRC, DST), "features": X} | arguments))
