"""Graphs with types of PyG, DGL and OGB."""

from typing import Any

import numpy as np
import pytest
import torch

from gnnscale import Graph
from gnnscale.core import GraphError
from gnnscale.data import from_dgl, from_pyg
from gnnscale.data.peers import from_peer, is_peer
from gnnscale.data.typed_arrays import from_typed_arrays

dgl = pytest.importorskip("dgl")
geometric = pytest.importorskip("torch_geometric.data")
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
#: Two authors without features, three papers with two.
EDGES = {WRITES: torch.tensor([[1, 0, 0], [2, 2, 0]]), CITES: torch.tensor([[2, 1], [0, 0]])}
X = torch.arange(6.0).reshape(3, 2)
Y = torch.tensor([1, 0, 1])
MASKS = {"train_mask": torch.tensor([True, False, True]), "val_mask": torch.tensor([0, 1, 0]) > 0}
WEIGHTS = {WRITES: torch.tensor([3.0, 2, 1]), CITES: torch.tensor([5.0, 4])}


def expected(**changes: Any) -> Graph:
    arguments: dict[str, Any] = {
        "features": {"author": None, "paper": X},
        "edges": EDGES,
        "labels": ("paper", Y),
        "num_vertices": {"author": 2},
        "split": {"train": [0, 2], "valid": [1]},
    }
    return from_typed_arrays(**arguments | changes)


def check(graph: Graph, like: Graph | None = None) -> None:
    like = expected() if like is None else like
    assert graph.schema == like.schema
    for name in ("indptr", "indices", "labels", "train_idx", "valid_idx", "test_idx"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(like, name))
    assert graph.features.widths == like.features.widths
    np.testing.assert_array_equal(graph.features.matrices[1].rows, X.numpy())
    for name in ("edge_weights", "edge_ids"):
        actual, other = getattr(graph, name), getattr(like, name)
        assert (actual is None) == (other is None)
        if actual is not None:
            np.testing.assert_array_equal(actual, other)


def pyg(**of_paper: Any) -> Any:
    data = geometric.HeteroData()
    data["author"].num_nodes = 2
    data["paper"].update({"x": X, "y": Y, **MASKS} | of_paper)
    for triple, index in EDGES.items():
        data[triple].edge_index = index
    return data


def heterograph() -> Any:
    graph = dgl.heterograph(
        {triple: (index[0], index[1]) for triple, index in EDGES.items()},
        num_nodes_dict={"author": 2, "paper": 3},
    )
    graph.nodes["paper"].data.update({"feat": X, "label": Y, **MASKS})
    return graph


def test_hetero_data() -> None:
    graph = from_pyg(pyg())
    check(graph)
    assert graph.features.matrices[1].rows.__array_interface__["data"][0] == X.data_ptr()
    check(from_peer(pyg()))
    check(from_pyg(pyg(y=Y[:, None]), number_edges=True), expected(number_edges=True))
    check(from_pyg(pyg(), split={"test": [0]}), expected(split={"test": [0]}))
    unlabeled = pyg(y=None)
    check(from_pyg(unlabeled), expected(labels=None))


def test_heterograph() -> None:
    check(from_dgl(heterograph()))
    check(from_peer(heterograph()))
    check(from_dgl(heterograph().formats(["csr", "csc"])))
    assert from_dgl(heterograph(), features=None).features.widths == (0, 0)


def test_weights_are_of_all_edge_types() -> None:
    data, graph = pyg(), heterograph()
    for triple, weights in WEIGHTS.items():
        data[triple].edge_weight = weights
        graph.edges[triple].data["w"] = weights[:, None]
    like = expected(edge_weights=WEIGHTS, number_edges=True)
    check(from_pyg(data, number_edges=True), like)
    check(from_dgl(graph, edge_weight="w", number_edges=True), like)
    check(from_pyg(data, edge_weight=None))
    del data[CITES].edge_weight
    with pytest.raises(GraphError, match=r"edge_weight=edge_weight: .* missing of paper-cites"):
        from_pyg(data)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_transposed_adjacency() -> None:
    data = pyg()
    for triple, (src, dst) in EDGES.items():
        sizes = data[triple[2]].num_nodes, data[triple[0]].num_nodes
        del data[triple].edge_index
        matrix = torch.sparse_coo_tensor(torch.stack([dst, src]), WEIGHTS[triple], sizes)
        data[triple].adj_t = matrix.coalesce().to_sparse_csr()
    check(from_pyg(data), expected(edge_weights=WEIGHTS))


