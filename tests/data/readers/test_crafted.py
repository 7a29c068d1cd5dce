import gzip
import io
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import Csr

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
    kept = {name: array for name, array in merged.items() if array is not None}
    np.savez_compressed(path, **kept)


def pickled(value):
    return pickle.dumps(value, 2)


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def matrix(**fields):
    """A sparse matrix of 503 rows, with other fields than fit."""
    made = scipy.sparse.csr_matrix(np.eye(503, 4, dtype=np.float32))
    made.__dict__.update(fields)
    return made


def put(path, content):
    """Write what a layout's file is to hold; None removes it."""
    if content is None:
        path.unlink()
    elif isinstance(content, dict):
        change(path, **content)
    elif isinstance(content, (np.ndarray, np.generic)):
        np.save(path, content)
    else:
        data = content.encode() if isinstance(content, str) else content
        packed = path.suffix == ".gz" and isinstance(content, str)
        path.write_bytes(gzip.compress(data) if packed else data)


def put_into(archive, name, content):
    with zipfile.ZipFile(archive) as file:
        members = {each: file.read(each) for each in file.namelist()}
    archive.write_bytes(zipped(members | {name: content}))


MANY_VERTICES = {"indptr": np.zeros(2 << 20, np.int8), "indices": np.zeros(0, np.int8)}
IDS = "split_dict.pt"
PARTS = {"train": np.array([0]), "valid": np.array([1]), "test-dev": np.array([2])}
NO_ZIP = "cannot be read (File is not a zip file)"
REPEATED = {v: [1] * 40 for v in range(2)} | dict.fromkeys(range(2, 90), [7] * 40)
VAST = scipy.sparse.csr_matrix((20_000, 65_536), dtype=np.uint8)
#: Pickles that crash NumPy.
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
CRASHES = ((OBJECT_FIELDS, "a dtype of 'V8'"), (EMPTY_OBJECTS, "a dtype of 'O8'"))
MUSAE = (
    ("toy_target.csv", "id,target\n9223372036854775808,1\n", "has the id '9223372036854775808'"),
    ("toy_target.csv", "id,target\n-1,1\n", "ids must be 0 to 0, each once"),
    ("toy_target.csv", "id,target\n0,1\n1\n", "line 3 has 1 columns, the header 2"),
    ("toy_target.csv", b"id,target\n0,\xff\n", "cannot be read as csv ('utf-8' codec"),
    ("toy_target.csv", f"id,target\n0,{'x' * 200_000}\n", "cannot be read as csv (field larger"),
    ("toy_target.csv", "id,target\n0,1\n1,0\n2,l\n", "line 4 has the class 'l'; classes must be"),
    ("toy_target.csv", "id,target\n0,1\n1,0.5\n", "line 3 has the class '0.5', allowed are"),
    ("toy_target.csv", "id,colour\n0,red\n", "columns are id, colour; needed are"),
    ("toy_edges.csv", f"from,to\n0,{HUGE[0]}\n", "line 2 is '0,9223372036854775808'"),
    ("toy_features.json", '{"0": [99999999999999]}', "100000000000000"),
    ("toy_features.json", '{"7": [1]}', "vertex id 7 is out of range"),
    ("toy_features.json", '{"0": 7}', "features of vertex 0 are 7, not lists"),
    ("toy_features.json", '{"0": []}', "the smallest of 0 is 0"),
    ("toy_features.json", '{"0": [1], "00": [2]}', "vertex 0 is named twice"),
    ("toy_features.json", b'{"\xff": [1]}', "cannot be read as JSON"),
)
ALLX, ALLY, GRAPH, TESTS = (f"ind.toy.{part}" for part in ("allx", "ally", "graph", "test.index"))

