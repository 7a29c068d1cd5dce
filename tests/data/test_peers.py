from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays, from_dgl, from_pyg
from gnnscale.data.peers import from_peer, is_peer
from gnnscale.graph import Graph

SRC, DST = np.array([2, 0, 1, 0]), np.array([1, 1, 0, 2])
X = np.arange(6, dtype=np.float32).reshape(3, 2)
EDGE_FEATURES = np.array([[5, 1], [6, 2], [7, 3], [8, 4]], np.float32)


def check(graph: Graph) -> None:
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 3, 4], [1, 0, 2, 0])
    assert (graph.labels.tolist(), graph.num_classes) == ([0, 1, 1], 2)
    assert (graph.train_idx.tolist(), graph.valid_idx.tolist()) == ([2], [0])
    assert graph.test_idx.tolist() == []


MASKS = {
    "train_mask": torch.tensor([False, False, True]),
    "val_mask": torch.tensor([True, False, False]),
}


def pyg_data(**fields):
    data = pytest.importorskip("torch_geometric.data")
    edge_index = torch.from_numpy(np.stack([SRC, DST]))
    return data.Data(**({"x": torch.from_numpy(X), "edge_index": edge_index} | fields))


def dgl_graph():
    peer = pytest.importorskip("dgl").graph((torch.from_numpy(SRC), torch.from_numpy(DST)))
    peer.ndata["feat"] = torch.from_numpy(X)
    return peer


def test_from_pyg():
    geometric = pytest.importorskip("torch_geometric.data")
    data = pyg_data(y=torch.tensor([[0], [1], [1]]), **MASKS)
    x, graph = data.x, from_pyg(data)
    check(graph)
    assert graph.features.__array_interface__["data"][0] == x.data_ptr()
    with pytest.raises(GraphError, match="edge_index is missing, and so is"):
        from_pyg(geometric.Data(x=x))
    with pytest.raises(GraphError, match="0 edge types: allowed are 1 to 1024"):
        from_pyg(geometric.HeteroData(a={"x": x}))
    with pytest.raises(GraphError, match=r"graph: data\.x is missing, and so is data\.num"):
        from_pyg(geometric.Data(edge_index=data.edge_index))
    featureless = from_pyg(geometric.Data(edge_index=data.edge_index, y=data.y, num_nodes=3))
    assert (featureless.num_features, featureless.indptr.tolist()) == (0, graph.indptr.tolist())


def test_weights_of_pyg():
    data = pyg_data()
    assert from_pyg(data).edge_weights is None
    with pytest.raises(GraphError, match=r"^graph: data.edge_attr is missing$"):
        from_pyg(data, edge_weight="edge_attr")
    data.edge_weight = torch.tensor([4.0, 1, 2, 3])
    data.edge_attr = torch.tensor([1.0, 2, 3, 4])
    graph = from_pyg(data, number_edges=True)
    np.testing.assert_array_equal(graph.edge_weights, data.edge_weight[graph.edge_ids])
    assert from_pyg(data, edge_weight="edge_attr").edge_weights.tolist() == [3, 2, 1, 4]
    assert from_pyg(data, edge_weight=None).edge_weights is None
    data.edge_weight = torch.ones(4, 1)
    assert from_pyg(data).edge_weights.tolist() == [1] * 4
    data.edge_weight = torch.ones(4, 2)
    message = r"data.edge_weight: expected a weight per edge, got \[4, 2\]"
    with pytest.raises(GraphError, match=message):
        from_pyg(data)


def test_features_of_edges_of_pyg():
    data = pyg_data()
    assert from_pyg(data).edge_features is None
    with pytest.raises(GraphError, match=r"^graph: data.other is missing$"):
        from_pyg(data, edge_attr="other")
    data.edge_attr = torch.from_numpy(EDGE_FEATURES)
    graph = from_pyg(data, number_edges=True)
    np.testing.assert_array_equal(graph.edge_rows, graph.edge_ids)
    np.testing.assert_array_equal(graph.edge_features, EDGE_FEATURES)
    assert from_pyg(data, edge_attr=None).edge_features is None
    data.edge_attr = torch.tensor([1.0, 2, 3, 4])
    assert from_pyg(data).edge_features.tolist() == [[1], [2], [3], [4]]
    assert from_pyg(data, edge_weight="edge_attr").edge_features is None


