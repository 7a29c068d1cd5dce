import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.artifact.files import NoSpaceError
from gnnscale.core.artifact.npy import row_slices
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import Arrays, verify_store
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.tables.categories import TrainedColumns
from gnnscale.graph import Graph

# 0 -> 1 twice, 1 -> 2, 3 -> 3, 2 -> 0.
SRC, DST = np.array([0, 1, 3, 0, 2]), np.array([1, 2, 3, 1, 0])

WEIGHTS = np.array([0.5, 1, 2, 3, 4], np.float32)

X = np.arange(8, dtype=np.float32).reshape(4, 2)

WHOLE = {
    **{"edge_index": np.stack([SRC, DST]), "features": X, "labels": np.array([0, 1, 1, -1])},
    **{"train_idx": np.array([2]), "valid_idx": np.array([0]), "test_idx": np.array([3, 1])},
}


def put(path: Path, form: str, arrays: dict[str, Any]) -> Path:
    if form == "npz":
        np.savez(path.with_suffix(".npz"), **arrays)
        return path.with_suffix(".npz")
    path.mkdir()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def opened(tmp_path: Path, arrays: dict[str, Any], form: str = "folder", **options: Any) -> Graph:
    kept = {name: array for name, array in arrays.items() if array is not None}
    raw = put(tmp_path / "mine", form, kept)
    store = str(tmp_path / "store")
    return Arrays(name="mine", raw=str(raw), store=store, **options).open()


def split_of(part: Any) -> list[list[int]]:
    return [ids.tolist() for ids in (part.train_idx, part.valid_idx, part.test_idx)]


def lists(graph: Graph) -> list[list[int]]:
    return [each.tolist() for each in np.split(graph.indices, graph.indptr[1:-1])]


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_by_hand(tmp_path: Path, form: str) -> None:
    graph = opened(tmp_path, WHOLE, form)
    assert lists(graph) == [[2], [0], [1], [3]]
    np.testing.assert_array_equal(graph.features, X)
    assert (graph.feature_dtype, graph.labels.tolist()) == ("float32", [0, 1, 1, -1])
    assert (graph.num_classes, graph.metric, graph.edge_weights) == (2, "accuracy", None)
    assert split_of(graph) == [[2], [0], [1, 3]]
    assert not any(check.problem for check in verify_store(tmp_path / "store"))


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_other_names_masks_and_weights(tmp_path: Path, form: str) -> None:
    masks = np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 1]], bool)
    arrays = {
        **{"src": SRC.astype(np.uint8), "dst": DST.astype(np.int16), "x": X.astype(np.float16)},
        **{"y": WHOLE["labels"][:, None], "edge_weight": WEIGHTS.astype(np.float64)},
        **{"train_mask": masks[0], "val_mask": masks[1], "test_mask": masks[2]},
    }
    graph = opened(tmp_path, arrays, form)
    assert lists(graph) == [[2], [0], [1], [3]]
    assert (graph.edge_weights.tolist(), graph.feature_dtype) == ([4, 3.5, 1, 2], "float16")
    assert (graph.labels.tolist(), graph.test_idx.tolist()) == ([0, 1, 1, -1], [1, 3])


@pytest.mark.parametrize(
    ("form", "kind", "ends"), [("folder", "csc", (SRC, DST)), ("npz", "csr", (DST, SRC))]
)
def test_compressed_lists(tmp_path: Path, form: str, kind: str, ends: Any) -> None:
    order = np.lexsort(ends)
    indptr = np.append(0, np.cumsum(np.bincount(ends[1], minlength=4)))
    arrays = {name: array for name, array in WHOLE.items() if name != "edge_index"}
    arrays |= {"indptr": indptr, "indices": ends[0][order], "edge_weights": WEIGHTS[order]}
    graph = opened(tmp_path, arrays, form, lists=kind)
    assert lists(graph) == [[2], [0], [1], [3]]
    assert graph.edge_weights.tolist() == [4, 3.5, 1, 2]


OF_EDGES = np.array([[5, 1], [6, 2], [7, 3], [8, 4], [9, 5]], np.float64)


