"""Trees of seeds as of their times: those of PyG's loader, by the same arguments."""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from torch.nn.functional import cross_entropy

from gnnscale import GraphError, NeighborLoader, from_pyg

pytest.importorskip("torch_geometric", reason="PyG is not installed")

from pyg_trees import TreeSampler, check_trees, edges_by_hop, stores_of, vertices_by_hop
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import SAGEConv, to_hetero

OWNS, BUYS, BOUGHT, KNOWS = (
    ("shop", "owns", "item"),
    ("user", "buys", "item"),
    ("item", "bought_by", "user"),
    ("user", "knows", "user"),
)
SIZES = {"user": 12, "shop": 3, "item": 9}
OURS = frozenset({"seed_time"})


def shops(seed: int = 0, num_edges: int = 60, num_times: int = 12) -> HeteroData:
    """Shops have no times; times of users and items, and of most edge types, are unsorted."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int, size: int) -> torch.Tensor:
        return torch.randint(high, (size,), generator=generator)

    data = HeteroData()
    for name, size in SIZES.items():
        data[name].x = torch.randn(size, 4, generator=generator)
        if name != "shop":
            data[name].time = draw(num_times, size)
    for triple in (OWNS, BUYS, BOUGHT, KNOWS):
        ends = [draw(SIZES[name], num_edges) for name in (triple[0], triple[2])]
        data[triple].edge_index = torch.stack(ends)
        if triple != KNOWS:
            data[triple].edge_time = draw(num_times, num_edges)
    return data


def people(seed: int = 0, num_edges: int = 70, num_times: int = 12) -> Data:
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(15, 4, generator=generator),
        edge_index=torch.randint(15, (2, num_edges), generator=generator),
        edge_time=torch.randint(num_times, (num_edges,), generator=generator),
        time=torch.randint(num_times, (15,), generator=generator),
    )


@st.composite
def cases(draw_from: Callable[..., Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Return a graph, seeds, and the times of seeds and the attribute of times."""
    seed, num_edges = draw_from(st.integers(0, 999)), draw_from(st.sampled_from([0, 9, 60]))
    num_times = draw_from(st.sampled_from([2, 12, 1 << 40]))
    is_typed = draw_from(st.booleans())
    data: Any = (shops if is_typed else people)(seed, num_edges, num_times)
    size = SIZES["user"] if is_typed else 15
    ids = draw_from(st.lists(st.integers(0, size - 1), min_size=1, max_size=9))
    seeds: Any = torch.tensor(ids)
    mask = torch.zeros(size, dtype=torch.bool)
    mask[seeds] = True
    is_mask = draw_from(st.booleans())
    count = int(mask.sum()) if is_mask else len(ids)
    time_attr = draw_from(st.sampled_from([None, "time", "edge_time"]))
    options: dict[str, Any] = {"disjoint": True} if time_attr is None else {"time_attr": time_attr}
    if time_attr == "edge_time" or (time_attr and draw_from(st.booleans())):
        bounds = st.integers(-1, num_times)
        times = draw_from(st.lists(bounds, min_size=count, max_size=count))
        options["input_time"] = torch.tensor(times)
    seeds = mask if is_mask else seeds
    return data, ("user", seeds) if is_typed else seeds, options


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(1, 3), st.integers(1, 5))
def test_trees_of_all_neighbors_are_those_of_pyg(case: Any, num_hops: int, batch_size: int) -> None:
    data, seeds, options = case
    sampler = TreeSampler(data, num_hops, options.get("time_attr"))
    of_pyg = {"input_time": options.get("input_time"), "batch_size": batch_size}
    theirs = NodeLoader(data, sampler, seeds, **of_pyg)
    fanouts = [-1] * num_hops
    ours = NeighborLoader(data, fanouts, seeds, batch_size=batch_size, edge_ids=True, **options)
    assert len(ours) == len(theirs)
    for batch, expected in zip(ours, theirs, strict=True):
        has_own = "time_attr" in options and "input_time" not in options
        check_trees(batch, expected, ours=OURS if has_own else frozenset())
        if has_own:
            store = stores_of(batch)["user" if isinstance(data, HeteroData) else ""]
            assert torch.equal(store.seed_time, store.time[: store.batch_size])