def test_weights_of_dgl():
    peer = dgl_graph()
    peer.edata["w"] = torch.tensor([4.0, 1, 2, 3])
    graph = from_dgl(peer, edge_weight="w", number_edges=True)
    for vertex in range(3):
        lists = slice(graph.indptr[vertex], graph.indptr[vertex + 1])
        sources, _, numbers = peer.in_edges([vertex], form="all")
        assert sorted(graph.edge_ids[lists]) == sorted(numbers.tolist())
        assert sorted(graph.indices[lists]) == sorted(sources.tolist())
    np.testing.assert_array_equal(graph.edge_weights, peer.edata["w"][graph.edge_ids])
    assert from_dgl(peer).edge_weights is None
    with pytest.raises(GraphError, match=r"^graph: edata\['weight'\] is missing$"):
        from_dgl(peer, edge_weight="weight")


def test_from_dgl():
    dgl, peer = pytest.importorskip("dgl"), dgl_graph()
    peer.ndata.update({"label": torch.tensor([0, 1, 1]), **MASKS})
    check(from_dgl(peer))
    with pytest.raises(GraphError, match=r"ndata\['x'\] is missing, it has feat.*; features=None "):
        from_dgl(peer, features="x")
    featureless = from_dgl(peer, features=None)
    assert (featureless.num_features, featureless.labels.tolist()) == (0, [0, 1, 1])
    with pytest.raises(GraphError, match=r"ndata\['y'\] is missing, it has feat, label, train"):
        from_dgl(peer, labels="y")
    with pytest.raises(GraphError, match="graph: expected a graph, got a block of a mini-batch"):
        from_dgl(dgl.to_block(dgl_graph()))
    with pytest.raises(GraphError, match="target=paper: expected none, the graph has no types"):
        from_dgl(peer, target="paper")


@pytest.mark.parametrize("formats", ["coo", "csr", "csc", ["csr", "csc"]])
def test_dgl_graphs_of_every_format(formats: Any) -> None:
    peer = dgl_graph()
    peer.edata["w"] = torch.tensor([4.0, 1, 2, 3])
    for given in (peer.formats(formats), peer.int().formats(formats)):
        graph, usual = (from_dgl(each, edge_weight="w") for each in (given, peer))
        np.testing.assert_array_equal(graph.indices, usual.indices)
        np.testing.assert_array_equal(graph.edge_weights, usual.edge_weights)


def test_fields_that_are_not_read_are_told(caplog: pytest.LogCaptureFixture) -> None:
    peer = dgl_graph()
    peer.ndata["feature"] = peer.ndata.pop("feat")
    assert from_peer(peer).num_features == 0
    assert caplog.messages == [
        "graph: has no features; not read: ndata['feature']; from_dgl(graph, features=KEY) reads a "
        "field"
    ]
    caplog.clear()
    from_pyg(pyg_data(pos=torch.ones(3, 2), **MASKS))
    assert not caplog.messages  # with features, as information
    caplog.set_level("INFO")
    from_pyg(pyg_data(pos=torch.ones(3, 2), **MASKS))
    assert caplog.messages == ["graph: not read: data.pos"]


def others() -> dict[str, Any]:
    """Objects of other libraries that are no homogeneous graph of the expected one."""
    networkx = pytest.importorskip("networkx")
    geometric = pytest.importorskip("torch_geometric")
    dgl = pytest.importorskip("dgl")
    edges = torch.from_numpy(np.stack([SRC, DST]))
    return {
        "networkx.Graph; from_networkx takes it": networkx.path_graph(3),
        "dict; ": {"x": 1},
        "NoneType; ": None,
        "scipy.csr_matrix; from_scipy takes it": scipy.sparse.csr_matrix(X),
        "gnnscale.Graph; it needs no conversion; ": from_arrays((SRC, DST), X),
        "numpy.ndarray; ": X,
        "torch_geometric.Data; from_pyg takes it; ": geometric.data.Data(edge_index=edges),
        "dgl.DGLGraph; from_dgl takes it; ": dgl.graph((edges[0], edges[1])),
        "dgl.DGLBlock; a block of a mini-batch": dgl.to_block(dgl.graph((edges[0], edges[1]))),
    }


def test_objects_of_other_libraries():
    for kind, value in others().items():
        for convert in (from_pyg, from_dgl):
            if kind.startswith("dgl" if convert is from_dgl else "torch_geometric.Data"):
                continue
            with pytest.raises(GraphError) as error:
                convert(value, name="mine")
            assert str(error.value).startswith("mine: expected "), convert
            assert f"got {kind.removesuffix('; ')}" in str(error.value)


def test_a_class_of_the_users_is_what_it_inherits_from():
    geometric = pytest.importorskip("torch_geometric.data")

    class Own(geometric.Data):
        pass

    graph = from_pyg(Own(x=torch.from_numpy(X), edge_index=torch.from_numpy(np.stack([SRC, DST]))))
    assert graph.num_edges == 4


