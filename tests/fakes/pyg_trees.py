"""PyG's temporal sampling in plain Python, for PyG's own loaders: pyg-lib may not be installed."""

from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

#: A vertex of a tree: number of the tree, and id in its type.
Member = tuple[int, int]


def vertex_types(data: Any) -> list[str]:
    return data.node_types if isinstance(data, HeteroData) else [""]


def edges_of(data: Any) -> dict[Any, list[tuple[int, int]]]:
    """Return the ends of the edges of each type; without types, of ``("", "", "")``."""
    index = data.edge_index_dict if isinstance(data, HeteroData) else {("",) * 3: data.edge_index}
    return {triple: list(map(tuple, ends.T.tolist())) for triple, ends in index.items()}


def times_of(data: Any, time_attr: str | None) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Return the times of vertices by type, and those of edges; types may lack them."""
    if time_attr is None:
        return {}, {}
    if isinstance(data, Data):
        values = data[time_attr].tolist()
        is_of_vertices = data.is_node_attr(time_attr)
        return ({"": values}, {}) if is_of_vertices else ({}, {("",) * 3: values})
    of_types = {key: times.tolist() for key, times in data.collect(time_attr).items()}
    of_edges = {key: times for key, times in of_types.items() if isinstance(key, tuple)}
    return {key: times for key, times in of_types.items() if isinstance(key, str)}, of_edges


class TreeSampler(BaseSampler):
    """Sampler of a tree for each seed, with all neighbors, edge by edge.

    "If set, temporal sampling will be used such that neighbors are guaranteed to fulfill temporal
    constraints, i.e. neighbors have an earlier or equal timestamp than the center node": the seed.
    """

    edge_permutation = None

    def __init__(self, data: Any, num_hops: int, time_attr: str | None = None) -> None:
        self.data, self.num_hops = data, num_hops
        self.edges = edges_of(data)
        self.vertex_times, self.edge_times = times_of(data, time_attr)

    def is_allowed(self, triple: Any, number: int, cutoff: float) -> bool:
        """Whether an edge is in the trees of seeds of time ``cutoff``."""
        if triple in self.edge_times:
            return self.edge_times[triple][number] <= cutoff
        times = self.vertex_times.get(triple[0])
        return times is None or times[self.edges[triple][number][0]] <= cutoff

    def allowed(self, triple: Any, vertex: int, cutoff: float) -> list[int]:
        """Return the numbers of a vertex's edges in the trees of seeds of time ``cutoff``."""
        return [
            number
            for number, (_, v) in enumerate(self.edges[triple])
            if v == vertex and self.is_allowed(triple, number, cutoff)
        ]

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> Any:
        return node_sample(index, self.sample)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        hetero = isinstance(self.data, HeteroData)
        count = self.data.num_nodes_dict if hetero else self.data.num_nodes
        times = {key: torch.tensor(values) for key, values in self.vertex_times.items()}
        node_time = times if hetero else times.get("")
        return edge_sample(index, self.sample, count, True, node_time, neg_sampling)

    def sample(self, seed: Any, seed_time: Any = None) -> Any:
        hetero = isinstance(seed, dict)
        seeds = seed if hetero else {"": seed}
        given = seed_time if hetero or seed_time is None else {"": seed_time}
        cutoffs: list[float] = []
        trees: dict[str, list[Member]] = {name: [] for name in vertex_types(self.data)}
        for name, ids in seeds.items():
            trees[name] = [(len(cutoffs) + i, vertex) for i, vertex in enumerate(ids.tolist())]
            own = self.vertex_times.get(name)
            if given is not None:
                cutoffs += given[name].tolist()
            else:
                cutoffs += [float("inf") if own is None else own[v] for v in ids.tolist()]
        return self.grow(trees, cutoffs, hetero=hetero)

    def grow(self, trees: dict[str, list[Member]], cutoffs: list[float], *, hetero: bool) -> Any:
        counts = {name: [len(members)] for name, members in trees.items()}
        edges: dict[Any, list[tuple[Member, Member, int]]] = {triple: [] for triple in self.edges}
        hops: dict[Any, list[int]] = {triple: [] for triple in self.edges}
        frontier = {name: list(members) for name, members in trees.items()}
        for _ in range(self.num_hops):
            new: dict[str, list[Member]] = {name: [] for name in trees}
            for triple, ends in self.edges.items():
                picked = [
                    ((tree, ends[number][0]), (tree, v), number)
                    for tree, v in frontier[triple[2]]
                    for number in self.allowed(triple, v, cutoffs[tree])
                ]
                edges[triple] += picked
                hops[triple].append(len(picked))
                new[triple[0]] += [source for source, _, _ in picked]
            for name, members in trees.items():
                frontier[name] = sorted({*new[name]}.difference(members))
                members += frontier[name]
                counts[name].append(len(frontier[name]))
        local = {name: {key: i for i, key in enumerate(keys)} for name, keys in trees.items()}

        def column(values: Any) -> Any:
            tensors = {key: torch.tensor(of, dtype=torch.long) for key, of in values.items()}
            return tensors if hetero else next(iter(tensors.values()))

        sampled = (
            column({name: [v for _, v in members] for name, members in trees.items()}),
            column({t: [local[t[0]][u] for u, _, _ in of] for t, of in edges.items()}),
            column({t: [local[t[2]][v] for _, v, _ in of] for t, of in edges.items()}),
            column({t: [number for _, _, number in of] for t, of in edges.items()}),
            column({name: [tree for tree, _ in members] for name, members in trees.items()}),
        )
        if not hetero:
            return SamplerOutput(*sampled, counts[""], hops[("",) * 3])
        return HeteroSamplerOutput(*sampled, counts, hops)


