from functools import partial

import numpy as np
import pytest
import torch

from gnnscale.backend.cuda import inference
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.backend.cuda.inference import CudaInference
from gnnscale.backend.cuda.placement import place_graph
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.nn import APPNP, GAT, GCN, GIN, GATv2, GraphSAGE
from gnnscale.planner import Cuda


def built(config, graph):
    torch.manual_seed(5)
    return config.build(num_features=graph.num_features, num_classes=graph.num_classes).eval()


def on_device(graph, **options):
    device = Cuda(host_driven=True, **options)
    engine = HostEngine(device)
    return CudaInference(graph, place_graph(graph, device, engine, kept_bytes=0), engine)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(inference, "_CHUNK_EDGES", 200)


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [
        *(GCN, GraphSAGE, GIN, GAT, GATv2, APPNP, partial(GraphSAGE, aggregator="pool")),
        partial(GCN, residual=True, jumping="cat"),
    ],
)
@pytest.mark.parametrize("features", ["device", "host"])
@pytest.mark.parametrize("memory_bytes", [None, 1000])
def test_rows_are_the_hosts(random_graph, config, features, memory_bytes, monkeypatch):
    graph = random_graph(num_vertices=120, num_edges=900)
    model = built(config(hidden=8, num_layers=3), graph)
    wanted = np.array([5, 3, 77], graph.indices.dtype)
    found = on_device(graph, features=features)
    if memory_bytes is not None:  # hidden layers do not fit
        monkeypatch.setattr(HostEngine, "free_bytes", lambda self: memory_bytes)
    needed = [range(120), range(120), wanted]
    rows = torch.cat(list(found.rows(model, needed)))
    known = LayerwiseInference(model, graph, num_threads=1).logits(wanted)
    torch.testing.assert_close(rows, known, rtol=1e-4, atol=1e-5)


def test_only_what_is_needed_is_computed(random_graph):
    graph = random_graph(num_vertices=120, num_edges=300)
    model = built(GraphSAGE(hidden=8, num_layers=2), graph)
    wanted = np.array([9, 4], graph.indices.dtype)
    lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in wanted]
    below = np.unique(np.concatenate([wanted, *lists]))
    (rows,) = on_device(graph).rows(model, [below, wanted])
    known = LayerwiseInference(model, graph, num_threads=1).logits(wanted)
    torch.testing.assert_close(rows, known, rtol=1e-4, atol=1e-5)


def test_weights_of_edges_count(random_graph):
    weights = np.random.default_rng(3).random(900).astype(np.float32) + 0.5
    graph = random_graph(num_vertices=120, num_edges=900, edge_weights=weights)
    for config in (GCN, GraphSAGE):
        model = built(config(hidden=8, num_layers=2), graph)
        everything = range(120)
        rows = torch.cat(list(on_device(graph).rows(model, [everything, everything])))
        known = LayerwiseInference(model, graph, num_threads=1).logits()
        torch.testing.assert_close(rows, known, rtol=1e-4, atol=1e-5)