CLASSES, LABEL, TOY = "class_map.json", "node_label.npy", "toy.npz"
LABELS, NODES, ROWS = (f"{name}.csv.gz" for name in ("node-label", "num-node-list", "node-feat"))
#: For each layout: a file of its example, what it holds instead, and the message.
CRAFTED = {
    "csr": [
        (TOY, {"indptr": np.zeros(0, int)}, "not offsets"),
        (
            TOY,
            {"indptr": np.zeros(1, int), "indices": np.zeros(0, int)},
            "/raw/toy.npz: expected 1 to 1048971 vertices in files of 395 bytes,",
        ),
        (TOY, {"indptr": np.array([0, 2**64 - 1, 2, 5], np.uint64)}, "indptr[2] is 2, below"),
        (TOY, {"indices": np.array([1, 2, 0, 3, 4])}, "4 is out of range, the graph has 4"),
        (TOY, {"indices": np.array([2**63] * 5, np.uint64)}, "id 9223372036854775808 is"),
        (TOY, {"labels": np.zeros(4), "x": np.zeros(4)}, "got also labels"),
        (TOY, {"shape": np.array([4, 5])}, "shape.npy: [4, 5], needed is [4, 4]"),
        (TOY, MANY_VERTICES, "2097151"),
    ],
    "heterophilous": [
        (TOY, {"edges": np.zeros((3, 3), int)}, "allowed is [edges, 2]"),
        (TOY, {"node_features": np.ones((2**40, 0))}, "1099511627776 feature rows"),
        (TOY, {"node_labels": np.array([0, 1, 2**64 - 1], np.uint64)}, "of vertex 2"),
        (TOY, {"train_masks": np.ones((1, 9), bool)}, "masks are not [splits, 3]"),
    ],
    "gnn_benchmark": [
        (TOY, {"attr_shape": np.array([4, 2**40])}, "1099511627776"),
        (TOY, {"attr_shape": np.array([4])}, "shape is [4], offsets are of 4 rows"),
        (TOY, {"attr_indices": np.array([0, 2, 1, 3])}, "column 3 of 3 is named"),
        (TOY, {"attr_data": np.ones(3)}, "3 values at 4 places"),
        (TOY, {"labels": np.zeros(3, int)}, "4 vertices, 3 labels, 4 feature rows"),
        (TOY, {"adj_shape": np.array([4, 9])}, "adj_shape.npy: [4, 9], needed is"),
        (TOY, {"adj_indices": None}, "has no array 'adj_indices', only"),
    ],
    "graphsaint": [
        ("role.json", '{"tr": [[0], [1, 2]], "va": [1], "te": [2]}', "number 0"),
        ("role.json", '{"tr": [0], "va": [1], "te": [2.0]}', "number 0"),
        ("role.json", '{"tr": [0], "va": 7, "te": [2]}', "ids of 'va': expected a list, got 7"),
        ("role.json", '{"tr": [0], "va": [1]}', "has no list 'te'"),
        (
            CLASSES,
            '{"0": [1], "2": [0], "1": [1, 0], "3": [0]}',
            "vertex 1: expected a list of 1 zeros and ones as for the first",
        ),
        (CLASSES, '{"0": 2, "2": 0, "1": 1, "03": 1, "3": 1}', "vertex 3 is named twice"),
        (
            CLASSES,
            '{"0": [0], "2": [1], "1": [2], "3": [0]}',
            "class of vertex 1: expected 0 or 1, got 2",
        ),
        (
            CLASSES,
            '{"0": [0], "2": [1], "1": 1, "3": [0]}',
            "class of vertex 1: expected a list of 1 zeros and ones as for the",
        ),
        (CLASSES, '{"0": [], "2": [], "1": [], "3": []}', "0 classes, allowed are 1 to"),
        ("feats.npy", np.ones((3, 2)), "3 feature rows for 4 vertices"),
    ],
    "mag240m": [
        ("node_feat.npy", np.ones((4, 3), int), "expected floating point, got int64[4, 3]"),
        (
            LABEL,
            np.array([7, 152, 0.5, np.nan]),
            "label of vertex 2: expected a class from 0 to 1048575, got 0.5",
        ),
        (LABEL, np.array([7, 153, 0, 0]), "label of vertex 1: expected -1 to 152, got 153"),
        (LABEL, np.ones(3), "3 labels for 4 vertices"),
        ("edge_index.npy", np.zeros((3, 2), int), "[3, 2], allowed is [2, num_edges]"),
        (IDS, saved(["train"]), "holds a list, not a split of train, valid, test-dev"),
        (IDS, saved({"train": np.array([0])}), "not a split of train, valid, test-dev: it"),
        (IDS, saved(PARTS | {"valid": [1]}), "valid: holds a list, not an array"),
        (IDS, saved(PARTS | {"valid": np.array([{}])}), "a dtype of 'O8'"),
        (IDS, saved(PARTS | {"valid": torch.ones(1)}), "it names torch._utils._rebuild_tensor_v2"),
        (IDS, saved(PARTS, _use_new_zipfile_serialization=False), NO_ZIP),
        (IDS, zipped({"a/data.pkl": b"N.", "b/data.pkl": b"N."}), "2 members data.pkl"),
    ],
    "planetoid": [
        (TESTS, b"504\n99999999999\n", "test vertices are 504 to 99999999999"),
        (TESTS, b"504\n9223372036854775808\n", "line 2 is '9223372036854775808'"),
        (TESTS, b"504\n504\n", "a test vertex is named twice"),
        (TESTS, b"504\n", "1 test vertices, 2 feature rows"),
        (ALLY, pickled(np.eye(503, 3) * np.nan), "classes must be rows of zeros and ones"),
        (ALLY, pickled(np.array([["a"]])), "a dtype of 'U1'"),
        (ALLY, pickled(np.ones((503, 0))), "0 classes, allowed are 1 to"),
        (GRAPH, pickled({0: [HUGE[1]]}), f"got {HUGE[1]} as number 0"),
        (GRAPH, pickled({0: [[1, 2], [3]]}), "number 0"),
        (GRAPH, pickled([1, 2]), "holds a list, not a dict"),
        (
            GRAPH,
            pickled({"0": [1]}),
            "vertex ids: expected integers of 64 bits, got '0' as number 0",
        ),
        (GRAPH, pickled({0: (1,)}), "holds a tuple, not lists of neighbors"),
        # One list, used 88 times.
        (GRAPH, pickled(REPEATED), "neighbors, more than its bytes"),
        *(
            (f"ind.toy.{part}", content, message)
            for part in ("allx", "ally", "graph")
            for content, message in CRASHES
        ),
        (ALLX, pickled(matrix(_shape=(503, 2**40))), "1099511627776"),
        (ALLX, pickled(matrix(_shape=(503, 4.0))), "number of features is 4.0"),
        (ALLX, pickled(matrix(_shape=(2**40, 4))), "its shape and offsets differ"),
        (
            ALLX,
            pickled(matrix(data=np.ones((4, 1)))),
            "data: expected 1 axes, got float64[4, 1] with 2",
        ),
        (ALLX, pickled(matrix(data=[1, 2, 3, 4])), "data: holds a list, not an array"),
        # 20,000 rows of 65,536 columns would be 1.2 GiB on disk.
        (ALLX, pickled(VAST), "0 values in a matrix of 20000 x 65536 would take"),
    ],
    "musae": MUSAE,
    "ogb_text": [
        (NODES, "-4\n", "/raw/raw/num-node-list.csv.gz: expected 1 to 1048763 vertices in"),
        (NODES, "4,4\n4,4\n", "2 graphs"),
        (
            LABELS,
            "0\n1\n1e300\n1\n",
            "label of vertex 2: expected a class from 0 to 1048575, got 1e+300",
        ),
        (LABELS, "0,1\n1,nan\n0,0\n1,1\n", "label of vertex 1: expected 0 to 1, got nan"),
        ("edge.csv.gz", "0,1\n1\n", "line 2 is '1' and cannot be read as int64"),
        (ROWS, "1,1\n1,2\n2,3\n", "3 feature rows for 4 vertices"),
        (ROWS, "1,1\n1,2\nx,3\n3,4\n", "cannot be read as float32"),
        (
            ROWS,
            "0," * 70_000 + "\n",
            "/raw/raw/node-feat.csv.gz: expected 1 to 65536 features, got 70001",
        ),
        ("valid.csv.gz", "2.5\n", "line 1 is '2.5'"),
        ("valid.csv.gz", "2\n" * 5, "over 4 rows"),
        *((f"{name}.csv.gz", None, "missing") for name in ("edge", "num-node-list", "test")),
    ],
    "ogb_binary": [
        ("data.npz", {"num_nodes_list": np.array([2, 2])}, "2 graphs, exactly 1 is needed"),
        ("data.npz", {"num_nodes_list": np.array([2**40])}, "1099511627776"),
        ("data.npz", {"num_nodes_list": np.array([5])}, "4 feature rows for 5 vertices"),
        ("node-label.npz", {"node_label": np.ones((4, 1, 1))}, "expected 1 or 2 axes, got "),
        ("node-label.npz", {"node_label": np.ones(3)}, "3 labels for 4 vertices"),
    ],
    "snap": [
        ("toy.txt.gz", f"0 1\n1 {HUGE[0]}\n", "line 2 is '1 9223372036854775808'"),
        ("toy.txt.gz", "0 1\n\x1b]0;title\x07 2\n", "line 2 is"),
        ("toy.txt.gz", "# nothing\n", "has no edges"),
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("layout", CRAFTED)
def test_crafted_files(prepared_in, fails, layout):
    raw, dataset = prepared_in(layout)
    for file, content, message in CRAFTED[layout]:
        path = next(raw.rglob(file))
        before = path.read_bytes()
        put(path, content)
        fails(dataset, path, message)
        path.write_bytes(before)


def test_crafted_members(prepared_in, fails):
    raw, dataset = prepared_in("musae_zip")
    before = (raw / "toy.zip").read_bytes()
    for file, content, message in MUSAE:
        put_into(raw / "toy.zip", f"toy/{file}", content)
        fails(dataset, f"{raw}/toy.zip/toy/{file}", message)
        (raw / "toy.zip").write_bytes(before)


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "begin", "piece", "times"),
    [
        ("toy_features.json", b'{"0": [', b" ", 18 << 20),
        ("toy_edges.csv", b"a,b\n", b"0,1\n", 20 << 20),
    ],
)
def test_members_that_unpack_to_much(prepared_in, fails, file, begin, piece, times):
    raw, dataset = prepared_in("musae_zip")
    put_into(raw / "toy.zip", f"toy/{file}", begin + piece * times)
    fails(dataset, f"{raw}/toy.zip/toy/{file}", "unpack the archive and name the folder")


