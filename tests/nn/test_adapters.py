import importlib
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import own_modules
import pytest
import torch
from model_runs import edge_index
from one_line import one_line
from torch import nn
from typed_batches import SCHEMA, SEEDS, typed_sampler, weighted
from typed_modules import purchases

import gnnscale
from gnnscale import Graph, LayerSampler, NeighborSampler
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.data import from_arrays
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.nn import GAT, GCN, GIN, GNN, GraphSAGE, adapters
from gnnscale.nn.adapters import whole_batch
from gnnscale.sampling import Block, MiniBatch, TypedSampler

#: Vertices 10 to 14; 0 <- 1, 2; 1 <- 1 in the output layer, 0 <- 3; 2 <- 0, 4 before it.
TINY = MiniBatch(
    seed=0,
    step=0,
    num_seeds=2,
    input_vertices=np.array([10, 11, 12, 13, 14], np.int32),
    blocks=(
        Block(indptr=np.array([0, 1, 1, 3]), indices=np.array([3, 0, 4], np.int32), num_src=5),
        Block(indptr=np.array([0, 2, 3]), indices=np.array([1, 2, 1], np.int32), num_src=3),
    ),
)


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph()


def test_edge_indices_of_a_tiny_batch() -> None:
    first, second = adapters.to_edge_indices(TINY)
    assert first.tolist() == [[3, 0, 4], [0, 2, 2]]
    assert second.tolist() == [[1, 2, 1], [0, 0, 1]]
    assert first.dtype == torch.int64
    assert [adj.size for adj in adapters.to_adjacencies(TINY)] == [(5, 3), (3, 2)]
    assert [adj.e_id for adj in adapters.to_adjacencies(TINY)] == [None, None]
    assert torch.equal(adapters.to_adjacencies(TINY)[1].edge_index, second)


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_dgl_blocks_of_a_tiny_batch(idtype: torch.dtype) -> None:
    dgl = pytest.importorskip("dgl", reason="DGL is not installed")
    first, second = adapters.to_dgl_blocks(TINY, idtype=idtype)
    assert [end.tolist() for end in first.edges()] == [[3, 0, 4], [0, 2, 2]]
    assert [end.tolist() for end in second.edges()] == [[1, 2, 1], [0, 0, 1]]
    assert first.is_block
    assert first.idtype == second.idtype == idtype
    assert (first.num_src_nodes(), first.num_dst_nodes()) == (5, 3)
    assert first.srcdata[dgl.NID].tolist() == [10, 11, 12, 13, 14]
    assert second.dstdata[dgl.NID].tolist() == [10, 11]


def test_importance_goes_to_dgl_and_nowhere_in_pyg(graph: Graph) -> None:
    batch = LayerSampler(graph, layer_sizes=[20, 20]).sample(np.arange(50), 0)
    with pytest.raises(ValueError, match="expected edges of neighbor sampling, got layer-wise"):
        adapters.to_edge_indices(batch)
    pytest.importorskip("dgl", reason="DGL is not installed")
    for block, ours in zip(adapters.to_dgl_blocks(batch), batch.blocks, strict=True):
        assert np.array_equal(block.edata["importance"], ours.importance)


SIZES = (20, 8, 5, 2)
MODELS = {
    "dgl": lambda: adapters.DGLModel(own_modules.DGLBlocks(*SIZES)),
    "pyg": lambda: adapters.PyGModel(own_modules.PyGLayers(*SIZES)),
    "pyg bipartite": lambda: adapters.PyGModel(own_modules.PyGBipartite(*SIZES), bipartite=True),
}


def build(name: str) -> nn.Module:
    pytest.importorskip("dgl" if name == "dgl" else "torch_geometric")
    return MODELS[name]()


def whole_graph_output(model: nn.Module, graph: Graph) -> torch.Tensor:
    """The module's layers on the whole graph, by the library that it is written for."""
    x, whole = torch.from_numpy(graph.features), edge_index(graph)
    if isinstance(model, adapters.DGLModel):
        whole = importlib.import_module("dgl").graph(tuple(whole), num_nodes=graph.num_vertices)
        first, second = (lambda h, layer=layer: layer(whole, h) for layer in model.module.convs)
    else:
        first, second = (lambda h, layer=layer: layer(h, whole) for layer in model.module.convs)
    return second(torch.relu(first(x)))


@pytest.mark.parametrize("name", MODELS)
def test_all_neighbours_give_the_output_of_the_whole_graph(graph: Graph, name: str) -> None:
    model = build(name)
    loader = FeatureLoader(graph, model, num_threads=1)
    batch = NeighborSampler(graph, fanouts=[-1, -1]).sample(np.arange(40, 90), 0)
    out = model(batch, loader.load(batch))
    torch.testing.assert_close(out, whole_graph_output(model, graph)[40:90])


def test_the_two_forms_of_pyg_agree_on_sampled_batches(graph: Graph) -> None:
    bipartite, plain = build("pyg bipartite"), build("pyg")
    plain.load_state_dict(bipartite.state_dict())
    batch = NeighborSampler(graph, fanouts=[4, 3]).sample(np.arange(100), 0)
    inputs = FeatureLoader(graph, plain, num_threads=1).load(batch)
    out = plain(batch, inputs)
    assert out.shape == (100, 5)
    torch.testing.assert_close(out, bipartite(batch, inputs))


def test_a_missing_dgl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ImportError, match=r"DGL is not installed; pip install '\.\[dgl\]'"):
        adapters.to_dgl_blocks(TINY)


