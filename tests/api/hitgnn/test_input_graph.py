from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnscale import api
from gnnscale.api.hitgnn.input_graph import as_dataset, as_graph
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import from_arrays, from_networkx, read_classes, read_ids
from gnnscale.data.task_rows import with_checked_rows
from gnnscale.graph import Graph, GraphSchema, TaskRows


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


def test_times_and_rows_are_of_the_content(graph: Graph, tmp_path: Path) -> None:
    ends = np.repeat(np.arange(4), np.diff(graph.indptr))
    timed = from_arrays((graph.indices, ends), graph.features, edge_times=[3, 1, 2, 4])
    rows = TaskRows(name="", vertices=[1], cutoffs=[9], labels=[0], num_classes=1)
    graphs = [
        timed,
        replace(timed, times=replace(timed.times, unit="ms")),
        with_checked_rows(timed, rows),
    ]
    stores = [as_dataset(each).config.store for each in graphs]
    assert len(set(stores)) == 3
    opened = Graph.open(stores[2])
    assert as_dataset(opened).config.store == stores[2]
    assert as_dataset(replace(opened, rows=None)).config.store == stores[0]


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


def test_graphs_with_types_differ_by_types_and_features() -> None:
    geometric = pytest.importorskip("torch_geometric.data")
    data = geometric.HeteroData()
    data["user"].update({"x": torch.ones(3, 2), "y": torch.tensor([0, 1, 1])})
    data["user"].train_mask = torch.tensor([True, True, False])
    data["item"].x = torch.ones(2, 4)
    data["item", "of", "user"].edge_index = torch.tensor([[0, 1], [2, 0]])
    first = as_dataset(data).config
    opened = first.open()
    assert opened.features.widths == (2, 4)
    assert as_dataset(opened).config.store == first.store == as_dataset(data).config.store
    data["item"].x = torch.zeros(2, 4)
    assert as_dataset(data).config.store != first.store
    renamed = replace(
        opened, types=GraphSchema.of({"user": 3, "shop": 2}, [("shop", "of", "user")])
    )
    assert as_dataset(renamed).config.store != first.store


@pytest.mark.long
def test_what_is_no_graph(graph: Graph, tmp_path: Path) -> None:
    for given in (np.zeros(3), None, 5, {"x": 1}):
        with pytest.raises(ConfigError, match=r"graph=.*expected a gnnscale\.Graph"):
            as_dataset(given)
    for options in ({"split": "random"}, {"mask": 1}):
        with pytest.raises(ConfigError, match="expected a graph in memory, got the options"):
            as_dataset(tmp_path, **options)
    for options in ({"split": {"train": [0]}}, {"mask": 1}):
        with pytest.raises(ConfigError, match=r"expected split='random' or none for a gnnscale\.G"):
            as_dataset(graph, **options)
    with pytest.raises(ConfigError, match="expected the result of load_input_graph"):
        as_dataset(api.platform_metadata("cpu"))
    with pytest.raises(GraphError, match="none"):
        as_dataset(tmp_path / "none").config.open()


EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def masks(**parts: int) -> dict[str, torch.Tensor]:
    """Return masks over three vertices, of one vertex each; of no vertex for -1."""
    return {f"{name}_mask": torch.arange(3) == vertex for name, vertex in parts.items()}


def test_a_missing_training_part_or_label_is_named_as_the_data_name_it() -> None:
    data = pytest.importorskip("torch_geometric.data")
    given = data.Data(x=torch.eye(3), edge_index=EDGES, y=torch.arange(3), **masks(val=0, test=2))
    message = "^graph: data.train_mask is missing or names no vertex; split='random' draws a split$"
    for of in ("vertices", None):  # a split without training is refused for all tasks
        with pytest.raises(GraphError, match=message):
            as_dataset(given, of=of)
    given = data.Data(x=torch.eye(3), edge_index=EDGES, train_mask=torch.arange(3) == 1)
    with pytest.raises(GraphError, match=r"^graph: data\.y: missing, or no label is known; trai"):
        as_dataset(given, of="vertices")
    dgl = pytest.importorskip("dgl")
    other = dgl.graph((EDGES[0], EDGES[1]))
    other.ndata.update({"feat": torch.eye(3), "label": torch.arange(3)})
    with pytest.raises(GraphError, match=r"^graph: ndata\['train_mask'\] is missing or names no"):
        as_dataset(other, of="vertices")
    arrays = from_arrays(tuple(EDGES), torch.eye(3), [0, 1, 1])
    with pytest.raises(GraphError, match="train_idx is missing or names no vertex"):
        as_dataset(arrays, of="vertices")
    with pytest.raises(GraphError, match=r"^graph: edge_labels is missing"):
        as_dataset(arrays, of="edges")
    for split in ((None, [0], [1]), None):
        edges = from_arrays(tuple(EDGES), torch.eye(3), edge_labels=[0, 1, 1], edge_split=split)
        with pytest.raises(GraphError, match=r"^graph: edge_split\[0\] is missing or names no e"):
            as_dataset(edges, of="edges")


@pytest.mark.long
def test_graphs_without_a_split_get_a_random_one() -> None:
    networkx = pytest.importorskip("networkx")
    club = networkx.karate_club_graph()
    graph = from_networkx(club, labels="club")
    stored = as_dataset(graph, split="random", of="vertices").config.open()
    assert [len(p) for p in (stored.train_idx, stored.valid_idx, stored.test_idx)] == [20, 7, 7]
    assert read_classes(stored) == ["Mr. Hi", "Officer"]
    # Links need no split, and the graphs no conversion.
    plain = as_dataset(networkx.to_scipy_sparse_array(club, weight=None)).config.open()
    assert as_dataset(club).config.open().indices.tolist() == plain.indices.tolist()
    assert as_graph(club).num_edges == 156


@pytest.mark.long
def test_ids_of_nodes_are_kept_in_the_store() -> None:
    networkx = pytest.importorskip("networkx")
    for names, expected in ((["b", "a", "c"], ["b", "a", "c"]), ([7, 5, 6], [7, 5, 6])):
        given = networkx.path_graph(names)
        stored = as_dataset(given).config.open()
        assert read_ids(stored).to_pylist() == expected
        assert read_ids(as_graph(given)).to_pylist() == expected
        again = stored.with_split(train_idx=np.array([0]))
        assert read_ids(again).to_pylist() == expected
    assert as_dataset(given).config.store != as_dataset(networkx.path_graph(3)).config.store


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