@pytest.mark.parametrize(
    ("layout", "file", "content", "place", "message"),
    [
        *(
            ("ogb_text", "raw/num-node-list.csv.gz", text, "raw/node-label.csv.gz", message)
            for text, message in (("5\n", "4 labels for 5 vertices"), ("3\n", "over 3 rows"))
        ),
        ("ogb_text", "split/time/valid.csv.gz", "1\n", "split/time", "overlapping splits, ver"),
        ("ogb_text", "split/time/test.csv.gz", "9\n", "split/time", "vertex id 9 is out of range"),
        ("ogb_text", "split/sales/train.csv.gz", "0\n", "split", "2 splitting schemes, exactly 1"),
        ("planetoid", ALLY, pickled(np.eye(503, 4)), TESTS, "3 classes in the files of known and "),
        ("mag240m", IDS, zipped({"a/data.pkl": OBJECT_FIELDS}), f"{IDS}/a/data.pkl", "of 'V8'"),
    ],
)
def test_files_that_fail_elsewhere(prepared_in, fails, layout, file, content, place, message):
    raw, dataset = prepared_in(layout)
    (raw / file).parent.mkdir(exist_ok=True)
    put(raw / file, content)
    fails(dataset, raw / place, message)


def test_a_matrix_that_is_not_compressed_by_rows(prepared_in, fails):
    """Its arrays look the same, and would give every edge the wrong way round."""
    raw, dataset = prepared_in("csr")
    scipy.sparse.save_npz(raw / "toy.npz", scipy.sparse.csc_matrix(np.eye(4)))
    fails(dataset, f"{raw}/toy.npz/format.npy", "not in the format csr")
    scipy.sparse.save_npz(raw / "toy.npz", scipy.sparse.csr_matrix(np.eye(4)))
    assert dataset.open().num_edges == 4


