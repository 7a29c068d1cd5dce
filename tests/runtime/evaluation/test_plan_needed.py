from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import own_layers
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.model import GAT, GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.model.custom import Custom
from gnnscale.runtime.evaluation.inference import LayerwiseInference
from gnnscale.runtime.evaluation.plan import Limits, needed_vertices

CHUNKS = {"chunk_edges": 64, "chunk_vertices": 8}


def test_what_is_needed_by_hand(tiny_graph: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 <- nobody; 4 <- 4.
    found = needed_vertices(tiny_graph, np.array([1]), 2, **CHUNKS, num_threads=1)
    assert [list(vertices) for vertices in found] == [[1, 3], [1, 3]]
    found = needed_vertices(tiny_graph, np.array([4]), 1, **CHUNKS, num_threads=1)
    assert [list(vertices) for vertices in found] == [[4]]
    # Three of five are most of them.
    found = needed_vertices(tiny_graph, np.array([0]), 2, **CHUNKS, num_threads=2)
    assert found == [range(5), range(5)]
    assert needed_vertices(tiny_graph, np.array([0]), 0, **CHUNKS, num_threads=1) == []


@pytest.mark.parametrize(
    "config", [GCN, GIN, GraphSAGE, GAT, partial(Custom, functions=own_layers.MaxPooling)]
)
@pytest.mark.parametrize("hidden_bytes", [0, 1 << 30])
def test_only_what_is_needed_is_computed_and_the_logits_are_the_same(
    random_graph: Callable[..., Graph], config: Callable[..., ModelConfig], hidden_bytes: int
) -> None:
    graph = random_graph(2000, 3000)
    model = config(hidden=24, num_layers=3).build(num_features=20, num_classes=5)
    whole = LayerwiseInference(model, graph, num_threads=2)
    limits = Limits(hidden_bytes=hidden_bytes, whole_vertices=0, kept_bytes=0, chunk_edges=256)
    inference = LayerwiseInference(model, graph, num_threads=2, limits=limits)
    kept = LayerwiseInference(
        model, graph, num_threads=2, limits=replace(limits, kept_bytes=1 << 20)
    )
    for seed in range(3):
        vertices = np.random.default_rng(seed).permutation(2000)[:20]
        expected = whole.logits(vertices)
        torch.testing.assert_close(inference.logits(vertices), expected, rtol=1e-4, atol=1e-4)
        for _ in range(2):
            torch.testing.assert_close(kept.logits(vertices), expected, rtol=1e-4, atol=1e-4)
        work = inference.work(vertices)
        counts = [len(needed) for needed in work.needed]
        assert 20 == counts[2] < counts[1] < counts[0] < 1000
        assert [each.num_vertices for each in work.sizes] == counts
        # The last layer's rows are narrower, where not many more are made than are wanted.
        last = 16 if config is GCN and counts[1] <= 2 * counts[2] else 32
        columns = counts[0] * 32 + counts[1] * last if hidden_bytes == 0 else 0
        assert work.plan.temporary_bytes == columns * 4
