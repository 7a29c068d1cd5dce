"""Exact inference over graphs with types equals one mini-batch with all neighbors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_graphs import random_lists, shop, typed_graph

from gnnscale.backend.typed_loading import TypedLoader
from gnnscale.core.memory import Memory
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import EdgeData, FeatureMatrix, Graph, GraphSchema, TypedFeatures
from gnnscale.inference import typed_layerwise
from gnnscale.inference.typed_layerwise import TypedInference
from gnnscale.nn import ModelConfig
from gnnscale.nn.typed_options import HGT, RGAT, RGCN, RSAGE
from gnnscale.run.typed_inputs import read_by_type
from gnnscale.sampling import TypedSampler


def built(options: ModelConfig, graph: Graph) -> tuple[Any, Graph]:
    """Return a model of three outputs in evaluation mode, and the graph as it reads it."""
    torch.manual_seed(0)
    graph = read_by_type(options, graph, seed=1)
    types = graph.input_types
    model: Any = options.build_typed(
        schema=types.schema,
        widths=tuple(types.widths.values()),
        num_classes=3,
        edge_widths=types.edge_widths,
    )
    return model.eval(), graph


def with_edges(graph: Graph) -> Graph:
    """Return ``graph`` with features of the edges of every other type."""
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 20, graph.num_edges).astype(np.uint32)
    matrices = [
        FeatureMatrix(rows=generator.standard_normal((20, 3)).astype(dtype), dtype=dtype, width=3)
        if number % 2
        else None
        for number, dtype in zip(
            range(len(graph.schema.edge_types)), ["float32", "float16"] * 9, strict=False
        )
    ]
    return replace(graph, edges=EdgeData(rows=rows, by_type=TypedFeatures(matrices)))


def whole_batch(model: Any, graph: Graph, vertices: Any, fanouts: Any) -> torch.Tensor:
    """Return the outputs of one mini-batch, in the order of ``vertices``, of one type."""
    batch = TypedSampler(graph, fanouts=fanouts).sample(np.asarray(vertices, np.int32), 0)
    loader = TypedLoader(graph, model, num_threads=1, store=None)
    loader.store = type(loader.store).of(graph, learned=True)
    with torch.no_grad():
        return model(batch, loader.load(batch))


OPTIONS = [
    RSAGE(hidden=8, num_layers=2, residual=True, norm="batch"),
    RGCN(hidden=8, num_layers=3, num_bases=2),
    RGAT(hidden=8, num_layers=2, num_heads=2),
    HGT(hidden=8, num_layers=2, num_heads=2, norm="layer"),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.name)
@pytest.mark.parametrize("chunk", [40, 1 << 20])
def test_equals_all_neighbors_at_once(options, chunk, monkeypatch) -> None:
    monkeypatch.setattr(typed_layerwise, "CHUNK_EDGES", chunk)
    monkeypatch.setattr(typed_layerwise, "CHUNK_VERTICES", 16)
    model, graph = built(options, with_edges(shop(num_users=60, num_items=30)))
    assert model.uses_edge_features == (options.name == "RGAT")
    inference = TypedInference(model, graph, num_threads=2)
    inference.prepare(None)
    fanouts = [-1] * options.num_layers
    rows = torch.cat([*inference.rows()])
    assert rows.shape == (99, 3)
    for first, end in ((0, 9), (9, 69), (69, 99)):
        expected = whole_batch(model, graph, range(first, end), fanouts)
        torch.testing.assert_close(rows[first:end], expected, rtol=1e-4, atol=1e-5)
    some = np.array([70, 12, 3, 11])
    torch.testing.assert_close(inference.logits(some), rows[some], rtol=1e-4, atol=1e-5)


def test_hidden_rows_in_files_and_of_fewer_layers(monkeypatch) -> None:
    model, graph = built(OPTIONS[0], shop(num_users=60, num_items=30))
    expected = TypedInference(model, graph, num_threads=1).logits(np.arange(20))
    hidden = TypedInference(model, graph, num_threads=1, num_layers=1)
    assert hidden.logits(np.arange(4)).shape == (4, 8)
    monkeypatch.setattr(
        typed_layerwise, "read_memory", lambda: Memory(total=10, available=10, installed=10)
    )
    inference = TypedInference(model, graph, num_threads=1)
    inference.prepare(None)
    assert torch.equal(inference.logits(np.arange(20)), expected)


def test_edge_types_left_out_of_a_hop_stay_out() -> None:
    model, graph = built(OPTIONS[0], shop(num_users=60, num_items=30))
    lists = {str(edges): [-1, -1] for edges in graph.schema.edge_types}
    lists |= {"item-bought-by-user": [0, -1], "user-buys-item": [-1, 0]}
    rows = TypedInference(model, graph, num_threads=1, fanouts=lists).logits(np.arange(9, 30))
    expected = whole_batch(model, graph, range(9, 30), lists)
    torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-5)
    everything = TypedInference(model, graph, num_threads=1).logits(np.arange(9, 30))
    assert not torch.allclose(rows, everything, rtol=1e-3)


@given(data=st.data())
@settings(max_examples=25)
def test_any_schema(data: st.DataObject) -> None:
    """Types without vertices, edges or features, and edge types of all kinds, are no exception."""
    sizes = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3).filter(any))
    names = [f"t{number}" for number in range(len(sizes))]
    triple = st.tuples(st.sampled_from(names), st.sampled_from("rs"), st.sampled_from(names))
    triples = data.draw(st.lists(triple, min_size=1, max_size=4, unique=True))
    schema = GraphSchema.of(dict(zip(names, sizes, strict=True)), triples)
    lists = random_lists(schema, np.random.default_rng(data.draw(st.integers(0, 99))), 1.5)
    base = typed_graph(schema, lists)
    features = from_typed_arrays(
        {
            name: np.ones((size, 2), np.float32) if size and number % 2 else None
            for number, (name, size) in enumerate(zip(names, sizes, strict=True))
        },
        dict.fromkeys(triples, ([], [])),
        num_vertices=dict(zip(names, sizes, strict=True)),
    ).features
    graph = Graph(**vars(base) | {"features": features})
    options = data.draw(st.sampled_from(OPTIONS))
    model, graph = built(options, graph)
    rows = TypedInference(model, graph, num_threads=1).logits(np.arange(graph.num_vertices))
    fanouts = [-1] * options.num_layers
    for number, size in enumerate(sizes):
        part = graph.schema.vertices(number)
        if size:
            expected = whole_batch(model, graph, range(part.start, part.stop), fanouts)
            torch.testing.assert_close(rows[part], expected, rtol=1e-4, atol=1e-5)
