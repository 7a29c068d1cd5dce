"""Batches of PyG's HeteroData: what PyG's loader of the same name makes, by the same arguments."""

from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line

from gnnscale import GraphError, NeighborLoader, from_pyg, to_pyg

pytest.importorskip("torch_geometric", reason="PyG is not installed")

from torch_geometric.data import HeteroData, InMemoryDataset
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.utils import trim_to_layer

BUYS, BOUGHT, SELLS = (
    ("user", "buys", "item"),
    ("item", "bought_by", "user"),
    ("shop", "sells", "item"),
)


@pytest.fixture
def shops() -> HeteroData:
    """Users have the class of most of what they buy; shops have no attributes."""
    generator = torch.Generator().manual_seed(0)

    def draw(high: int, size: int) -> torch.Tensor:
        return torch.randint(high, (size,), generator=generator)

    data = HeteroData(name="shops")
    data["user"].x = torch.randn(600, 8, generator=generator)
    data["item"].x = torch.randn(300, 4, generator=generator)
    data["shop"].num_nodes = 20
    data["item"].kind = draw(3, 300)
    data["item"].x[:, :3] += 2 * torch.eye(3)[data["item"].kind]
    favourite = draw(3, 600)
    users = draw(600, 6000)
    of_kind = [torch.nonzero(data["item"].kind == kind).flatten() for kind in range(3)]
    items = torch.stack(
        [of_kind[kind][draw(len(of_kind[kind]), 1)][0] for kind in favourite[users].tolist()]
    )
    data[BUYS].edge_index = torch.stack([users, items])
    data[BUYS].edge_attr = torch.randn(6000, 2, generator=generator)
    data[BOUGHT].edge_index = data[BUYS].edge_index.flip(0)
    data[SELLS].edge_index = torch.stack([draw(20, 900), draw(300, 900)])
    data["user"].y = favourite
    data["user"].train_mask = torch.arange(600) < 400
    return data


def whole(data: HeteroData, batch: HeteroData, triple: tuple[str, str, str]) -> torch.Tensor:
    """Return the global ids of a batch's edges of a type."""
    (source, _, destination), index = triple, batch[triple].edge_index
    return torch.stack([batch[source].n_id[index[0]], batch[destination].n_id[index[1]]])


def test_batches_are_of_the_graph(shops) -> None:
    loader = NeighborLoader(
        shops, [3, 2], input_nodes=("user", shops["user"].train_mask), batch_size=64, seed=1
    )
    seen: list[int] = []
    for batch in loader:
        assert batch.name == "shops"
        assert batch["shop"].num_nodes == len(batch["shop"].n_id)
        for triple in shops.edge_types:
            edges = whole(shops, batch, triple)
            assert torch.equal(shops[triple].edge_index[:, batch[triple].e_id], edges)
            assert batch[triple].edge_index.shape[1] == sum(batch[triple].num_sampled_edges)
        assert torch.equal(batch[BUYS].edge_attr, shops[BUYS].edge_attr[batch[BUYS].e_id])
        for kind in ("user", "item"):
            assert torch.equal(batch[kind].x, shops[kind].x[batch[kind].n_id])
            assert sum(batch[kind].num_sampled_nodes) == len(batch[kind].n_id)
            assert len(set(batch[kind].n_id.tolist())) == len(batch[kind].n_id)
        store = batch["user"]
        seen += store.n_id[: store.batch_size].tolist()
        assert torch.equal(store.input_id, store.n_id[: store.batch_size])  # of a mask
    assert seen == list(range(400))


def hops_of(data: HeteroData, seeds: list[int]) -> tuple[dict[str, list[set[int]]], list[int]]:
    """Return by type the vertices that each hop adds, and the number of edges of two hops."""
    reached: dict[str, list[set[int]]] = {kind: [set()] for kind in data.node_types}
    reached["user"] = [set(seeds)]
    num_edges = []
    for hop in range(2):
        found = {kind: set() for kind in data.node_types}
        count = 0
        for source, relation, destination in data.edge_types:
            for u, v in data[source, relation, destination].edge_index.T.tolist():
                if v in reached[destination][hop]:
                    count += 1
                    found[source].add(u)
        for kind, each in found.items():
            reached[kind].append(each.difference(*reached[kind]))
        num_edges.append(count)
    return reached, num_edges