@pytest.mark.parametrize(
    ("form", "name"), [("folder", "edge_features"), ("npz", "edge_attr"), ("npz", "edge_feat")]
)
def test_features_of_edges(tmp_path: Path, form: str, name: str) -> None:
    graph = opened(tmp_path, WHOLE | {name: OF_EDGES, "edge_weights": WEIGHTS}, form)
    assert lists(graph) == [[2], [0], [1], [3]]
    assert graph.edge_rows.tolist() == [4, 0, 1, 2]
    assert graph.edge_features.tolist() == OF_EDGES.tolist()
    assert graph.edge_weights.tolist() == [4, 3.5, 1, 2]
    assert not any(check.problem for check in verify_store(tmp_path / "store"))


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_one_feature_of_edges(tmp_path: Path, form: str) -> None:
    arrays = WHOLE | {"edge_attr": np.array([True, False, True, True, False])}
    graph = opened(tmp_path, arrays, form, undirected=True, self_loops="add")
    assert lists(graph) == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [3]]
    assert graph.edge_features.tolist() == [[1], [0], [1], [1], [0], [0]]
    assert graph.edge_rows.tolist() == [5, 0, 4, 0, 5, 1, 4, 1, 5, 5]


OF_LABELS = {
    "edge_labels": np.array([1, 0, -1, 2, 0]),
    "edge_train_mask": np.array([True, True, False, False, False]),
    "edge_val_idx": np.array([4]),
    "edge_test_idx": np.array([3, 2]),
}


@pytest.mark.parametrize(("form", "width"), [("folder", 0), ("npz", 2)])
def test_labels_of_edges(tmp_path: Path, form: str, width: int) -> None:
    arrays = {name: WHOLE[name] for name in ("edge_index", "features")} | OF_LABELS
    if width:
        arrays["edge_features"] = OF_EDGES
    graph = opened(tmp_path, arrays, form, self_loops="add")
    assert graph.num_classes == 0
    labels = graph.edge_labels
    assert (labels.num_classes, labels.metric, labels.name) == (3, "accuracy", "mine")
    assert labels.labels.tolist() == [1, 0, -1, 2, 0]
    assert split_of(labels.split) == [[0, 1], [4], [2, 3]]
    assert graph.edges.ends.tolist() == [[0, 1], [1, 2], [3, 3], [0, 1], [2, 0]]
    assert (graph.edge_rows is None) == (width == 0)
    assert not any(check.problem for check in verify_store(tmp_path / "store"))
    graph.save(tmp_path / "again")
    assert Graph.open(tmp_path / "again").content == graph.content


def test_targets_of_edges_and_a_random_split(tmp_path: Path) -> None:
    src, dst = np.random.default_rng(0).integers(4, size=(2, 100))
    arrays = {**WHOLE, "edge_index": np.stack([src, dst]), "edge_y": np.arange(100) / 4}
    arrays["labels"] = np.array([0, 1, 1, 0])
    fractions = {"train_fraction": 0.4, "valid_fraction": 0.3}
    graph = opened(tmp_path, arrays, split="random", edge_split_by="edge", **fractions)
    labels = graph.edge_labels
    assert (labels.num_classes, labels.metric, labels.labels.dtype) == (1, "rmse", np.float32)
    split = split_of(labels.split)
    assert [len(rows) for rows in split] == [40, 30, 30]
    assert sorted(np.concatenate(split)) == [*range(100)]
    assert len(graph.train_idx) == 2


BAD_LABELS_OF_EDGES = [
    ({"edge_labels": np.array([1, 0])}, "/edge_labels.npy: 2 labels for 5 edges"),
    ({"edge_labels": np.full(5, -1)}, "/edge_labels.npy: no edge has a label"),
    (
        {"edge_labels": np.full(5, -2)},
        "/edge_labels.npy: label of edge 0: expected -1 to -1, got -2",
    ),
    ({"edge_labels": np.full(5, 1e39)}, r"/edge_labels.npy: label of edge 0: expected a number"),
    ({"edge_train_mask": None}, ": has no edge_train_mask or edge_train_idx; dataset.split=rand"),
    ({"edge_test_idx": np.array([5])}, "/edge_test_idx.npy: edge id 5 is out of range, the graph"),
    ({"edge_test_idx": np.array([4])}, ": overlapping splits, edge 4 of the test split is in"),
    ({"edge_val_idx": np.array([2])}, ": edge 2 of the valid split has no label; 1 of"),
    ({"edge_train_mask": np.array([True])}, r"/edge_train_mask.npy: expected bool\[5\]"),
]


