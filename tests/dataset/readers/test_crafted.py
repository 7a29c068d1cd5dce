"""Files made to mislead a reader: each ends in one line that names file and place."""

from __future__ import annotations

import gzip
import json
import logging
import pickle
import zipfile

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.dataset import Csr, RMat, Snap

HUGE = (2**63, 10**30)


@pytest.fixture
def fails(leftovers):
    """Prepare a store, which must fail with one line that begins with the file and nothing left."""

    def check(dataset, file, message):
        with pytest.raises(GraphError) as error:
            dataset.prepare()
        text = str(error.value)
        assert text.isprintable()
        assert text.startswith(str(file))
        assert message in text
        assert len(text) < 1000
        assert leftovers(dataset.store_path()) == []

    return check


def change(path, **arrays):
    """Write an archive again with other arrays; None leaves one out."""
    with np.load(path, allow_pickle=True) as npz:
        merged = dict(npz) | arrays
    np.savez(path, **{name: array for name, array in merged.items() if array is not None})


# NumPy archives: csr, heterophilous, gnn_benchmark


@pytest.mark.parametrize(
    ("layout", "arrays", "message"),
    [
        ("csr", {"indptr": np.array(3)}, "indptr.npy: int64[] has 0 axes"),
        ("csr", {"indptr": np.zeros((1, 1, 5), int)}, "indptr.npy: int64[1, 1, 5] has 3 axes"),
        ("csr", {"indptr": np.zeros(5, bool)}, "indptr.npy: bool[5], needed are whole numbers"),
        ("csr", {"indptr": np.zeros(0, int)}, "not offsets"),
        ("csr", {"indptr": np.zeros(1, int), "indices": np.zeros(0, int)}, "0 vertices"),
        ("csr", {"indptr": np.array([0, 2**64 - 1, 2, 5], np.uint64)}, "indptr must rise"),
        ("csr", {"indices": np.array([1, 2, 0, 3, 2**63], np.uint64)}, "9223372036854775808 is"),
        ("csr", {"indices": np.array([1, 2, 0, 3, 10**30], object)}, "indices.npy: not a readable"),
        ("csr", {"indices": np.zeros(5, [("a", int)])}, "indices.npy: not a readable"),
        ("csr", {"features": np.zeros((4, 2))}, "has also the arrays features, which"),
        ("csr", {"labels": np.zeros(4), "x": np.zeros(4)}, "has also the arrays labels, x, which"),
        ("csr", {"shape": np.array([4, 5])}, "shape.npy: [4, 5], needed is [4, 4]"),
        ("csr", {"shape": np.array([4.0, 4.0])}, "shape.npy: float64[2], needed are whole"),
        ("heterophilous", {"edges": np.zeros((2, 2, 1), int)}, "has 3 axes, needed are 2"),
        ("heterophilous", {"edges": np.zeros((2, 2), bool)}, "edges.npy: bool[2, 2], needed are"),
        ("heterophilous", {"edges": np.full((1, 2), 2**63, np.uint64)}, "9223372036854775808 is"),
        ("heterophilous", {"node_features": np.ones(3)}, "node_features.npy: float64[3] has 1"),
        ("heterophilous", {"node_features": np.ones((3, 0))}, "0 features, allowed are 1 to"),
        ("heterophilous", {"node_features": np.ones((2**40, 0))}, "1099511627776 feature rows"),
        ("heterophilous", {"node_features": np.ones((2, 2))}, "2 feature rows for 3 vertices"),
        ("heterophilous", {"node_features": np.full((3, 2), 1j)}, "node_features.npy: not a read"),
        ("heterophilous", {"node_labels": np.ones(3)}, "node_labels.npy: float64[3], needed are"),
        ("heterophilous", {"node_labels": np.array(["a", "b", "c"])}, "node_labels.npy: not a"),
        ("heterophilous", {"node_labels": np.array([0, 1, 2**60])}, "label 1152921504606846976 of"),
        ("heterophilous", {"node_labels": np.array([0, 1, 2**64 - 1], np.uint64)}, "of vertex 2"),
        ("heterophilous", {"node_labels": np.array([0, 1, -2])}, "label -2 of vertex 2"),
        ("heterophilous", {"train_masks": np.ones((1, 3))}, "train_masks.npy: float64[1, 3]"),
        ("heterophilous", {"train_masks": np.ones(3, bool)}, "train_masks.npy: bool[3] has 1 axes"),
        ("gnn_benchmark", {"attr_shape": np.array([4.0, 3.0])}, "attr_shape.npy: float64[2]"),
        ("gnn_benchmark", {"attr_shape": np.array([4, -3])}, "-3 features, allowed are 1 to"),
        ("gnn_benchmark", {"attr_shape": np.array([4, 2**40])}, "1099511627776 features"),
        ("gnn_benchmark", {"attr_shape": np.array([4])}, "shape is [4], offsets are of 4 rows"),
        ("gnn_benchmark", {"attr_shape": np.array([3, 3])}, "shape is [3, 3], offsets"),
        ("gnn_benchmark", {"attr_indices": np.array([0, 2, 1, 3])}, "column 3 of 3 is named"),
        ("gnn_benchmark", {"attr_indices": np.array([0, 2, 1, -1])}, "column -1 of 3 is named"),
        ("gnn_benchmark", {"attr_indptr": np.array([0, 9, 2, 2, 4])}, "indptr must rise"),
        ("gnn_benchmark", {"attr_data": np.ones(3)}, "3 values at 4 places"),
        ("gnn_benchmark", {"attr_data": np.full(4, np.nan)}, "feature 0 of vertex 0 is nan"),
        ("gnn_benchmark", {"attr_data": np.full(4, 1e300)}, "float32 cannot hold it"),
        ("gnn_benchmark", {"labels": np.zeros(3, int)}, "4 vertices, 3 labels, 4 feature rows"),
        ("gnn_benchmark", {"adj_shape": np.array([4, 9])}, "adj_shape.npy: [4, 9], needed is"),
        ("gnn_benchmark", {"adj_indices": None}, "has no array 'adj_indices', only"),
    ],
)
def test_archives(prepared_in, fails, layout, arrays, message):
    raw, dataset = prepared_in(layout)
    change(raw / "toy.npz", **arrays)
    fails(dataset, raw / "toy.npz", message)