def drawn_lists(batch: Any) -> dict[tuple[Any, int, int, int], list[int]]:
    """Return the numbers of the edges of each edge type, hop, tree and destination."""
    lists = defaultdict(list)
    for triple, hops in edges_by_hop(batch).items():
        for hop, edges in enumerate(hops):
            for tree, _, vertex, number in edges:
                lists[triple, hop, tree, vertex].append(number)
    return lists


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(["uniform", "last"]), st.booleans(), st.integers(0, 9))
def test_fan_outs_take_as_many_allowed_edges(
    case: Any, strategy: str, replace: bool, seed: int
) -> None:
    """Or the newest of them; edges of one time may stand for one another."""
    data, seeds, options = case
    replace = replace and strategy == "uniform"
    options |= {"temporal_strategy": strategy, "replace": replace, "seed": seed}
    fanouts = [3, 2]
    loader = NeighborLoader(data, fanouts, seeds, batch_size=9, edge_ids=True, **options)
    sampler = TreeSampler(data, 2, options.get("time_attr"))
    for batch in loader:
        store = stores_of(batch)["user" if isinstance(data, HeteroData) else ""]
        cutoffs = store.get("seed_time", torch.full((store.batch_size,), 1 << 62)).tolist()
        lists = drawn_lists(batch)
        vertices = vertices_by_hop(batch)
        for triple in sampler.edges:
            for hop, fanout in enumerate(fanouts):
                for tree, vertex in vertices[triple[2]][hop]:
                    allowed = sampler.allowed(triple, vertex, cutoffs[tree])
                    numbers = lists.pop((triple, hop, tree, vertex), [])
                    assert {*numbers} <= {*allowed}
                    if replace:
                        assert len(numbers) == (fanout if allowed else 0)
                        continue
                    assert len(numbers) == len({*numbers}) == min(fanout, len(allowed))
                    if strategy == "last" and "time_attr" in options:
                        times = edge_times(sampler, triple)
                        newest = sorted(times[number] for number in allowed)[-fanout:]
                        assert sorted(times[number] for number in numbers) == newest
        assert not lists


def edge_times(sampler: TreeSampler, triple: Any) -> list[int]:
    """Return the times of the edges of a type, 0 without."""
    if triple in sampler.edge_times:
        return sampler.edge_times[triple]
    times = sampler.vertex_times.get(triple[0])
    return [0 if times is None else times[u] for u, _ in sampler.edges[triple]]


def test_allowed_edges_are_equally_likely() -> None:
    """Vertex 0 has edges of the times 0 to 19, of which 8 are allowed; trees draw 3 of them."""
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    data = Data(num_nodes=21, edge_time=order)
    data.edge_index = torch.stack([torch.arange(1, 21), torch.zeros(20, dtype=torch.long)])
    loader = NeighborLoader(data, [3], [0], input_time=[7], time_attr="edge_time", edge_ids=True)
    counts = Counter(time for _ in range(4000) for batch in loader for time in batch.edge_time)
    numbers = Counter({int(time): 0 for time in range(8)})
    numbers.update(int(time) for time in counts.elements())
    assert numbers.keys() == {*range(8)}
    # The standard deviation is 31.
    assert all(abs(count - 1500) < 150 for count in numbers.values())


