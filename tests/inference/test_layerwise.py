import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import own_layers
import pytest
import torch
from model_runs import full_batch
from one_line import one_line

from gnnscale.backend.feature_loading import ChunkLoader
from gnnscale.features import HostFeatures
from gnnscale.inference import pass_planning as estimate
from gnnscale.inference.activation_store import EDGE_BYTES
from gnnscale.inference.chunks import Workers
from gnnscale.inference.layerwise import LayerPass, LayerwiseInference, estimated_s
from gnnscale.inference.memory_plan import MemoryLimits, find_work
from gnnscale.nn import APPNP, GAT, GCN, GIN, GNN, SGC, GATv2, GraphSAGE, ModelConfig
from gnnscale.nn.scatter_gather import Custom
from gnnscale.nn.transform_first import ProjectedLayer

Model = Callable[..., ModelConfig]

OWN = (own_layers.MaxPooling, own_layers.PairSum)
ALL = (GCN, GraphSAGE, GIN, GAT, *(partial(Custom, functions=functions) for functions in OWN))


#: Limits that cut a graph into many chunks.
SMALL = MemoryLimits(chunk_edges=256, chunk_vertices=32)
IN_FILE = MemoryLimits(hidden_bytes=10_000)


def watch_chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    neighbours = ChunkLoader.neighbours

    def noted(self: ChunkLoader, vertices: Any, **options: Any) -> Any:
        sizes.append(len(vertices))
        return neighbours(self, vertices, **options)

    monkeypatch.setattr(ChunkLoader, "neighbours", noted)
    return sizes


@pytest.mark.long
@pytest.mark.parametrize("config", ALL)
@pytest.mark.parametrize(("num_layers", "norm"), [(1, "none"), (3, "batch")])
def test_equals_a_batch_of_full_neighbourhoods(random_graph, config, num_layers, norm) -> None:
    graph = random_graph(200, 1500)
    built = config(hidden=16, num_layers=num_layers, norm=norm)
    model = built.build(num_features=20, num_classes=5).train()
    for vertices in (None, np.array([7, 3, 199]), np.array([], np.int64)):
        logits = LayerwiseInference(model.train(), graph, num_threads=2).logits(vertices)
        assert model.training
        expected = full_batch(model, graph, vertices)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [
        *(APPNP(hidden=16), APPNP(hidden=16, num_layers=3), SGC(), SGC(num_layers=3)),
        *(GATv2(hidden=16), GraphSAGE(hidden=16, aggregator="pool")),
        GCN(hidden=16, num_layers=3, residual=True, norm="batch"),
        GraphSAGE(hidden=16, num_layers=3, residual=True, jumping="cat", norm="layer"),
        GAT(hidden=16, num_layers=3, jumping="max"),
    ],
)
def test_connected_layers_equal_a_batch_of_full_neighbourhoods(random_graph, config) -> None:
    for num_vertices, whole_vertices, hidden_bytes in ((300, 1 << 20, 0), (2000, 0, 1 << 30)):
        graph = random_graph(num_vertices, 2 * num_vertices)
        model = config.build(num_features=20, num_classes=5)
        limits = replace(SMALL, hidden_bytes=hidden_bytes, whole_vertices=whole_vertices)
        inference = LayerwiseInference(model, graph, num_threads=2, limits=limits)
        vertices = np.random.default_rng(0).permutation(num_vertices)[:20]
        expected = full_batch(model, graph, vertices)
        torch.testing.assert_close(inference.logits(vertices), expected, rtol=1e-4, atol=1e-4)
        with torch.no_grad():  # what is kept of the first layer must not depend on weights
            for parameter in model.parameters():
                parameter.mul_(1.5)
        expected = full_batch(model, graph, vertices)
        torch.testing.assert_close(inference.logits(vertices), expected, rtol=1e-4, atol=1e-4)
        assert inference.estimate_s(vertices) > 0


