"""Rows of vertex types, of which one learns its own."""

from typing import Any

import numpy as np
import torch
from typed_graphs import shop

from gnnscale.backend.typed_loading import TypedLoader
from gnnscale.nn import LearnedEmbedding
from gnnscale.nn.optim.update_rules import ROW_OPTIMIZERS
from gnnscale.nn.typed_options import RSAGE
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