def test_a_matrix_that_is_not_compressed_by_rows(prepared_in, fails):
    """Its arrays look the same, and would give every edge the wrong way round."""
    raw, dataset = prepared_in("csr")
    scipy.sparse.save_npz(raw / "toy.npz", scipy.sparse.csc_matrix(np.eye(4)))
    fails(dataset, f"{raw}/toy.npz/format.npy", "not in the format csr")
    scipy.sparse.save_npz(raw / "toy.npz", scipy.sparse.csr_matrix(np.eye(4)))
    assert dataset.open().num_edges == 4


def test_more_vertices_than_the_file_can_hold(prepared_in, fails):
    raw, dataset = prepared_in("csr")
    np.savez_compressed(
        raw / "toy.npz", indptr=np.zeros(2 << 20, np.int8), indices=np.zeros(0, np.int8)
    )
    fails(dataset, raw / "toy.npz", "2097151 vertices, allowed are 1 to")


def test_repeated_entries_do_not_wrap_around(prepared_in):
    """Two entries of 200 at one place are 400, which one byte does not hold."""
    raw, dataset = prepared_in("gnn_benchmark")
    change(
        raw / "toy.npz",
        attr_indices=np.array([0, 0, 1, 2]),
        attr_indptr=np.array([0, 2, 2, 2, 4]),
        attr_data=np.full(4, 200, np.uint8),
    )
    graph = dataset.open()
    assert graph.features.dtype == np.float32
    assert graph.features[[0, 3]].tolist() == [[400, 0, 0], [0, 200, 200]]


