from dataclasses import replace

import numpy as np
import pytest
import torch
from model_runs import edge_index
from typed_batches import SCHEMA, SEEDS, typed_inputs, typed_sampler

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.nn import APPNP, HGT, RSAGE, SGC, GraphSAGE
from gnnscale.nn.link_decoder import (
    LINK_OBJECTIVES,
    EdgeGNN,
    EdgeNetwork,
    LinkGNN,
    initialize_rows,
    make_decoder,
    with_decoder,
    with_network,
)
from gnnscale.run.tasks.options import LINK_LOSSES
from gnnscale.sampling import NeighborSampler
from gnnscale.sampling.minibatch import Links


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_scores_are_those_of_rows_pair_by_pair(tiny_graph, decoder):
    gnn = GraphSAGE(hidden=4, dropout=0).build(num_features=2, num_classes=4)
    model = LinkGNN(gnn, make_decoder(decoder, 4)).eval()
    batch = NeighborSampler(tiny_graph, fanouts=[-1, -1]).sample(np.array([0, 1, 3]), 0)
    inputs = FeatureLoader(tiny_graph, model, num_threads=1).load(batch)
    rows = model(batch, inputs)
    assert rows.shape == (3, 4)
    links = Links(sources=np.int32([0, 2]), destinations=np.int32([[1, 2], [0, 0]]))
    scores = model(replace(batch, links=links), inputs)
    pairs = [(0, 1), (0, 2), (2, 0), (2, 0)]
    expected = [model.decoder(rows[source], rows[target]) for source, target in pairs]
    assert torch.allclose(scores.flatten(), torch.stack(expected))
    scores.sum().backward()
    assert all(each.grad is not None for each in model.parameters())


@pytest.mark.parametrize("num_edge_features", [0, 3])
def test_outputs_of_edges_are_of_both_ends_and_features(tiny_graph, num_edge_features):
    gnn = GraphSAGE(hidden=4, dropout=0).build(num_features=2, num_classes=4)
    model = EdgeGNN(gnn, EdgeNetwork(4, num_edge_features, 5)).eval()
    batch = NeighborSampler(tiny_graph, fanouts=[-1, -1]).sample(np.array([0, 1, 3]), 0)
    inputs = FeatureLoader(tiny_graph, model, num_threads=1).load(batch)
    rows = model(batch, inputs)
    features = np.arange(2 * num_edge_features, dtype=np.float32).reshape(2, -1)
    ends = {"sources": np.int32([0, 2]), "destinations": np.int32([[1], [0]])}
    read = features if num_edge_features else None
    links = Links(rows=np.array([7, 3]), features=read, **ends)
    outputs = model(replace(batch, links=links), inputs)
    for row, (source, target) in enumerate([(0, 1), (2, 0)]):
        both = torch.cat([rows[source], rows[target], torch.from_numpy(features[row])])
        hidden = (model.network.hidden.weight @ both + model.network.hidden.bias).relu()
        expected = model.network.output.weight @ hidden + model.network.output.bias
        assert torch.allclose(outputs[row], expected, atol=1e-6)
    outputs.sum().backward()
    assert all(each.grad is not None for each in model.parameters())


def dense_hops(graph):
    """``D^-1/2 (A + I) D^-1/2`` of the whole graph, float64; row v has what v receives."""
    edges = torch.eye(graph.num_vertices, dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    edges = edges.index_put(tuple(edge_index(graph).flip(0)), one, accumulate=True)
    roots = edges.sum(1).rsqrt()
    return roots[:, None] * edges * roots


def dense_rows(gnn, graph):
    """Output rows of SGC, or of APPNP with its alpha of 0.2, over the whole graph."""
    hops, x = dense_hops(graph), torch.from_numpy(graph.features).double()
    if gnn.encoder is None:
        for _ in gnn.layers:
            x = hops @ x
        return x @ gnn.layers[0].linear.weight.T.double() + gnn.layers[-1].bias.double()
    h = z = gnn.encoder.double()(x)
    gnn.encoder.float()
    for _ in gnn.layers:
        z = 0.8 * (hops @ z) + 0.2 * h
    return z


@pytest.mark.parametrize(
    ("model", "num_layers"), [(SGC(hidden=6), 3), (APPNP(hidden=6, alpha=0.2, dropout=0.0), 2)]
)
def test_edges_by_rows_of_hops_are_those_of_the_whole_graph(random_graph, model, num_layers):
    """By blocks of all neighbors of the ends, as by the matrix of the whole graph."""
    graph = random_graph()
    config = replace(model, num_layers=num_layers)
    built = [config.build(num_features=20, num_classes=config.row_width) for _ in range(2)]
    if model.name == "SGC":
        for gnn in built:
            torch.nn.init.uniform_(gnn.layers[-1].bias)
    network = EdgeNetwork(6, 0, 3)
    models = LinkGNN(built[0], make_decoder("dot", 6)), EdgeGNN(built[1], network)
    seeds = np.array([3, 5, 20, 41])
    sources, destinations = np.int32([0, 3, 1]), np.int32([[1], [2], [0]])
    pairs = Links(sources=sources, destinations=destinations, rows=np.arange(3))
    for each in models:
        batch = NeighborSampler(graph, fanouts=[-1] * num_layers).sample(seeds, 0)
        inputs = FeatureLoader(graph, each, num_threads=1).load(batch)
        found = each(replace(batch, links=pairs), inputs)
        rows = dense_rows(each, graph)[seeds]
        assert rows.shape == (4, 6)
        one, other = rows[[0, 3, 1]], rows[[1, 2, 0]]
        is_link = isinstance(each, LinkGNN)
        products = (one * other).sum(1, keepdim=True)
        expected = products if is_link else network.double()(one, other, None)
        assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-5)
        found.sum().backward()
        assert all(part.grad is not None for part in each.parameters())


