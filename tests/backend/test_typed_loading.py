"""Rows of vertex types, of which one learns its own, and features of edges by type."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from typed_graphs import shop

from gnnscale.backend.typed_loading import TypedLoader
from gnnscale.core import GraphError
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.nn import LearnedEmbedding
from gnnscale.nn.optim.update_rules import ROW_OPTIMIZERS
from gnnscale.nn.typed_options import RGAT, RSAGE
from gnnscale.run.typed_inputs import read_by_type
from gnnscale.sampling import TypedSampler


def test_learned_rows_are_read_in_the_step_and_counted_before() -> None:
    graph = read_by_type(RSAGE(hidden=4), shop(num_users=20, num_items=12), seed=0)
    types = graph.input_types
    assert types is not None
    model: Any = RSAGE(hidden=4).build_typed(schema=types.schema, widths=(2, 4, 5), num_classes=3)
    features: Any = graph.features
    table = torch.from_numpy(features.learned_rows)
    model.vertex_rows = LearnedEmbedding(table, ROW_OPTIMIZERS["adam"])
    model.layers[0].encodes_means = lambda *_: True  # features are aggregated without learned rows
    loader = TypedLoader(graph, model, num_threads=1, store=None)
    batch = TypedSampler(graph, fanouts=[3, 2]).sample(np.arange(9, 14, dtype=np.int32), 0)
    tags, users, items = batch.type_sizes
    inputs = loader.without_rows(batch)
    assert inputs.rows[1].shape == (users, 0)
    # Tags have two float16, users four learned float32, items five float32.
    assert loader.bytes_read(batch) == 4 * tags + 16 * users + 20 * items
    assert inputs.traffic.rows.host_bytes == loader.bytes_read(batch)
    whole = loader.with_learned(batch, inputs)
    assert whole.traffic == inputs.traffic
    assert torch.equal(whole.rows[1], table[batch.vertices(1) - 9])
    whole.rows[1].sum().backward()
    vertices, _ = model.vertex_rows.gradient
    assert vertices.tolist() == (batch.vertices(1) - 9).tolist()
    model.vertex_rows = None
    for aggregates in (True, False):
        options: Any = {"num_threads": 1, "store": None, "aggregates": aggregates}
        assert TypedLoader(graph, model, **options).load(batch).aggregated == aggregates


def test_features_of_edges_are_those_of_the_lists() -> None:
    """Users 0 and 1 have bought item 0, as edges 1 and 0; the edges of ``of`` have none."""
    buys, knows = ("user", "buys", "item"), ("user", "knows", "user")
    graph = from_typed_arrays(
        {"user": np.ones((2, 1)), "item": np.ones((2, 1))},
        {buys: ([1, 0, 1], [0, 0, 1]), knows: ([0], [1]), ("item", "of", "user"): ([1, 0], [1, 1])},
        edge_features={buys: [[1, 10], [2, 20], [3, 30]], knows: np.float16([5])},
    )
    options = RGAT(hidden=4, num_heads=2, num_layers=2)
    model: Any = options.build_typed(
        schema=graph.schema, widths=(1, 1), num_classes=2, edge_widths=(2, 1, 0)
    )
    batch = TypedSampler(graph, fanouts=[-1, -1]).sample(np.array([1, 2], np.int32), 0)
    loader = TypedLoader(graph, model, num_threads=1, store=None)
    inputs = loader.load(batch)
    # The first hop, in the last block, is to user 1 and item 0; the second one to item 1 too.
    assert [rows.tolist() for rows in inputs.edge_attr[3:]] == [
        *([[2, 20], [1, 10]], [[5]], [[], []])
    ]
    assert inputs.edge_attr[0].tolist() == [[2, 20], [1, 10], [3, 30]]
    assert inputs.edge_bytes == 4 * (5 * 2 + 2)
    last = inputs.with_edges(batch).blocks[1].relations
    assert [edges.edge_attr is None for edges in last] == [False, False, True]
    assert model(batch, inputs).shape == (2, 2)
    blind: Any = RSAGE(hidden=4).build_typed(schema=graph.schema, widths=(1, 1), num_classes=2)
    assert TypedLoader(graph, blind, num_threads=1, store=None).load(batch).edge_attr == ()
    rows = np.full(graph.num_edges, 9, np.uint32)
    damaged = replace(graph, edges=replace(graph.edges, rows=rows))
    batch = TypedSampler(damaged, fanouts=[-1, -1]).sample(np.array([1, 2], np.int32), 0)
    with pytest.raises(GraphError, match="damaged, edge_rows: ids: 9 at place 0"):
        TypedLoader(damaged, model, num_threads=1, store=None).load(batch)