# GraphSAINT


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("role.json", '{"tr": [[0], [1, 2]], "va": [1], "te": [2]}', "number 0 is a list"),
        ("role.json", '{"tr": [0], "va": [1], "te": [1e30]}', "number 0 is 1e+30"),
        ("role.json", '{"tr": [0], "va": [1], "te": [2.0]}', "number 0 is 2.0"),
        ("role.json", '{"tr": [0], "va": [1], "te": [true]}', "number 0 is True"),
        ("role.json", '{"tr": [0], "va": [1], "te": ["2"]}', "number 0 is '2'"),
        ("role.json", '{"tr": [0], "va": 7, "te": [2]}', "ids of 'va' must be a list, not 7"),
        ("role.json", '{"tr": [0], "va": {"1": 1}, "te": [2]}', "must be a list, not a dict"),
        ("role.json", f'{{"tr": [0, {HUGE[0]}], "va": [1], "te": [2]}}', f"1 is {HUGE[0]}"),
        ("role.json", f'{{"tr": [0, {HUGE[1]}], "va": [1], "te": [2]}}', f"1 is {HUGE[1]}"),
        ("role.json", '{"tr": [0], "va": [1], "te": [9]}', "vertex id 9 is out of range"),
        ("role.json", '{"tr": [0], "tr": [3], "va": [1], "te": [2]}', "key 'tr' stands twice"),
        ("role.json", "[" * 100_000, "cannot be read as JSON"),
        ("class_map.json", '{"0": 2, "2": 0, "1": 1, "3": NaN}', "NaN is not a number"),
        ("class_map.json", '{"0": 2, "2": 0, "1": 1, "3": 1.5}', "number 3 is 1.5"),
        ("class_map.json", '{"0": 2, "2": 0, "1": 1, "3": 1000000}', "label 1000000 of vertex 3"),
        ("class_map.json", f'{{"0": 2, "2": 0, "1": 1, "3": {HUGE[1]}}}', f"3 is {HUGE[1]}"),
        ("class_map.json", '{"0": 2, "2": 0, "1": 1, "03": 1, "3": 1}', "vertex 3 is named twice"),
        ("class_map.json", '{"0": 2, "2": 0, "1": 1, "3_": 1}', "key '3_' is not a vertex id"),
        ("class_map.json", '{"0": [0], "2": [1], "1": [2], "3": [0]}', "has 2, allowed are 0 and"),
        ("class_map.json", '{"0": [0], "2": [1], "1": ["1"], "3": [0]}', "has '1', allowed are"),
        ("class_map.json", '{"0": [0], "2": [1], "1": 1, "3": [0]}', "class of vertex 1 is 1, the"),
        ("class_map.json", '{"0": [], "2": [], "1": [], "3": []}', "0 classes, allowed are 1 to"),
        ("class_map.json", "{}", "ids must be 0 to 3"),
        ("feats.npy", np.ones(4), "float64[4] has 1 axes"),
        ("feats.npy", np.ones((4, 0)), "0 features"),
        ("feats.npy", np.array(7), "int64[] has 0 axes"),
        ("feats.npy", np.full((4, 2), "a"), "not a readable .npy file"),
        ("feats.npy", np.full((4, 1), 1e300), "float32 cannot hold it"),
    ],
)
def test_graphsaint(prepared_in, fails, file, content, message):
    raw, dataset = prepared_in("graphsaint")
    if isinstance(content, str):
        (raw / file).write_text(content)
    else:
        np.save(raw / file, content)
    fails(dataset, raw / file, message)


def test_graphsaint_takes_a_folder(prepared_in, fails):
    raw, dataset = prepared_in("graphsaint")
    file = raw / "feats.npy"
    fails(type(dataset)(name="toy", raw=str(file)), file, "not a folder with adj_full.npz")


# MAG240M


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("node_feat", np.float16(1), "float16[] has 0 axes, needed are 2"),
        ("node_feat", np.ones((4, 3, 1), np.float16), "has 3 axes, needed are 2"),
        ("node_feat", np.ones((4, 3), int), "int64[4, 3], needed are floating point"),
        ("node_feat", np.ones((1 << 40, 0), np.float16), "0 features"),
        ("node_feat", np.ones((2 << 20, 1), np.float16)[:, :0], "0 features"),
        ("node_feat", np.full((4, 3), np.inf, np.float16), "feature 0 of vertex 0 is inf"),
        ("node_label", np.float32(1), "float32[] has 0 axes, needed are 1"),
        ("node_label", np.ones((4, 1), np.float32), "has 2 axes, needed are 1"),
        ("node_label", np.array([7, 152, np.inf, np.nan]), "label inf of vertex 2 is not a class"),
        ("node_label", np.array([7, 152, 0.5, np.nan]), "label 0.5 of vertex 2 is not a class"),
        ("node_label", np.array([7, 152, 1e300, 0]), "label 1e+300 of vertex 2 is not a class"),
        ("node_label", np.array([7, 153, 0, 0]), "label 153 of vertex 1 is out of range"),
        ("node_label", np.array([7, -1, 0, 0]), "label -1 of vertex 1 is not a class"),
        ("node_label", np.array(["a"] * 4), "not a readable .npy file"),
        ("node_label", np.ones(3), "3 labels for 4 vertices"),
        ("edge_index", np.array(1), "int64[] has 0 axes, needed are 2"),
        ("edge_index", np.zeros((3, 2), int), "[3, 2], allowed is [2, num_edges]"),
        ("edge_index", np.zeros((2, 3)), "float64[2, 3], needed are whole numbers"),
        ("edge_index", np.full((2, 3), 4), "vertex id 4 is out of range"),
    ],
)
def test_mag240m(prepared_in, fails, file, array, message):
    raw, dataset = prepared_in("mag240m")
    path = next(raw.rglob(f"{file}.npy"))
    np.save(path, array)
    fails(dataset, path, message)


