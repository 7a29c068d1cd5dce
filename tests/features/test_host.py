import mmap
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from gnnscale import ops
from gnnscale.core.errors import GraphError
from gnnscale.core.hardware import Memory
from gnnscale.core.stages import Access, Traffic
from gnnscale.data import from_arrays
from gnnscale.features import (
    Aggregation,
    HostFeatures,
    PreaggregatedFeatures,
    check_store,
    host,
    read_from_disk,
)
from gnnscale.graph.dtypes import as_float32
from gnnscale.sampling import NeighborSampler, NeighborSampling, without_last_hop


def test_sizes_and_rows_by_hand(tiny_graph):
    store = HostFeatures.of(tiny_graph)
    assert (store.num_rows, store.width, store.row_bytes) == (5, 2, 8)
    rows, traffic = store.gather(np.array([3, 0, 3]), dtype=torch.float32, num_threads=1)
    assert rows.tolist() == [[3, 30], [0, 0], [3, 30]]
    # Without a cache there is neither a hit nor a miss.
    assert traffic == Traffic(rows=Access(host_bytes=3 * 8))
    assert traffic.rows.hit_rate is None


def test_some_columns_are_rows_of_their_own(tiny_graph):
    store = HostFeatures.of(tiny_graph, columns=(1, 2))
    assert (store.columns, store.num_rows, store.width, store.row_bytes) == ((1, 2), 5, 1, 4)
    rows, traffic = store.gather(np.array([3, 0]), dtype=torch.float32, num_threads=1)
    assert rows.tolist() == [[30], [0]]
    assert traffic == Traffic(rows=Access(host_bytes=2 * 4))
    check_store(store, tiny_graph)
    with pytest.raises(GraphError, match="got 5 rows of 1 "):
        check_store(HostFeatures.of(tiny_graph, columns=(1, 3)), tiny_graph)


def test_a_graph_without_features_is_named():
    graph = from_arrays((np.array([0, 1]), np.array([1, 2])), np.empty((3, 0), np.float32))
    with pytest.raises(GraphError, match=r"^graph: its vertices have no features; features=lear"):
        check_store(HostFeatures.of(graph), graph)


def test_stored_types_become_the_compute_type():
    half = HostFeatures(np.array([[0.5, 2.0]], np.float16), "float16")
    assert half.row_bytes == 4
    rows, _ = half.gather(np.array([0]), dtype=torch.bfloat16, num_threads=1)
    assert rows.dtype == torch.bfloat16
    assert rows.tolist() == [[0.5, 2.0]]


@pytest.fixture
def mapped(random_graph, tmp_path, monkeypatch):
    """Map the features of a graph on a machine that has so many bytes of memory left."""

    def build(available):
        memory = Memory(total=1 << 40, available=available, installed=1 << 40)
        monkeypatch.setattr(host, "read_memory", lambda: memory)
        graph = random_graph()
        np.save(tmp_path / "features.npy", graph.features)
        return replace(graph, features=np.load(tmp_path / "features.npy", mmap_mode="r"))

    return build


def read_at_random(array):
    """Whether the system was told so of an array's pages: it has the flag rr in smaps."""
    place, inside = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, last = line.partition(" ")[0].partition("-")
        if last:
            inside = int(first, 16) <= place < int(last, 16)
        if inside and line.startswith("VmFlags:"):
            return "rr" in line.split()
    raise AssertionError("smaps does not list the array")


def test_rows_are_prefetched(mapped, monkeypatch):
    graph = mapped(1000)
    store = HostFeatures.of(graph)
    assert read_at_random(graph.features)
    ahead = mock.Mock(wraps=ops.read_ahead)
    monkeypatch.setattr("gnnscale.ops._PREFETCH_PAGES", 7)
    monkeypatch.setattr("gnnscale.ops.read_ahead", ahead)
    for size in (0, 7, 40):
        vertices = np.random.default_rng(0).integers(graph.num_vertices, size=size)
        rows, traffic = store.gather(vertices, dtype=torch.float32, num_threads=2)
        assert torch.equal(rows, torch.from_numpy(np.array(graph.features))[vertices])
        assert traffic.rows.host_bytes == size * store.row_bytes
        asked = [call.args[1] for call in ahead.call_args_list]
        assert np.concatenate(asked).tolist() == vertices.tolist()
        ahead.reset_mock()


def test_rows_that_fit_into_memory(mapped, monkeypatch):
    graph = mapped(1 << 30)
    monkeypatch.setattr("gnnscale.ops.read_ahead", None)
    rows, _ = HostFeatures.of(graph).gather(np.array([3]), dtype=torch.float32, num_threads=1)
    assert rows[0].tolist() == graph.features[3].tolist()
    assert not read_at_random(graph.features)
    # Those that no file has are not measured.
    monkeypatch.setattr(host, "read_memory", None)
    assert not read_from_disk(replace(graph, features=np.array(graph.features)))


