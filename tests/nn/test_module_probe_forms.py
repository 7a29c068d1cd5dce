import numpy as np
import own_modules
import pytest
import torch
from model_runs import edge_index
from torch import nn

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.nn import CustomModel
from gnnscale.nn.adapters import to_sampled_subgraph
from gnnscale.nn.module_probe import CALLS, likely_forms, tiny_batch, tiny_rows
from gnnscale.sampling import NeighborSampler

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