@pytest.mark.parametrize(("changed", "message"), BAD_LABELS_OF_EDGES)
def test_labels_of_edges_that_are_refused(tmp_path, changed, message) -> None:
    with pytest.raises(GraphError, match=f"^{tmp_path}/mine{message}"):
        opened(tmp_path, WHOLE | OF_LABELS | changed)
    assert not (tmp_path / "store").exists()


def test_edges_and_their_features_in_slices_of_other_lengths(tmp_path, monkeypatch) -> None:
    src, dst = np.random.default_rng(0).integers(4, size=(2, 1000))
    arrays = {"edge_index": np.stack([src, dst]), "features": X}
    arrays["edge_features"] = np.arange(3000, dtype=np.float32).reshape(1000, 3)
    raw = put(tmp_path / "mine", "npz", arrays)
    reader = NpzReader(raw, slice_bytes=700)
    monkeypatch.setattr("gnnscale.data.readers.arrays.open_arrays", lambda path: reader)
    monkeypatch.setattr(
        "gnnscale.data.readers.arrays.row_slices", lambda *sizes: row_slices(*sizes, 500)
    )
    store = str(tmp_path / "store")
    graph = Arrays(name="mine", raw=str(raw), store=store, drop_duplicates=False).open()
    np.testing.assert_array_equal(graph.edge_features, arrays["edge_features"])
    order = np.lexsort([src, dst])
    np.testing.assert_array_equal(graph.edge_rows, order)
    assert lists(graph) == [src[order][dst[order] == vertex].tolist() for vertex in range(4)]


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_features_may_be_missing(tmp_path: Path, form: str) -> None:
    """Labels say how many vertices there are, or else offsets do."""
    graph = opened(tmp_path, WHOLE | {"features": None}, form)
    assert lists(graph) == [[2], [0], [1], [3]]
    assert (graph.num_vertices, graph.num_features) == (4, 0)
    verify_store(graph.path)
    shutil.rmtree(tmp_path / "store")
    by_lists = {"indptr": np.array([0, 1, 1, 2]), "indices": np.array([1, 0])}
    (tmp_path / "other").mkdir()
    graph = opened(tmp_path / "other", by_lists, form)
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (3, 0, 0)
    with pytest.raises(GraphError, match=r"store: its vertices have no features; features=learned"):
        graph.check_features()