GOOD_SPLIT = {"train": np.array([0]), "valid": np.array([1]), "test-dev": np.array([2])}


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (["train"], "holds a list, not a split of train, valid, test-dev"),
        ({"train": np.array([0])}, "not a split of train, valid, test-dev: it has no 'valid'"),
        (GOOD_SPLIT | {"valid": [1]}, "valid: holds a list, not an array"),
        (GOOD_SPLIT | {"valid": np.array(1)}, "valid: int64[] has 0 axes"),
        (GOOD_SPLIT | {"valid": np.array([1.0])}, "valid: float64[1], needed are whole numbers"),
        (GOOD_SPLIT | {"valid": np.array([4])}, "vertex id 4 is out of range"),
        (GOOD_SPLIT | {"valid": np.array([{}])}, "a dtype of 'O8'"),
        (GOOD_SPLIT | {"valid": torch.tensor([1])}, "it names torch._utils._rebuild_tensor_v2"),
        (torch.nn.Linear(1, 1), "it names torch.nn.modules.linear.Linear"),
    ],
)
def test_mag240m_split(prepared_in, fails, split, message):
    raw, dataset = prepared_in("mag240m")
    torch.save(split, raw / "split_dict.pt")
    fails(dataset, raw / "split_dict.pt", message)


def test_mag240m_splits_that_torch_did_not_save_so(prepared_in, fails):
    raw, dataset = prepared_in("mag240m")
    file = raw / "split_dict.pt"
    torch.save(GOOD_SPLIT, file, _use_new_zipfile_serialization=False)
    fails(dataset, file, "cannot be read (File is not a zip file)")
    file.write_bytes(pickle.dumps(GOOD_SPLIT))
    fails(dataset, file, "cannot be read (File is not a zip file)")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
        archive.writestr("b/data.pkl", b"N.")
    fails(dataset, file, "2 members data.pkl")


# Pickles that crash NumPy, in the files that are read as pickles

OBJECT_FIELDS = (
    b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x01\x85"
    b"cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R(K\x03U\x01|NU\x01a\x85}U\x01acnumpy\ndtype\nU\x02O8"
    b"K\x00K\x01\x87RK\x00\x86sK\x08K\x01K\x00tb\x89C\x08AAAAAAAAtb."
)
EMPTY_OBJECTS = (
    b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x09\x85"
    b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3f"
    b"tb\x89]tb."
)


@pytest.mark.parametrize(
    ("content", "message"), [(OBJECT_FIELDS, "a dtype of 'V8'"), (EMPTY_OBJECTS, "a dtype of 'O8'")]
)
def test_arrays_that_crash_numpy(prepared_in, fails, tmp_path, content, message):
    raw, dataset = prepared_in("planetoid")
    for part in ("allx", "ally", "graph"):
        file = raw / f"ind.toy.{part}"
        before = file.read_bytes()
        file.write_bytes(content)
        fails(dataset, file, message)
        file.write_bytes(before)


def test_a_split_that_crashes_numpy(prepared_in, fails):
    raw, dataset = prepared_in("mag240m")
    with zipfile.ZipFile(raw / "split_dict.pt", "w") as archive:
        archive.writestr("archive/data.pkl", OBJECT_FIELDS)
    fails(dataset, f"{raw}/split_dict.pt/archive/data.pkl", "a dtype of 'V8'")