X = torch.arange(8.0).reshape(4, 2)
EDGES = torch.tensor([[3, 0, 1], [1, 1, 2]])


def model_of(config: type, **options: object) -> GNN:
    return config(hidden=8, num_layers=2, **options).build(num_features=2, num_classes=3).eval()


def test_every_vertex_is_a_seed_with_all_its_neighbours() -> None:
    batch, inputs = whole_batch(X, EDGES, torch.tensor([0.5, 2.0, 1.0]), num_layers=2)
    assert len(batch.blocks) == 2
    block = batch.blocks[0]
    assert block.indptr.tolist() == [0, 0, 2, 3, 3]
    assert block.indices.tolist() == [3, 0, 1]
    assert block.edge_weights.tolist() == [0.5, 2.0, 1.0]
    assert block.weight_sums.tolist() == [0.0, 2.5, 1.0, 0.0]
    assert (batch.num_seeds, batch.seeds.tolist()) == (4, [0, 1, 2, 3])
    assert inputs.degrees.tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize(
    ("config", "weighted"),
    [(GAT, False), *((each, weighted) for each in (GCN, GraphSAGE, GIN) for weighted in (0, 1))],
)
def test_rows_are_those_of_inference_layer_by_layer(config: type, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 30, (2, 200))
    x = rng.standard_normal((30, 2), np.float32)
    weights = rng.random(200, np.float32) if weighted else None
    graph = from_arrays(tuple(edges), x, np.zeros(30, np.int64), edge_weights=weights)
    model = model_of(config, norm="layer")
    rows = LayerwiseInference(model, graph, num_threads=1).logits()
    given = None if weights is None else torch.from_numpy(weights)
    with torch.no_grad():
        found = model(torch.from_numpy(x), torch.from_numpy(edges), given)
    torch.testing.assert_close(found, rows, rtol=1e-5, atol=1e-5)


def test_the_gradient_reaches_the_features() -> None:
    x = X.clone().requires_grad_()
    model_of(GraphSAGE)(x, EDGES).sum().backward()
    assert x.grad.abs().sum() > 0


def test_tensors_that_are_no_graph_are_refused() -> None:
    model = model_of(GCN)
    for arguments, message in (
        ((torch.zeros(4, 3), EDGES), "x: expected shape [vertices, 2], got [4, 3]"),
        ((torch.zeros(4), EDGES), "x: expected shape [vertices, 2], got [4]"),
        ((X, [[0], [1]]), "edge_index is a tensor"),
        ((X, EDGES.T), "whole numbers of shape [2, edges], got torch.int64 of shape [3, 2]"),
        ((X, EDGES.float()), "got torch.float32"),
        ((X, EDGES + 1), "edge_index: expected vertices of x, 0 to 3, got 1 to 4"),
        ((X, EDGES - 1), "got -1 to 2"),
        ((X, EDGES, torch.ones(2)), "edge_weight: expected shape [3], got [2]"),
    ):
        with one_line(message):
            model(*arguments)
    assert model(X, torch.empty(2, 0, dtype=torch.int64)).shape == (4, 3)


def test_edges_over_types_are_those_of_pyg_s_batch() -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    data, seeds = purchases(), torch.arange(0, 60, 7)
    options = {"batch_size": len(seeds), "seed": 5}
    (expected,) = gnnscale.NeighborLoader(data, [3, 2], ("user", seeds), **options)
    graph = gnnscale.from_pyg(data)
    batch = TypedSampler(graph, fanouts=[3, 2], seed=5).sample(seeds.numpy(), 0)
    subgraph = adapters.to_hetero_subgraph(batch)
    ids = [
        torch.from_numpy(batch.vertices(number) - graph.schema.vertices(number).start)
        for number in (0, 1)
    ]
    for number, (source, relation, destination) in enumerate(data.edge_types):
        edges = expected[source, relation, destination]
        # Local ids differ: the mini-batch has neighbors that seeds get in the second hop, too.
        names = [data.node_types.index(name) for name in (source, destination)]
        own = [
            ids[name][ends] for name, ends in zip(names, subgraph.edge_index[number], strict=True)
        ]
        pairs = zip((source, destination), edges.edge_index, strict=True)
        others = [expected[name].n_id[ends] for name, ends in pairs]
        assert sorted(zip(*own, strict=True)) == sorted(zip(*others, strict=True))
        assert subgraph.num_edges[number] == edges.num_sampled_edges
    assert [sum(numbers) for numbers in subgraph.num_vertices] == list(batch.type_sizes)
    assert [numbers[0] for numbers in subgraph.num_vertices] == [len(seeds), 0]


def test_dgl_s_blocks_over_types_have_weights() -> None:
    pytest.importorskip("dgl", reason="DGL is not installed")
    batch = typed_sampler(SCHEMA, [2, 2]).sample(SEEDS, 0)
    builder = adapters.DGLBlockBuilder(SCHEMA, idtype=torch.int64)
    assert not any(block.edata for block in builder.build_batch(batch))
    batch = replace(batch, blocks=tuple(map(weighted, batch.blocks)))
    for built, block in zip(builder.build_batch(batch), batch.blocks, strict=True):
        for edge_type, relation in zip(SCHEMA.edge_types, block.relations, strict=True):
            weights = built.edges[edge_type.triple].data["weight"]
            assert weights.tolist() == relation.edge_weights.tolist()
