from __future__ import annotations

import json

import numpy as np
import pytest

from gnnscale.graph import FORMAT_VERSION, Graph, GraphError, vertex_dtype

ARRAYS = {
    "indptr": np.array([0, 1, 3, 3]),
    "indices": np.array([1, 0, 2], np.int32),
    "features": np.arange(6, dtype=np.float32).reshape(3, 2),
    "labels": np.array([0, 1, -1]),
    "train_idx": np.array([0], np.int32),
    "valid_idx": np.array([1], np.int32),
    "test_idx": np.array([2], np.int32),
}


@pytest.fixture
def store(tmp_path):
    entries = {}
    for name, array in ARRAYS.items():
        np.save(tmp_path / f"{name}.npy", array)
        entries[name] = {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "bytes": (tmp_path / f"{name}.npy").stat().st_size,
        }
    meta = {
        "format_version": FORMAT_VERSION,
        "name": "tiny",
        "feature_dtype": "float32",
        "num_classes": 2,
        "metric": "accuracy",
        "arrays": entries,
    }
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    return tmp_path


def change_meta(store, **entries):
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps(meta | entries))


def test_open(store):
    graph = Graph.open(str(store))
    for name, array in ARRAYS.items():
        mapped = getattr(graph, name)
        np.testing.assert_array_equal(mapped, array)
        assert isinstance(mapped, np.memmap)
        assert not mapped.flags.writeable
    assert (graph.num_vertices, graph.num_edges, graph.num_features) == (3, 3, 2)
    assert graph.topology_bytes == 4 * 8 + 3 * 4
    assert graph.feature_bytes == 24
    assert not graph.multilabel
    assert graph.path == store


@pytest.mark.parametrize("name", ARRAYS)
def test_missing_file(store, name):
    (store / f"{name}.npy").unlink()
    with pytest.raises(GraphError, match=rf"{name}.npy: missing; run gnnscale prepare again"):
        Graph.open(store)


def test_truncated_file(store):
    file = store / "features.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(GraphError, match=r"features.npy: 148 bytes, meta.json says 152"):
        Graph.open(store)


def test_array_of_another_type(store):
    np.save(store / "labels.npy", ARRAYS["labels"].astype(np.float64))
    with pytest.raises(GraphError, match=r"labels.npy: float64\[3\], meta.json says int64\[3\]"):
        Graph.open(store)


def test_arrays_that_do_not_fit_together(store):
    np.save(store / "indptr.npy", np.array([0, 1, 3, 9]))
    with pytest.raises(GraphError, match=r"indices.npy: 3 rows, not 9"):
        Graph.open(store)


def test_file_that_is_no_array(store):
    file = store / "labels.npy"
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(GraphError, match=r"labels.npy: not a readable .npy array"):
        Graph.open(store)


@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
def test_meta_that_is_no_record(store, text):
    (store / "meta.json").write_text(text)
    with pytest.raises(GraphError, match=r"meta.json: "):
        Graph.open(store)


@pytest.mark.parametrize("key", ["name", "num_classes", "arrays"])
def test_meta_without_an_entry(store, key):
    meta = json.loads((store / "meta.json").read_text())
    del meta[key]
    (store / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(GraphError, match=rf"meta.json: no entry '{key}'"):
        Graph.open(store)


def test_other_version(store):
    change_meta(store, format_version=99)
    with pytest.raises(GraphError, match=r"format version 99, this release reads 1"):
        Graph.open(store)


def test_not_a_store(tmp_path):
    with pytest.raises(GraphError, match=r"not a graph store, it has no meta.json"):
        Graph.open(tmp_path)


def test_vertex_dtype():
    assert vertex_dtype(2**31 - 1) == np.int32
    assert vertex_dtype(2**31) == np.int64