@pytest.mark.parametrize(
    "options", [{"standardize": True}, {"normalize_features": True}, {"feature_dtype": "float16"}]
)
def test_options_of_features_need_features(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^dataset.{next(iter(options))}=.*has no features$"):
        opened(tmp_path, WHOLE | {"features": None}, **options)


def test_a_metric_decides_what_labels_are(tmp_path) -> None:
    for number, (labels, metric, expected, num_classes) in enumerate(
        [
            ([[1, 0], [0, 1]] * 2, "roc_auc", [[1, 0], [0, 1]] * 2, 2),
            ([1, 2, 3, 4], "rmse", [1, 2, 3, 4], 1),
            ([0.0, 1, 1, np.nan], "accuracy", [0, 1, 1, -1], 2),
            ([0, 1, 0, 1], "roc_auc", [0, 1, 0, 1], 2),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        graph = opened(folder, WHOLE | {"labels": np.array(labels)}, metric=metric)
        np.testing.assert_array_equal(graph.labels, np.float32(expected))
        assert graph.regression == (metric == "rmse")
        assert (graph.num_classes, graph.metric) == (num_classes, metric)


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("float64", "float32"), ("int64", "float32"), ("uint8", "uint8"), ("bool", "uint8")],
)
def test_types_of_features(tmp_path, caplog, dtype, stored) -> None:
    caplog.set_level(logging.INFO)
    rows = np.array([[0, 1], [1, 1], [0, 0], [1, 0]]).astype(dtype)
    graph = opened(tmp_path, WHOLE | {"features": rows})
    assert graph.feature_dtype == stored
    np.testing.assert_array_equal(graph.features, rows)
    said = f"{tmp_path}/mine/features.npy: {dtype} is stored as float32"
    assert (said in caplog.messages) == (stored == "float32")


@pytest.mark.parametrize("options", [{}, {"standardize": True}])
def test_features_that_overflow_sums_are_warned_of(tmp_path, caplog, options) -> None:
    opened(tmp_path, WHOLE | {"features": np.where(X == 5, 3e38, 2e38)}, **options)
    warned = f"{tmp_path}/mine/features.npy: features reach 3e+38; sums and squares of numbers"
    assert any(line.startswith(warned) for line in caplog.messages) == (not options)


def test_needs_and_missing_labels_are_logged(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    bare = {name: WHOLE[name] for name in ("edge_index", "features")}
    graph = opened(tmp_path, bare | {"node_names": np.arange(4)}, undirected=True)
    assert (graph.num_classes, graph.labels.tolist(), len(graph.train_idx)) == (0, [-1] * 4, 0)
    raw = tmp_path / "mine"
    assert f"{raw}: has no labels (labels, y, label)" in caplog.messages
    assert f"{raw}: not read: node_names" in caplog.messages
    (told,) = [line for line in caplog.messages if "preparing takes" in line]
    assert told.startswith(f"{raw}: 4 vertices, up to 10 edges; preparing takes up to 0.0 MiB of")


def compressed(*indptr: int) -> dict[str, Any]:
    return {"edge_index": None, "indptr": np.array(indptr), "indices": np.array([0])}


UNKNOWN = np.array([0, 1, 1, -2])
BAD_INPUT = [
    (
        {"features": None, "labels": None},
        r": expected an array with a row per vertex \(features, x, feat, labels, y,",
    ),
    ({"edge_index": None}, r": expected an array of edges \(edge_index, src and dst, indptr and"),
    ({"x": X}, ": expected one of features and x, got both"),
    ({"src": SRC, "dst": DST}, ": expected one form of edges, got edge_index as well as src"),
    ({"edge_index": SRC}, r"/edge_index.npy: expected 2 axes, got int64\[5\] with 1"),
    ({"edge_index": np.stack([SRC] * 3)}, r"/edge_index.npy: \[3, 5\], allowed is \[2, "),
    (
        {"edge_index": WHOLE["edge_index"] * 1.0},
        r"/edge_index.npy: expected whole numbers, got float64\[2, 5\]",
    ),
    ({"edge_index": np.stack([SRC, DST], axis=1).T}, r"/edge_index.npy: not a readable"),
    ({"edge_index": None, "src": SRC, "dst": DST[1:]}, ": src has 5 ids, dst 4"),
    (compressed(0, 1), "/indptr.npy: expected 5 offsets for 4 vertices, got 2"),
    (
        {"features": X.astype(object)},
        r"/features.npy: not a readable .npy file \(elements: expected numbers of",
    ),
    ({"labels": UNKNOWN}, "/labels.npy: label of vertex 3: expected -1 to 1, got -2"),
    ({"edge_weights": WEIGHTS[1:]}, "/edge_weights: 4 weights for 5 edges"),
    ({"edge_features": OF_EDGES[1:]}, "/edge_features.npy: 4 rows of features for 5 edges"),
    ({"edge_features": OF_EDGES[:, :0]}, "/edge_features.npy: expected 1 to 65536 features, got 0"),
    (
        {"edge_attr": OF_EDGES[None]},
        r"/edge_attr.npy: expected .* axes, got float64\[1, 5, 2\] with 3",
    ),
    ({"edge_attr": OF_EDGES * np.nan}, r" \(edge_index, edge_attr\): feature 0 of edge 0 is nan"),
    (
        {"edge_attr": OF_EDGES, "edge_features": OF_EDGES},
        ": expected one of edge_features and edge_attr, got both",
    ),
    ({"edge_weights": -WEIGHTS}, r" \(edge_index, edge_weights\): edge 0: expected a weight of"),
    ({"train_idx": None}, ": has no train_mask or train_idx; dataset.split=random draws a split"),
    ({"test_idx": np.ones(4, bool)}, r"/test_idx.npy: expected integers as vertex ids, got bool"),
    ({"test_idx": None, "test_mask": np.ones(3, bool)}, r"/test_mask.npy: expected bool\[4\]"),
    ({"train_idx": np.empty(0, np.int64)}, ": the train split is empty; dataset.split=random dra"),
    (
        {"test_idx": None, "test_mask": np.array([0, 1, 2, 0])},
        "/test_mask.npy: expected true and false, or 1 and 0, got other numbers",
    ),
    (
        {"test_idx": None, "test_mask": np.eye(4) > 0},
        "/test_mask.npy: has 4 masks; dataset.mask=0 to 3 chooses one",
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("changes", "message"), BAD_INPUT)
def test_bad_input(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{tmp_path}/mine{message}") as error:
        opened(tmp_path, WHOLE | changes)
    assert str(error.value).isprintable()
    assert not (tmp_path / "store").exists()


def test_other_files_and_options(tmp_path: Path) -> None:
    (tmp_path / "graph.pt").touch()
    (tmp_path / "empty").mkdir()
    for raw, error, message in (
        (
            str(tmp_path / "graph.pt"),
            GraphError,
            "graph.pt: allowed are a folder of .npy files and",
        ),
        (str(tmp_path / "empty"), GraphError, "empty: expected an array of edges .* got no array"),
        (None, ConfigError, "dataset.raw: required for mine, the .npz file or the folder"),
    ):
        with pytest.raises(error, match=message):
            Arrays(name="mine", raw=raw, store=str(tmp_path / "store")).open()
    with pytest.raises(ConfigError, match=r"dataset\.lists=coo: allowed are csc, csr"):
        Arrays(name="mine", lists="coo")
    with pytest.raises(ConfigError, match=r"dataset\.metric=mse: allowed are accuracy, micro_f1"):
        Arrays(name="mine", metric="mse")


@pytest.mark.parametrize(
    ("options", "arrays", "expected"),
    [
        # A vertex: features, label, offset and number in the split. An edge: its source.
        ({}, {}, 1000 * (16 + 8 + 8 + 4) + 4 * 5000),
        ({"undirected": True}, {}, 36_000 + 8 * 5000),
        ({"memory_bytes": 1000}, {}, 36_000 + 4 * 5000 + 8 * 5000),
        # Weight, row and two features; both ends, label and number in the split.
        ({}, {"edge_weights": np.ones(5000)}, 36_000 + 8 * 5000),
        ({}, {"edge_features": np.ones((5000, 2))}, 36_000 + 8 * 5000 + 36 * 5000),
    ],
)
def test_disk_is_checked_before_the_store_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, arrays: Any, expected: int
) -> None:
    edges = np.random.default_rng(0).integers(1000, size=(2, 5000))
    features, labels = np.ones((1000, 4), np.float32), np.arange(1000) % 2
    whole = {"edge_index": edges, "features": features, "labels": labels} | arrays
    raw = put(tmp_path / "mine", "folder", whole)
    source = Arrays(name="mine", raw=str(raw), split="random", **options)
    usage = shutil.disk_usage(tmp_path)
    for free in (expected - 1, expected):
        monkeypatch.setattr("shutil.disk_usage", lambda path, free=free: usage._replace(free=free))
        if free < expected:
            with pytest.raises(NoSpaceError, match=r"mine: preparing: needs .* of disk, and"):
                source.prepare()
        else:
            path = source.prepare()
    assert sum(file.stat().st_size for file in path.glob("*.npy")) <= expected + 2 * 4096 + 128 * 12


def test_predictions_need_neither_labels_nor_a_split(tmp_path: Path) -> None:
    bare = {name: WHOLE[name] for name in ("edge_index", "features", "labels")}
    raw = put(tmp_path / "mine", "folder", bare | {"labels": np.full(4, -1)})
    source = Arrays(name="mine", raw=str(raw), store=str(tmp_path / "store"))
    for _ in range(2):  # made, and found again
        graph = source.to_predict(TrainedColumns(), splits=False).open()
        assert (graph.num_classes, len(graph.train_idx)) == (0, 0)
        np.testing.assert_array_equal(graph.features, X)
    with pytest.raises(GraphError, match="no vertex has a label"):
        replace(source, store=None).to_predict(TrainedColumns(), splits=True).open()
