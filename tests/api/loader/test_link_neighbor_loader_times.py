"""Trees of edges' ends as of their times: those of PyG's loader, by the same arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from torch.nn.functional import binary_cross_entropy_with_logits

from gnnscale import GraphError, LinkNeighborLoader

pytest.importorskip("torch_geometric", reason="PyG is not installed")

from pyg_trees import TreeSampler, check_trees, edges_by_hop, stores_of, vertices_by_hop
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.sampler import NegativeSampling

BUYS, BOUGHT, KNOWS = (
    ("user", "buys", "item"),
    ("item", "bought_by", "user"),
    ("user", "knows", "user"),
)
SIZES = {"user": 12, "item": 9, "tag": 2}


def shops(seed: int = 0, num_edges: int = 50, num_times: int = 12) -> HeteroData:
    """Users and items have times, which are not sorted; vertex 0 of each has time 0."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int, size: int) -> torch.Tensor:
        return torch.randint(high, (size,), generator=generator)

    data = HeteroData()
    for name, size in SIZES.items():
        data[name].x = torch.randn(size, 4, generator=generator)
        if name != "tag":
            data[name].time = draw(num_times, size)
            data[name].time[0] = 0
    for triple in (BUYS, BOUGHT, KNOWS):
        ends = [draw(SIZES[name], num_edges) for name in (triple[0], triple[2])]
        data[triple].edge_index = torch.stack(ends)
        data[triple].edge_time = draw(num_times, num_edges)
    data["tag", "of", "item"].edge_index = torch.stack([draw(2, num_edges), draw(9, num_edges)])
    return data


def people(seed: int = 0, num_edges: int = 60, num_times: int = 12) -> Data:
    generator = torch.Generator().manual_seed(seed)
    times = torch.randint(num_times, (15,), generator=generator)
    times[0] = 0
    return Data(
        x=torch.randn(15, 4, generator=generator),
        edge_index=torch.randint(15, (2, num_edges), generator=generator),
        edge_time=torch.randint(num_times, (num_edges,), generator=generator),
        time=times,
    )


@st.composite
def cases(draw_from: Callable[..., Any]) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return a graph, the type of seed edges, these, and their times with the attribute's name."""
    triple = draw_from(st.sampled_from([None, BUYS, BOUGHT, KNOWS]))
    make = people if triple is None else shops
    num_times = draw_from(st.sampled_from([2, 12, 1 << 40]))
    data: Any = make(draw_from(st.integers(0, 999)), draw_from(st.sampled_from([9, 60])), num_times)
    sizes = (15, 15) if triple is None else (SIZES[triple[0]], SIZES[triple[2]])
    pair = st.tuples(*(st.integers(0, size - 1) for size in sizes), st.integers(0, num_times))
    rows = torch.tensor(draw_from(st.lists(pair, min_size=1, max_size=9)))
    time_attr = draw_from(st.sampled_from([None, "time", "edge_time"]))
    options: dict[str, Any] = {"disjoint": True}
    if time_attr is not None:
        options = {"time_attr": time_attr, "edge_label_time": rows[:, 2]}
    index = rows[:, :2].T.contiguous()
    return data, triple, index if triple is None else (triple, index), options


def epochs_of(case: Any, **common: Any) -> tuple[Any, Any]:
    """Return the loader, and PyG's, with trees of all neighbors over two hops."""
    data, _, edges, options = case
    sampler = TreeSampler(data, 2, options.get("time_attr"))
    times = options.get("edge_label_time")
    theirs = LinkLoader(data, sampler, edges, edge_label_time=times, **common)
    return LinkNeighborLoader(data, [-1, -1], edges, edge_ids=True, **options, **common), theirs


@settings(max_examples=50, deadline=None)
@given(cases(), st.integers(1, 5), st.booleans())
def test_trees_of_edges_are_those_of_pyg(case: Any, batch_size: int, has_labels: bool) -> None:
    edges = case[2] if case[1] is None else case[2][1]
    labels = {"edge_label": torch.arange(edges.shape[1])} if has_labels else {}
    ours, theirs = epochs_of(case, batch_size=batch_size, **labels)
    assert len(ours) == len(theirs)
    for batch, expected in zip(ours, theirs, strict=True):
        check_trees(batch, expected)
        store, other = (stores_of(of)[case[1] or ""] for of in (batch, expected))
        assert torch.equal(store.edge_label_index, other.edge_label_index)