def test_all_neighbours_hop_by_hop(shops) -> None:
    seeds = [5, 17, 301]
    loader = NeighborLoader(
        shops, [-1, -1], input_nodes=("user", torch.tensor(seeds)), batch_size=3
    )
    (batch,) = loader
    reached, num_edges = hops_of(shops, seeds)
    for kind, hops in reached.items():
        counts = batch[kind].num_sampled_nodes
        assert counts == [len(hop) for hop in hops]
        parts = torch.split(batch[kind].n_id, counts)
        assert [set(part.tolist()) for part in parts] == hops
    sampled = torch.tensor([batch[triple].num_sampled_edges for triple in shops.edge_types])
    assert sampled.sum(0).tolist() == num_edges


@pytest.mark.parametrize("by", ["list", "dictionary"])
def test_fanouts_of_edge_types(shops, by) -> None:
    lists: Any = {BUYS: [4, 2], BOUGHT: [3, 0], SELLS: [0, 1]} if by == "dictionary" else [4, 2]
    (batch,) = NeighborLoader(shops, lists, input_nodes=("item", [1, 2]), batch_size=2, seed=3)
    degrees = torch.bincount(shops[BUYS].edge_index[1], minlength=300)
    first = int(degrees[[1, 2]].clamp(max=4).sum())
    assert batch[BUYS].num_sampled_edges[0] == first
    if by == "dictionary":
        assert batch[BOUGHT].num_sampled_edges[1] == 0
        assert batch[SELLS].num_sampled_edges[0] == 0


def test_threads_change_nothing(shops) -> None:
    def batches(**options: Any) -> list[HeteroData]:
        given = {"input_nodes": "user", "batch_size": 100, "seed": 2, "shuffle": True}
        return list(NeighborLoader(shops, [5, 3], **given, **options))

    for one, other in zip(batches(num_workers=0), batches(num_workers=3), strict=True):
        for triple in shops.edge_types:
            assert torch.equal(one[triple].edge_index, other[triple].edge_index)
            assert torch.equal(one[triple].e_id, other[triple].e_id)


def test_edges_of_weight_0_are_not_drawn(shops) -> None:
    for triple in shops.edge_types:
        count = shops[triple].edge_index.shape[1]
        shops[triple].weight = (torch.arange(count) % 2).float()
    loader = NeighborLoader(shops, [4, 4], input_nodes="user", batch_size=200, weight_attr="weight")
    for batch in loader:
        for triple in shops.edge_types:
            assert (batch[triple].e_id % 2 == 1).all()
            assert (batch[triple].weight == 1).all()


class Sage(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 3)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = self.convs[0](x, edge_index).relu()
        return self.convs[1](x, edge_index)


def test_pygs_example_of_to_hetero_trains_unchanged(shops) -> None:
    torch.manual_seed(0)
    del shops[SELLS], shops["shop"]
    model = to_hetero(Sage(), shops.metadata())
    train = ("user", shops["user"].train_mask)
    loader = NeighborLoader(shops, [8, 4], input_nodes=train, batch_size=64, shuffle=True)
    optimizer = None
    for _ in range(8):
        for batch in loader:
            out = model(batch.x_dict, batch.edge_index_dict)["user"]
            size = batch["user"].batch_size
            loss = torch.nn.functional.cross_entropy(out[:size], batch["user"].y[:size])
            if optimizer is None:
                optimizer = torch.optim.Adam(model.parameters(), 0.01)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        found = model(shops.x_dict, shops.edge_index_dict)["user"].argmax(1)
    assert (found == shops["user"].y)[400:].float().mean() > 0.9


def test_layers_are_trimmed_by_the_numbers_of_hops(shops) -> None:
    (batch,) = NeighborLoader(shops, [3, 2], input_nodes=("user", [0, 1, 2]), batch_size=3)
    x = {kind: torch.arange(len(batch[kind].n_id)) for kind in batch.node_types}
    x, edges, _ = trim_to_layer(
        1, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, batch.edge_index_dict
    )
    for kind in ("user", "item"):
        assert len(x[kind]) == sum(batch[kind].num_sampled_nodes[:2])
    assert edges[BOUGHT].shape[1] == batch[BOUGHT].num_sampled_edges[0]


