import json
import os
import shutil
import tracemalloc
import zlib

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.graph import graph as graph_module
from gnnscale.graph.store_format import GRAPH_STORE

ARRAYS = {
    **{"indptr": np.array([0, 1, 3, 3]), "indices": np.array([1, 0, 2], np.int32)},
    **{"features": np.arange(6, dtype=np.float32).reshape(3, 2), "labels": np.array([0, 1, -1])},
    **{"train_idx": np.array([0], np.int32), "valid_idx": np.array([1], np.int32)},
    "test_idx": np.array([2], np.int32),
}


def put(store, name, array):
    """Write an array, and in ``meta.json`` what it is."""
    np.save(store / f"{name}.npy", array)
    meta = json.loads((store / "meta.json").read_text())
    meta["arrays"][name] = {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "bytes": (store / f"{name}.npy").stat().st_size,
        "crc32": zlib.crc32(np.ascontiguousarray(array).tobytes()),
    }
    (store / "meta.json").write_text(json.dumps(meta))


def change_meta(store, **entries):
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps(meta | entries))


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    path.mkdir()
    meta = {
        **{"format_version": GRAPH_STORE.version, "name": "tiny", "metric": "accuracy"},
        **{"num_vertices": 3, "num_edges": 3, "num_features": 2, "num_classes": 2},
        **{"feature_dtype": "float32", "arrays": {}},
    }
    (path / "meta.json").write_text(json.dumps(meta))
    for name, array in ARRAYS.items():
        put(path, name, array)
    return path


def refused(store):
    with pytest.raises(GraphError) as error:
        Graph.open(store)
    assert str(error.value).startswith(str(store))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 700
    line = str(error.value).removesuffix("; run gnnscale prepare again with force=true")
    return line.removeprefix(f"{store}").lstrip("/")


def test_open(store):
    graph = Graph.open(str(store))
    for name, array in ARRAYS.items():
        mapped = getattr(graph, name)
        np.testing.assert_array_equal(mapped, array)
        assert isinstance(mapped, np.memmap)
        assert not mapped.flags.writeable
    assert (graph.num_vertices, graph.num_edges, graph.num_features) == (3, 3, 2)
    assert (graph.topology_bytes, graph.feature_bytes) == (4 * 8 + 3 * 4, 24)
    assert not graph.multilabel
    assert graph.path == store
    assert graph.attainable_accuracy is None
    change_meta(store, attainable_accuracy=0.75)
    assert Graph.open(store).attainable_accuracy == 0.75
    # Content tells stores apart.
    content = Graph.open(store).content
    shutil.copytree(store, store.with_name("copy"))
    put(store, "features", ARRAYS["features"] + 1)
    assert Graph.open(store.with_name("copy")).content == content
    assert Graph.open(store).content != content


WEIGHTS = np.array([0.5, 1, 2], np.float32)


@pytest.mark.parametrize("name", ["indptr", "features", "test_idx"])
def test_files_that_became_shorter_are_named(store, name):
    graph = Graph.open(store)
    graph.check_files()
    file = store / f"{name}.npy"
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(GraphError, match=rf"{name}\.npy: became shorter while it was in use"):
        graph.check_files()


def test_weights_of_edges(store):
    assert Graph.open(store).edge_weights is None
    content = Graph.open(store).content
    put(store, "edge_weights", WEIGHTS)
    graph = Graph.open(store)
    assert graph.edge_weights.tolist() == [0.5, 1, 2]
    assert graph.content != content


EDGE_FEATURES = np.arange(4, dtype=np.float32).reshape(2, 2)


def test_features_of_edges(store):
    assert Graph.open(store).num_edge_features == 0
    content = Graph.open(store).content
    put(store, "edge_rows", np.array([1, 0, 1], np.uint32))
    assert "expected ['edge_features', 'edge_rows'" in refused(store)
    put(store, "edge_features", EDGE_FEATURES)
    graph = Graph.open(store)
    assert graph.edge_rows.tolist() == [1, 0, 1]
    assert isinstance(graph.edge_features, np.memmap)
    np.testing.assert_array_equal(graph.edge_features, EDGE_FEATURES)
    assert (graph.num_edge_features, graph.edge_weights) == (2, None)
    assert graph.content != content
    for rows, expected in (
        (EDGE_FEATURES[:, :0], "edge_features.npy: 0 features an edge, allowed are 1 to 65536"),
        (EDGE_FEATURES[:0], "edge_features.npy: 0 rows for 3 edges, allowed are 1 to 4294967296"),
        (EDGE_FEATURES[0], "edge_features.npy: expected float32[n, n], got float32[2]"),
        (EDGE_FEATURES.astype(np.float64), "edge_features.npy: expected float32[n, n], got"),
    ):
        put(store, "edge_features", rows)
        assert refused(store).startswith(expected)
    put(store, "edge_features", EDGE_FEATURES)
    put(store, "edge_rows", np.array([1, 0], np.uint32))
    assert refused(store) == "edge_rows.npy: expected uint32[3], got uint32[2]"


