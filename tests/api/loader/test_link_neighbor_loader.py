"""Batches of edges: what PyG's loader of the same name makes, by the same arguments."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from gnnscale import GraphError, LinkNeighborLoader, from_arrays

pytest.importorskip("torch_geometric", reason="PyG is not installed")

from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader
from torch_geometric.nn import GraphSAGE, SAGEConv, to_hetero
from torch_geometric.sampler import (
    BaseSampler,
    HeteroSamplerOutput,
    NegativeSampling,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import trim_to_layer

BUYS, BOUGHT, KNOWS = (
    ("user", "buys", "item"),
    ("item", "bought_by", "user"),
    ("user", "knows", "user"),
)


def draw(generator: torch.Generator, high: int, size: int) -> torch.Tensor:
    return torch.randint(high, (size,), generator=generator)


def shops(seed: int = 0, num_edges: int = 700) -> HeteroData:
    """Users buy items of their own kind, which features tell."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData(name="shops")
    kind = {"user": torch.arange(90) % 3, "item": torch.arange(60) % 3}
    for name, kinds in kind.items():
        noise = torch.randn(len(kinds), 6, generator=generator)
        data[name].x = noise + 3 * torch.eye(6)[kinds]
    users = draw(generator, 90, num_edges)
    items = 3 * draw(generator, 20, num_edges) + kind["user"][users]
    data[BUYS].edge_index = torch.stack([users, items])
    data[BUYS].edge_attr = torch.arange(num_edges).float()[:, None]
    data[BOUGHT].edge_index = data[BUYS].edge_index.flip(0)
    ends = [draw(generator, 90, num_edges // 10) for _ in range(2)]
    data[KNOWS].edge_index = torch.stack(ends)
    return data


def people(seed: int = 0, num_edges: int = 500) -> Data:
    generator = torch.Generator().manual_seed(seed)
    src = draw(generator, 80, num_edges)
    dst = (4 * draw(generator, 20, num_edges) + src) % 80
    x = torch.randn(80, 6, generator=generator) + 3 * torch.eye(6)[torch.arange(80) % 4]
    return Data(x=x, edge_index=torch.stack([src, dst]), edge_attr=torch.arange(num_edges))


class AllNeighbors(BaseSampler):
    """Sampler of all neighbors in Python, for PyG's own loader: pyg-lib may not be installed."""

    edge_permutation = None

    def __init__(self, data: Any, num_hops: int) -> None:
        self.data, self.num_hops = data, num_hops
        hetero = isinstance(data, HeteroData)
        self.edges = data.edge_index_dict if hetero else {("", "", ""): data.edge_index}

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        hetero = isinstance(self.data, HeteroData)
        count = self.data.num_nodes_dict if hetero else self.data.num_nodes
        return edge_sample(index, self.sample, count, False, None, neg_sampling)

    def sample(self, seed: Any, seed_time: Any = None) -> Any:
        hetero = isinstance(seed, dict)
        types = self.data.node_types if hetero else [""]
        nodes = {
            name: (seed.get(name, torch.empty(0)) if hetero else seed).tolist() for name in types
        }
        counts = {name: [len(ids)] for name, ids in nodes.items()}
        edges: dict[Any, list[Any]] = {triple: [] for triple in self.edges}
        hops: dict[Any, list[int]] = {triple: [] for triple in self.edges}
        frontier = {name: {*ids} for name, ids in nodes.items()}
        for _ in range(self.num_hops):
            reached: dict[str, set[int]] = {name: set() for name in nodes}
            for triple, index in self.edges.items():
                picked = [
                    (u, v, number)
                    for number, (u, v) in enumerate(index.T.tolist())
                    if v in frontier[triple[2]]
                ]
                edges[triple] += picked
                hops[triple].append(len(picked))
                reached[triple[0]].update(u for u, _, _ in picked)
            frontier = {name: reached[name].difference(ids) for name, ids in nodes.items()}
            for name, ids in nodes.items():
                ids += sorted(frontier[name])
                counts[name].append(len(frontier[name]))
        local = {name: {vertex: n for n, vertex in enumerate(ids)} for name, ids in nodes.items()}

        def column(values: Any) -> Any:
            answer = {key: torch.tensor(each, dtype=torch.long) for key, each in values.items()}
            return answer if hetero else next(iter(answer.values()))

        sampled = (
            column(nodes),
            column({t: [local[t[0]][u] for u, _, _ in each] for t, each in edges.items()}),
            column({t: [local[t[2]][v] for _, v, _ in each] for t, each in edges.items()}),
            column({t: [number for _, _, number in each] for t, each in edges.items()}),
        )
        if not hetero:
            return SamplerOutput(*sampled, None, counts[""], hops[("", "", "")])
        return HeteroSamplerOutput(*sampled, None, counts, hops)


def stores_of(batch: Any) -> dict[Any, Any]:
    if isinstance(batch, Data):
        return {None: batch._store}
    return {**batch._node_store_dict, **batch._edge_store_dict}


def label_ends(batch: Any, triple: Any) -> torch.Tensor:
    """Return the global ids of the ends of a batch's edges."""
    if triple is None:
        return batch.n_id[batch.edge_label_index]
    src, dst = batch[triple].edge_label_index
    return torch.stack([batch[triple[0]].n_id[src], batch[triple[2]].n_id[dst]])


def check_like_pyg(data: Any, edges: Any, triple: Any, neg_sampling: Any, **options: Any) -> None:
    """Compare with PyG's loader: all but the random ends of negatives and what they reach."""
    common = {"batch_size": 8, "neg_sampling": neg_sampling, **options}
    ours = LinkNeighborLoader(data, [-1, -1], edges, edge_ids=True, **common)
    theirs = LinkLoader(data, AllNeighbors(data, 2), edges, **common)
    assert len(ours) == len(theirs) >= 1
    for batch, expected in zip(ours, theirs, strict=True):
        mine, known = stores_of(batch), stores_of(expected)
        assert mine.keys() == known.keys()
        for key, store in mine.items():
            assert {*store.keys()} == {*known[key].keys()}
            for name, values in store.items():
                assert type(values) is type(known[key][name])
                assert not hasattr(values, "dtype") or values.dtype == known[key][name].dtype
        edge_store, other = mine[triple], known[triple]
        assert torch.equal(edge_store.input_id, other.input_id)
        if neg_sampling != "triplet":
            assert edge_store.edge_label_index.shape == other.edge_label_index.shape
            num_edges = len(other.input_id)
            ends, known_ends = (label_ends(each, triple) for each in (batch, expected))
            assert torch.equal(ends[:, :num_edges], known_ends[:, :num_edges])
            assert ("edge_label" in edge_store) == ("edge_label" in other)
            if "edge_label" in other:
                assert torch.equal(edge_store.edge_label, other.edge_label)
        if neg_sampling is None:
            for key, store in mine.items():
                for name in ("n_id", "e_id"):
                    if name in store:
                        assert sorted(store[name].tolist()) == sorted(known[key][name].tolist())
                for name in ("num_sampled_nodes", "num_sampled_edges"):
                    assert store.get(name) == known[key].get(name)
            assert torch.equal(edge_store.edge_label_index, other.edge_label_index)


@pytest.mark.parametrize(
    "neg_sampling", [None, "binary", "triplet", NegativeSampling("binary", 0.4)]
)
@pytest.mark.parametrize("triple", [None, BUYS, KNOWS])
@pytest.mark.parametrize("labels", [None, "from 0", "from 1", "floats"])
def test_batches_are_those_of_pyg(neg_sampling: Any, triple: Any, labels: Any) -> None:
    data: Any = people(1, 60) if triple is None else shops(1, 60)
    index = torch.tensor([[3, 5, 5, 70, 3, 1, 0, 8, 9], [8, 9, 9, 59, 8, 2, 0, 1, 1]])
    options = {}
    if labels is not None:
        if neg_sampling == "triplet":
            return
        options["edge_label"] = torch.arange(9) % 3 + (labels == "from 1")
        if labels == "floats":
            options["edge_label"] = torch.rand(9, 2) + 1
    check_like_pyg(
        data, index if triple is None else (triple, index), triple, neg_sampling, **options
    )
    if triple is not None and labels is None:
        check_like_pyg(data, triple, triple, neg_sampling)


def test_all_edges_are_seeds_unless_others_are_named() -> None:
    data = people()
    check_like_pyg(data, None, None, None)
    (batch,) = LinkNeighborLoader(data, [1], batch_size=500)
    assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index)
    graph = from_arrays(data.edge_index.numpy(), data.x)
    (batch,) = LinkNeighborLoader(graph, [1], batch_size=500)
    ends = batch.n_id[batch.edge_label_index].T.tolist()
    assert Counter(map(tuple, ends)) == Counter(map(tuple, data.edge_index.T.tolist()))


@settings(max_examples=10)
@given(st.integers(0, 2**40), st.floats(0.1, 5), st.integers(1, 40), st.booleans())
def test_negatives_are_pairs_of_both_types(
    seed: int, amount: float, batch_size: int, is_triplet: bool
) -> None:
    amount = math.ceil(amount) if is_triplet else amount
    neg_sampling = {"mode": "triplet" if is_triplet else "binary", "amount": amount}
    options = {"neg_sampling": neg_sampling, "batch_size": batch_size, "seed": seed}
    data = shops()
    edges = data[BUYS].edge_index[:, :50]
    for batch in LinkNeighborLoader(data, [2], (BUYS, edges), shuffle=True, **options):
        store, user, item = batch[BUYS], batch["user"], batch["item"]
        positives = edges[:, store.input_id]
        assert user.num_sampled_nodes[0] <= len(user.n_id) <= 90
        assert (item.n_id < 60).all()
        if is_triplet:
            assert torch.equal(user.n_id[user.src_index], positives[0])
            assert torch.equal(item.n_id[item.dst_pos_index], positives[1])
            shape = [len(store.input_id), amount][: 1 + (amount > 1)]
            assert list(item.dst_neg_index.shape) == shape
            assert item.dst_neg_index.max() < item.num_sampled_nodes[0]
        else:
            count = math.ceil(amount * len(store.input_id))
            assert torch.equal(label_ends(batch, BUYS)[:, :-count], positives)
            ones = [1.0] * len(store.input_id)
            assert store.edge_label.tolist() == ones + [0.0] * count


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_negatives_are_uniform_or_by_weight(mode: str) -> None:
    data = shops()
    weight = torch.tensor([0.0, 1.0, 3.0]).repeat(20)
    for weights, shares in ((None, [1, 1, 1]), (weight, [0, 1, 3])):
        neg_sampling = NegativeSampling(mode, 30, dst_weight=weights)
        options = {"neg_sampling": neg_sampling, "batch_size": 700}
        (batch,) = LinkNeighborLoader(data, [1], BUYS, **options)
        if mode == "triplet":
            items = batch["item"].n_id[batch["item"].dst_neg_index].ravel()
        else:
            users, items = label_ends(batch, BUYS)[:, 700:]
            counts = torch.bincount(users, minlength=90)
            assert counts.min() > 0.7 * counts.float().mean()
            # Independent of each other.
            assert abs(np.corrcoef(users, items)[0, 1]) < 0.03
        counts = torch.bincount(items % 3, minlength=3) / len(items)
        expected = torch.tensor(shares) / sum(shares)
        torch.testing.assert_close(counts, expected, atol=0.02, rtol=0)


def test_a_batch_is_a_function_of_seed_epoch_and_position() -> None:
    def epochs(data: Any, edges: Any, **options: Any) -> list[Any]:
        common = {"neg_sampling": "binary", "batch_size": 50, "shuffle": True, "edge_ids": True}
        loader = LinkNeighborLoader(data, [3, 3], edges, **common, **options)
        return [batch for _ in range(2) for batch in loader]

    for data, edges in ((people(), None), (shops(), BUYS)):
        reference = epochs(data, edges, num_workers=0, num_threads=1)
        for batch, same in zip(
            epochs(data, edges, num_workers=3, num_threads=2), reference, strict=True
        ):
            for key, store in stores_of(batch).items():
                for name, values in store.items():
                    assert np.array_equal(values, stores_of(same)[key][name]), name
        negatives = {str(label_ends(batch, edges)[:, -50:].tolist()) for batch in reference}
        assert len(negatives) == len(reference)
        other = epochs(data, edges, seed=1)
        assert str(label_ends(other[0], edges)[:, -50:].tolist()) not in negatives


def test_edges_to_predict_send_messages_as_in_pyg() -> None:
    data = shops()
    (batch,) = LinkNeighborLoader(data, [-1], BUYS, batch_size=700)
    assert {*batch[BUYS].e_id.tolist()} == {*range(700)}


def test_a_split_of_pyg_is_taken_with_its_labels() -> None:
    torch.manual_seed(0)
    split = RandomLinkSplit(
        num_val=0.1, num_test=0.1, disjoint_train_ratio=0.5, edge_types=BUYS, rev_edge_types=BOUGHT
    )
    train, _, _ = split(shops())
    store = train[BUYS]
    loader = LinkNeighborLoader(
        train, [4, 4], (BUYS, store.edge_label_index), store.edge_label, batch_size=64
    )
    for batch in loader:
        assert torch.equal(batch[BUYS].edge_label, store.edge_label[batch[BUYS].input_id])
        assert torch.equal(label_ends(batch, BUYS), store.edge_label_index[:, batch[BUYS].input_id])
    triplets = LinkNeighborLoader(train, [4], BUYS, neg_sampling="triplet", batch_size=64)
    for batch in triplets:
        assert "edge_label_index" not in batch[BUYS]
    # As many edges to predict as edges, which the attribute's second axis counts.
    whole = RandomLinkSplit(num_val=0.1, num_test=0.1, edge_types=BUYS, rev_edge_types=BOUGHT)
    train, _, _ = whole(shops())
    (batch,) = LinkNeighborLoader(train, [1], (BUYS, train[BUYS].edge_label_index), batch_size=9999)
    assert torch.equal(label_ends(batch, BUYS), train[BUYS].edge_label_index)


def test_layers_are_trimmed_by_the_numbers_of_hops() -> None:
    data = people()
    model = GraphSAGE(6, 8, num_layers=2).eval()
    for batch in LinkNeighborLoader(data, [-1, -1], neg_sampling="binary", batch_size=64):
        whole = model(data.x, data.edge_index)
        hops = batch.num_sampled_nodes, batch.num_sampled_edges
        names = ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")
        trimmed = model(batch.x, batch.edge_index, **dict(zip(names, hops, strict=True)))
        ends = batch.edge_label_index
        torch.testing.assert_close(trimmed[ends], whole[batch.n_id[ends]])
    hetero = shops()
    (batch,) = LinkNeighborLoader(
        hetero, [3, 2], (BUYS, torch.tensor([[0, 4], [0, 4]])), batch_size=2
    )
    x, edges, _ = trim_to_layer(
        1,
        batch.num_sampled_nodes_dict,
        batch.num_sampled_edges_dict,
        batch.x_dict,
        batch.edge_index_dict,
    )
    for name in ("user", "item"):
        assert len(x[name]) == sum(batch[name].num_sampled_nodes[:2])
    assert edges[BUYS].shape[1] == batch[BUYS].num_sampled_edges[0]


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 16)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def share_of_ordered_pairs(positive: torch.Tensor, negative: torch.Tensor) -> float:
    """Return the area under the ROC curve."""
    return (positive[:, None] > negative[None]).float().mean().item()