def test_what_is_refused(shops) -> None:
    def refused(*words: str, error: Any = None, **options: Any) -> None:
        given = {"num_neighbors": [2], "input_nodes": "user"} | options
        with one_line(*words, **({} if error is None else {"error": error})):
            NeighborLoader(shops, **given)

    refused("input_nodes=buyer: expected a vertex type (user, item, shop)", input_nodes="buyer")
    refused("input_nodes=None: expected a vertex type", input_nodes=None)
    unknown = ("user", "buys", "shop")
    refused("user-buys-shop is no edge type", num_neighbors={unknown: [1]})
    refused("item-bought_by-user is missing", num_neighbors={BUYS: [1], SELLS: [1]})
    refused("num_neighbors=[-2]: expected for each hop a positive number", num_neighbors=[-2])
    refused("num_neighbors=2: expected a list of whole numbers", num_neighbors=2)
    refused("num_neighbors=[]: at least one hop", num_neighbors=[])
    unequal = {BUYS: [1], BOUGHT: [1, 1], SELLS: [1]}
    refused("item-bought_by-user has 2 hops, user-buys-item has 1", num_neighbors=unequal)
    refused("expected 'pyg' for a HeteroData", output_format="dgl")
    refused("weights 'weight'", error=GraphError, weight_attr="weight")
    refused("vertex id 600 is out of range", error=GraphError, input_nodes=("user", [600]))
    shops[SELLS].edge_index[0, 3] = 20
    refused("edge_index: sources, of type shop: vertex id 20 is out of range", error=GraphError)
    del shops["shop"].num_nodes
    refused("data['shop']", "num_nodes says how many", error=GraphError)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_transposed_matrices_are_edges(shops) -> None:
    loader = {"num_neighbors": [-1], "input_nodes": "item", "batch_size": 300}
    (expected,) = NeighborLoader(shops, **loader)
    for triple in shops.edge_types:
        src, dst = shops[triple].edge_index
        sizes = shops[triple[2]].num_nodes, shops[triple[0]].num_nodes
        # Edges that appear twice are one in a matrix.
        matrix = torch.sparse_coo_tensor(torch.stack([dst, src]), torch.ones(len(src)), sizes)
        shops[triple].clear()
        shops[triple].adj_t = matrix.coalesce() * 3
    (batch,) = NeighborLoader(shops, **loader)
    for triple in shops.edge_types:
        edges = whole(shops, batch, triple).T.tolist()
        known = {*map(tuple, whole(shops, expected, triple).T.tolist())}
        assert {*map(tuple, edges)} == known
        assert len(batch[triple].edge_weight) == len(edges) == len(known)


class Shops(InMemoryDataset):
    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.data, self.slices = self.collate([data])


def test_a_data_set_is_its_only_graph(shops) -> None:
    (batch,) = NeighborLoader(Shops(shops), [1], input_nodes="shop", batch_size=20)
    assert batch["shop"].batch_size == 20


def test_a_graph_with_types_is_converted_first(shops) -> None:
    with one_line("expected a Graph without types", "to_pyg(graph)", error=GraphError):
        NeighborLoader(from_pyg(shops), [1])
    loader = NeighborLoader(to_pyg(from_pyg(shops)), [1], input_nodes="shop")
    assert len(loader) == 20


def test_a_graph_without_types_of_vertices() -> None:
    with one_line("0 vertex types: allowed are 1 to 256", error=GraphError):
        NeighborLoader(HeteroData(), [1], input_nodes="user")


def test_a_type_without_vertices_or_edges() -> None:
    data = HeteroData()
    data["a"].x = torch.randn(5, 2)
    data["b"].x = torch.empty(0, 3)
    data["a", "to", "a"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["b", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.long)
    (batch,) = NeighborLoader(data, [2, 2], input_nodes="a", batch_size=5)
    assert batch["b"].x.shape == (0, 3)
    assert batch["b"].num_sampled_nodes == [0, 0, 0]
    assert batch["a", "to", "a"].num_sampled_edges == [2, 0]
    assert np.array_equal(batch["a"].n_id, np.arange(5))
