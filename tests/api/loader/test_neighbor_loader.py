import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale import ConfigError, Graph, GraphError, NeighborLoader, NeighborSampler, ops
from gnnscale.core.hardware import Memory
from gnnscale.graph.dtypes import as_float32

pytest.importorskip("torch_geometric", reason="PyG is not installed")

from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler.base import SubgraphType

FANOUTS = [4, 3, 2]


def edges_of(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return graph.indices.astype(np.int64), dst


def as_data(graph: Graph, **fields: Any) -> Data:
    edge_index = torch.from_numpy(np.stack(edges_of(graph)))
    features, labels = torch.tensor(graph.features), torch.tensor(graph.labels)
    return Data(x=features, y=labels, edge_index=edge_index, **fields)


def as_dgl(dgl: Any, graph: Graph) -> Any:
    source = dgl.graph(edges_of(graph), num_nodes=graph.num_vertices)
    source.ndata["feat"] = torch.from_numpy(graph.features)
    return source


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("gnnscale")]


def slow_batch(graph: Graph, seeds: list[int], step: int, **options: Any) -> tuple[Any, Any]:
    """A batch vertex by vertex: its ids and, for every hop, its edges in local ids.

    What is drawn for a vertex does not depend on the rest of its batch, so that a batch of this
    vertex alone tells it: every hop of that expands the vertex again.
    """
    sampler = NeighborSampler(graph, **options)
    local = {vertex: number for number, vertex in enumerate(seeds)}
    frontier, hops = list(seeds), []
    for hop in range(len(options["fanouts"])):
        edges, found = [], []
        for vertex in frontier:
            alone = sampler.sample(np.array([vertex]), step)
            block = alone.blocks[-1 - hop]
            for source in alone.input_vertices[block.indices[: block.indptr[1]]].tolist():
                if source not in local:
                    local[source] = len(local)
                    found.append(source)
                edges.append((local[source], local[vertex]))
        hops.append(edges)
        frontier = found
    return list(local), hops


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not threads()


@pytest.mark.parametrize(
    ("fanouts", "replace"), [([3], False), ([4, 3, 2], True), ([-1, 2], False), ([2, -1], True)]
)
def test_a_batch_by_a_slow_reference(graph: Graph, fanouts: list[int], replace: bool) -> None:
    nodes = torch.randperm(graph.num_vertices, generator=torch.Generator().manual_seed(1))[:50]
    loader = NeighborLoader(graph, fanouts, nodes, batch_size=20, replace=replace, seed=7)
    assert len(loader) == 3
    for step, batch in enumerate(loader):
        seeds = nodes[20 * step : 20 * step + 20]
        options = {"fanouts": fanouts, "seed": 7, "replace": replace}
        n_id, hops = slow_batch(graph, seeds.tolist(), step, **options)
        edges = [edge for hop in hops for edge in hop]
        assert isinstance(batch, Data)
        assert batch.n_id.tolist() == n_id
        assert batch.edge_index.T.tolist() == [list(edge) for edge in edges]
        assert batch.edge_index.dtype == batch.n_id.dtype == batch.input_id.dtype == torch.int64
        assert batch.num_sampled_edges == [len(hop) for hop in hops]
        assert sum(batch.num_sampled_nodes) == batch.num_nodes == len(n_id)
        assert batch.num_sampled_nodes[0] == batch.batch_size == len(seeds)
        assert batch.input_id.tolist() == list(range(20 * step, 20 * step + len(seeds)))
        assert np.array_equal(batch.x, graph.features[n_id])
        assert np.array_equal(batch.y, graph.labels[n_id])
        assert "e_id" not in batch


def test_real_edges_have_int32_or_int64_ids(graph: Graph) -> None:
    wide = replace(graph, indices=graph.indices.astype(np.int64))
    loaders = (NeighborLoader(each, FANOUTS, batch_size=64) for each in (graph, wide))
    for narrow, other in zip(*loaders, strict=True):
        assert torch.equal(narrow.edge_index, other.edge_index)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_rows_with_a_scale_become_float32(random_graph: Callable[..., Graph], dtype: str) -> None:
    graph = random_graph(num_features=7).with_quantized_features(dtype)
    rows = as_float32(graph.features, dtype, 7)
    for batch in NeighborLoader(graph, FANOUTS, batch_size=100):
        assert batch.x.dtype == torch.float32
        assert np.array_equal(batch.x, rows[batch.n_id])


