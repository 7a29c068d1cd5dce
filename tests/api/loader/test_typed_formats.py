"""Blocks of a DGL heterograph: those of DGL's loader, by the same arguments."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale import GraphError, NeighborLoader

dgl: Any = pytest.importorskip("dgl", reason="DGL is not installed")
pytest.importorskip("torch_geometric", reason="PyG is not installed")

BUYS, BOUGHT, SELLS, KNOWS = (
    ("user", "buys", "item"),
    ("item", "bought_by", "user"),
    ("shop", "sells", "item"),
    ("user", "knows", "user"),
)
SIZES = {"user": 60, "item": 40, "shop": 5}


def shops(seed: int = 0, num_edges: int = 400) -> Any:
    """Users have the class of most of what they buy; shops have no data."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int, size: int = num_edges) -> torch.Tensor:
        return torch.randint(high, (size,), generator=generator)

    kind, favorite, users = draw(2, 40), draw(2, 60), draw(60)
    items = (20 * favorite[users] + draw(20)) % 40
    kind[:20], kind[20:] = 0, 1
    ends = {
        BUYS: (users, items),
        BOUGHT: (items, users),
        SELLS: (draw(5), draw(40)),
        KNOWS: (draw(60, num_edges // 4), draw(60, num_edges // 4)),
    }
    graph = dgl.heterograph(ends, SIZES)
    graph.nodes["user"].data["feat"] = torch.randn(60, 8, generator=generator)
    graph.nodes["item"].data["feat"] = torch.randn(40, 8, generator=generator) + 2 * kind[:, None]
    graph.nodes["user"].data["label"] = favorite
    graph.edges[BUYS].data["weight"] = torch.rand(num_edges, generator=generator)
    return graph


def edges_of(graph: Any, block: Any, triple: Any) -> list[int]:
    """Return the sorted ids of a block's edges, whose ends are those of the graph's edges."""
    source, _, destination = triple
    src, dst = block.edges(etype=triple)
    ids = block.edges[triple].data[dgl.EID]
    ends = block.srcnodes[source].data[dgl.NID][src], block.dstnodes[destination].data[dgl.NID][dst]
    assert all(map(torch.equal, ends, graph.find_edges(ids, etype=triple)))
    return sorted(ids.tolist())


@settings(max_examples=8)
@given(st.integers(0, 1000), st.sampled_from([0, 3, 50, 400]), st.booleans())
def test_all_neighbors_are_those_of_dgl(seed: int, num_edges: int, is_narrow: bool) -> None:
    graph = shops(seed, num_edges)
    graph = graph.int() if is_narrow else graph
    seeds = {
        "item": torch.arange(7).to(graph.idtype),
        "user": torch.tensor([5, 0, 9]).to(graph.idtype),
    }
    # DGL 1.1 loses sources of graphs with 32-bit ids where it fuses sampling and relabeling.
    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(2, fused=False)
    theirs = dgl.dataloading.DataLoader(graph, seeds, sampler, batch_size=4)
    ours = NeighborLoader(graph, [-1, -1], seeds, batch_size=4, output_format="dgl", edge_ids=True)
    assert len(ours) == len(theirs) == 3
    for (inputs, outputs, blocks), (known_inputs, known_outputs, known) in zip(
        ours, theirs, strict=True
    ):
        assert {name: ids.tolist() for name, ids in outputs.items()} == {
            name: ids.tolist() for name, ids in known_outputs.items()
        }
        assert {name: {*ids.tolist()} for name, ids in inputs.items()} == {
            name: {*ids.tolist()} for name, ids in known_inputs.items()
        }
        assert inputs["user"].dtype == blocks[0].idtype == graph.idtype
        for block, expected in zip(blocks, known, strict=True):
            assert block.metagraph().edges(keys=True) == expected.metagraph().edges(keys=True)
            for name in SIZES:
                assert block.num_src_nodes(name) == expected.num_src_nodes(name)
                assert block.num_dst_nodes(name) == expected.num_dst_nodes(name)
                destinations = block.dstnodes[name].data[dgl.NID]
                assert torch.equal(
                    destinations, block.srcnodes[name].data[dgl.NID][: len(destinations)]
                )
            for triple in graph.canonical_etypes:
                assert edges_of(graph, block, triple) == edges_of(graph, expected, triple)


def fanouts_of(fanouts: Any, triple: Any) -> list[int]:
    return fanouts[triple] if isinstance(fanouts, dict) else fanouts


@pytest.mark.parametrize(
    "fanouts", [[3, 2], {BUYS: [2, 4], BOUGHT: [3, -1], SELLS: [0, 1], KNOWS: [5, 0]}]
)
def test_blocks_have_as_many_neighbors_as_the_fan_out(fanouts: Any) -> None:
    graph = shops()
    seeds = {"user": torch.arange(0, 60, 2), "item": torch.arange(40)}
    loader = NeighborLoader(graph, fanouts, seeds, batch_size=32, shuffle=True, output_format="dgl")
    outputs: dict[str, list[int]] = {"user": [], "item": []}
    for inputs, output_nodes, blocks in loader:
        for name, ids in output_nodes.items():
            outputs[name] += ids.tolist()
            assert torch.equal(blocks[-1].dstnodes[name].data[dgl.NID], ids)
            label = blocks[-1].dstnodes[name].data.get("label")
            assert name != "user" or torch.equal(label, graph.nodes["user"].data["label"][ids])
        for name in ("user", "item"):
            rows = blocks[0].srcnodes[name].data["feat"]
            assert torch.equal(rows, graph.nodes[name].data["feat"][inputs[name]])
        for upper, lower in pairwise(blocks):
            for name in SIZES:
                ids = upper.dstnodes[name].data[dgl.NID]
                assert torch.equal(ids, lower.srcnodes[name].data[dgl.NID])
        for hop, block in enumerate(reversed(blocks)):
            for triple in graph.canonical_etypes:
                ids = edges_of(graph, block, triple)
                assert len(ids) == len({*ids})
                vertices = block.dstnodes[triple[2]].data[dgl.NID]
                most = fanouts_of(fanouts, triple)[hop]
                degrees = graph.in_degrees(vertices, etype=triple)
                expected = degrees if most < 0 else degrees.clamp(max=most)
                assert torch.equal(block.in_degrees(etype=triple), expected)
            numbers = block.edges[BUYS].data[dgl.EID]
            weights = graph.edges[BUYS].data["weight"][numbers]
            assert torch.equal(block.edges[BUYS].data["weight"], weights)
    assert sorted(outputs["user"]) == [*range(0, 60, 2)]
    assert sorted(outputs["item"]) == [*range(40)]


def test_threads_change_no_block() -> None:
    def numbers(**options: Any) -> list[list[int]]:
        seeds = {"user": range(60), "item": range(40)}
        common = {"batch_size": 16, "shuffle": True, "seed": 3, "output_format": "dgl"}
        loader = NeighborLoader(shops(), [3, 3], seeds, **common, **options)
        return [
            block.edges[triple].data[dgl.EID].tolist()
            for _, _, blocks in loader
            for block in blocks
            for triple in block.canonical_etypes
        ]

    assert numbers(num_workers=0, num_threads=1) == numbers(num_workers=3, num_threads=2)


def test_a_single_vertex_type_has_no_dictionary_as_in_dgl() -> None:
    ends = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    graph = dgl.heterograph({("n", "a", "n"): ends, ("n", "b", "n"): ends[::-1]})
    for seeds in (torch.tensor([2, 0]), {"n": torch.tensor([2, 0])}):
        sampler = dgl.dataloading.MultiLayerFullNeighborSampler(1)
        theirs = dgl.dataloading.DataLoader(graph, seeds, sampler, batch_size=2)
        ours = NeighborLoader(graph, [-1], seeds, batch_size=2, output_format="dgl")
        for batch, expected in zip(ours, theirs, strict=True):
            assert torch.equal(batch[0], expected[0])
            assert str(batch[1]) == str(expected[1])
    (batch,) = NeighborLoader(graph, [1], batch_size=3, output_format="dgl")
    assert batch[1].tolist() == [0, 1, 2]


def test_names_are_those_of_the_library_of_the_batch() -> None:
    graph = shops()
    graph.nodes["user"].data["x"] = torch.arange(60)
    _, _, blocks = next(iter(NeighborLoader(graph, [2], "user", output_format="dgl")))
    assert blocks[0].srcnodes["user"].data.keys() == {"feat", "label", "x", dgl.NID}
    batch = next(iter(NeighborLoader(graph, [2], {"user": [4], "item": [6, 1]}, batch_size=3)))
    assert torch.equal(batch["item"].x, graph.nodes["item"].data["feat"][batch["item"].n_id])
    assert torch.equal(batch["user"].x, batch["user"].n_id)  # beside a feat
    assert torch.equal(batch["user"].y, graph.nodes["user"].data["label"][batch["user"].n_id])
    assert "edge_weight" in batch[BUYS]
    assert (batch["user"].batch_size, batch["item"].batch_size) == (1, 2)
    assert batch["item"].input_id.tolist() == [0, 1]
    assert batch["item"].n_id[:2].tolist() == [6, 1]
    homogeneous = dgl.graph((torch.tensor([0]), torch.tensor([1])))
    homogeneous.ndata["x"], homogeneous.ndata["feat"] = torch.ones(2, 1), torch.zeros(2, 1)
    ((_, _, (block,)),) = NeighborLoader(homogeneous, [1], batch_size=2, output_format="dgl")
    assert block.srcdata["x"].tolist() == [[1], [1]]
    assert block.srcdata["feat"].tolist() == [[0], [0]]


def test_probabilities_are_of_edge_types() -> None:
    graph = shops()
    for triple in graph.canonical_etypes:
        odd = (torch.arange(graph.num_edges(triple)) % 2).float()
        graph.edges[triple].data["weight"] = odd
    for name in ("weight", "edge_weight"):
        options = {"prob": name, "batch_size": 60, "output_format": "dgl"}
        ((_, _, blocks),) = NeighborLoader(graph, [-1, 3], "user", **options)
        for block in blocks:
            for triple in graph.canonical_etypes:
                assert all(number % 2 for number in edges_of(graph, block, triple))


class RGCN(torch.nn.Module):
    """The stochastic R-GCN of DGL's guide to mini-batches."""

    def __init__(self, relations: list[str]) -> None:
        super().__init__()
        self.conv1, self.conv2 = (
            dgl.nn.HeteroGraphConv(
                {name: dgl.nn.GraphConv(*width, norm="right") for name in relations}
            )
            for width in ((8, 16), (16, 2))
        )

    def forward(self, blocks: Any, x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        x = {name: rows.relu() for name, rows in self.conv1(blocks[0], x).items()}
        return self.conv2(blocks[1], x)


def test_dgls_example_of_rgcn_trains_with_one_line_changed() -> None:
    torch.manual_seed(0)
    graph = dgl.node_type_subgraph(shops(), ["user", "item"])
    model = RGCN(graph.etypes)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    train = {"user": torch.arange(40)}
    loader = NeighborLoader(graph, [8, 8], train, batch_size=16, shuffle=True, output_format="dgl")
    for _ in range(8):
        for _, _, blocks in loader:
            predicted = model(blocks, blocks[0].srcdata["feat"])["user"]
            labels = blocks[-1].dstdata["label"]["user"]
            loss = torch.nn.functional.cross_entropy(predicted, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    test = NeighborLoader(
        graph, [-1, -1], ("user", range(40, 60)), batch_size=20, output_format="dgl"
    )
    ((_, outputs, blocks),) = test
    answer = model(blocks, blocks[0].srcdata["feat"])["user"].argmax(1)
    assert (answer == graph.nodes["user"].data["label"][outputs["user"]]).float().mean() >= 0.9


def test_what_is_refused() -> None:
    def refused(*words: str, error: Any = None, **options: Any) -> None:
        arguments = {"num_neighbors": [2], "input_nodes": "user", "output_format": "dgl"} | options
        with one_line(*words, **({} if error is None else {"error": error})):
            NeighborLoader(shops(), **arguments)

    message = "expected a vertex type (item, shop, user), a pair such as ('item', ids), or a dict"
    for seeds in (None, {}, "buyer", {"user": [1], "buyer": [2]}, [1, 2], torch.tensor([1, 2])):
        refused(message, input_nodes=seeds)
    twice = {"user": [1], "item": [3, 3]}
    refused("input_nodes['item']: expected distinct ids", error=GraphError, input_nodes=twice)
    beyond = {"user": [60], "item": [3]}
    refused("input_nodes['user']: vertex id 60", error=GraphError, input_nodes=beyond)
    refused("item-bought_by-user is missing", num_neighbors={BUYS: [1], SELLS: [1], KNOWS: [1]})
    refused(
        "weights 'weight' of data[('item', 'bought_by', 'user')]", error=GraphError, prob="weight"
    )