def test_aggregating_rows_that_exceed_memory(mapped):
    graph = mapped(1000)
    batch = NeighborSampler(graph, fanouts=[5, 3]).sample(np.arange(0, 60, 2), 0)
    arguments = (batch.input_vertices, batch.blocks[0], Aggregation(self_term="add"))
    from_disk = HostFeatures.of(graph)
    in_memory = HostFeatures(np.array(graph.features), graph.feature_dtype)
    rows, traffic = from_disk.aggregate(*arguments, dtype=torch.float32, num_threads=1)
    expected, same = in_memory.aggregate(*arguments, dtype=torch.float32, num_threads=1)
    assert torch.equal(rows, expected)
    assert traffic == same


def test_rows_that_share_pages_are_prefetched_together(monkeypatch):
    """Four rows a page: each request has as many pages, whatever the order."""
    asked: list[int] = []
    monkeypatch.setattr("gnnscale.ops._PREFETCH_PAGES", 8)
    monkeypatch.setattr("gnnscale.ops.read_ahead", lambda x, ids, **_: asked.append(len(ids)))
    width = mmap.PAGESIZE // 16
    features = torch.arange(256 * width, dtype=torch.float32).view(256, width)
    every = np.arange(256)
    for ids, most in ((every, 8 * 4), (every[::2], 8 * 2), (every[::-1], 8), (every[::8], 8)):
        out = torch.empty(len(ids), width)
        ops.gather_from_disk(features, ids, out=out, num_threads=1)
        assert torch.equal(out, features[ids.copy()])
        assert max(asked) == most
        assert sum(asked) == len(ids)
        asked.clear()


def test_ready_rows_by_hand(tiny_graph):
    host = HostFeatures.of(tiny_graph)
    ready = np.arange(20, dtype=np.float32).reshape(5, 4)
    store = PreaggregatedFeatures(ready, host)
    check_store(store, tiny_graph)
    assert (store.num_rows, store.width, store.row_bytes) == (5, 2, 16)
    shorter = without_last_hop(NeighborSampling(fanouts=[-1, -1]))
    batch = shorter.sampler(tiny_graph, seed=0, num_threads=1).sample(np.array([3, 0]), 0)
    given = (batch.input_vertices, batch.blocks[0], Aggregation(self_term="concat"))
    rows, traffic = store.aggregate(*given, dtype=torch.float32, num_threads=1)
    assert batch.input_vertices.tolist() == [3, 0, 1, 2]
    assert rows.tolist() == ready[[3, 0, 1, 2]].tolist()
    assert traffic == Traffic(rows=Access(host_bytes=4 * 16))
    # Rows as they are come from the graph.
    asked = np.array([3, 0])
    as_they_are = (each.gather(asked, dtype=torch.float32, num_threads=1) for each in (store, host))
    assert torch.equal(*(rows for rows, _ in as_they_are))


def test_rows_of_int4(random_graph):
    graph = random_graph(num_features=5)
    lossy = graph.with_quantized_features("int4")
    store = HostFeatures.of(lossy)
    check_store(store, lossy)
    assert (store.num_rows, store.width, store.row_bytes) == (300, 5, 7)
    rows, traffic = store.gather(np.array([3, 0]), dtype=torch.float32, num_threads=1)
    assert np.array_equal(rows.numpy(), as_float32(lossy.features, "int4", 5)[[3, 0]])
    assert traffic == Traffic(rows=Access(host_bytes=2 * 7))


@pytest.mark.parametrize(
    ("stored", "dtype", "self_term"),
    [
        (torch.float32, torch.float32, "add"),
        (torch.float32, torch.bfloat16, "concat"),
        (torch.float16, torch.bfloat16, "add"),
        (torch.uint8, torch.float32, "concat"),
    ],
)
def test_rows_are_those_of_a_block_of_all_neighbours(random_graph, stored, dtype, self_term):
    graph = random_graph(dtype=stored)
    host = HostFeatures.of(graph)

    def aggregated(vertices, dtype):
        batch = NeighborSampler(graph, fanouts=[-1]).sample(vertices, 0)
        scale = (1 / (vertices + 3)).astype(np.float32)
        own = Aggregation(self_term=self_term, dst_scale=scale)
        given = (batch.input_vertices, batch.blocks[0], own)
        return host.aggregate(*given, dtype=dtype, num_threads=1)[0]

    store = PreaggregatedFeatures(aggregated(np.arange(300), torch.float32).numpy(), host)
    batch = NeighborSampler(graph, fanouts=[-1]).sample(np.arange(7, 90, 3), 0)
    given = (batch.input_vertices, batch.blocks[0], Aggregation(self_term=self_term))
    found, _ = store.aggregate(*given, dtype=dtype, num_threads=2)
    assert torch.equal(found, aggregated(np.arange(7, 90, 3), dtype))
