from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import own_layers
import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.memory_plan import MemoryLimits, needed_vertices
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.nn.scatter_gather import Custom

OWN = partial(Custom, functions=own_layers.MaxPooling)


def test_what_is_needed_by_hand(tiny_graph: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 <- nobody; 4 <- 4.
    def needed(vertex: int, num_layers: int) -> list[Any]:
        options = {"chunk_edges": 64, "chunk_vertices": 8, "num_threads": 2}
        return needed_vertices(tiny_graph, np.array([vertex]), num_layers, **options)

    assert [list(vertices) for vertices in needed(1, 2)] == [[1, 3], [1, 3]]
    assert [list(vertices) for vertices in needed(4, 1)] == [[4]]
    # Three of five are most of them.
    assert needed(0, 2) == [range(5), range(5)]
    assert needed(0, 0) == []


@pytest.mark.parametrize("config", [GCN, GIN, GraphSAGE, GAT, OWN])
@pytest.mark.parametrize("hidden_bytes", [0, 1 << 30])
def test_only_what_is_needed_is_computed_and_the_logits_are_the_same(
    random_graph: Any, config: Callable[..., ModelConfig], hidden_bytes: int
) -> None:
    graph = random_graph(2000, 3000)
    model = config(hidden=24, num_layers=3).build(num_features=20, num_classes=5)
    whole = LayerwiseInference(model, graph, num_threads=2)
    sizes = {"hidden_bytes": hidden_bytes, "whole_vertices": 0, "chunk_edges": 256}
    limits = MemoryLimits(kept_bytes=0, **sizes)
    inference = LayerwiseInference(model, graph, num_threads=2, limits=limits)
    limits = replace(limits, kept_bytes=1 << 20)
    kept = LayerwiseInference(model, graph, num_threads=2, limits=limits)
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
