import itertools
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnscale.features import HostFeatures
from gnnscale.inference import pass_planning as estimate
from gnnscale.inference.activation_store import EDGE_BYTES
from gnnscale.inference.chunks import Workers
from gnnscale.inference.layerwise import LayerPass, LayerwiseInference, estimated_s
from gnnscale.inference.memory_plan import MemoryLimits, find_work
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE


def test_time_is_that_of_some_vertices_times_what_there_are(random_graph, monkeypatch) -> None:
    graph = random_graph(400, 4000)
    model = GraphSAGE(hidden=40).build(num_features=20, num_classes=5).eval()
    monkeypatch.setattr(estimate, "_TRIAL_VERTICES", 80)
    limits = MemoryLimits(hidden_bytes=0, stream_bytes=10_000)
    work = find_work(model, graph, range(400), limits, num_threads=2)
    tried = np.concatenate([np.arange(first, first + 10) for first in range(0, 400, 50)])
    edges = np.diff(graph.indptr)[tried].sum()
    parts = 4400 / (edges + 80)
    workers = Workers(2)
    with workers.running():
        passes = LayerPass(model, graph, work, limits, workers)
        store = HostFeatures.of(graph)
        ticks = itertools.count()  # 1 s for each layer
        monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
        monkeypatch.setattr(estimate, "disk_rate", lambda: 1e12)
        assert estimated_s(passes, work, graph, store) == pytest.approx(2 * parts)
        # Two parts of 16 columns of a row: a slow disk takes longer to write than they to compute.
        monkeypatch.setattr(estimate, "disk_rate", lambda: 400 * 128 / 1000)
        assert estimated_s(passes, work, graph, store) == pytest.approx(1000 + parts)
        # Files that the system has no room for are read as often as sums do not fit.
        work = replace(work, plan=replace(work.plan, cached=False))
        times = -(-(400 * 64 + graph.num_edges * EDGE_BYTES) // 10_000)
        assert estimated_s(passes, work, graph, store) == pytest.approx(1000 + 500 * times)


@pytest.mark.parametrize("config", [GraphSAGE, GCN, GIN, GAT])
@pytest.mark.parametrize("hidden_bytes", [0, 1 << 30])
@pytest.mark.parametrize("whole_vertices", [0, 1 << 20])
def test_every_kind_of_layer_can_be_tried_and_nothing_is_changed(
    random_graph: Any, config: Any, hidden_bytes: int, whole_vertices: int
) -> None:
    graph = random_graph(2000, 3000)
    model = config(hidden=24, num_layers=3).build(num_features=20, num_classes=5).train()
    limits = MemoryLimits(hidden_bytes=hidden_bytes, whole_vertices=whole_vertices)
    inference = LayerwiseInference(model, graph, num_threads=2, limits=limits)
    for vertices in (None, np.arange(20), np.array([], np.int64)):
        assert 0 <= inference.estimate_s(vertices) < 100
        assert model.training