@pytest.mark.parametrize("config", [RSAGE(hidden=8, dropout=0), HGT(hidden=8, dropout=0)])
def test_edges_between_vertices_of_any_types(config):
    """Positions are those of the seeds, type after type, whose rows the model returns."""
    widths = (5, 6, 7, 3)
    gnn = config.build_typed(schema=SCHEMA, widths=widths, num_classes=8).eval()
    batch = typed_sampler(SCHEMA, [3, 2]).sample(SEEDS, 0)
    inputs = typed_inputs(SCHEMA, widths, batch)
    rows = gnn(batch, inputs).detach()
    assert rows.shape == (len(SEEDS), 8)
    links = Links(sources=np.int32([0, 6]), destinations=np.int32([[5, 4], [1, 2]]))
    model = with_decoder(gnn, make_decoder("dot", 8))
    assert torch.equal(model(batch, inputs), rows)
    scores = model(replace(batch, links=links), inputs)
    expected = [[rows[u] @ rows[v] for v in vs] for u, vs in ((0, (5, 4)), (6, (1, 2)))]
    assert torch.allclose(scores, torch.tensor(expected), rtol=1e-5)
    network = EdgeNetwork(8, 0, 3)
    ends = replace(links, destinations=links.destinations[:, :1], rows=np.arange(2))
    outputs = with_network(gnn, network)(replace(batch, links=ends), inputs)
    assert torch.allclose(outputs, network(rows[[0, 6]], rows[[5, 1]], None))
    assert "decoder" not in dict(gnn.named_children())


def test_loss_by_hand(tiny_graph):
    batch = NeighborSampler(tiny_graph, fanouts=[1]).sample(np.array([0]), 0)
    scores = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    expected = -torch.cat([scores[:, 0], -scores[:, 1]]).sigmoid().log().mean()
    ranking = -(scores[:, 0] - scores[:, 1]).sigmoid().log().mean()
    among = -scores.softmax(1)[:, 0].log().mean()
    for name, value in {"bce": expected, "bpr": ranking, "softmax": among}.items():
        assert LINK_OBJECTIVES[name](scores, batch).item() == pytest.approx(value.item())
        assert LINK_OBJECTIVES[name](torch.zeros(0, 2), batch).item() == 0
    assert tuple(LINK_OBJECTIVES) == LINK_LOSSES


def test_a_hard_negative_has_the_larger_gradient_of_the_softmax(tiny_graph):
    batch = NeighborSampler(tiny_graph, fanouts=[1]).sample(np.array([0]), 0)
    scores = torch.tensor([[0.0, 2.0, -1.0]], requires_grad=True)
    LINK_OBJECTIVES["softmax"](scores, batch).backward()
    share = scores.detach().softmax(1)[0].tolist()
    assert scores.grad[0].tolist() == pytest.approx([share[0] - 1, share[1], share[2]])


def test_initial_rows_have_the_bounds_of_each_half():
    gnn = GraphSAGE(hidden=40).build(num_features=200, num_classes=40)
    initialize_rows(gnn)
    for index, (inputs, outputs) in enumerate([(200, 40), (40, 40)]):
        bound = (2 * 6 / (inputs + outputs)) ** 0.5
        for half in gnn.layers[index].linear.weight.chunk(2, dim=1):
            assert 0.97 * bound < half.abs().max() <= bound
        assert 0.8 < gnn.layers[index].linear.bias.abs().max() * inputs**0.5 <= 1


def test_initial_rows_of_types_are_as_large_as_without_types():
    gnn = RSAGE(hidden=400).build_typed(schema=SCHEMA, widths=(5, 6, 7, 3), num_classes=400)
    initialize_rows(gnn)
    product, edge_types = gnn.layers[0].linears[0], gnn.layers[0].incoming[0]
    assert len(edge_types) == 3
    bound = (2 * 6 / 800 * 2 / 4) ** 0.5
    for part in product.weight.chunk(4, dim=1):
        assert 0.97 * bound < part.abs().max() <= bound
    assert 0.8 < product.bias.abs().max() * 400**0.5 <= 1