def test_a_tree_by_hand() -> None:
    """Edges of one time as the seed are in; the time of a destination bounds nothing."""
    index = torch.tensor([[1, 2, 3, 1, 0, 2], [0, 0, 0, 1, 1, 3]])
    data = Data(num_nodes=4, edge_index=index, edge_time=torch.tensor([5, 2, 9, 6, 4, 8]))
    options = {"input_time": torch.tensor([5, 8, 9]), "time_attr": "edge_time"}
    (batch,) = NeighborLoader(data, [-1, -1], torch.tensor([0, 0, 3]), batch_size=3, **options)
    assert batch.batch_size == 3
    assert vertices_by_hop(batch)[""] == [
        [(0, 0), (1, 0), (2, 3)],
        [(0, 1), (0, 2), (1, 1), (1, 2), (2, 2)],
        [],
    ]
    assert edges_by_hop(batch)["", "", ""] == [
        [(0, 1, 0, 0), (0, 2, 0, 1), (1, 1, 0, 0), (1, 2, 0, 1), (2, 2, 3, 5)],
        [(0, 0, 1, 4), (1, 0, 1, 4), (1, 1, 1, 3)],
    ]
    assert batch.seed_time.tolist() == [5, 8, 9]
    assert batch.edge_time.tolist() == data.edge_time[batch.e_id].tolist()


def test_threads_and_shuffling_change_no_tree() -> None:
    def trees(data: Any, seeds: Any, **options: Any) -> list[Any]:
        times = torch.arange(40) % 12
        common = {"input_time": times, "time_attr": "time", "shuffle": True, "batch_size": 7}
        loader = NeighborLoader(data, [3, 2], seeds, edge_ids=True, **common, **options)
        return [stores_of(batch) for _ in range(2) for batch in loader]

    seeds = torch.arange(40) % 10
    for data, of in ((people(), seeds), (shops(), ("user", seeds))):
        reference = trees(data, of, num_workers=0, num_threads=1)
        for stores, same in zip(
            trees(data, of, num_workers=3, num_threads=2), reference, strict=True
        ):
            for key, store in stores.items():
                for name, values in store.items():
                    assert np.array_equal(values, same[key][name]), name
        key = "" if isinstance(data, Data) else "user"
        times = torch.cat([stores[key].seed_time for stores in reference])
        assert torch.equal(times, torch.cat([s[key].input_id for s in reference]) % 12)


def test_seeds_of_several_types_have_times_by_type() -> None:
    data = shops()
    seeds = {"user": torch.tensor([3, 3, 5]), "item": torch.tensor([8, 0])}
    times = {"user": torch.tensor([4, 9, 2]), "item": torch.tensor([7, 1])}
    options = {"input_time": times, "time_attr": "time", "edge_ids": True}
    sampler = TreeSampler(data, 2, "time")
    for loader in (
        NeighborLoader(data, [-1, -1], seeds, batch_size=5, **options),
        NeighborLoader(data, [-1, -1], seeds, batch_size=5, shuffle=True, **options),
    ):
        (batch,) = loader
        edges = []
        trees: dict[str, list[tuple[int, int]]] = {name: [] for name in SIZES}
        cutoffs: list[float] = []
        for name in ("user", "item"):  # in the order of vertex types
            chosen = batch[name].input_id
            assert batch[name].batch_size == len(chosen)
            assert torch.equal(batch[name].seed_time, times[name][chosen])
            for vertex, cutoff in zip(seeds[name][chosen], times[name][chosen], strict=True):
                trees[name].append((len(cutoffs), int(vertex)))
                cutoffs.append(int(cutoff))
        expected = sampler.grow(trees, cutoffs, hetero=True)
        for triple, hops in edges_by_hop(batch).items():
            edges = sorted(number for hop in hops for *_, number in hop)
            assert edges == sorted(expected.edge[triple].tolist())
        for name, hops in vertices_by_hop(batch).items():
            members = sorted(member for hop in hops for member in hop)
            known = zip(expected.batch[name].tolist(), expected.node[name].tolist(), strict=True)
            assert members == sorted(known)


