from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gnnscale.graph import Graph
from gnnscale.model import GCN
from gnnscale.runtime.evaluation import estimate
from gnnscale.runtime.evaluation.estimate import LayerSize, estimated_s
from gnnscale.runtime.evaluation.plan import InferencePlan
from gnnscale.sampler import NeighborSampler

IN_MEMORY = InferencePlan(in_file=(False,), temporary_bytes=0, memory_bytes=8, stream_bytes=1000)


def test_time_follows_what_layers_read_and_multiply(
    random_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(100, 1000)
    model = GCN(hidden=40).build(num_features=20, num_classes=5)
    block = NeighborSampler(graph, fanouts=[-1]).sample(graph.train_idx[:10], 0).blocks[0]
    clock = iter([0.0, 2.0, 2.0, 5.0])  # 2 s to read a chunk, 3 s to compute it
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    sizes = [
        LayerSize(num_vertices=3 * block.num_dst, num_edges=3 * block.num_edges),
        LayerSize(num_vertices=block.num_dst, num_edges=block.num_edges),
    ]
    chunk: Any = (block, torch.zeros(block.num_dst, 20))
    # The second layer reads rows of twice the width and multiplies 40 x 5 in place of 20 x 40.
    seconds = estimated_s(model, sizes, IN_MEMORY, lambda: chunk)
    assert seconds == pytest.approx(3 * 2 + 2 * 2 + 3 * 3 + 3 * 200 / 800)

    clock = iter([0.0, 2.0, 2.0, 5.0])
    rows = sizes[0].num_vertices
    monkeypatch.setattr(estimate, "disk_rate", lambda: 160.0 * rows / 10)
    in_file = InferencePlan(in_file=(True,), temporary_bytes=8, memory_bytes=0, stream_bytes=1000)
    # Rows of 160 bytes are written once, and read as often as the sums of 10 do not fit.
    passes = -(-block.num_dst * 160 // 1000)
    assert estimated_s(model, sizes, in_file, lambda: chunk) == pytest.approx(
        seconds + 10 * (1 + passes)
    )
