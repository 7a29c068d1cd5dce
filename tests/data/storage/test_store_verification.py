import json
import zlib

import numpy as np
import pytest
import torch

from gnnscale.data.storage.options import StoreOptions
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.storage.writer import StoreWriter


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "store")


def write(path, dtype="float32", steps=range(1, 7), **of_edges):
    """Write a ring of 50 vertices, with as many neighbors as there are steps."""
    path.mkdir()
    vertices = np.arange(50)
    with StoreWriter(path, StoreOptions(feature_dtype=dtype)) as writer:
        writer.set_num_vertices(50, source="raw")
        for step in steps:
            writer.add_edges(vertices, (vertices + step) % 50, source="raw", **of_edges)
        rows = np.ones((50, 3), np.float32)
        writer.write_features([rows], num_features=3, dtype="float32", source="raw")
        writer.set_labels(vertices % 2, source="raw")
        writer.set_split(vertices[:10], vertices[10:20], vertices[20:], source="raw")
        writer.finish(name="ring", source="raw", options={})
    return path


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf])
def test_weights_of_edges(tmp_path, weight):
    store = write(tmp_path / "store", steps=[1], weights=np.arange(50) / 4)
    assert problems(store) == []
    assert [check.what for check in verify_store(store)][-2:] == [
        "edge_weights.npy: checksum",
        "edge_weights.npy: all finite and not negative",
    ]
    change(store, "edge_weights", 7, weight)
    file = store / "edge_weights.npy"
    expected = [f"{file}: the weight of edge 7, to vertex 7, is {float(weight)}"]
    assert problems(store, slice_bytes=16) == expected


BAD_FEATURES_OF_EDGES = [
    (*("edge_rows", 50, "all in range"), "row 50 of edge 7, to vertex 7, is out of range, there"),
    (*("edge_features", np.inf, "all finite"), "feature 0 of row 7 is not finite"),
    (*("edge_ends", -1, "all in range"), "end -1 of edge 7 is out of range, the graph has 50 v"),
]


@pytest.mark.parametrize(("name", "value", "what", "problem"), BAD_FEATURES_OF_EDGES)
def test_features_of_edges(tmp_path, name, value, what, problem):
    store = write(tmp_path / "store", steps=[1], features=np.arange(50)[:, None])
    assert problems(store) == []
    found = [check.what for check in verify_store(store)]
    assert found[found.index(f"{name}.npy: checksum") + 1] == f"{name}.npy: {what}"
    change(store, name, 7, value)
    (found,) = problems(store, slice_bytes=16)
    assert found.startswith(f"{store / name}.npy: {problem}")


def change(store, name, place, value):
    """Change an entry, and the checksum with it."""
    array = np.load(store / f"{name}.npy", mmap_mode="r+")
    array[place] = value
    array.flush()
    meta = json.loads((store / "meta.json").read_text())
    meta["arrays"][name]["crc32"] = zlib.crc32(np.load(store / f"{name}.npy").tobytes())
    (store / "meta.json").write_text(json.dumps(meta))


def problems(store, **options):
    checks = verify_store(store, **options)
    return [check.problem for check in checks if check.problem is not None]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8", "int8", "int4"])
def test_whole_store(tmp_path, dtype):
    store = write(tmp_path / "other", dtype)
    checks = verify_store(store)
    assert [check.problem for check in checks] == [None] * 10
    assert checks[3].what == "indices.npy: neighbors in range and sorted"
    assert all(problems(store, slice_bytes=size) == [] for size in (4, 24, 52))


@pytest.mark.parametrize(
    "name", ["indices", "features", "labels", "train_idx", "valid_idx", "test_idx"]
)
def test_a_flipped_bit(store, name):
    """A bit that leaves an array valid shows in its checksum alone."""
    file = store / f"{name}.npy"
    data = bytearray(file.read_bytes())
    data[-4 if name == "features" else len(data) - np.load(file).itemsize] ^= 1
    file.write_bytes(data)
    found = problems(store)
    assert found
    if name in ("features", "labels"):
        assert found[0].startswith(f"{file}: checksum ")
        assert len(found) == 1


@pytest.mark.long
@pytest.mark.parametrize("slice_bytes", [64 << 20, 4, 36])
def test_bad_values_are_found(tmp_path, slice_bytes):
    for number, (name, place, value, message) in enumerate(
        [
            (
                "indices",
                8,
                50,
                "neighbor 50 of vertex 1 is out of range, the graph has 50 vertices",
            ),
            ("indices", 8, -(2**31), "neighbor -2147483648 of vertex 1 is out of range"),
            ("indices", 8, 0, "the neighbors of vertex 1 are not sorted"),
            ("indices", 299, 0, "the neighbors of vertex 49 are not sorted"),
            ("features", (7, 2), np.nan, "feature 2 of vertex 7 is not finite"),
            ("features", (49, 0), -np.inf, "feature 0 of vertex 49 is not finite"),
        ]
    ):
        store = write(tmp_path / str(number))
        change(store, name, place, value)
        (found,) = problems(store, slice_bytes=slice_bytes)
        assert found.startswith(f"{store / name}.npy: {message}")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_bfloat16_that_is_not_finite(tmp_path, bad):
    store = write(tmp_path / "other", "bfloat16")
    bits = torch.tensor(bad, dtype=torch.bfloat16).view(torch.int16).item() & 0xFFFF
    change(store, "features", (3, 1), bits)
    (found,) = problems(store)
    assert found.endswith("feature 1 of vertex 3 is not finite")


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_bad_scales_are_found(tmp_path, dtype):
    store = write(tmp_path / "other", dtype)
    for scale in (np.nan, np.inf, -1, 3e38):
        bits = np.frombuffer(np.float32(scale).tobytes(), np.uint8)
        change(store, "features", (3, slice(4)), bits)
        (found,) = problems(store, slice_bytes=36)
        assert found == f"{store}/features.npy: the scale of vertex 3 is {np.float32(scale)}"
    (store / "labels.npy").unlink()
    (problem,) = problems(store)
    assert problem.startswith(f"{store}/labels.npy: missing")