def test_a_graph_is_sampled_by_its_own_times() -> None:
    data = people()
    del data.edge_time
    graph = from_pyg(data, number_edges=True)
    options = {"time_attr": "time", "edge_ids": True, "batch_size": 4}
    for more in ({}, {"input_time": torch.arange(15)}):
        ours = NeighborLoader(graph, [-1, -1], **options, **more)
        for batch, known in zip(
            ours, NeighborLoader(data, [-1, -1], **options, **more), strict=True
        ):
            assert vertices_by_hop(batch) == vertices_by_hop(known)
            assert edges_by_hop(batch) == edges_by_hop(known)
            assert torch.equal(batch.seed_time, known.seed_time)
    # Without time_attr, times bound nothing.
    for more in ({}, {"disjoint": True}):
        (batch,) = NeighborLoader(graph, [-1], batch_size=15, **more)
        assert batch.num_sampled_edges == [70]
        assert "seed_time" not in batch


def test_dates_are_times_of_seeds_and_of_edges() -> None:
    days = np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]")
    index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    data = Data(num_nodes=5, edge_index=index, edge_time=days.astype("datetime64[s]"))
    graph = from_pyg(data.clone())
    (batch,) = NeighborLoader(
        data, [-1], [0], input_time=days[1:2].astype("datetime64[s]"), time_attr="edge_time"
    )
    assert sorted(batch.n_id.tolist()) == [0, 1, 2]
    (batch,) = NeighborLoader(
        graph, [-1], [0], input_time=days[2:3].astype("datetime64[s]"), time_attr="time"
    )
    assert sorted(batch.n_id.tolist()) == [0, 1, 2, 3]
    with one_line("input_time: expected times in s as those of the graph, got day; astype"):
        NeighborLoader(graph, [-1], [0], input_time=days[2:3], time_attr="time")


def test_weights_are_drawn_among_the_allowed_edges() -> None:
    data = people()
    data.edge_weight = (data.edge_time % 3).float()
    options = {"time_attr": "edge_time", "weight_attr": "edge_weight", "edge_ids": True}
    times = torch.full((15,), 6)
    for batch in NeighborLoader(data, [2, 2], input_time=times, batch_size=5, **options):
        assert len(batch.e_id)
        assert (batch.edge_time <= 6).all()
        assert (batch.edge_weight > 0).all()


