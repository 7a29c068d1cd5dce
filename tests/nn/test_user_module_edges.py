import logging
from typing import Any

import edge_modules
import numpy as np
import pytest
import torch
from model_runs import edge_index
from one_line import one_line
from torch import nn

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.nn import CustomModel
from gnnscale.sampling import NeighborSampler

SIZE, EDGES = 80, 900


@pytest.fixture(scope="module")
def graph() -> Graph:
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, SIZE, (2, EDGES))
    rows = generator.standard_normal((SIZE, 5), np.float32)
    attr = generator.standard_normal((EDGES, 4), np.float32)
    return from_arrays((src, dst), rows, np.arange(SIZE) % 3, edge_features=attr)


def build(module: Any, num_edge_features: int = 4, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"num_features": 5, "num_classes": 3, "num_edge_features": num_edge_features}
    return CustomModel(module=module, **{"hidden": 8} | options).build(**sizes)


@pytest.mark.long
@pytest.mark.parametrize("form", edge_modules.FORMS)
def test_every_form_reads_the_features_of_its_edges(graph: Graph, form: str) -> None:
    if form == "dgl":
        pytest.importorskip("dgl", reason="DGL is not installed")
    known = build(edge_modules.OwnBlocks).eval()
    model = build(edge_modules.FORMS[form]).eval()
    assert (model.form, model.uses_edge_features) == (form, True)
    # Of one edge_index a vertex has the neighbors of its first hop: all of them are the same.
    batch = NeighborSampler(graph, fanouts=[-1, -1]).sample(np.arange(30), 1)
    loaded = FeatureLoader(graph, model, num_threads=1).load(batch)
    expected, found = known(batch, loaded), model(batch, loaded)
    torch.testing.assert_close(found, expected)
    assert found.requires_grad
    # An edge of the last layer costs the product of its features, in forms that use no other rows.
    if form in ("pyg_bipartite", "dgl"):
        assert model.counted.macs == known.counted.macs
    assert model.infers_by_layer == (form not in ("pyg", "pyg_trimmed"))
    if model.infers_by_layer:
        inference = LayerwiseInference(model, graph, num_threads=1)
        torch.testing.assert_close(inference.logits(np.arange(30)), expected.detach())


def test_one_graph_of_sampled_edges(graph: Graph) -> None:
    """A vertex keeps the features of the edges of its first hop."""
    model = build(edge_modules.OneGraph).eval()
    batch = NeighborSampler(graph, fanouts=[2, 3], seed=1).sample(np.arange(9), 1)
    loaded = FeatureLoader(graph, model, num_threads=1).load(batch)
    inner, outer = batch.blocks
    new = int(inner.indptr[outer.num_dst])
    attr = np.concatenate([loaded.edge_attr[1], loaded.edge_attr[0][new:]])
    edges = torch.cat([edge_index(outer), edge_index(inner)[:, new:]], dim=1)
    expected = model.module(loaded.x, edges, torch.from_numpy(attr))[:9]
    torch.testing.assert_close(model(batch, loaded), expected)


def test_edge_features_are_read_by_names_of_arguments(graph: Graph) -> None:
    reads = CustomModel(module=edge_modules.OwnBlocks)
    assert reads.edge_width(4) == 4
    assert CustomModel(module="edge_modules:OneGraph").edge_width(4) == 4
    assert CustomModel(module=edge_modules.OneGraph(5, 8, 3, 2, 4)).edge_width(4) == 4
    assert CustomModel(module=edge_modules.OwnBlocks, edge_features=False).edge_width(4) == 0
    assert CustomModel(module=nn.Linear).edge_width(4) == 0
    # Blocks of a module that is built have features if the options say so.
    built = edge_modules.OwnBlocks(5, 8, 3, 2, 4)
    assert CustomModel(module=built).edge_width(4) == 0
    assert CustomModel(module=built, edge_features=True).edge_width(4) == 4


def test_features_that_are_not_read_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with one_line("expected edge features for its argument edge_dim, got none"):
        build(edge_modules.OwnBlocks, 0)
    with one_line("expected an argument edge_attr or edge_attrs of forward"):
        build(edge_modules.OwnBlocks, form="pyg")
    with caplog.at_level(logging.WARNING):
        model = build(edge_modules.Ignores)
    assert "its logits do not depend on edge features, which are not loaded" in caplog.text
    assert not model.uses_edge_features
    assert model.counted.macs[-1] == 0  # of an edge
    with caplog.at_level(logging.WARNING):
        model = build(edge_modules.Forgets)
    assert "takes edge features, and its logits do not depend on them" in caplog.text
    assert model.uses_edge_features