def test_pygs_example_of_a_heterogeneous_graph_trains_unchanged() -> None:
    torch.manual_seed(0)
    data = shops()
    del data[KNOWS]
    model = to_hetero(Encoder(), data.metadata())
    edges = data[BUYS].edge_index
    options = {"neg_sampling_ratio": 1.0, "batch_size": 100}
    train = LinkNeighborLoader(data, [6, 6], (BUYS, edges[:, :600]), shuffle=True, **options)
    test = LinkNeighborLoader(data, [6, 6], (BUYS, edges[:, 600:]), **options)

    def scores(batch: Any) -> torch.Tensor:
        z = model(batch.x_dict, batch.edge_index_dict)
        src, dst = batch[BUYS].edge_label_index
        return (z["user"][src] * z["item"][dst]).sum(1)

    with torch.no_grad():  # sets the widths of layers
        scores(next(iter(train)))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(5):
        for batch in train:
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(scores(batch), batch[BUYS].edge_label).backward()
            optimizer.step()
    (batch,) = test
    answer, labels = scores(batch).detach(), batch[BUYS].edge_label
    # A third of the negatives is of the users' own kinds, and cannot be told from edges.
    assert share_of_ordered_pairs(answer[labels == 1], answer[labels == 0]) > 0.75


def test_pygs_example_of_triplets_trains_unchanged() -> None:
    torch.manual_seed(0)
    data = people()
    model = GraphSAGE(6, 16, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    options = {"neg_sampling": {"mode": "triplet", "amount": 2}, "batch_size": 100}
    loader = LinkNeighborLoader(data, [6, 6], shuffle=True, **options)

    def scores(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        z = model(batch.x, batch.edge_index)
        sources = z[batch.src_index]
        negatives = (sources[:, None] * z[batch.dst_neg_index]).sum(-1)
        return (sources * z[batch.dst_pos_index]).sum(-1), negatives

    for _ in range(6):
        for batch in loader:
            positive, negative = scores(batch)
            loss = -logsigmoid(positive).mean() - logsigmoid(-negative).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    positive, negative = scores(next(iter(loader)))
    assert share_of_ordered_pairs(positive, negative.ravel()) > 0.75


def test_what_is_refused() -> None:
    def refused(*words: str, error: Any = None, data: Any = None, **options: Any) -> None:
        data = shops() if data is None else data
        arguments = {"num_neighbors": [2], "edge_label_index": BUYS} | options
        if isinstance(data, Data) and arguments["edge_label_index"] is BUYS:
            arguments["edge_label_index"] = None
        with one_line(*words, **({} if error is None else {"error": error})):
            LinkNeighborLoader(data, **arguments)

    unknown = ("user", "sells", "item")
    edges = torch.tensor([[0, 1], [2, 3]])
    expected = "expected an edge type (('user', 'buys', 'item'), "
    for index in (None, unknown, (unknown, edges), edges, "buys", (BUYS, edges, edges)):
        refused("edge_label_index=", expected, edge_label_index=index)
    beyond = {"error": GraphError, "edge_label_index": (BUYS, [[0], [60]])}
    refused("edge_label_index: destinations: vertex id 60 is out of range", **beyond)
    beyond = {"error": GraphError, "edge_label_index": [[0, -1], [3, 4]]}
    refused("edge_label_index: sources: vertex id -1 is negative", data=people(), **beyond)
    for shape in ([[0, 1, 2]], [0, 1], torch.zeros(5, 2)):
        wrong = {"error": GraphError, "edge_label_index": (BUYS, shape)}
        refused("edge_label_index: expected [2, num_edges], got", **wrong)
    floats = {"error": GraphError, "edge_label_index": (BUYS, torch.rand(2, 4))}
    refused("expected integers as vertex ids, got float32", **floats)
    for labels in (torch.zeros(3), torch.zeros(())):
        message = "edge attribute 'edge_label': expected a row for each of 700 edges"
        refused(message, error=GraphError, edge_label=labels)
    refused("'edge_label': expected a tensor or array, got list", error=GraphError, edge_label=[1])
    refused("edge_label: expected None with triplets", edge_label=edges, neg_sampling="triplet")
    for amount in (-1, 0, math.nan, math.inf, "2", True):
        refused("amount=", "expected a number above 0", neg_sampling=("binary", amount))
    refused("amount=1.5: expected a whole number", neg_sampling=("triplet", 1.5))
    for other in ("tripled", 3, {"amount": 1}, {"mode": "binary", "ratio": 2}):
        refused("neg_sampling=", "expected None, 'binary', 'triplet'", neg_sampling=other)
    refused("neg_sampling_ratio=1: expected None", neg_sampling="binary", neg_sampling_ratio=1)
    for weights in (torch.ones(3), -torch.ones(60), torch.zeros(60), torch.full((60,), math.nan)):
        wrong = {"neg_sampling": {"mode": "binary", "dst_weight": weights}}
        refused("neg_sampling: dst_weight: expected", **wrong)
    refused(
        "num_neighbors: expected a list, got a dictionary", data=people(), num_neighbors={BUYS: 2}
    )
    refused("input_nodes='user': unknown argument", input_nodes="user")


def test_a_graph_of_dgl_is_refused(dgl: Any) -> None:
    ends = torch.tensor([0]), torch.tensor([1])
    with one_line("data: expected a gnnscale.Graph, or a Data or HeteroData", error=GraphError):
        LinkNeighborLoader(dgl.graph(ends), [2])