# Planetoid


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("test.index", b"504\n99999999999\n", "test vertices are 504 to 99999999999, allowed"),
        ("test.index", b"504\n9223372036854775808\n", "line 2 is '9223372036854775808'"),
        ("test.index", b"504\n-1\n", "test vertices are -1 to 504"),
        ("test.index", b"504\n7\n", "test vertices are 7 to 504, allowed are 503"),
        ("test.index", b"504\n504\n", "a test vertex is named twice"),
        ("test.index", b"504\n", "1 test vertices, 2 feature rows"),
        ("test.index", b"504\nx\n", "line 2 is 'x'"),
        ("test.index", b"", "empty"),
        ("ally", np.eye(503, 3) * np.nan, "classes must be rows of zeros and ones"),
        ("ally", np.ones(503), "float64[503] has 1 axes, needed are 2"),
        ("ally", np.array([["a"]]), "a dtype of 'U1'"),
        ("ally", np.ones((503, 0)), "0 classes, allowed are 1 to"),
        ("ally", np.eye(503, 4), "3 classes in the files of known and test vertices"),
        ("graph", {0: [HUGE[0]]}, f"number 0 is {HUGE[0]}"),
        ("graph", {0: [HUGE[1]]}, f"number 0 is {HUGE[1]}"),
        ("graph", {0: [True]}, "number 0 is True"),
        ("graph", {0: [[1, 2], [3]]}, "number 0 is a list"),
        ("graph", {"0": [1]}, "vertex ids must be whole numbers of 64 bits, number 0 is '0'"),
        ("graph", {0: (1,)}, "holds a tuple, not lists of neighbours"),
        ("graph", {v: [1] * 40 for v in range(2)} | dict.fromkeys(range(2, 90), [7] * 40), ""),
    ],
)
def test_planetoid(prepared_in, fails, part, value, message):
    raw, dataset = prepared_in("planetoid")
    file = raw / f"ind.toy.{part}"
    if part == "graph" and not message:  # one list, used 88 times
        message = "neighbours, more than its bytes"
    file.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, 2))
    named = file if part != "ally" or "files of" not in message else raw / "ind.toy.test.index"
    fails(dataset, named, message)


def test_planetoid_matrices(prepared_in, fails):
    raw, dataset = prepared_in("planetoid")
    file = raw / "ind.toy.allx"
    good = scipy.sparse.csr_matrix(np.eye(503, 4, dtype=np.float32))
    cases = [
        ("_shape", (503, 2**40), "1099511627776 features"),
        ("_shape", (503, 4.0), "number of features is 4.0"),
        ("_shape", (2**40, 4), "its shape and offsets differ"),
        ("_shape", [503, 4], "its shape and offsets differ"),
        ("indices", np.array([0, 1, 2, -1], np.int32), "column -1 of 4"),
        ("indptr", np.arange(504)[::-1], "indptr must rise"),
        ("data", np.ones((4, 1)), "data: float64[4, 1] has 2 axes"),
        ("data", [1, 2, 3, 4], "data: holds a list, not an array"),
        ("data", np.ones(3), "3 values at 4 places"),
    ]
    for name, value, message in cases:
        matrix = good.copy()
        matrix.__dict__[name] = value
        file.write_bytes(pickle.dumps(matrix, 2))
        fails(dataset, file, message)


def test_a_vast_matrix_of_nothing(prepared_in, fails):
    """20,000 rows of 65,536 columns would be 1.2 GiB on disk."""
    raw, dataset = prepared_in("planetoid")
    file = raw / "ind.toy.allx"
    file.write_bytes(pickle.dumps(scipy.sparse.csr_matrix((20_000, 65_536), dtype=np.uint8), 2))
    fails(dataset, file, "0 values in a matrix of 20000 x 65536 would take")


# MUSAE


