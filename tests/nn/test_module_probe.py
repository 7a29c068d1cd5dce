from typing import Any

import numpy as np
import own_modules
import pytest
import torch
from model_runs import edge_index
from torch import nn

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.nn import CustomModel, GraphSAGE, Inputs
from gnnscale.nn.adapters import to_sampled_subgraph
from gnnscale.nn.module_probe import CALLS, count_cost, likely_forms, tiny_batch, tiny_rows
from gnnscale.sampling import NeighborSampler


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_every_hop_draws_the_same_neighbours(num_layers: int) -> None:
    batch = tiny_batch(num_layers, vertices=[1, 2], edges=[3])
    assert len(batch.blocks) == num_layers
    assert batch.num_seeds == 5
    sources = len(batch.input_vertices)
    last: list[list[int]] = []
    for block in batch.blocks:
        assert block.num_src == sources
        assert block.indices.max() < block.num_src
        lists = [each.tolist() for each in np.split(block.indices, block.indptr[1:-1])]
        assert [] in lists
        assert last[: block.num_dst] == lists or not last
        last, sources = lists, block.num_dst
    assert sources == batch.num_seeds


def sizes_of(batch):
    return [(each.num_dst, each.num_edges) for each in batch.blocks]


def test_more_of_one_kind_is_more_of_it_alone() -> None:
    base, seeds, edges = tiny_batch(2), tiny_batch(2, vertices=[5]), tiny_batch(2, edges=[0, 5])
    assert sizes_of(seeds) == [(13, 12), (9, 6)]
    assert sizes_of(base) == [(8, 12), (4, 6)]
    assert sizes_of(edges) == [(8, 17), (4, 6)]


def batches(num_layers: int, width: int) -> Any:
    def make(**added: Any) -> Any:
        batch = tiny_batch(num_layers, **added)
        return batch, tiny_rows(batch, width)

    return make


def test_counted_products_are_those_that_layers_state() -> None:
    torch.manual_seed(0)
    model = GraphSAGE(hidden=8, dropout=0.0).build(num_features=6, num_classes=3).eval()

    def call(batch, x):
        return model(batch, Inputs(x=x, aggregated=False))

    cost = count_cost(model, call, batches(2, 6), (6, 3))
    # Forward, and backward of the weights; of the second layer's input as well.
    assert cost.macs[:3] == (0, 2 * 12 * 8, 3 * 16 * 3)
    assert cost.macs[3:] == (0, 0)
    assert cost.widths == (6, 3)
    assert all(each.grad is None for each in model.parameters())
    size = {"vertices": [100, 50, 10], "edges": [300, 60]}
    assert cost.work(**size).macs == 50 * cost.macs[1] + 10 * cost.macs[2]
    names = "edges", "targets", "sources"
    amounts = [dict(zip(names, each, strict=True)) for each in ((300, 50, 100), (60, 10, 50))]
    stated = [
        layer.forward(**each, aggregated=False) + layer.backward(**each, first=index == 0)
        for index, (layer, each) in enumerate(zip(model.layer_costs, amounts, strict=True))
    ]
    assert cost.work(**size).macs == sum(each.macs for each in stated)
    assert cost.work(**size).operations == sum(each.operations for each in stated)
    assert 0 < cost.activation_bytes(**size) <= cost.work(**size).stream_bytes


def test_edges_count_where_messages_are_made() -> None:
    class Messages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, batch, x):
            src, dst = edge_index(batch.blocks[0])
            return torch.zeros(batch.num_seeds, 2).index_add(0, dst, self.linear(x[src]))

    module = Messages()
    cost = count_cost(module, module, batches(1, 4), (4, 2))
    assert cost.macs == (0, 0, 2 * 4 * 2)
    assert cost.kept_bytes[2] >= 4 * 4


def test_rows_leave_torch_s_numbers_alone() -> None:
    before = torch.get_rng_state()
    rows = tiny_rows(tiny_batch(2), 7)
    assert rows.shape == (12, 7)
    assert torch.equal(torch.get_rng_state(), before)