def test_outputs_of_trimmed_batches_and_of_all_neighbours(graph: Graph) -> None:
    model = GraphSAGE(graph.num_features, 8, num_layers=3, out_channels=5).eval()
    for batch in NeighborLoader(graph, FANOUTS, batch_size=100):
        whole = model(batch.x, batch.edge_index)
        hops = batch.num_sampled_nodes, batch.num_sampled_edges
        names = ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")
        trimmed = model(batch.x, batch.edge_index, **dict(zip(names, hops, strict=True)))
        assert len(trimmed) < len(whole)
        torch.testing.assert_close(trimmed[: batch.batch_size], whole[: batch.batch_size])
    data = as_data(graph)
    model = GraphSAGE(graph.num_features, 8, num_layers=2, out_channels=5).eval()
    expected = model(data.x, data.edge_index)
    for batch in NeighborLoader(data, [-1, -1], batch_size=64, shuffle=True):
        seeds = batch.n_id[: batch.batch_size]
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.testing.assert_close(out, expected[seeds])


def test_batches_do_not_depend_on_threads(graph: Graph) -> None:
    def epochs(**options: int) -> list[Data]:
        loader = NeighborLoader(graph, FANOUTS, batch_size=30, shuffle=True, seed=3, **options)
        return [batch for _ in range(2) for batch in loader]

    reference = epochs(num_workers=0, num_threads=1)
    assert len(reference) == 20
    several = {"num_workers": 3, "num_threads": 2, "prefetch_factor": 5}
    for options in ({"num_workers": 0, "num_threads": 4}, {"num_workers": 1}, several):
        for batch, same in zip(epochs(**options), reference, strict=True):
            assert batch.to_dict().keys() == same.to_dict().keys()
            for name, value in batch.to_dict().items():
                assert np.array_equal(value, same[name]), name


def test_epochs_differ_in_order_and_in_neighbours(graph: Graph) -> None:
    loader = NeighborLoader(graph, FANOUTS, batch_size=300, shuffle=True)
    (first,), (second,) = list(loader), list(loader)
    assert sorted(first.input_id.tolist()) == sorted(second.input_id.tolist()) == list(range(300))
    assert not torch.equal(first.input_id, second.input_id)
    fixed = NeighborLoader(graph, FANOUTS, batch_size=300)
    (first,), (second,) = list(fixed), list(fixed)
    assert torch.equal(first.input_id, second.input_id)
    assert not torch.equal(first.edge_index[:, :50], second.edge_index[:, :50])
    (other,) = NeighborLoader(graph, FANOUTS, batch_size=300, seed=1)
    assert not torch.equal(first.edge_index[:, :50], other.edge_index[:, :50])


def test_the_last_batch_may_be_dropped_and_no_seed_is_no_batch(graph: Graph) -> None:
    whole = NeighborLoader(graph, [2], batch_size=70)
    assert [batch.batch_size for batch in whole] == [70, 70, 70, 70, 20]
    assert len(whole) == 5
    full = NeighborLoader(graph, [2], batch_size=70, drop_last=True)
    assert [batch.batch_size for batch in full] == [70] * len(full) == [70] * 4
    for no_vertex in ([], (), np.array([]), torch.tensor([]), [False] * 300):
        assert list(NeighborLoader(graph, [2], no_vertex)) == []


def test_seeds_by_ids_and_by_mask(graph: Graph) -> None:
    ids = torch.tensor([7, 3, 200])
    (by_ids,) = NeighborLoader(graph, [2], ids, batch_size=5)
    assert by_ids.input_id.tolist() == [0, 1, 2]
    assert by_ids.n_id[:3].tolist() == [7, 3, 200]
    mask = torch.zeros(graph.num_vertices, dtype=torch.bool)
    mask[ids] = True
    (by_mask,) = NeighborLoader(graph, [2], mask, batch_size=5)
    assert by_mask.input_id.tolist() == by_mask.n_id[:3].tolist() == [3, 7, 200]