def test_labels_of_regression(store) -> None:
    change_meta(store, metric="rmse", num_classes=1)
    assert "expected float32[3]" in refused(store)
    put(store, "labels", np.array([0.5, -2, np.nan], np.float32))
    graph = Graph.open(store)
    assert graph.regression
    assert not graph.multilabel
    put(store, "labels", np.array([[0.5], [1], [np.nan]], np.float32))
    assert Graph.open(store).regression
    put(store, "labels", np.array([0.5, np.nan, 1], np.float32))
    assert refused(store) == "valid_idx.npy: vertex 1 has no label; 1 of 1 lack one"
    put(store, "labels", np.array([0.5, np.inf, 1], np.float32))
    assert "labels.npy: label inf of vertex 1, allowed are finite numbers" in refused(store)
    change_meta(store, metric="rmse", num_classes=2)
    put(store, "labels", np.array([0.5, 1, 1], np.float32))
    assert "expected float32[3, 2]" in refused(store)
    put(store, "labels", np.array([[0.5, 1], [1, 1], [np.nan, 1]], np.float32))
    assert Graph.open(store).num_classes == 2
    put(store, "labels", np.array([[0.5, 1], [1, np.nan], [1, 1]], np.float32))
    assert len(Graph.open(store).valid_idx) == 1  # one known target is a label
    put(store, "labels", np.array([[0.5, 1], [np.nan, np.nan], [1, 1]], np.float32))
    assert refused(store) == "valid_idx.npy: vertex 1 has no label; 1 of 1 lack one"


def test_without_labels_and_split(store):
    change_meta(store, num_classes=0)
    assert "labels.npy: label 0 of vertex 0 is out of range, allowed are -1 to -1" in refused(store)
    put(store, "labels", np.full(3, -1))
    assert refused(store) == "train_idx.npy: vertex 0 has no label; 1 of 1 lack one"
    for name in ("train_idx", "valid_idx", "test_idx"):
        put(store, name, np.empty(0, np.int32))
    graph = Graph.open(store)
    assert (graph.num_classes, len(graph.train_idx)) == (0, 0)
    put(store, "labels", np.empty((3, 0), np.uint8))
    assert "expected int64[3]" in refused(store)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("indptr", np.array([0, 3, 1, 3]), "falls from 3 to 1 after vertex 1"),
        ("indptr", np.array([1, 1, 3, 3]), "expected offsets from 0 to 3, "),
        ("indptr", np.array([0, 2**62, 2**62, 3]), "falls from 4611686018427387904 to 3"),
        ("indptr", np.array([0, 1, 3, 3, 3]), "expected int64[4], got int64[5]"),
        ("indices", np.array([1, 0, 2]), "expected int32[3], got int64[3]"),
        ("indices", np.ones((3, 1), np.int32), "expected int32[3], got int32[3, 1]"),
        ("edge_weights", WEIGHTS[:2], "expected float32[3], got float32[2]"),
        ("features", np.ones((3, 2), np.float64), "expected float32[3, 2], got float64"),
        ("labels", np.array([0, 1, 2]), "label 2 of vertex 2 is out of range, allowed are -1 to 1"),
        ("labels", np.array([0, -2, 1]), "label -2 of vertex 1 is out of range"),
        ("labels", np.ones((3, 5), np.uint8), "expected uint8[3, 2], got uint8"),
        ("labels", np.full((3, 2), 7, np.uint8), "label 7 of vertex 0 is out of range"),
        ("train_idx", np.array([-1, 0], np.int32), "vertex id -1 is out of range"),
        ("test_idx", np.array([1, 3], np.int32), "vertex id 3 is out of range"),
        ("test_idx", np.array([1, 2], np.int32), "vertex 1 is in an earlier part"),
        ("valid_idx", np.array([1, 1], np.int32), "the ids do not rise"),
        ("train_idx", np.array([], np.int32), "the split is empty, and another part is not"),
        ("train_idx", np.array([2], np.int32), "vertex 2 has no label"),
    ],
)
def test_bad_arrays_are_refused(store, name, array, message):
    put(store, name, array)
    assert refused(store).startswith(f"{name}.npy: {message}")


def test_opening_takes_memory_whatever_the_number_of_vertices(store):
    num_vertices = 20_000_000
    large(store, num_vertices)
    tracemalloc.start()
    try:
        assert Graph.open(store).num_vertices == num_vertices
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    # A vertex far from the first is in two parts.
    put(store, "train_idx", np.array([0, num_vertices - 2], np.int32))
    put(store, "test_idx", np.array([num_vertices - 2], np.int32))
    assert refused(store).startswith(f"test_idx.npy: vertex {num_vertices - 2} is in an earlier")


def large(store, num_vertices):
    n, meta = num_vertices, json.loads((store / "meta.json").read_text())
    meta["num_vertices"] = num_vertices
    for name, shape in (("indptr", (n + 1,)), ("labels", (n,)), ("features", (n, 2))):
        file, entry = store / f"{name}.npy", meta["arrays"][name]
        array = np.lib.format.open_memmap(file, "w+", entry["dtype"], shape)
        if name == "indptr":
            array[-1] = meta["num_edges"]
        array.flush()
        entry["shape"], entry["bytes"] = list(array.shape), file.stat().st_size
    (store / "meta.json").write_text(json.dumps(meta))


def test_store_replaced_while_it_is_opened(store, monkeypatch):
    real = graph_module.store_arrays.map_arrays

    def late(path, meta):
        arrays = real(path, meta)
        put(store, "features", ARRAYS["features"] + 1)
        return arrays

    monkeypatch.setattr(graph_module.store_arrays, "map_arrays", late)
    assert "was prepared anew while it was opened; try again" in refused(store)