def test_features_of_edges_of_one_type() -> None:
    """Edges (1, 2), (0, 2), (0, 0) have 1, 2, 3; lists have authors 0 of paper 0, then 0 and 1."""
    data, graph = pyg(), heterograph()
    data[WRITES].edge_attr = graph.edges[WRITES].data["w"] = torch.tensor([1.0, 2, 3]).half()
    for read in (from_pyg(data), from_dgl(graph, edge_feature="w")):
        check(read)
        assert read.indices.tolist() == [0, 3, 4, 0, 1]
        assert read.edge_rows.tolist() == [2, 0, 0, 1, 0]
        assert read.edges.by_type.widths == (1, 0)
        (matrix,) = read.edges.by_type.present
        assert (matrix.rows.tolist(), matrix.dtype) == ([[1], [2], [3]], "float16")
    check(from_pyg(data, edge_attr=None))
    assert from_pyg(data, edge_attr=None).edges.by_type is None
    with pytest.raises(GraphError, match="no edge type has 'time'"):
        from_pyg(data, edge_attr="time")
    data[WRITES].edge_attr = torch.ones(2, 1)
    with pytest.raises(GraphError, match="author-writes-paper: 2 rows of features for 3 edges"):
        from_pyg(data)


def test_attributes_that_are_not_read_are_told(caplog: pytest.LogCaptureFixture) -> None:
    data = pyg(year=torch.ones(3))
    data["author"].feat = torch.ones(2, 4)
    caplog.set_level("INFO")
    from_pyg(data)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "without features: data['author'].feat; features are to be 'x'" in caplog.messages[0]
    assert caplog.messages[1] == "graph: not read: data['paper'].year"


def test_labels_of_several_types() -> None:
    data = pyg()
    data["author"].y = torch.tensor([0.5, 2])
    both = from_pyg(data)
    assert both.targets == ("author", "paper")
    assert both.of_target("author").labels[:2].tolist() == [0.5, 2]
    np.testing.assert_array_equal(both.of_target("paper").labels, from_pyg(pyg()).labels)
    by_type = from_pyg(data, split={"train": {"author": [1], "paper": [0]}, "test": {"paper": [2]}})
    assert (by_type.train_idx.tolist(), by_type.test_idx.tolist()) == ([1, 2], [4])
    for parts in ([0], {"thing": [0]}):
        with pytest.raises(GraphError, match=r"split\['train'\]: expected ids of author, paper"):
            from_pyg(data, split={"train": parts})
    check(from_pyg(data, target="paper"))
    data["author"].y = torch.tensor([0, 2])
    authors = from_pyg(data, target="author", split={"train": [1]})
    assert (authors.labels.tolist(), authors.train_idx.tolist()) == ([0, 2, -1, -1, -1], [1])


def ogb() -> tuple[Any, Any]:
    """Return OGB's dictionaries by type, and its labels."""
    arrays = {
        "edge_index_dict": {triple: index.numpy() for triple, index in EDGES.items()},
        "edge_feat_dict": {},
        "node_feat_dict": {"paper": X.numpy()},
        "num_nodes_dict": {"author": 2, "paper": 3},
        "node_year": {"paper": np.ones((3, 1))},
        "edge_reltype": {triple: np.ones((index.shape[1], 1)) for triple, index in EDGES.items()},
    }
    return arrays, {"paper": Y.numpy()[:, None]}


class OgbMag:
    """What OGB's data sets of graphs with types have."""

    eval_metric = "acc"

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def __getitem__(self, index: int) -> Any:
        return self.graph

    def get_idx_split(self) -> Any:
        return {"train": {"paper": [0, 2]}, "valid": {"paper": [1]}, "test": {"paper": []}}


def test_data_sets_of_ogb() -> None:
    arrays, labels = ogb()
    names = {"node_feat_dict": "x_dict"}
    fields = {names.get(key, key): values for key, values in arrays.items()}
    data = geometric.Data(**fields, y_dict={"paper": Y[:, None]})
    graph = heterograph()
    for key in ("label", *MASKS):
        del graph.nodes["paper"].data[key]
    for single in ((arrays, labels), data, (graph, {"paper": Y})):
        dataset = OgbMag(single)
        assert is_peer(dataset)
        check(from_peer(dataset))
    with pytest.raises(GraphError, match=r"split\['train'\]: expected ids of paper, got of author"):
        from_pyg((arrays, labels), split={"train": {"author": [0]}})
    with pytest.raises(GraphError, match="labels: expected a dictionary by vertex type"):
        from_pyg((arrays, labels["paper"]))
    with pytest.raises(GraphError, match="num_nodes_dict: 'author' is missing"):
        from_pyg(arrays | {"num_nodes_dict": {"paper": 3}})
    with pytest.raises(GraphError, match="edge_index_dict: expected edges by"):
        from_pyg(arrays | {"edge_index_dict": {"cites": EDGES[CITES]}})