FORMS = {
    own_modules.PyGBipartite: "pyg_bipartite",
    own_modules.PyGLayers: "pyg",
    own_modules.PyGOneGraph: "pyg_trimmed",
    own_modules.DGLBlocks: "dgl",
    own_modules.OwnBlocks: "blocks",
}


def needed(module: type) -> None:
    for prefix, library in (("PyG", "torch_geometric"), ("DGL", "dgl")):
        if module.__name__.startswith(prefix):
            pytest.importorskip(library)


@pytest.mark.parametrize("module", FORMS)
def test_names_of_arguments_speak_for_a_form(module: type) -> None:
    needed(module)
    built = module(5, 4, 3, 2)
    forms = likely_forms(built)
    assert forms[0] == FORMS[module]
    assert sorted(forms) == sorted(CALLS)


@pytest.mark.parametrize("module", FORMS)
def test_all_forms_have_one_answer_over_the_same_neighbours(module: type) -> None:
    needed(module)
    batch = tiny_batch(3)
    x = tiny_rows(batch, 5)
    torch.manual_seed(0)
    expected = own_modules.OwnBlocks(5, 4, 3, 3)(batch, x)
    torch.manual_seed(0)
    built, form = module(5, 4, 3, 3), CALLS[FORMS[module]]
    out = form.call(built, batch, x)[: batch.num_seeds]
    torch.testing.assert_close(out, expected)
    for index, block in enumerate(batch.blocks):
        x = form.infer(built, index, block, x)
    torch.testing.assert_close(x, expected)


def test_a_module_that_takes_hops_is_given_them() -> None:
    class Hops(nn.Module):
        def forward(self, x, edge_index, num_sampled_nodes_per_hop, num_sampled_edges_per_hop):
            self.seen = num_sampled_nodes_per_hop, num_sampled_edges_per_hop
            return x

    module, batch = Hops(), tiny_batch(2)
    CALLS["pyg_trimmed"].call(module, batch, tiny_rows(batch, 2))
    assert module.seen == ([4, 4, 4], [6, 6])


@pytest.mark.parametrize("fanouts", [[-1, -1], [4, 3], [3, 3, 2]])
def test_one_edge_index_is_as_pyg_s_loader_gives_it(random_graph, fanouts) -> None:
    graph = random_graph()
    batch = NeighborSampler(graph, fanouts=fanouts).sample(np.arange(40), 0)
    ends, vertices, edges = to_sampled_subgraph(batch)
    assert sum(vertices) == len(batch.input_vertices)
    assert sum(edges) == ends.shape[1]
    reached, first = np.cumsum(vertices), 0
    degrees = np.diff(graph.indptr)
    for hop, count in enumerate(edges):
        source, target = ends[:, first : first + count].numpy()
        # A hop expands the vertices that the one before it found, and each of them once.
        assert set(target) <= set(range(0 if hop == 0 else reached[hop - 1], reached[hop]))
        assert source.max() < reached[hop + 1]
        new = batch.input_vertices[0 if hop == 0 else reached[hop - 1] : reached[hop]]
        limit = degrees.max() if fanouts[hop] < 0 else fanouts[hop]
        assert count == np.minimum(degrees[new], limit).sum()
        first += count
    for source, target in batch.input_vertices[ends.numpy()].T:
        assert source in graph.indices[graph.indptr[target] : graph.indptr[target + 1]]


def test_pyg_s_model_over_all_neighbours_is_that_of_the_whole_graph(random_graph) -> None:
    geometric = pytest.importorskip("torch_geometric.nn")
    graph = random_graph()
    options = CustomModel(module=geometric.GraphSAGE, hidden=8, num_layers=3)
    model = options.build(num_features=graph.num_features, num_classes=5).eval()
    assert model.form == "pyg_trimmed"
    batch = NeighborSampler(graph, fanouts=[-1, -1, -1]).sample(np.arange(40, 90), 0)
    out = model(batch, FeatureLoader(graph, model, num_threads=1).load(batch))
    expected = model.module(torch.from_numpy(np.asarray(graph.features)), edge_index(graph))
    torch.testing.assert_close(out, expected[40:90])