@pytest.mark.parametrize("layout", ["musae", "musae_zip"])
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("target.csv", "id,target\n9223372036854775808,1\n", "has the id '9223372036854775808'"),
        ("target.csv", f"id,target\n{HUGE[1]},1\n", "ids must be whole numbers"),
        ("target.csv", "id,target\n-1,1\n", "ids must be 0 to 0, each once"),
        ("target.csv", "id,target\n0,1\n1\n", "line 3 has 1 columns, the header 2"),
        ("target.csv", "id,target\n0,1\n1,2,3\n", "line 3 has 3 columns, the header 2"),
        ("target.csv", b"id,target\n0,\xff\n", "cannot be read as csv ('utf-8' codec"),
        ("target.csv", f"id,target\n0,{'x' * 200_000}\n", "cannot be read as csv (field larger"),
        ("target.csv", "id,target\n0,1\n1,0\n2,l\n", "line 4 has the class 'l'; classes must be"),
        ("target.csv", "id,target\n0,a\n1,b\n2,0\n", "line 4 has the class '0'; classes must be"),
        ("target.csv", "id,target\n0,1\n1,0.5\n", "line 3 has the class '0.5', allowed are"),
        ("target.csv", "id,target\n0,nan\n1,nan\n", "line 2 has the class 'nan', allowed are"),
        ("target.csv", "id,target\n0,1\n1,\n", "line 3 has the class '', allowed are"),
        ("target.csv", "id,target\n0,1\n1,99999\n2,0\n", "label 99999 of vertex 1 is too large"),
        ("target.csv", "id,target\n0,1\n1,-7\n2,0\n", "label -7 of vertex 1 is out of range"),
        ("target.csv", f"id,target\n0,{HUGE[1]}\n1,0\n", "has the class '1000"),
        ("target.csv", "id,target\n", "0 vertices, allowed are 1 to"),
        ("target.csv", "", "columns are ; needed are"),
        ("edges.csv", "from\n0\n1\n", "line 2 has 1 columns"),
        ("edges.csv", f"from,to\n0,{HUGE[0]}\n", "line 2 is '0,9223372036854775808'"),
        ("edges.csv", b"from,to\n0,\xff\n", "line 2 is"),
        ("edges.csv", "from,to\n", "empty"),
        ("features.json", '{"0": [99999999999999]}', "100000000000000 features"),
        ("features.json", f'{{"0": [{HUGE[0]}]}}', f"number 0 is {HUGE[0]}"),
        ("features.json", '{"0": [true]}', "number 0 is True"),
        ("features.json", '{"0": ["1"]}', "number 0 is '1'"),
        ("features.json", '{"0": 7}', "features of vertex 0 are 7, not lists"),
        ("features.json", '{"0": []}', "the smallest of 0 is 0"),
        ("features.json", "{}", "the smallest of 0 is 0"),
        ("features.json", '{"0": [1], "00": [2]}', "vertex 0 is named twice"),
        ("features.json", "[" * 100_000, "cannot be read as JSON"),
        ("features.json", b'{"\xff": [1]}', "cannot be read as JSON"),
    ],
)
def test_musae(prepared_in, fails, layout, file, content, message):
    raw, dataset = prepared_in(layout)
    content = content.encode() if isinstance(content, str) else content
    if layout == "musae":
        named = raw / f"toy_{file}"
        named.write_bytes(content)
    else:
        named = f"{raw}/toy.zip/toy/toy_{file}"
        replace_member(raw / "toy.zip", f"toy/toy_{file}", content)
    fails(dataset, named, message)


def replace_member(path, name, content):
    with zipfile.ZipFile(path) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in (members | {name: content}).items():
            archive.writestr(each, data)


def test_a_json_member_that_unpacks_to_much(prepared_in, fails):
    raw, dataset = prepared_in("musae_zip")
    content = b'{"0": [' + b" " * (18 << 20) + b"1]}"
    replace_member(raw / "toy.zip", "toy/toy_features.json", content)
    fails(dataset, f"{raw}/toy.zip/toy/toy_features.json", "unpack the archive and name the folder")


def test_edges_that_unpack_to_much(prepared_in, fails):
    raw, dataset = prepared_in("musae_zip")
    content = b"a,b\n" + b"0,1\n" * (20 << 20)
    replace_member(raw / "toy.zip", "toy/toy_edges.csv", content)
    fails(dataset, f"{raw}/toy.zip/toy/toy_edges.csv", "unpack the archive and name the folder")


def test_words_keep_their_numbers(prepared_in):
    raw, dataset = prepared_in("musae")
    (raw / "toy_target.csv").write_text("id,target\n0,cat\n1,ant\n2,cat\n")
    assert dataset.open().labels.tolist() == [1, 0, 1]


def test_the_part_is_looked_for_inside_the_folder(prepared_in):
    raw, dataset = prepared_in("musae")
    one = type(dataset)(name="toy", raw=str(raw), part="raw", split="random")
    with pytest.raises(GraphError, match=r"0 files \*raw\*target.csv"):
        one.prepare()


