import numpy as np
import pytest
import torch
from one_line import one_line

from gnnscale.data import from_arrays
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.nn import GAT, GCN, GIN, GNN, GraphSAGE
from gnnscale.nn.adapters import whole_batch

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