def test_pyg_fields_that_do_not_fit():
    for fields, message in (
        (
            {"edge_index": torch.zeros((3, 4)).long()},
            r"data.edge_index: expected \[2, num_edges\], got \[3",
        ),
        ({"y": torch.zeros(3, 2, 2)}, "data.y: expected labels, classes"),
        (
            {"train_mask": torch.tensor([True])},
            r"data.train_mask: expected bool\[3\] or .*, got bool\[1\]",
        ),
        (
            {"train_mask": torch.tensor(True)},
            r"data.train_mask: expected bool\[3\] or .*, got bool\[\]",
        ),
        ({"val_mask": torch.zeros((3, 0)).bool()}, "data.val_mask: has 0 masks"),
        ({"test_mask": torch.tensor([0.0, 1, 1])}, r"data.test_mask: .* got float32\[3\]"),
    ):
        with pytest.raises(GraphError, match=f"^graph: {message}"):
            from_pyg(pyg_data(**fields))


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo])
def test_adj_t_is_the_transposed_adjacency(layout: Any) -> None:
    dense = torch.zeros(3, 3)
    dense[DST, SRC] = torch.tensor([4.0, 1, 2, 3])
    sparse = dense.to_sparse(layout=layout)
    data = pyg_data(edge_index=None, adj_t=sparse, y=torch.tensor([0, 1, 1]), **MASKS)
    graph = from_pyg(data)
    check(graph)
    np.testing.assert_array_equal(graph.edge_weights, [2, 1, 4, 3])
    data.adj_t = (dense > 0).float().to_sparse(layout=layout)
    assert from_pyg(data).edge_weights is None
    data.adj_t = dense
    with pytest.raises(GraphError, match="adj_t: expected a sparse tensor, got torch"):
        from_pyg(data)