def ends_of(batch: Any, triple: Any) -> tuple[Any, Any]:
    """Return the stores of sources and of destinations."""
    stores = stores_of(batch)
    return (stores[""], stores[""]) if triple is None else (stores[triple[0]], stores[triple[2]])


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(["binary", "triplet"]), st.sampled_from([1, 2, 0.4]))
def test_negatives_exist_at_the_times_of_edges(case: Any, mode: str, amount: float) -> None:
    """Attributes, shapes and numbers of trees are PyG's; trees are those of the definition."""
    data, triple, _, options = case
    amount = amount if mode == "binary" else max(amount, 1)
    neg_sampling = NegativeSampling(mode, amount)
    for batch, expected in zip(
        *epochs_of(case, batch_size=4, neg_sampling=neg_sampling), strict=True
    ):
        num_edges = len(stores_of(batch)[triple or ""].input_id)
        names = ("edge_label_index", "edge_label", "edge_label_time", "seed_time")
        names += ("src_index", "dst_pos_index", "dst_neg_index", "input_id")
        for key, store in stores_of(batch).items():
            other = stores_of(expected)[key]
            assert {*store.keys()} == {*other.keys()}
            for name in {*names}.intersection(store.keys()):
                assert torch.equal(store[name], other[name]), name
            if "num_sampled_nodes" in store and amount in (1, 2):
                # Later vertices differ with the negatives.
                assert store.num_sampled_nodes[0] == other.num_sampled_nodes[0]
                count = store.num_sampled_nodes[0]
                assert torch.equal(store.batch[:count], other.batch[:count])
        sources, destinations = ends_of(batch, triple)
        if mode == "binary":
            src, dst = stores_of(batch)[triple or ""].edge_label_index
            ends = ((sources, src, 0), (destinations, dst, 2))
        else:
            false_ends = destinations.dst_neg_index.view(num_edges, -1).T.ravel()
            dst = torch.cat([destinations.dst_pos_index, false_ends])
            ends = ((sources, sources.src_index, 0), (destinations, dst, 2))
        for store, places, end in ends:
            trees = torch.arange(len(places)) % num_edges
            assert torch.equal(store.batch[places], trees)
            if options.get("time_attr") == "time":
                own = (data if triple is None else data[triple[end]]).time
                cutoffs = options["edge_label_time"][stores_of(batch)[triple or ""].input_id]
                negatives = slice(num_edges, None)
                assert (own[store.n_id[places]][negatives] <= cutoffs[trees][negatives]).all()
        check_definition(batch, case)


def check_definition(batch: Any, case: Any) -> None:
    """Compare the trees with those of the definition, which begin with the batch's seeds."""
    data, triple, _, options = case
    sampler = TreeSampler(data, 2, options.get("time_attr"))
    of_edges = stores_of(batch)[triple or ""]
    times = options.get("edge_label_time")
    cutoffs = times[of_edges.input_id].tolist() if times is not None else [1 << 62] * 9
    lists: dict[Any, list[int]] = {}
    for of, hops in edges_by_hop(batch).items():
        for hop, edges in enumerate(hops):
            for tree, _, vertex, number in edges:
                lists.setdefault((of, hop, tree, vertex), []).append(number)
    for name, hops in vertices_by_hop(batch).items():
        for hop, members in enumerate(hops[:2]):
            for tree, vertex in {*members}:
                for of in sampler.edges:
                    if of[2] == name:
                        allowed = sampler.allowed(of, vertex, cutoffs[tree])
                        # Trees of several seeds have one number.
                        expected = sorted(allowed * members.count((tree, vertex)))
                        assert sorted(lists.pop((of, hop, tree, vertex), [])) == expected
    assert not lists


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_negatives_are_uniform_among_those_that_exist(mode: str) -> None:
    """Or by weight: vertex 3 weighs thrice as much as vertex 1."""
    data = Data(num_nodes=6, time=torch.tensor([9, 2, 4, 2, 7, 8]))
    data.edge_index = torch.tensor([[1, 1], [2, 3]])
    times = torch.tensor([4, 7])
    weight = torch.tensor([5.0, 1.0, 0.0, 3.0, 4.0, 2.0])
    for weights, shares in (
        (None, [[0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]]),
        (weight, [[0, 1, 0, 3, 0, 0], [0, 1, 0, 3, 4, 0]]),
    ):
        neg_sampling = NegativeSampling(mode, 4000, src_weight=weights, dst_weight=weights)
        options = {"edge_label_time": times, "time_attr": "time", "batch_size": 2}
        (batch,) = LinkNeighborLoader(data, [1], neg_sampling=neg_sampling, **options)
        if mode == "triplet":
            ends = [batch.n_id[batch.dst_neg_index].T.ravel()]
        else:
            ends = list(batch.n_id[batch.edge_label_index[:, 2:]])
        for ids in ends:
            for tree, of_tree in enumerate(shares):
                counts = torch.bincount(ids[tree::2], minlength=6) / 4000
                expected = torch.tensor(of_tree) / sum(of_tree)
                torch.testing.assert_close(counts, expected, atol=0.03, rtol=0)
        if mode == "binary":
            assert abs(np.corrcoef(*(end[::2] for end in ends))[0, 1]) < 0.05


