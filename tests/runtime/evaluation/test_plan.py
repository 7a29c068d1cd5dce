from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnscale.core import hardware
from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.model import GIN, GraphSAGE
from gnnscale.model.gnn import ProjectedLayer
from gnnscale.runtime.evaluation import plan as module
from gnnscale.runtime.evaluation.plan import (
    InferencePlan,
    LayerSize,
    Limits,
    find_work,
    plan_layers,
)

PLAN = InferencePlan(
    in_file=(True,), temporary_bytes=5 << 30, memory_bytes=0, stream_bytes=1, cached=True
)


def with_memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    memory = hardware.Memory(total=2 * available, available=available, installed=2 * available)
    monkeypatch.setattr(module, "find_memory", lambda: memory)


def planned(*layers: tuple[int, int], **limits: Any) -> InferencePlan:
    return plan_layers(layers, **({"hidden_bytes": None, "stream_bytes": None} | limits))


def test_layers_that_fit_into_memory_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 1_000_000)
    # 400,000 bytes each: one fits; two, which exist at once, do not.
    assert planned((1000, 100)).in_file == (False,)
    assert planned((1000, 100)).temporary_bytes == 0
    assert planned((1000, 100)).memory_bytes == 400_000
    two = planned((1000, 100), (1000, 100))
    assert two.in_file == (True, True)
    # Rows are filled up to a multiple of 16 features.
    assert two.temporary_bytes == 2 * 1000 * 112 * 4
    assert planned((1000, 100), (1000, 10)).in_file == (False, False)
    assert planned().temporary_bytes == 0
    assert planned((1000, 100), hidden_bytes=399_999).in_file == (True,)


def test_inference_takes_a_bounded_part_of_plenty_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_memory(monkeypatch, 100 << 30)
    assert planned((1 << 20, 128)).in_file == (False,)
    assert planned((1 << 20, 129)).in_file == (True,)
    # What stays in the page cache is read once for every 256 MiB of sums, what does not as rarely
    # as memory allows.
    assert planned((50 << 20, 256)).stream_bytes == 256 << 20
    assert planned((51 << 20, 256)).stream_bytes == 15 << 30
    assert planned((50 << 20, 256)).cached
    assert not planned((51 << 20, 256)).cached


def test_more_than_the_disk_has_is_refused_with_what_else_could_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    usage = SimpleNamespace(free=(5 << 30) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ConfigError) as error:
        PLAN.check_disk()
    assert str(error.value) == (
        "runtime.inference=exact: needs 5.0 GiB of temporary disk, and 5.0 GiB are free in /tmp; "
        "TMPDIR=FOLDER takes another folder, runtime.inference=sampled needs none"
    )
    usage.free = 5 << 30
    PLAN.check_disk()


def test_sizes_count_vertices_and_their_in_edges(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400)
    assert LayerSize.of(graph, range(50)) == LayerSize(num_vertices=50, num_edges=400)
    some = np.array([3, 7])
    num_edges = int(np.diff(graph.indptr)[some].sum())
    assert LayerSize.of(graph, some) == LayerSize(num_vertices=2, num_edges=num_edges)


def test_rows_are_projected_where_they_get_narrower(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400, num_features=8)
    everything = range(50)
    model = GraphSAGE(hidden=64, num_layers=2).build(num_features=8, num_classes=5)
    work = find_work(model, graph, everything, Limits(), num_threads=1)
    # 5 outputs fill 16 columns, once to be aggregated and once for the vertex itself.
    assert isinstance(work.layers[1], ProjectedLayer)
    assert work.widths == [(16, 2)]
    assert work.plan.memory_bytes == 50 * 2 * 16 * 4
    narrow = GraphSAGE(hidden=32, num_layers=2).build(num_features=8, num_classes=5)
    assert find_work(narrow, graph, everything, Limits(), num_threads=1).widths == [(32, 1)]
    product_first = GIN(hidden=64, num_layers=2).build(num_features=8, num_classes=5)
    assert find_work(product_first, graph, everything, Limits(), num_threads=1).widths == [(64, 1)]


def test_few_vertices_need_few_rows_and_no_projection(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(500, 3000, num_features=8)
    model = GraphSAGE(hidden=64, num_layers=2).build(num_features=8, num_classes=5)
    wanted = np.array([4, 2])
    work = find_work(model, graph, wanted, Limits(whole_vertices=100), num_threads=1)
    lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in wanted]
    assert sorted(work.needed[0]) == sorted({*wanted, *np.concatenate(lists)})
    assert work.wanted is wanted
    assert work.layers[1] is model.layer(1)
    assert [each.num_vertices for each in work.sizes] == [len(work.needed[0]), 2]