def test_a_type_without_vertices() -> None:
    data = pyg()
    data["venue"].x = torch.empty(0, 5)
    data["paper", "in", "venue"].edge_index = torch.empty(2, 0, dtype=torch.long)
    graph = from_pyg(data)
    assert (graph.num_vertices, graph.features.widths) == (5, (0, 2, 0))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda d: d["author"].clear(), {}, r"^graph: data\['author'\]: .* num_nodes says"),
        (
            lambda d: (d["author"].clear(), d["author"].update({"x": [X[0], X[1, :1]]})),
            {},
            r"^graph: data\['author'\].x: expected an array",
        ),
        (lambda d: d[CITES].clear(), {}, r"^graph: data\[\('paper', .*edge_index is missing"),
        (lambda d: d[WRITES].update({"edge_index": EDGES[WRITES] + 1}), {}, "of type author: ver"),
        (lambda d: d[CITES].update({"edge_index": EDGES[CITES][0]}), {}, "expected one axis"),
        (lambda d: d["paper"].update({"x": X[:2]}), {}, "3 vertices|num_nodes|vertex id"),
        (lambda d: d["paper"].update({"y": Y[:2]}), {}, "labels of paper"),
        (lambda d: d["paper"].update({"train_mask": Y[:2] > 0}), {}, r"data\['paper'\].train_mask"),
        (lambda d: d["paper"].update({"train_idx": Y}), {}, r"one of data\['paper'\].train_mask"),
        (lambda d: None, {"target": "venue"}, "target=venue: no such vertex type, allowed are au"),
        (lambda d: None, {"target": "author"}, r"target=author: data\['author'\].y is missing"),
        (lambda d: d["paper"].pop("y"), {"split": "random"}, "split, mask: expected none"),
        (lambda d: None, {"edge_weight": "w"}, "edge_weight=w: expected of all edge types"),
        (lambda d: None, {"metric": "best"}, "metric='best'"),
    ],
)
def test_refused(change: Any, options: dict[str, Any], message: str) -> None:
    data = pyg()
    change(data)
    with pytest.raises(GraphError, match=message) as error:
        from_pyg(data, **options)
    assert str(error.value).isprintable()


def test_an_edge_type_of_unknown_vertices() -> None:
    data = pyg()
    data["paper", "in", "venue"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(GraphError, match="edge type paper-in-venue: 'venue' is no vertex type"):
        from_pyg(data)


def test_names_that_dgl_lacks() -> None:
    with pytest.raises(GraphError, match="no vertex type has 'x'; features=None reads none"):
        from_dgl(heterograph(), features="x")
    with pytest.raises(GraphError, match="no vertex type has 'y'"):
        from_dgl(heterograph(), labels="y")


def test_times_of_types() -> None:
    data, graph = pyg(time=torch.tensor([4, 9, 1])), heterograph()
    data[WRITES].edge_time = torch.tensor([3, 2, 1])
    graph.nodes["paper"].data["at"], graph.edges[WRITES].data["at"] = (
        data["paper"].time,
        torch.arange(3, 0, -1),
    )
    like = expected(
        vertex_times={"paper": [4, 9, 1]}, edge_times={WRITES: [3, 2, 1]}, time_unit="day"
    )
    for read in (
        from_pyg(data, time_unit="day"),
        from_dgl(graph, vertex_time="at", edge_time="at", time_unit="day"),
    ):
        check(read, like)
        assert read.times.unit == "day"
        assert read.times.edges.tolist() == like.times.edges.tolist()
        assert read.times.vertices.tolist() == like.times.vertices.tolist()
    data[WRITES].time = data[WRITES].edge_time
    with pytest.raises(GraphError, match=r"expected one of data\[.*\]\.time and .*edge_time, got"):
        from_pyg(data)
    del data[WRITES].time, data[WRITES].edge_time
    data["paper"].year = data["paper"].time
    assert from_pyg(data, time="year").times.vertices.tolist() == like.times.vertices.tolist()
    with pytest.raises(GraphError, match="graph: no vertex type has 'month'"):
        from_pyg(data, time="month")
    with pytest.raises(GraphError, match="graph: no edge type has 'when'"):
        from_dgl(graph, edge_time="when")