def stores_of(batch: Any) -> dict[Any, Any]:
    """Return the stores of a batch by vertex and edge type."""
    if isinstance(batch, Data):
        return {"": batch._store}
    return {**batch._node_store_dict, **batch._edge_store_dict}


def vertices_by_hop(batch: Any) -> dict[str, list[list[Member]]]:
    """Return by vertex type the sorted vertices that hops add to trees; seeds in their order."""
    result = {}
    for name, store in stores_of(batch).items():
        if isinstance(name, str):
            members = list(zip(store.batch.tolist(), store.n_id.tolist(), strict=True))
            hops = split(members, store.num_sampled_nodes)
            result[name] = [hops[0], *map(sorted, hops[1:])]
    return result


def edges_by_hop(batch: Any) -> dict[Any, list[list[tuple[int, int, int, int]]]]:
    """Return by edge type the sorted edges of hops: tree, source, destination and number."""
    stores, result = stores_of(batch), {}
    for key, store in stores.items():
        triple = key if isinstance(key, tuple) else ("",) * 3
        if "edge_index" not in store:
            continue
        (src, dst), (source, _, destination) = store.edge_index, triple
        numbers = stores[source].batch[src], stores[destination].batch[dst]
        assert torch.equal(*numbers)
        columns = (
            *(numbers[0], stores[source].n_id[src], stores[destination].n_id[dst]),
            store.e_id,
        )
        edges = list(zip(*(column.tolist() for column in columns), strict=True))
        result[triple] = [sorted(hop) for hop in split(edges, store.num_sampled_edges)]
    return result


def split(values: list[Any], sizes: list[int]) -> list[list[Any]]:
    assert len(values) == sum(sizes)
    remaining = iter(values)
    return [[next(remaining) for _ in range(size)] for size in sizes]


def check_trees(batch: Any, expected: Any, *, ours: frozenset[str] = frozenset()) -> None:
    """Compare a batch with PyG's: all but the order of vertices and edges in a hop.

    Attributes ``ours`` are none of PyG's.
    """
    stores, other_stores = stores_of(batch), stores_of(expected)
    assert stores.keys() == other_stores.keys()
    for key, store in stores.items():
        other = other_stores[key]
        assert {*store.keys()} - ours == {*other.keys()}, key
        for name, known in other.items():
            values = store[name]
            assert type(values) is type(known), name
            if isinstance(values, torch.Tensor):
                assert values.dtype == known.dtype, name
                assert values.shape == known.shape, name
    for name in ("input_id", "batch_size", "seed_time", "edge_label_time", "edge_label"):
        for key, store in other_stores.items():
            if name in store:
                assert torch.equal(torch.as_tensor(stores[key][name]), torch.as_tensor(store[name]))
    assert vertices_by_hop(batch) == vertices_by_hop(expected)
    assert edges_by_hop(batch) == edges_by_hop(expected)