def test_threads_and_shuffling_change_no_tree() -> None:
    def trees(data: Any, edges: Any, **options: Any) -> list[Any]:
        times = torch.arange(50) % 12
        common = {"edge_label_time": times, "time_attr": "time", "shuffle": True, "batch_size": 7}
        more = {"neg_sampling": "binary", "edge_ids": True} | options
        loader = LinkNeighborLoader(data, [3, 2], edges, **common, **more)
        return [stores_of(batch) for _ in range(2) for batch in loader]

    for data, edges in ((people(0, 50), None), (shops(0, 50), BUYS)):
        reference = trees(data, edges, num_workers=0, num_threads=1)
        for stores, same in zip(
            trees(data, edges, num_workers=3, num_threads=2), reference, strict=True
        ):
            for key, store in stores.items():
                for name, values in store.items():
                    assert np.array_equal(values, same[key][name]), name


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 16)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def test_pygs_temporal_example_trains_unchanged() -> None:
    """Negatives are items that no one buys in the first half of time."""
    data = shops(3)
    del data["tag", "of", "item"], data["tag"]
    edges = data[BUYS].edge_index
    edges[1] %= 5
    data["item"].x[:5] += 3
    loader = LinkNeighborLoader(
        data,
        [8, 8],
        edge_label_index=(BUYS, edges),
        edge_label_time=data[BUYS].edge_time,
        time_attr="edge_time",
        neg_sampling=NegativeSampling("binary", dst_weight=(torch.arange(9) > 4).float()),
        batch_size=10,
        shuffle=True,
    )
    model = to_hetero(Encoder(), data.metadata())

    def loss_of(batch: Any) -> torch.Tensor:
        z = model(batch.x_dict, batch.edge_index_dict)
        src, dst = batch[BUYS].edge_label_index
        scores = (z["user"][src] * z["item"][dst]).sum(1)
        return binary_cross_entropy_with_logits(scores, batch[BUYS].edge_label)

    with torch.no_grad():
        loss_of(next(iter(loader)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(10):
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def test_arguments_of_times_that_are_refused() -> None:
    times = torch.zeros(60, dtype=torch.long)

    def refused(*words: str, error: Any = None, **options: Any) -> None:
        arguments = {"edge_label_time": times, "time_attr": "time"} | options
        with one_line(*words, **({} if error is None else {"error": error})):
            LinkNeighborLoader(people(), [2], **arguments)

    pair = "expected edge_label_time and time_attr, or neither"
    refused("time_attr=None: " + pair, time_attr=None)
    refused("edge_label_time=None: " + pair, edge_label_time=None)
    refused(
        "edge_label_time: expected a time for each of 60 seeds, got [2]", edge_label_time=[1, 2]
    )
    floats = {"error": GraphError, "edge_label_time": torch.full((60,), float("nan"))}
    refused("edge_label_time: expected integers or datetime64, got float32", **floats)
    refused("time_attr='when': expected an attribute of vertices or edges", time_attr="when")
    refused("input_time=1: expected None", input_time=1)
    early = times.clone()
    early[7] = -1
    for mode in ("binary", "triplet"):
        refused(
            "edge_label_time[7]=-1: expected the time of a destination or later, since negatives "
            "must exist; the first is 0",
            edge_label_time=early,
            neg_sampling=mode,
        )
    loader = LinkNeighborLoader(people(), [2], edge_label_time=early, time_attr="time")
    assert len(loader) == 60
