import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import own_layers
import pytest
import torch

from gnnscale.core import hardware
from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.inference import memory_plan as module
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.memory_plan import (
    InferencePlan,
    InferenceWork,
    LayerSize,
    MemoryLimits,
    find_work,
    needed_vertices,
)
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.nn.scatter_gather import Custom
from gnnscale.nn.transform_first import ProjectedLayer


def with_memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    memory = hardware.Memory(total=2 * available, available=available, installed=2 * available)
    monkeypatch.setattr(module, "read_memory", lambda: memory)


def planned(*layers: tuple[int, int], **limits: Any) -> InferencePlan:
    return module.plan_layers(layers, **({"hidden_bytes": None, "stream_bytes": None} | limits))


def test_layers_that_fit_into_memory_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 1_000_000)
    # 400,000 bytes each: one fits; two, which exist at once, do not.
    one = planned((1000, 100))
    assert (one.in_file, one.temporary_bytes, one.memory_bytes) == ((False,), 0, 400_000)
    two = planned((1000, 100), (1000, 100))
    assert two.in_file == (True, True)
    # Rows are filled up to a multiple of 16 features.
    assert two.temporary_bytes == 2 * 1000 * 112 * 4
    assert planned((1000, 100), (1000, 10)).in_file == (False, False)
    assert planned().temporary_bytes == 0
    assert planned((1000, 100), hidden_bytes=399_999).in_file == (True,)
    with_memory(monkeypatch, 100 << 30)
    assert planned((1 << 20, 128)).in_file == (False,)
    assert planned((1 << 20, 129)).in_file == (True,)
    # What stays in the page cache is read once for every 256 MiB of sums, what does not as rarely
    # as memory allows.
    fits, exceeds = planned((50 << 20, 256)), planned((51 << 20, 256))
    assert (fits.stream_bytes, fits.cached) == (256 << 20, True)
    assert (exceeds.stream_bytes, exceeds.cached) == (15 << 30, False)


def test_a_full_disk_is_refused_with_alternatives(monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    usage = SimpleNamespace(free=(5 << 30) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    sizes = {"temporary_bytes": 5 << 30, "memory_bytes": 0, "stream_bytes": 1}
    plan = InferencePlan(in_file=(True,), cached=True, **sizes)
    with pytest.raises(ConfigError) as error:
        plan.check_disk()
    assert str(error.value) == (
        "runtime.inference=exact: expected 5.0 GiB of temporary disk, got 5.0 GiB in /tmp; "
        "TMPDIR=FOLDER takes another folder, runtime.inference=sampled needs none"
    )
    usage.free = 5 << 30
    plan.check_disk()


def test_rows_are_projected_where_they_get_narrower(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400, num_features=8)

    def work_of(config: ModelConfig) -> InferenceWork:
        model = config.build(num_features=8, num_classes=5)
        return find_work(model, graph, range(50), MemoryLimits(), num_threads=1)

    work = work_of(GraphSAGE(hidden=64, num_layers=2))
    # 5 outputs fill 16 columns, once to be aggregated and once for the vertex itself.
    assert isinstance(work.layers[1], ProjectedLayer)
    assert work.widths == [(16, 2)]
    assert work.plan.memory_bytes == 50 * 2 * 16 * 4
    narrow, product_first = GraphSAGE(hidden=32, num_layers=2), GIN(hidden=64, num_layers=2)
    assert work_of(narrow).widths == [(32, 1)]
    assert work_of(product_first).widths == [(64, 1)]


OWN = partial(Custom, functions=own_layers.MaxPooling)


def test_needed_vertices_by_hand(tiny_graph: Graph, random_graph: Callable[..., Graph]) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 <- nobody; 4 <- 4.
    def needed(vertex: int, num_layers: int) -> list[Any]:
        options = {"chunk_edges": 64, "chunk_vertices": 8, "num_threads": 2}
        return needed_vertices(tiny_graph, np.array([vertex]), num_layers, **options)

    assert [list(vertices) for vertices in needed(1, 2)] == [[1, 3], [1, 3]]
    assert [list(vertices) for vertices in needed(4, 1)] == [[4]]
    # Three of five are most of them.
    assert needed(0, 2) == [range(5), range(5)]
    assert needed(0, 0) == []
    graph = random_graph(50, 400)
    assert LayerSize.from_vertices(graph, range(50)) == LayerSize(num_vertices=50, num_edges=400)
    some = np.array([3, 7])
    num_edges = int(np.diff(graph.indptr)[some].sum())
    assert LayerSize.from_vertices(graph, some) == LayerSize(num_vertices=2, num_edges=num_edges)


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "hidden_bytes"),
    [(GCN, 0), (GCN, 1 << 30), (GIN, 0), (GraphSAGE, 1 << 30), (GAT, 0), (OWN, 1 << 30)],
)
def test_needed_rows_alone_give_the_same_logits(random_graph, config, hidden_bytes) -> None:
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
