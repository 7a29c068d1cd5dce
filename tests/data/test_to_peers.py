"""Graphs of PyG and DGL, there and back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import Graph
from gnnscale.data import from_arrays, from_dgl, from_pyg, to_dgl, to_pyg
from gnnscale.data.typed_arrays import from_typed_arrays

geometric = pytest.importorskip("torch_geometric.data")
dgl = pytest.importorskip("dgl")
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def hetero_data(generator: torch.Generator, edges: int = 12) -> Any:
    """Return authors without features, and labeled papers, with weighted edges."""

    def draw(high: int) -> torch.Tensor:
        return torch.randint(high, (edges,), generator=generator)

    data = geometric.HeteroData()
    data["author"].num_nodes = 4
    data["paper"].x = torch.randn(5, 3, generator=generator)
    data["paper"].y = torch.tensor([0, 1, -1, 1, 0])
    masks = torch.eye(3, 5, dtype=torch.bool)
    masks[1:] = masks[1:].roll(1, dims=0)
    for name, mask in zip(("train_mask", "val_mask", "test_mask"), masks, strict=True):
        data["paper"][name] = mask
    data["paper"].val_mask = torch.tensor([False, True, False, True, False])
    data["paper"].test_mask = torch.tensor([False, False, True, False, True])
    for triple, high in ((WRITES, 4), (CITES, 5)):
        data[triple].edge_index = torch.stack([draw(high), draw(5)])
        data[triple].edge_weight = torch.rand(edges, generator=generator)
    data[WRITES].edge_attr = torch.rand(edges, 2, generator=generator).half()
    return data


def check(data: Any, other: Any) -> None:
    """Compare PyG's data, of types or without."""
    for store, like in zip(data.stores, other.stores, strict=True):
        assert getattr(store, "_key", None) == getattr(like, "_key", None)
        assert set(store.keys()) == set(like.keys())
        for name, values in store.items():
            same = torch.equal if isinstance(values, torch.Tensor) else int.__eq__
            assert same(values, like[name]), name


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 20))
def test_hetero_data_there_and_back(seed: int, edges: int) -> None:
    data = hetero_data(torch.Generator().manual_seed(seed), edges)
    check(to_pyg(from_pyg(data, number_edges=True)), data)
    check(
        to_pyg(
            from_dgl(
                to_dgl(from_pyg(data, number_edges=True)),
                edge_weight="edge_weight",
                edge_feature="edge_attr",
                number_edges=True,
            )
        ),
        data,
    )


def test_without_numbers_edges_are_by_destination() -> None:
    data = hetero_data(torch.Generator().manual_seed(0))
    back = to_pyg(from_pyg(data))
    for triple in data.edge_types:
        edges, like = back[triple], data[triple]
        assert (edges.edge_index[1].diff() >= 0).all()
        order = [
            torch.from_numpy(np.lexsort([*e.edge_index.flip(0), e.edge_weight]))
            for e in (edges, like)
        ]
        assert torch.equal(edges.edge_index[:, order[0]], like.edge_index[:, order[1]])
        assert torch.equal(edges.edge_weight[order[0]], like.edge_weight[order[1]])


def test_data_there_and_back() -> None:
    data = geometric.Data(
        x=torch.arange(6.0).reshape(3, 2).half(),
        y=torch.tensor([[1, 0], [0, 0], [1, 1]], dtype=torch.uint8),
        edge_index=torch.tensor([[2, 0, 1, 0], [1, 1, 0, 2]]),
        edge_weight=torch.tensor([4.0, 3, 2, 1]),
        edge_attr=torch.rand(4, 2),
        train_mask=torch.tensor([True, False, False]),
        val_mask=torch.tensor([False, True, False]),
        test_mask=torch.tensor([False, False, True]),
    )
    graph = from_pyg(data, number_edges=True)
    check(to_pyg(graph), data)
    assert to_pyg(graph).x.data_ptr() == data.x.data_ptr()
    peer = to_dgl(graph)
    assert peer.is_homogeneous
    back = from_dgl(peer, edge_weight="edge_weight", edge_feature="edge_attr", number_edges=True)
    check(to_pyg(back), data)


def test_features_of_every_type_and_of_a_store(tmp_path: Path) -> None:
    rows = torch.tensor([[1.0, -2], [0.5, 4]])
    ends = ([0], [1])
    half = from_arrays(ends, rows.bfloat16())
    assert torch.equal(to_pyg(half).x, rows.bfloat16())
    quantized = from_arrays(ends, rows).with_quantized_features("int8")
    torch.testing.assert_close(to_pyg(quantized).x, rows, atol=0.02, rtol=0)
    from_arrays(ends, rows).save(tmp_path / "store")
    stored = to_pyg(Graph.open(tmp_path / "store"))
    assert torch.equal(stored.x, rows)
    assert sorted(stored.keys()) == ["edge_index", "x"]
    bare = to_pyg(from_arrays(ends, None, [0, 1]))
    assert (bare.num_nodes, "x" in bare, bare.y.tolist()) == (2, False, [0, 1])


def test_types_of_a_store_and_targets(tmp_path: Path) -> None:
    graph = from_typed_arrays(
        {"user": np.ones((3, 2), np.uint8), "item": None},
        {("user", "buys", "item"): ([2, 0], [1, 0])},
        ("item", np.float32([0.5, 2])),
        num_vertices={"item": 2},
        split={"train": [1]},
    )
    graph.save(tmp_path / "store")
    data = to_pyg(Graph.open(tmp_path / "store"))
    assert data["user"].to_dict().keys() == {"x"}
    assert data["user"].x.dtype == torch.uint8
    assert data["item"].y.tolist() == [0.5, 2]
    assert data["item"].train_mask.tolist() == [False, True]
    assert data["user", "buys", "item"].edge_index.tolist() == [[0, 2], [0, 1]]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 20))
def test_times_there_and_back(seed: int, edges: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    data = hetero_data(generator, edges)
    data["author"].time = torch.randint(9, (4,), generator=generator)
    data[CITES].time = torch.randint(9, (edges,), generator=generator)
    graph = from_pyg(data, number_edges=True)
    back = to_pyg(graph)
    assert "time" not in back["paper"]
    assert torch.equal(back["author"].time, data["author"].time)
    assert torch.equal(back[CITES].edge_time, data[CITES].time)
    sources = data[WRITES].edge_index[0]
    assert torch.equal(back[WRITES].edge_time, data["author"].time[sources])
    peer = from_dgl(
        to_dgl(graph),
        edge_weight="edge_weight",
        vertex_time="time",
        edge_time="edge_time",
        number_edges=True,
    )
    for again in (from_pyg(back, number_edges=True), peer):
        for name in ("indptr", "indices", "edge_ids", "edge_weights"):
            np.testing.assert_array_equal(getattr(again, name), getattr(graph, name))
        np.testing.assert_array_equal(again.times.edges, graph.times.edges)
        np.testing.assert_array_equal(again.times.vertices, graph.times.vertices)


def test_times_of_a_graph_without_types() -> None:
    graph = from_arrays(([0, 1], [1, 0]), np.ones((2, 1)), edge_times=[5, 4], number_edges=True)
    data = to_pyg(graph)
    assert (data.edge_time.tolist(), "time" in data) == ([5, 4], False)
    assert from_pyg(data).times.edges.tolist() == graph.times.edges.tolist()