def test_two_loops_over_one_loader_do_not_disturb_each_other(graph: Graph) -> None:
    def epochs(loader: NeighborLoader, count: int) -> list[list[list[int]]]:
        return [[batch.n_id.tolist() for batch in loader] for _ in range(count)]

    expected = epochs(NeighborLoader(graph, FANOUTS, batch_size=60, shuffle=True), 6)
    loader = NeighborLoader(graph, FANOUTS, batch_size=60, shuffle=True)
    seen = []
    for batch, inner in zip(loader, range(1, 6), strict=True):
        seen.append(batch.n_id.tolist())
        assert epochs(loader, 1) == [expected[inner]]
    assert seen == expected[0]


def test_a_loop_that_breaks_off_leaves_no_thread(graph: Graph) -> None:
    loader = NeighborLoader(graph, FANOUTS, batch_size=10, num_workers=2)
    for _ in loader:
        assert threads()
        break
    assert not threads()
    assert len(list(loader)) == 30


@pytest.mark.long
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_is_gone_when_the_loop_lets_go_of_it(graph: Graph, num_workers: int) -> None:
    """Whoever makes the next one then finds its memory."""
    batches = iter(NeighborLoader(graph, FANOUTS, batch_size=10, num_workers=num_workers))
    seen = weakref.ref(next(batches))
    gc.collect()  # PyG's batches refer to themselves
    assert seen() is None


def test_the_loop_gets_what_a_transform_returns_or_raises(graph: Graph) -> None:
    loader = NeighborLoader(graph, [2], batch_size=100, transform=lambda batch: batch.batch_size)
    assert list(loader) == [100, 100, 100]

    def transform(batch: Data) -> Data:
        if 100 in batch.input_id:
            raise RuntimeError("vertex 100")
        return batch

    seen = 0
    with pytest.raises(RuntimeError, match="vertex 100"):  # noqa: PT012
        for _ in NeighborLoader(graph, [2], batch_size=30, num_workers=2, transform=transform):
            seen += 1
    assert seen == 3


def test_other_attributes_of_data_come_along(graph: Graph) -> None:
    mask, bits = torch.arange(300) % 3 == 0, torch.arange(300).to(torch.bfloat16)
    boxes = np.arange(300 * 4.0).reshape(-1, 2, 2)
    data = as_data(graph, train_mask=mask, bits=bits, boxes=boxes, source="somewhere")
    data.halves, data.x = data.x.half(), data.x.bfloat16()
    for batch in NeighborLoader(data, [2, 2], batch_size=128):
        assert batch.source == "somewhere"
        for name in ("x", "y", "train_mask", "bits", "halves"):
            assert batch[name].dtype == data[name].dtype
            assert torch.equal(batch[name], data[name][batch.n_id]), name
        assert np.array_equal(batch.boxes, boxes[batch.n_id])
    data = Data(edge_index=as_data(graph).edge_index, num_nodes=graph.num_vertices)
    (batch,) = NeighborLoader(data, [2], batch_size=300)
    assert batch.x is None
    assert batch.num_nodes == len(batch.n_id)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8])
def test_stored_features_become_floats(random_graph: Any, dtype: torch.dtype) -> None:
    graph = random_graph(dtype=dtype)
    features = torch.from_numpy(graph.features.copy())
    features = features.view(dtype) if dtype == torch.bfloat16 else features.float()
    (batch,) = NeighborLoader(graph, [2], batch_size=300)
    assert batch.x.dtype == features.dtype
    assert torch.equal(batch.x, features[batch.n_id])


def test_batches_of_dgls_form(dgl: Any, graph: Graph) -> None:
    source = as_dgl(dgl, graph)
    source.ndata["label"] = torch.from_numpy(graph.labels)
    source.ndata["weight"] = torch.arange(300.0)
    sampler = NeighborSampler(graph, fanouts=FANOUTS, seed=5)
    loader = NeighborLoader(source, FANOUTS, batch_size=70, seed=5, output_format="dgl")
    for step, (input_nodes, output_nodes, blocks) in enumerate(loader):
        expected = sampler.sample(np.arange(300)[70 * step : 70 * step + 70], step)
        assert input_nodes.tolist() == expected.input_vertices.tolist()
        assert output_nodes.tolist() == expected.seeds.tolist()
        for block, ours in zip(blocks, expected.blocks, strict=True):
            indptr, indices, _ = block.adj_tensors("csc")
            assert np.array_equal(indptr, ours.indptr)
            assert np.array_equal(indices, ours.indices)
            assert torch.equal(block.srcdata[dgl.NID], input_nodes[: ours.num_src])
            assert torch.equal(block.dstdata[dgl.NID], input_nodes[: ours.num_dst])
        for name in ("feat", "label", "weight"):
            assert torch.equal(blocks[0].srcdata[name], source.ndata[name][input_nodes])
            assert torch.equal(blocks[-1].dstdata[name], source.ndata[name][output_nodes])