def test_repeated_entries_do_not_wrap_around(prepared_in):
    """Two entries of 200 at one place are 400, which one byte does not hold."""
    raw, dataset = prepared_in("gnn_benchmark")
    offsets, columns = np.array([0, 2, 2, 2, 4]), np.array([0, 0, 1, 2])
    values = np.full(4, 200, np.uint8)
    change(raw / "toy.npz", attr_indptr=offsets, attr_indices=columns, attr_data=values)
    graph = dataset.open()
    assert graph.features.dtype == np.float32
    assert graph.features[[0, 3]].tolist() == [[400, 0, 0], [0, 200, 200]]


def test_files_of_another_kind(prepared_in, fails):
    raw, dataset = prepared_in("graphsaint")
    path = raw / "feats.npy"
    fails(replace(dataset, raw=str(path)), path, "not a folder with adj_full.npz")
    fails(Csr(name="toy", raw="/dev/zero"), "/dev/zero", "not a regular file")
    options = {"num_features": [-1], "num_classes": [1], "signal": [np.nan, -1], "seed": [-1]}
    for option, values in options.items():
        for value in values:
            with pytest.raises(ConfigError, match=f"dataset.{option}="):
                Csr(name="toy", **{option: value})


PLANETOID = ("allx", "ally", "graph", "test.index", "tx", "ty", "y")


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        *((layout, ["toy.npz"]) for layout in ("csr", "gnn_benchmark", "heterophilous")),
        ("graphsaint", ["adj_full.npz", "class_map.json", "feats.npy", "role.json"]),
        ("mag240m", ["edge_index.npy", "node_feat.npy", "node_label.npy", "split_dict.pt"]),
        ("musae", ["toy_edges.csv", "toy_features.json", "toy_target.csv"]),
        ("musae_zip", ["toy.zip"]),
        ("ogb_binary", ["data.npz", "node-label.npz"]),
        ("ogb_text", 7),
        ("snap", ["toy.txt.gz"]),
        # The file x repeats what allx has, and is not read.
        ("planetoid", [f"ind.toy.{part}" for part in PLANETOID]),
    ],
)
def test_raw_files(prepared_in, layout, expected):
    _, dataset = prepared_in(layout)
    files = dataset.raw_files()
    if layout == "ogb_text":
        assert len(files) == expected
        assert len(replace(dataset, split="random").raw_files()) == 4
    else:
        assert sorted(file.name for file in files) == expected
    assert all(file.is_file() for file in files)
    files[0].unlink()
    with pytest.raises(GraphError):
        dataset.raw_files()