def test_repeated_seeds_have_trees_without_times() -> None:
    data = people()
    (batch,) = NeighborLoader(data, [2], [4, 4, 1], disjoint=True, batch_size=3, edge_ids=True)
    first, second, _ = (
        [edge[1:] for edge in edges_by_hop(batch)["", "", ""][0] if edge[0] == tree]
        for tree in range(3)
    )
    assert first == second != []
    assert batch.batch[: batch.batch_size].tolist() == [0, 1, 2]


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 16)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def test_relbenchs_script_trains_unchanged() -> None:
    """A row's label tells whether the user has bought something lately, as of the row's time."""
    generator = torch.Generator().manual_seed(0)
    data = shops(1, 90, 100)
    rows = torch.arange(300) % 12
    times = torch.randint(20, 100, (300,), generator=generator)
    bought = data[BOUGHT]
    for triple in (BUYS, BOUGHT):
        data[triple].time = data[triple].pop("edge_time")
    for name in ("user", "item"):
        del data[name].time
    del data[OWNS], data["shop"]
    is_late = (bought.time < times[:, None]) & (bought.time >= times[:, None] - 15)
    labels = (is_late & (bought.edge_index[1] == rows[:, None])).any(1).long()
    data["item"].x[:, 0] = 1
    model = to_hetero(Encoder(), data.metadata())
    head = torch.nn.Linear(16, 2)
    loader = NeighborLoader(
        data,
        num_neighbors=[16, 16],
        time_attr="time",
        input_nodes=("user", rows),
        input_time=times,
        temporal_strategy="last",
        batch_size=60,
        shuffle=True,
        num_workers=2,
    )

    def loss_of(batch: Any) -> torch.Tensor:
        x = dict(batch.x_dict)
        seed_time, store = batch["user"].seed_time, batch[BOUGHT]
        age = seed_time[batch["user"].batch[store.edge_index[1]]] - store.time
        assert (age >= 0).all()
        newest = torch.full((len(x["user"]),), 100.0)
        newest.scatter_reduce_(0, store.edge_index[1], age.float(), "amin")
        x["user"] = torch.cat([x["user"][:, 1:], newest[:, None] / 30], 1)
        out = head(model(x, batch.edge_index_dict)["user"][: batch["user"].batch_size])
        return cross_entropy(out, labels[batch["user"].input_id])

    with torch.no_grad():
        loss_of(next(iter(loader)))
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 0.01)
    losses = []
    for _ in range(8):
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def test_arguments_of_times_that_are_refused() -> None:
    def refused(*words: str, error: Any = None, data: Any = None, **options: Any) -> None:
        arguments = {"num_neighbors": [2], "input_nodes": [0, 1], "time_attr": "time"} | options
        with one_line(*words, **({} if error is None else {"error": error})):
            NeighborLoader(people() if data is None else data, **arguments)

    refused("input_time=[1, 2]: expected None without time_attr", input_time=[1, 2], time_attr=None)
    refused("input_time=", "expected None without", input_time=[1], time_attr=None, disjoint=True)
    refused(
        "time_attr='when': expected an attribute of vertices or edges, got none of x, time, "
        "edge_time",
        time_attr="when",
    )
    refused("time_attr=3: expected the name", time_attr=3)
    refused("disjoint=yes: expected True or False", disjoint="yes")
    refused("temporal_strategy=", "uniform", "last", temporal_strategy="newest")
    refused("input_time: expected a time for each of 2 seeds, got [3]", input_time=[1, 2, 3])
    refused("input_time: expected a time for each of 2 seeds, got []", input_time=torch.tensor(3))
    refused(
        "input_time=None: expected a time for each seed, since the seeds' vertices have no "
        "'edge_time'",
        time_attr="edge_time",
    )
    nan = torch.tensor([1.0, float("nan")])
    refused(
        "input_time: expected integers or datetime64, got float32", error=GraphError, input_time=nan
    )
    nat = np.array(["2024-01-01", "NaT"], "datetime64[s]")
    refused(
        "input_time: expected a time each, got NaT for 1 of 2", error=GraphError, input_time=nat
    )
    floats = people()
    floats.time = torch.full((15,), float("nan"))
    refused(
        "times of vertices",
        "expected integers or datetime64, got float32",
        error=GraphError,
        data=floats,
    )
    refused(
        "temporal_strategy='last': expected 'uniform' with replace",
        replace=True,
        temporal_strategy="last",
    )
    refused(
        "temporal_strategy='last': expected 'uniform' with weight_attr",
        weight_attr="edge_weight",
        temporal_strategy="last",
    )
    refused("output_format='dgl': expected 'pyg' with time_attr", output_format="dgl")
    refused(
        "output_format='dgl': expected 'pyg' with disjoint",
        output_format="dgl",
        time_attr=None,
        disjoint=True,
    )
    hint = "input_nodes: expected distinct ids, got 0 more than once; disjoint=True"
    refused(hint, error=GraphError, input_nodes=[0, 0], time_attr=None)
    typed = shops()
    shop = {"data": typed, "input_nodes": ("shop", [0, 1])}
    refused("input_time=None: expected a time for each seed", **shop)
    refused(
        "input_time: expected times of shop, the vertex types of input_nodes, got user",
        input_time={"user": [1, 2]},
        **shop,
    )
    typed[BUYS].time = typed[BUYS].edge_time
    refused(
        "time_attr='time': expected an attribute of vertices or of edges, got one of both", **shop
    )
    graph = from_pyg(Data(x=torch.rand(3, 1), edge_index=torch.tensor([[0], [1]])))
    refused(
        "time_attr='time': expected None, since graph has no times", error=GraphError, data=graph
    )
    timed = from_pyg(people())
    refused(
        "time_attr='when': expected 'time', the times of graph",
        error=GraphError,
        data=timed,
        time_attr="when",
    )