# OGB


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("raw/num-node-list", "-4\n", "-4 vertices, allowed are 1 to"),
        ("raw/num-node-list", "99999999999\n", "99999999999 vertices, allowed are 1 to"),
        ("raw/num-node-list", "9223372036854775808\n", "line 1 is '9223372036854775808'"),
        ("raw/num-node-list", "4,4\n4,4\n", "2 graphs"),
        ("raw/num-node-list", "5\n", "4 labels for 5 vertices"),
        ("raw/num-node-list", "3\n", "over 3 rows"),
        ("raw/node-label", "0\n1\n1e300\n1\n", "label 1e+300 of vertex 2 is not a class"),
        ("raw/node-label", "0\n1\ninf\n1\n", "label inf of vertex 2 is not a class"),
        ("raw/node-label", "0\n1\n50000\n1\n", "label 50000 of vertex 2 is too large"),
        ("raw/node-label", "nan\nnan\nnan\nnan\n", "no vertex has a label"),
        ("raw/node-label", "0,1\n1,nan\n0,0\n1,1\n", "label nan of vertex 1 is out of range"),
        ("raw/node-label", "0\n1\nx\n1\n", "line 3 is 'x'"),
        ("raw/edge", "0\n1\n", "line 1 has 1 columns"),
        ("raw/edge", f"0,1\n1,{HUGE[1]}\n", "line 2 is '1,1000"),
        ("raw/node-feat", "0,1\n1,1e39\n2,3\n3,4\n", "feature 1 of vertex 1 is inf"),
        ("raw/node-feat", "0," * 70_000 + "\n", "70001 features, allowed are 1 to"),
        ("split/time/valid", "2.5\n", "line 1 is '2.5'"),
        ("split/time/valid", "2\n" * 5, "over 4 rows"),
    ],
)
def test_ogb_text(prepared_in, fails, name, text, message):
    raw, dataset = prepared_in("ogb_text")
    file = raw / f"{name}.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    sizes = name == "raw/num-node-list" and ("labels" in message or "rows" in message)
    fails(dataset, raw / "raw" / "node-label.csv.gz" if sizes else file, message)


@pytest.mark.parametrize(
    ("file", "arrays", "message"),
    [
        ("data", {"num_nodes_list": np.array([2, 2])}, "2 graphs, exactly 1 is needed"),
        ("data", {"num_nodes_list": np.array(4)}, "num_nodes_list.npy: int64[] has 0 axes"),
        ("data", {"num_nodes_list": np.array([4.0])}, "num_nodes_list.npy: float64[1]"),
        ("data", {"num_nodes_list": np.array([2**40])}, "1099511627776 vertices, allowed are"),
        ("data", {"num_nodes_list": np.array([5])}, "4 feature rows for 5 vertices"),
        ("data", {"node_feat": np.ones((4, 2), int)}, "node_feat.npy: int64[4, 2], needed are fl"),
        ("data", {"node_feat": np.ones((4, 0), np.float32)}, "0 features"),
        ("data", {"node_feat": np.float32(1)}, "node_feat.npy: float32[] has 0 axes"),
        ("data", {"edge_index": np.zeros((2, 3))}, "edge_index.npy: float64[2, 3]"),
        ("data", {"edge_index": np.zeros((2, 3), bool)}, "edge_index.npy: bool[2, 3]"),
        ("data", {"edge_index": np.zeros((2, 3, 1), int)}, "has 3 axes, needed are 2"),
        ("node-label", {"node_label": np.array(3.0)}, "node_label.npy: float64[] has 0 axes, need"),
        ("node-label", {"node_label": np.ones((4, 1, 1))}, "has 3 axes, needed are 1 or 2"),
        ("node-label", {"node_label": np.ones(3)}, "3 labels for 4 vertices"),
        ("node-label", {"node_label": np.array(["a"] * 4)}, "node_label.npy: not a readable"),
        ("node-label", {"node_label": np.full(4, 2**62)}, "label 4611686018427387904 of vertex 0"),
    ],
)
def test_ogb_binary(prepared_in, fails, file, arrays, message):
    raw, dataset = prepared_in("ogb_binary")
    path = raw / "raw" / f"{file}.npz"
    change(path, **arrays)
    fails(dataset, path, message)