@pytest.mark.long
@pytest.mark.parametrize("config", ALL)
@pytest.mark.parametrize(("hidden_bytes", "whole_vertices"), [(0, 1 << 20), (1 << 30, 0)])
def test_few_classes_of_wide_rows_equal_a_batch_of_full_neighbourhoods(
    random_graph: Any, config: Model, hidden_bytes: int, whole_vertices: int
) -> None:
    # Of the sparse one, less than half is needed.
    num_vertices = 500 if whole_vertices else 4000
    graph = random_graph(num_vertices, 4000 if whole_vertices else 1500)
    model = config(hidden=128, norm="layer").build(num_features=20, num_classes=5)
    chunks = {"chunk_edges": 2000, "chunk_vertices": 100, "stream_bytes": 40_000, "kept_bytes": 0}
    limits = MemoryLimits(hidden_bytes=hidden_bytes, whole_vertices=whole_vertices, **chunks)
    inference = LayerwiseInference(model, graph, num_threads=2, limits=limits)
    vertices = np.random.default_rng(0).permutation(num_vertices)[: num_vertices // 5]
    for some in (None, vertices, vertices[:0]):
        assert 0 <= inference.estimate_s(some) < 100
        assert model.training
    work = inference.work(vertices)
    assert isinstance(work.needed[0], range) == (whole_vertices > 0)
    for wanted in (None, vertices) if whole_vertices else (vertices,):
        logits = inference.logits(wanted)
        expected = full_batch(model, graph, wanted)
        assert (logits - expected).norm() < 1e-5 * expected.norm()
        projected = isinstance(inference.work(wanted).layers[1], ProjectedLayer)
        few = wanted is not None and whole_vertices  # of a layer that all are computed of
        assert projected == (config in (GCN, GraphSAGE) and not few)
        columns = inference.work(wanted).widths[0]
        assert columns == (((16, 2) if config is GraphSAGE else (16, 1)) if projected else (128, 1))


@pytest.mark.long
@pytest.mark.parametrize(("config", "norm"), [*zip(ALL, cycle(["none", "batch", "layer"]))])
def test_rows_of_a_hidden_layer_are_inputs_of_the_next(random_graph, config, norm) -> None:
    graph = random_graph(200, 1500)
    model = config(hidden=16, num_layers=3, norm=norm).build(num_features=20, num_classes=5).eval()
    for vertices in (None, np.array([7, 3, 199])):
        for num_layers in (1, 2):
            options = {"limits": SMALL, "num_layers": num_layers}
            inference = LayerwiseInference(model, graph, num_threads=2, **options)
            chunks = list(inference.rows(vertices))
            assert (len(chunks) > 5) == (vertices is None)
            # The layers above applied to them are the whole model.
            shorter = GNN(model.layers[:num_layers], model.norms, 0.0, model.widths)
            expected = model.normalise(num_layers - 1, full_batch(shorter, graph, vertices))
            expected = expected.relu().detach()
            torch.testing.assert_close(torch.cat(chunks), expected, rtol=1e-4, atol=1e-4)


def test_rows_come_in_chunks_in_the_requested_order(random_graph: Any) -> None:
    graph = random_graph(500, 4000)
    model = GraphSAGE(hidden=16).build(num_features=20, num_classes=5)
    inference = LayerwiseInference(model, graph, num_threads=2, limits=SMALL)
    vertices = np.random.default_rng(0).permutation(500)[:300]
    chunks = list(inference.rows(vertices))
    assert len(chunks) > 9
    assert torch.equal(torch.cat(chunks), inference.logits(vertices))
    # Whoever stops reading leaves the model as it was.
    model.train()
    some = inference.rows(vertices)
    next(some)
    some.close()
    assert model.training


@pytest.mark.long
@pytest.mark.parametrize("config", ALL)
def test_small_chunks_and_a_small_budget_give_the_same_answer(
    random_graph: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: Model
) -> None:
    graph = random_graph(500, 4000)
    model = config(hidden=16, num_layers=3).build(num_features=20, num_classes=5)
    vertices = np.random.default_rng(0).permutation(500)[:300]
    expected = LayerwiseInference(model, graph, num_threads=1).logits(vertices)
    files: list[Any] = []
    original = tempfile.TemporaryFile

    def counted(**options: Any) -> Any:
        files.append(original(**options))
        return files[-1]

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", counted)
    sizes = watch_chunks(monkeypatch)
    small = replace(SMALL, file_chunk_edges=256)
    in_chunks = LayerwiseInference(model, graph, num_threads=2, limits=small).logits(vertices)
    assert sum(sizes) == 500 + 500 + 300
    assert len(sizes) >= 40
    # Matrix products of other shapes may round otherwise.
    torch.testing.assert_close(in_chunks, expected)
    assert not files
    # The hidden rows take 32,000 bytes a layer, the logits 6,000.
    small = replace(small, hidden_bytes=10_000)
    logits = LayerwiseInference(model, graph, num_threads=2, limits=small).logits(vertices)
    assert torch.equal(logits, in_chunks)
    assert len(files) == 2
    assert all(file.closed for file in files)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(("config", "kept_bytes"), [*zip(ALL, cycle([0, 5_000, 1 << 20]))])
def test_weights_may_change_between_calls(random_graph, monkeypatch, config, kept_bytes) -> None:
    graph = random_graph(200, 1500)
    model = config(hidden=16, norm="batch").build(num_features=20, num_classes=5)
    vertices = np.array([7, 3, 199])
    limits = replace(SMALL, kept_bytes=kept_bytes)
    inference = LayerwiseInference(model, graph, num_threads=1, limits=limits)
    inference.logits(vertices)
    sizes = watch_chunks(monkeypatch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    again = inference.logits(vertices)
    # Inputs of at most 1 MB are kept: nothing but the last layer is sampled again.
    assert sum(sizes) == (3 if kept_bytes == 1 << 20 else 203)
    assert torch.equal(again, inference.logits(vertices))
    fresh = LayerwiseInference(model, graph, num_threads=1, limits=limits)
    assert torch.equal(again, fresh.logits(vertices))


def test_a_disk_without_room_is_an_error(random_graph: Any, monkeypatch: Any) -> None:
    def full(*arguments: int) -> None:
        raise OSError(28, "No space left on device")

    graph = random_graph()
    model = GraphSAGE(hidden=16).build(num_features=20, num_classes=5).train()
    inference = LayerwiseInference(model, graph, num_threads=1, limits=IN_FILE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space left on device"):
            inference.logits()
    assert model.training
    # A run is refused before it trains.
    usage = shutil.disk_usage("/")._replace(free=19_199)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with one_line("of temporary disk, got"):
        inference.prepare(graph.valid_idx)
    usage = usage._replace(free=19_200)
    inference.prepare(graph.valid_idx)


def test_inference_announces_its_time_and_memory(random_graph: Any, caplog: Any) -> None:
    graph = random_graph(500, 4000)
    model = GraphSAGE(hidden=20, num_layers=3).build(num_features=20, num_classes=5).train()
    caplog.set_level("INFO")
    limits = replace(IN_FILE, chunk_edges=64, chunk_vertices=32)
    LayerwiseInference(model, graph, num_threads=1, limits=limits).prepare(graph.valid_idx)
    (message,) = [record.getMessage() for record in caplog.records]
    # Two layers of 500 rows of 20 features, filled up to 32.
    takes = r"about \d+ s each time, 0.1 MiB of temporary disk, 0.0 MiB of memory for hidden layers"
    assert re.fullmatch(rf"exact inference of \d+ vertices of \S+: {takes}", message)
    assert model.training
    # A graph that is done in no time needs no announcement.
    LayerwiseInference(model, graph, num_threads=1).prepare(graph.valid_idx)
    assert len(caplog.records) == 1


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
