from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from model_runs import edge_index, full_batch, gradients

from gnnscale.core.errors import ConfigError
from gnnscale.nn import APPNP, GAT, GCN, GIN, GNN, SGC, GATv2, GraphSAGE
from gnnscale.sampling import MiniBatch, NeighborSampler

CONFIGS: dict[str, Any] = {
    "gatv2": GATv2(hidden=16, num_heads=4),
    "gatv2_shared": GATv2(hidden=16, num_heads=2, share_weights=True),
    "pool": GraphSAGE(hidden=16, aggregator="pool"),
    "sgc": SGC(num_layers=2),
    "appnp": APPNP(hidden=16, num_layers=2, alpha=0.2),
    "residual": GCN(hidden=16, num_layers=3, residual=True, norm="layer"),
    "cat": GraphSAGE(hidden=16, num_layers=3, jumping="cat", norm="layer"),
    "max": GIN(hidden=16, num_layers=2, jumping="max"),
    "both": GAT(hidden=16, num_layers=2, residual=True, jumping="cat"),
}
EACH = pytest.mark.parametrize("name", CONFIGS)


def build(name: str) -> GNN:
    torch.manual_seed(1)
    model: GNN = CONFIGS[name].build(num_features=20, num_classes=5)
    for parameter in model.parameters():  # so that no bias is 0
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def dense_gcn(block: Any, h: torch.Tensor, degrees: torch.Tensor) -> torch.Tensor:
    """One hop of a sampled block: the dense matrix of GCN's coefficients, times ``h``."""
    src, dst = edge_index(block).numpy()
    edges = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
    np.add.at(edges.numpy(), (dst, src), 1)  # an edge may be there twice
    counts = edges.sum(1, keepdim=True).clamp(min=1)
    root = (degrees[: block.num_src] + 1).rsqrt()
    num_dst = block.num_dst
    sums = root[:num_dst] * (edges @ (root * h)) * degrees[:num_dst] / counts
    return sums + h[:num_dst] * root[:num_dst] ** 2


def dense(model: Any, batch: MiniBatch, x: torch.Tensor, degrees: torch.Tensor) -> torch.Tensor:
    """Logits of GCN with connections, SGC and APPNP, by their definitions."""
    if model.encoder is not None:
        first, second = model.encoder.first, model.encoder.second
        z = h = second(first(x).relu())
        for block in batch.blocks:
            hop = dense_gcn(block, z, degrees)
            z = 0.8 * hop + 0.2 * h[: block.num_dst]
        return z
    if not model.connections.activates:
        for block in batch.blocks:
            x = dense_gcn(block, x, degrees)
        first, last = model.layers[0], model.layers[-1]
        return x @ first.linear.weight.T + (last.linear if first is last else last).bias
    outputs, h, num_layers = [], x, len(model.layers)
    for index, block in enumerate(batch.blocks):
        out = model.layers[index].linear(dense_gcn(block, h, degrees))
        last = index + 1 == num_layers
        if model.connections.residual and index and not (last and model.output is None):
            out = out + h[: block.num_dst]
        if last and model.output is None:
            return out
        h = model.norms[index](out).relu()
        outputs.append(h)
    rows = [each[: batch.num_seeds] for each in outputs]
    if model.connections.jumping == "cat":
        return model.output(torch.cat(rows, 1))
    return model.output(torch.stack(rows).amax(0))


@pytest.mark.parametrize(
    "config",
    [
        *(SGC(num_layers=1), SGC(num_layers=3), APPNP(hidden=16, alpha=0.2, num_layers=3)),
        GCN(hidden=16, num_layers=4, residual=True, norm="layer"),
        GCN(hidden=16, num_layers=3, jumping="cat"),
        GCN(hidden=16, num_layers=3, jumping="max", residual=True),
        GCN(hidden=16, num_layers=1, jumping="max"),
    ],
)
@pytest.mark.parametrize("fused", [False, True])
def test_against_a_dense_reference(random_graph: Any, load: Any, config: Any, fused: bool) -> None:
    graph = random_graph()
    num_layers = config.num_layers
    batch = NeighborSampler(graph, fanouts=[5, -1, 3, 4][:num_layers]).sample(np.arange(30), 2)
    model = config.build(num_features=20, num_classes=5).eval()
    inputs = load(graph, model, batch, fused=fused)
    logits = model(batch, inputs)
    found = gradients(logits, model.parameters())
    x = torch.from_numpy(graph.features[batch.input_vertices]).double()
    degrees = torch.from_numpy(np.diff(graph.indptr)[batch.input_vertices]).double()[:, None]
    model = model.double()
    expected = dense(model, batch, x, degrees)
    torch.testing.assert_close(logits.double(), expected, rtol=1e-5, atol=1e-5)
    for left, right in zip(found, gradients(expected, model.parameters()), strict=True):
        assert (left - right).norm() <= 2e-5 * right.norm()


@EACH
def test_slices_of_a_batch_have_its_logits_and_its_gradients(check_slices: Any, name: str) -> None:
    trained, evaluated = check_slices(build(name), 1e-5, rtol=1e-4, atol=1e-4)
    assert ((trained - evaluated).abs().max() > 0.01) == (name != "sgc")


@EACH
def test_a_whole_graph_in_plain_tensors_and_no_seeds(random_graph, load, name) -> None:
    graph, model = random_graph(), build(name).eval()
    found = model(torch.from_numpy(graph.features), edge_index(graph))
    torch.testing.assert_close(found, full_batch(model, graph), rtol=1e-4, atol=1e-4)
    sampler = NeighborSampler(graph, fanouts=[3] * len(model.layers))
    batch = sampler.sample(np.array([], np.int64), 0)
    assert model(batch, load(graph, model, batch)).shape == (0, 5)


def test_teleports_by_hand() -> None:
    """On a path 0 -> 1 -> 2 the rows of vertex 2 are known."""
    model = APPNP(num_layers=1, hidden=1, alpha=0.25).build(num_features=1, num_classes=1).eval()
    with torch.no_grad():
        for each in model.encoder.children():
            each.weight.fill_(2.0)
    logits = model(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0, 1], [1, 2]]))
    # The perceptron makes 4, 8, 12 of them; a vertex and its in-neighbor have degrees 1 and 0, 1.
    expected = [4.0, 0.75 * (8 / 2 + 4 / 2**0.5) + 2.0, 0.75 * (12 / 2 + 8 / 2) + 3.0]
    torch.testing.assert_close(logits[:, 0], torch.tensor(expected))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(GCN, residual=True), "residual=true: expected model.num_layers of at least 3"),
        (
            partial(GCN, residual=True, num_layers=1, jumping="cat"),
            "num_layers of at least 2, got 1",
        ),
        (partial(GCN, jumping="lstm"), "model.jumping=lstm: allowed are"),
        (partial(GraphSAGE, aggregator="sum"), "model.aggregator=sum: allowed are mean, pool"),
        (partial(GATv2, hidden=16, num_heads=3), "model.num_heads=3: expected a divisor of"),
        (partial(APPNP, alpha=0.0), "model.alpha=0.0: expected above 0 and at most 1"),
        (partial(APPNP, dropout=1.0), "model.dropout=1.0: expected at least 0 and below 1"),
    ],
)
def test_options_that_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