def test_ogb_takes_a_folder(prepared_in, fails):
    raw, dataset = prepared_in("ogb_text")
    file = raw / "raw" / "edge.csv.gz"
    fails(type(dataset)(name="toy", raw=str(file)), file, "not a folder with raw/ and split/")


# SNAP


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0\n1\n2\n", "line 1 has 1 columns"),
        (b"0 1\n\xff 2\n", "line 2 is"),
        (b"0 1\n1 " + b"9" * (21 << 20), "line 2 is longer than 4194304 bytes"),
        (f"0 1\n1 {HUGE[0]}\n".encode(), "line 2 is '1 9223372036854775808'"),
        (b"0 1\n\x1b]0;title\x07 2\n", "line 2 is"),
        (b"\0" * 5_000_000, "line 1 is longer"),
    ],
)
def test_snap(tmp_path, fails, content, message):
    (tmp_path / "toy.txt").write_bytes(content)
    dataset = Snap(name="toy", raw=str(tmp_path), store=str(tmp_path / "stores" / "s"))
    fails(dataset, tmp_path / "toy.txt", message)


def test_a_device_is_no_edge_list(fails):
    fails(Csr(name="toy", raw="/dev/zero"), "/dev/zero", "not a regular file")


# What the layout lacks is said


@pytest.mark.parametrize("layout", ["csr", "snap"])
def test_made_features_and_labels_are_said(prepared_in, caplog, layout):
    _, dataset = prepared_in(layout)
    meta = json.loads((dataset.prepare() / "meta.json").read_text())
    assert meta["made"] == ["features", "labels"]
    (record,) = [each for each in caplog.records if "both are made" in each.message]
    assert record.levelno == logging.WARNING
    assert record.message.startswith("toy: the layout has no features and labels")


def test_a_generated_graph_warns_of_nothing(caplog):
    dataset = RMat(name="toy", num_vertices=500, num_edges=900)
    meta = json.loads((dataset.prepare() / "meta.json").read_text())
    assert meta["made"] == ["features", "labels"]
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_further_columns_are_said(prepared_in, caplog):
    raw, dataset = prepared_in("snap")
    (raw / "toy.txt.gz").write_bytes(gzip.compress(b"0 1 5\n1 2 5\n3 4 5\n4 5 5\n"))
    with caplog.at_level(logging.INFO):
        dataset.prepare()
    assert "columns after the first two are not read" in caplog.text


@pytest.mark.parametrize(
    "option",
    [
        {"num_features": 0},
        {"num_features": 65_537},
        {"num_classes": 1},
        {"num_classes": 2**20 + 1},
        {"signal": float("nan")},
        {"signal": float("inf")},
        {"signal": -1.0},
        {"seed": -1},
        {"seed": 2**63},
    ],
)
def test_what_is_made_has_limits(option):
    with pytest.raises(ConfigError, match=f"dataset.{next(iter(option))}="):
        Csr(name="toy", **option)


# Raw files


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("csr", ["toy.npz"]),
        ("gnn_benchmark", ["toy.npz"]),
        ("heterophilous", ["toy.npz"]),
        ("graphsaint", ["adj_full.npz", "class_map.json", "feats.npy", "role.json"]),
        ("mag240m", ["edge_index.npy", "node_feat.npy", "node_label.npy", "split_dict.pt"]),
        ("musae", ["toy_edges.csv", "toy_features.json", "toy_target.csv"]),
        ("musae_zip", ["toy.zip"]),
        ("ogb_binary", ["data.npz", "node-label.npz"]),
        ("snap", ["toy.txt.gz"]),
    ],
)
def test_raw_files(prepared_in, layout, expected):
    _, dataset = prepared_in(layout)
    files = dataset.raw_files()
    assert sorted(file.name for file in files) == expected
    assert all(file.is_file() for file in files)
    files[0].unlink()
    with pytest.raises(GraphError):
        dataset.raw_files()


def test_raw_files_of_several_parts(prepared_in):
    _, dataset = prepared_in("ogb_text")
    assert len(dataset.raw_files()) == 7
    assert len(type(dataset)(name="toy", raw=dataset.raw, split="random").raw_files()) == 4


def test_raw_files_of_planetoid(prepared_in):
    """The file x repeats what allx has, and is not read."""
    raw, dataset = prepared_in("planetoid")
    assert sorted(file.name for file in dataset.raw_files()) == sorted(
        file.name for file in raw.iterdir()
    )