class TorchSparse:
    """What a SparseTensor of torch_sparse has."""

    storage = None

    def coo(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        return torch.from_numpy(DST), torch.from_numpy(SRC), None


def test_adj_t_of_torch_sparse() -> None:
    data = pyg_data(y=torch.tensor([0, 1, 1]), **MASKS)
    del data.edge_index
    data.adj_t = TorchSparse()
    check(from_pyg(data))


def test_a_data_set_of_one_graph_is_its_graph() -> None:
    geometric = pytest.importorskip("torch_geometric.data")

    class Own(geometric.InMemoryDataset):
        def __init__(self, graphs: list[Any]) -> None:
            super().__init__(None)
            self.data, self.slices = self.collate(graphs)

    one = pyg_data(y=torch.tensor([0, 1, 1]), **MASKS)
    check(from_pyg(Own([one])))
    check(from_peer(Own([one])))
    with pytest.raises(GraphError, match=r"^mine: the data set .*Own has 2 graphs; .*dataset\[0\]"):
        from_pyg(Own([one, one]), name="mine")
    dgl = pytest.importorskip("dgl")

    class OfDgl(dgl.data.DGLDataset):
        def process(self) -> None:
            self.graph = dgl_graph()
            self.graph.ndata.update({"label": torch.tensor([0, 1, 1]), **MASKS})

        def __getitem__(self, index: int) -> Any:
            return self.graph

        def __len__(self) -> int:
            return 1

    check(from_dgl(OfDgl("own")))
    check(from_peer(OfDgl("own")))


class OgbDataset:
    """What the data sets of the package ogb have; ``kind`` says whose graph."""

    eval_metric = "rocauc"

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def __getitem__(self, index: int) -> Any:
        return self.graph

    def get_idx_split(self) -> dict[str, Any]:
        return {"train": torch.tensor([2]), "valid": torch.tensor([0]), "test": np.array([], int)}


def test_data_sets_and_pairs_of_ogb() -> None:
    y = np.array([[0], [1], [1]])
    arrays = {"edge_index": np.stack([SRC, DST]), "edge_feat": None, "node_feat": X, "num_nodes": 3}
    for graph in ((arrays, y), (dgl_graph(), torch.from_numpy(y)), pyg_data(y=torch.from_numpy(y))):
        given = OgbDataset(graph)
        assert is_peer(given)
        found = from_peer(given)
        check(found)
        assert found.metric == "roc_auc"
    split = OgbDataset(None).get_idx_split()
    check(from_pyg((arrays, y), split=split))
    check(from_dgl((dgl_graph(), y), split=split))
    featureless = from_pyg((arrays | {"node_feat": None, "edge_feat": EDGE_FEATURES}, y))
    assert (featureless.num_features, featureless.num_edge_features) == (0, 2)


def test_a_heterogeneous_graph_of_one_type_is_homogeneous() -> None:
    geometric = pytest.importorskip("torch_geometric.data")
    data = geometric.HeteroData()
    data["paper"].update({"x": torch.from_numpy(X), "y": torch.tensor([0, 1, 1]), **MASKS})
    edges = torch.from_numpy(np.stack([SRC, DST]))
    data["paper", "cites", "paper"].edge_index = edges
    check(from_pyg(data))
    data["author"].x = torch.ones(2, 1)
    assert len(from_pyg(data).schema.vertex_types) == 2


def test_names_of_the_split_are_those_of_arrays() -> None:
    fields = {"train_idx": torch.tensor([2]), "valid_mask": MASKS["val_mask"]}
    check(from_pyg(pyg_data(y=torch.tensor([0, 1, 1]), **fields)))
    with pytest.raises(GraphError, match=r"expected one of data\.train_mask and data\.train_idx"):
        from_pyg(pyg_data(train_idx=torch.tensor([2]), **MASKS))
    columns = torch.stack([~MASKS["train_mask"], MASKS["train_mask"]], dim=1)
    data = pyg_data(y=torch.tensor([0, 1, 1]), train_mask=columns, val_mask=MASKS["val_mask"])
    with pytest.raises(GraphError, match=r"data\.train_mask: has 2 masks; mask=0 to 1 chooses"):
        from_pyg(data)
    check(from_pyg(data, mask=1))


def test_times_of_pyg_and_of_dgl() -> None:
    # Vertex 0 sends from 7 on, vertex 2 from 3 on.
    vertices, edges = torch.tensor([7, 0, 3]), torch.tensor([5, 2, 4, 9])
    like = from_arrays((SRC, DST), X, vertex_times=vertices, edge_times=edges, time_unit="ms")
    data, graph = pyg_data(time=vertices, edge_time=edges), dgl_graph()
    graph.ndata["at"], graph.edata["t"] = vertices, edges[:, None]
    hetero = pytest.importorskip("torch_geometric.data").HeteroData()
    hetero["a"].x, hetero["a"].time = data.x, vertices
    hetero["a", "to", "a"].edge_index, hetero["a", "to", "a"].time = data.edge_index, edges
    for read in (
        from_pyg(data, time_unit="ms"),
        from_pyg(hetero, time_unit="ms"),
        from_dgl(graph, vertex_time="at", edge_time="t", time_unit="ms"),
    ):
        assert read.times.unit == "ms"
        assert read.times.edges.tolist() == like.times.edges.tolist() == [4, 5, 7, 9]
        assert read.times.vertices.tolist() == [7, 0, 3]
        assert read.indices.tolist() == like.indices.tolist()
    of_edges = from_pyg(pyg_data(time=edges))
    assert (of_edges.times.unit, of_edges.times.edges.tolist()) == ("s", [4, 2, 5, 9])
    assert of_edges.times.vertices is None
    other = from_pyg(pyg_data(year=vertices, time=edges), time="year")
    assert other.times.edges.tolist() == [0, 3, 7, 7]
    assert from_pyg(data, time=None).times is None
    assert from_dgl(graph).times is None


def test_as_many_vertices_as_edges_have_times_of_vertices() -> None:
    index, numbers = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([3, 2, 1])
    assert from_pyg(pyg_data(edge_index=index, time=numbers)).times.vertices.tolist() == [3, 2, 1]
    assert from_pyg(pyg_data(edge_index=index, edge_time=numbers)).times.vertices is None


def test_times_that_do_not_fit() -> None:
    times = torch.tensor([5, 2, 4, 9])
    for data, message, options in (
        (
            {"time": times, "edge_time": times},
            r"one of data\.time and data\.edge_time, got both",
            {},
        ),
        (
            {"time": times.float()},
            r"data\.time: expected integers as times, got torch.float32; time",
            {},
        ),
        ({"time": times[:2]}, r"times of vertices: expected 3, got \[2\]", {}),
        ({"time": 5}, r"times of vertices: expected 3, got \[\]", {}),
        ({}, r"data\.year is missing", {"time": "year"}),
    ):
        with pytest.raises(GraphError, match=message):
            from_pyg(pyg_data(**data), **options)
    for key in ("vertex_time", "edge_time"):
        with pytest.raises(GraphError, match=r"data\['at'\] is missing"):
            from_dgl(dgl_graph(), **{key: "at"})
