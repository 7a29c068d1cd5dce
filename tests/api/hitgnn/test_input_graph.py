from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnscale import api
from gnnscale.api.hitgnn.input_graph import as_dataset, as_graph
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import from_arrays
from gnnscale.graph import Graph


@pytest.fixture
def graph() -> Graph:
    src, dst = np.array([[1, 0], [2, 0], [3, 1], [0, 2]]).T
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    parts = {"train_idx": [0, 1], "valid_idx": [2], "test_idx": [3]}
    return from_arrays((src, dst), features, np.array([0, 1, 0, 1]), **parts, name="mine")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.long
def test_a_graph_in_memory_has_one_store(graph: Graph, home: Path) -> None:
    first, again = (as_dataset(each).config.store for each in (graph, replace(graph)))
    assert first == again
    opened = as_dataset(graph).config.open()
    assert opened.name == "mine"
    for name in ("indptr", "indices", "features", "labels", "train_idx"):
        assert np.array_equal(getattr(opened, name), getattr(graph, name))
    changes = {"features": graph.features + 1, "name": "other", "labels": graph.labels[::-1].copy()}
    for name, value in changes.items():
        assert as_dataset(replace(graph, **{name: value})).config.store != first
    assert len(list((home / "graphs").iterdir())) == 4


@pytest.mark.long
def test_a_store_is_taken_as_it_is(graph: Graph, home: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    graph.save(store)
    for given in (store, str(store), Graph.open(store)):
        assert as_dataset(given).config.store == str(store)
    assert not home.exists()
    # A copy with another split is no longer what the store holds.
    moved = Graph.open(store).with_split(train_idx=np.array([0]), test_idx=np.array([1, 3]))
    other = as_dataset(moved).config.open()
    assert other.path != store
    assert other.test_idx.tolist() == [1, 3]


@pytest.mark.long
def test_graphs_of_other_libraries(graph: Graph) -> None:
    data = pytest.importorskip("torch_geometric.data", reason="torch_geometric is not installed")
    dst = np.repeat(np.arange(4), np.diff(graph.indptr))
    parts = {"train": graph.train_idx, "val": graph.valid_idx, "test": graph.test_idx}
    inside = {f"{name}_mask": np.isin(np.arange(4), part) for name, part in parts.items()}
    masks = {name: torch.from_numpy(mask) for name, mask in inside.items()}
    edges = torch.from_numpy(np.stack([graph.indices, dst]).astype(np.int64))
    x, y = torch.from_numpy(graph.features), torch.from_numpy(graph.labels)
    given = data.Data(x=x, edge_index=edges, y=y, **masks)
    found = as_dataset(given).config.open()
    assert np.array_equal(found.indices, graph.indices)
    assert np.array_equal(found.test_idx, graph.test_idx)
    dgl = pytest.importorskip("dgl", reason="dgl is not installed")
    other = dgl.graph(tuple(edges))
    other.ndata["feat"], other.ndata["label"] = given.x, given.y
    for name, mask in masks.items():
        other.ndata[name] = mask
    # The same graph, whatever library it comes from.
    assert as_dataset(other).config.store == as_dataset(given).config.store


@pytest.mark.long
def test_what_is_no_graph(graph: Graph, tmp_path: Path) -> None:
    for given in (np.zeros(3), None, 5, {"x": 1}):
        with pytest.raises(ConfigError, match=r"graph=.*expected a gnnscale\.Graph"):
            as_dataset(given)
    networkx = pytest.importorskip("networkx")
    with pytest.raises(ConfigError, match=r"networkx\.Graph; torch_geometric\.utils\.from_net"):
        as_dataset(networkx.path_graph(3))
    with pytest.raises(ConfigError, match="expected the result of load_input_graph"):
        as_dataset(api.platform_metadata("cpu"))
    with pytest.raises(GraphError, match="none"):
        as_dataset(tmp_path / "none").config.open()


EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def masks(**parts: int) -> dict[str, torch.Tensor]:
    """Return masks over three vertices, of one vertex each; of no vertex for -1."""
    return {f"{name}_mask": torch.arange(3) == vertex for name, vertex in parts.items()}


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        ({"train": 0, "val": -1, "test": 1}, ["data.val_mask"]),
        ({"train": 0}, ["data.val_mask", "data.test_mask"]),
        ({"val": 0, "test": 2}, ["data.train_mask"]),
    ],
)
def test_a_missing_part_of_a_split_is_named_as_the_data_name_it(parts, missing) -> None:
    data = pytest.importorskip("torch_geometric.data")
    given = data.Data(x=torch.eye(3), edge_index=EDGES, y=torch.arange(3), **masks(**parts))
    message = f"^graph: {' and '.join(missing)} is missing or names no vertex; .*RandomNodeSplit"
    with pytest.raises(GraphError, match=message):
        as_dataset(given)


def test_a_missing_part_of_a_split_of_other_sources() -> None:
    dgl = pytest.importorskip("dgl")
    other = dgl.graph((EDGES[0], EDGES[1]))
    other.ndata.update({"feat": torch.eye(3), "label": torch.arange(3), **masks(train=0, test=1)})
    with pytest.raises(GraphError, match=r"^graph: ndata\['val_mask'\] is missing or names no"):
        as_dataset(other)
    arrays = from_arrays(tuple(EDGES), torch.eye(3), [0, 1, 1], train_idx=[0], valid_idx=[1])
    with pytest.raises(GraphError, match=r"^graph: test_idx is missing or names no vertex; .*spl"):
        as_dataset(arrays)
    labelled = {"edge_labels": [0, 1, 1], "edge_split": ([0], None, [1])}
    edges = from_arrays(tuple(EDGES), torch.eye(3), **labelled)
    with pytest.raises(GraphError, match=r"^graph: edge_split\[1\] is missing or names no edge;"):
        as_dataset(edges)


def test_a_graph_to_predict_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    data = pytest.importorskip("torch_geometric.data")
    given = data.Data(x=torch.tensor([[1, 1e6]] * 3), edge_index=EDGES)
    as_graph(given)
    assert not caplog.messages
    as_dataset(given)
    assert "feature 1 reaches 1e+06, and most only 1" in caplog.text


@pytest.mark.long
def test_what_edges_carry_decides_the_store() -> None:
    ends, rows = (np.array([0, 1, 2]), np.array([1, 2, 0])), np.ones((3, 2), np.float32)
    data = {"edge_features": [1, 2, 3], "edge_labels": [0, 1, 1], "edge_split": ([0], [1], [2])}
    graph = from_arrays(ends, rows, **data)
    store = as_dataset(graph).config.store
    opened = as_dataset(graph).config.open()
    assert opened.edges.arrays().keys() == graph.edges.arrays().keys()
    assert as_dataset(opened).config.store == store
    for name in ("features", "labels"):
        less = {"rows": None, "features": None} if name == "features" else {"labels": None}
        other = as_dataset(replace(opened, edges=replace(opened.edges, **less))).config
        assert other.store != store
        assert other.open().edges.arrays().keys() < graph.edges.arrays().keys()