def test_dgls_form_has_the_names_and_ids_of_its_source(dgl: Any, graph: Graph) -> None:
    (batch,) = NeighborLoader(as_data(graph), [2], batch_size=300, output_format="dgl")
    assert {"feat", "label"} <= batch[2][0].srcdata.keys()
    assert batch[0].dtype == batch[2][0].idtype == torch.int64
    source = as_dgl(dgl, graph).int()
    (batch,) = NeighborLoader(source, [2], batch_size=300, output_format="dgl")
    assert batch[0].dtype == batch[2][0].idtype == torch.int32
    (batch,) = NeighborLoader(source, [2], batch_size=300)
    assert torch.equal(batch.x, source.ndata["feat"][batch.n_id])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_neighbors": []}, r"num_neighbors=\[\]: expected a positive number, or -1"),
        ({"num_neighbors": {("a", "b", "c"): [2]}}, "expected a list, got a dictionary"),
        ({"num_neighbors": 5}, r"num_neighbors=5: expected a list .*; \[5\] is a list of one$"),
        ({"num_neighbors": [5.5]}, r"num_neighbors=\[5.5\]: expected a list of whole numbers"),
        ({"batch_size": "64"}, "batch_size=64: expected a whole number"),
        ({"batch_size": 0}, "batch_size=0: expected at least 1"),
        ({"num_workers": -1}, "num_workers=-1: expected at least 0"),
        ({"input_time": np.arange(3)}, "input_time=.*: expected None"),
        ({"output_format": "jax"}, "output_format='jax': expected pyg, dgl"),
        ({"disjoint": "yes"}, "disjoint=yes: expected True or False"),
        ({"subgraph_type": "induced"}, "subgraph_type='induced': expected 'directional'"),
        ({"edge_dir": "out"}, "edge_dir='out': expected 'in'"),
        ({"prob": "a", "weight_attr": "b"}, "prob='a': expected None with weight_attr='b'"),
        ({"weight_attr": 3}, "weight_attr=3: expected the name of an edge attribute"),
        ({"seed": 3, "generator": torch.Generator()}, "seed=3: expected None with a generator"),
        ({"batchsize": 5}, "batchsize=5: unknown argument, did you mean 'batch_size'"),
    ],
)
def test_options_that_are_refused(graph: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NeighborLoader(graph, **{"num_neighbors": [2], **options})


def test_arguments_of_pyg_that_mean_the_same_are_taken(graph: Graph) -> None:
    for subgraph_type in ("directional", SubgraphType.directional):
        same = {"disjoint": False, "persistent_workers": True, "subgraph_type": subgraph_type}
        assert len(NeighborLoader(graph, [2], **same)) == 300


@pytest.mark.parametrize(
    ("input_nodes", "message"),
    [
        ([1, 300], "input_nodes: vertex id 300 is out of range, the graph has 300 vertices"),
        ([-1], "input_nodes: vertex id -1 is negative"),
        ([4, 5, 4], "input_nodes: expected distinct ids, got 4 more than once"),
        ([[1, 2]], r"input_nodes: expected one axis, got \[1, 2\]"),
        ([True] * 7, "input_nodes: expected a mask over 300 vertices, got 7"),
        ({1, 2}, "input_nodes: expected an array, a tensor or a list, got set"),
        (("paper", [1, 2]), "input_nodes: expected an array"),
        (np.ma.masked_equal([1, 2], 2), "input_nodes: .*a masked array that hides 1 of 2"),
    ],
)
def test_seeds_that_are_refused(graph: Graph, input_nodes: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        NeighborLoader(graph, [2], input_nodes)


def test_data_that_is_refused(graph: Graph) -> None:
    negative = as_data(graph, edge_attr=torch.full((graph.num_edges, 1), -1.0))
    two = {"x": torch.zeros(2, 2)}
    for data, weights, message in (
        (Data(**two), None, r"data: data\.edge_index is missing, and so is data\.adj_t"),
        (negative, "w", "weights 'w' of data: expected 'edge_attr'"),
        (graph, "w", "weights 'w' of graph: expected none"),
        (negative, "edge_attr", r"edge 0: expected a weight of at least 0 .*, got -1.0"),
        (as_data(graph, title=["a"] * 300), None, "'title': expected a tensor or array, got list"),
        (Data(edge_index=torch.tensor([[9], [0]]), **two), None, "sources: vertex id 9 is out of"),
    ):
        with pytest.raises(GraphError, match=message):
            NeighborLoader(data, [2], weight_attr=weights)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_a_data_set_of_one_graph_and_a_transposed_adjacency(graph: Graph) -> None:
    class Own(InMemoryDataset):
        def __init__(self) -> None:
            super().__init__(None)
            self.data, self.slices = self.collate([as_data(graph)])

    expected = next(iter(NeighborLoader(as_data(graph), [3, 2], batch_size=8)))
    batch = next(iter(NeighborLoader(Own(), [3, 2], batch_size=8)))
    assert torch.equal(batch.edge_index, expected.edge_index)
    src, dst = as_data(graph).edge_index
    values = torch.arange(1.0, graph.num_edges + 1)
    adjacency = torch.sparse_coo_tensor(torch.stack([dst, src]), values, (graph.num_vertices,) * 2)
    data = Data(x=torch.from_numpy(np.array(graph.features)), adj_t=adjacency)
    batch = next(iter(NeighborLoader(data, [-1], batch_size=8)))
    assert torch.equal(batch.edge_weight, values[batch.e_id])
    assert torch.equal(batch.n_id[batch.edge_index], torch.stack([src, dst])[:, batch.e_id])


def test_features_on_disk(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (expected,) = NeighborLoader(graph, [2], batch_size=300)
    nothing_left = Memory(total=1 << 40, available=0, installed=1 << 40)
    monkeypatch.setattr("gnnscale.features.host.read_memory", lambda: nothing_left)
    asked = []
    monkeypatch.setattr(ops, "read_ahead", lambda x, ids, **_: asked.append(len(ids)))
    np.save(tmp_path / "features.npy", graph.features)
    features = np.load(tmp_path / "features.npy", mmap_mode="r")
    (batch,) = NeighborLoader(replace(graph, features=features), [2], batch_size=300)
    assert torch.equal(batch.x, expected.x)
    assert sum(asked) == len(batch.x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is present")
def test_pinning_without_cuda_warns(graph: Graph) -> None:
    with pytest.warns(UserWarning, match="there is no CUDA device, memory is not pinned"):
        loader = NeighborLoader(graph, [2], batch_size=300, pin_memory=True)
    (batch,) = loader
    assert not batch.x.is_pinned()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_batches_are_pinned_where_cuda_is_present(graph: Graph) -> None:
    (batch,) = NeighborLoader(graph, [2], batch_size=300, pin_memory=True)
    for name in ("x", "y", "edge_index", "n_id"):
        assert batch[name].is_pinned(), name


@pytest.mark.parametrize(
    ("name", "library", "shown"), [("pyg", "torch_geometric.data", "PyG"), ("dgl", "dgl", "DGL")]
)
def test_a_missing_library_is_named(graph, monkeypatch, name, library, shown) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = rf"{shown} is not installed; pip install '\.\[{name}\]'"
    with pytest.raises(ImportError, match=message):
        NeighborLoader(graph, [2], output_format=name)


@pytest.mark.long
def test_importing_the_package_does_not_import_torch() -> None:
    code = (
        "import sys, gnnscale; print('torch' in sys.modules); "
        "print(set(gnnscale.__all__) <= set(dir(gnnscale))); "
        "print(all(hasattr(gnnscale, name) for name in [*gnnscale.__all__, '__version__']))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.split() == ["False", "True", "True"], answer.stderr
