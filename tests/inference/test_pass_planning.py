from typing import Any

import numpy as np
import pytest

from gnnscale.core import hardware
from gnnscale.features import HostFeatures
from gnnscale.features.disk import DiskRates
from gnnscale.graph import Graph
from gnnscale.inference import pass_planning as passes
from gnnscale.inference.memory_plan import InputPlan, MemoryLimits, find_work
from gnnscale.nn import GIN, GraphSAGE


def with_rates(
    monkeypatch: pytest.MonkeyPatch, *, requests_per_s: float, available: int = 1 << 30
) -> None:
    """Let a disk of 1 MB/s have small files, and the machine so much memory."""
    memory = hardware.Memory(total=available, available=available, installed=available)
    monkeypatch.setattr(passes, "read_memory", lambda: memory)
    rates = DiskRates(requests_per_s=requests_per_s, bytes_per_s=1e6)
    monkeypatch.setattr(passes, "cached_disk_rates", lambda _: rates)


def inputs_of(graph: Graph, on_disk: Any, config: Any, **limits: Any) -> InputPlan | None:
    graph, store = on_disk(graph)
    model = config.build(num_features=graph.num_features, num_classes=5)
    given = MemoryLimits(**({"chunk_edges": 200, "chunk_vertices": 40} | limits))
    work = find_work(model, graph, range(graph.num_vertices), given, num_threads=1)
    found = passes.with_passes(work, model, graph, store, given, num_threads=1)
    assert (found.inputs is None) == (found.layers[0] is work.layers[0])
    return found.inputs


def test_passes_are_chosen_if_the_disk_takes_less_time_for_them(
    random_graph, on_disk, monkeypatch
) -> None:
    # 400 rows of 32,000 bytes: 12.8 s a pass. Chunks read thousands of rows, about as long each.
    graph = random_graph(400, 4000, num_features=8000)
    with_rates(monkeypatch, requests_per_s=200, available=1 << 20)
    one, several = 4 * 32 * 400, 4 * 16 * 400
    found = inputs_of(graph, on_disk, GIN(hidden=32), made_bytes=one)
    assert (found.num_passes, found.memory_bytes, found.temporary_bytes) == (1, one, 0)
    found = inputs_of(graph, on_disk, GraphSAGE(hidden=32), made_bytes=several)
    assert found.blocks == [(0, 16), (16, 32)]
    # Own features are read once more; the sums of both blocks go to a file.
    assert (found.num_passes, found.memory_bytes) == (3, several)
    assert found.temporary_bytes == one
    # Not a column has room.
    assert inputs_of(graph, on_disk, GIN(hidden=32), made_bytes=several - 1) is None
    # Memory has nearly all pages, so that few are read again.
    with_rates(monkeypatch, requests_per_s=200, available=graph.feature_bytes - 1)
    assert inputs_of(graph, on_disk, GIN(hidden=32), made_bytes=one) is None


def test_rows_in_order_cost_requests_only_after_gaps() -> None:
    store: Any = HostFeatures(np.zeros((100, 250), np.float32), "float32")
    rates = DiskRates(requests_per_s=100, bytes_per_s=1e6)  # a gap of 10,000 bytes costs the same
    graph: Any = None
    near, far = np.array([0, 5, 10]), np.array([0, 50, 99])
    # 11 rows of 1,000 bytes in one request; 3 rows in 3.
    request_s = 1 / 100 - 4096 / 1e6
    assert passes._sequential_s(near, graph, store, rates) == pytest.approx(request_s + 0.011)
    assert passes._sequential_s(far, graph, store, rates) == pytest.approx(3 * request_s + 0.003)
