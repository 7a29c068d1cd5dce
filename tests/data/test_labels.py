from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from gnnscale.core.errors import GraphError
from gnnscale.data import Arrays, Tables, from_arrays
from gnnscale.data.labels import read_labels, wrapped_label
from gnnscale.graph import Graph

SRC, DST = np.array([0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 0])
X = np.arange(10, dtype=np.float32).reshape(5, 2)
CLASSES = np.array([2, 0, 1, 1, 0])
ONE_HOT = np.eye(4, dtype=np.int64)[CLASSES]  # no vertex is of the last class
SEVERAL = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1]])
TARGETS = np.array([[0.5, 1], [np.nan, 2], [3, np.nan], [np.nan, np.nan], [1, 0]], np.float32)
BINARY = np.array([0, 1, 1, 0, 1])
UNKNOWN = np.array([0, -1, 1, 0, 1])


def of_arrays(folder: Path, labels: Any) -> Graph:
    return from_arrays((SRC, DST), X, labels)


def of_files(folder: Path, labels: Any) -> Graph:
    file = folder / "mine.npz"
    np.savez(file, edge_index=np.stack([SRC, DST]), features=X, labels=np.asarray(labels))
    options = {"split": "random", "train_fraction": 0.4, "valid_fraction": 0.4}
    return Arrays(name="mine", raw=str(file), store=str(folder / "store"), **options).open()


#: In memory and in files; tests/data/test_entrances.py has objects of all libraries.
ENTRANCES: dict[str, Callable[[Path, Any], Graph]] = {"from_arrays": of_arrays, "arrays": of_files}

FORMS: dict[str, tuple[Any, Any, int, str]] = {
    "ids": (CLASSES, CLASSES, 3, "accuracy"),
    "one-hot": (ONE_HOT, CLASSES, 4, "accuracy"),
    "one-hot with an unknown row": (
        np.where(np.arange(5)[:, None] == 3, np.nan, ONE_HOT),
        np.where(np.arange(5) == 3, -1, CLASSES),
        4,
        "accuracy",
    ),
    "multilabel": (SEVERAL, SEVERAL, 3, "micro_f1"),
    "two classes": (BINARY, BINARY, 2, "accuracy"),
    "two classes in a column": (BINARY[:, None], BINARY, 2, "accuracy"),
    "three classes in a column": (CLASSES[:, None], CLASSES, 3, "accuracy"),
    "unknown": (UNKNOWN, UNKNOWN, 2, "accuracy"),
    "targets": (TARGETS, TARGETS, 2, "rmse"),
    "targets in a column": (TARGETS[:, :1], TARGETS[:, 0], 1, "rmse"),
}
TYPES = {
    **dict.fromkeys(("ids", "three classes in a column"), ("int64", "int8", "uint8")),
    **dict.fromkeys(("one-hot", "multilabel"), ("int64", "bool", "uint8", "float32", "float16")),
    **dict.fromkeys(
        ("two classes", "two classes in a column"), ("int64", "int32", "bool", "uint8")
    ),
    **dict.fromkeys(("targets", "targets in a column"), ("float32", "float64", "float16")),
    "one-hot with an unknown row": ("float64", "float32"),
    "unknown": ("int64", "int8"),
}


@pytest.mark.long
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_one_rule_for_every_entrance(tmp_path: Path, entrance: str) -> None:
    for form, dtype in ((form, dtype) for form, types in TYPES.items() for dtype in types):
        labels, expected, num_classes, metric = FORMS[form]
        folder = tmp_path / form / dtype
        folder.mkdir(parents=True)
        graph = ENTRANCES[entrance](folder, labels.astype(dtype))
        np.testing.assert_array_equal(graph.labels, expected)
        assert graph.labels.shape == expected.shape
        assert (graph.num_classes, graph.metric) == (num_classes, metric), (form, dtype)
        assert graph.multilabel == (form == "multilabel")
        assert graph.regression == (metric == "rmse")


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        *(("ids", dtype) for dtype in ("int64", "float64", "uint8")),
        *(("two classes", dtype) for dtype in ("int64", "float32", "uint8", "bool")),
        *(("unknown", dtype) for dtype in ("int64", "float64")),
    ],
)
def test_tables_follow_the_rule(tmp_path: Path, form: str, dtype: str) -> None:
    labels, expected, num_classes, metric = FORMS[form]
    write_tables(tmp_path, labels.astype(dtype))
    fractions = {"train_fraction": 0.4, "valid_fraction": 0.4}
    graph = Tables(
        name="mine", raw=str(tmp_path), store=str(tmp_path / "store"), split="random", **fractions
    ).open()
    np.testing.assert_array_equal(graph.labels, expected)
    assert (graph.num_classes, graph.metric) == (num_classes, metric)


def write_tables(folder: Path, labels: Any) -> None:
    table = pa.table({"id": np.arange(5), "label": labels, "a": X[:, 0]})
    parquet.write_table(table, folder / "vertices.parquet")
    (folder / "edges.csv").write_text("source,target\n0,1\n")


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_labels_that_no_entrance_takes(tmp_path: Path, entrance: str) -> None:
    wrapped = np.array([2, -1, 1, -1, 0]).astype(np.uint8)
    message = r"labels.*: label 255 of vertex 1: 255 is what -1 becomes in uint8"
    with pytest.raises(GraphError, match=message):
        ENTRANCES[entrance](tmp_path, wrapped)
    with pytest.raises(GraphError, match=r"expected labels, classes \[5\].*\[5, 0\]"):
        ENTRANCES[entrance](tmp_path, np.zeros((5, 0)))
    # Zeros and ones with unknown cells are no targets, unless a metric says so.
    for matrix, row, shown in (
        (ONE_HOT, [0, np.nan, 0, 0], "nan"),
        (ONE_HOT, [-1] * 4, "-1"),
        (SEVERAL, [np.nan] * 3, "nan"),
    ):
        labels = matrix.astype(np.float32)
        labels[3] = row
        with pytest.raises(GraphError, match=rf"zeros, ones and {shown} \(of vertex 3\): expected"):
            ENTRANCES[entrance](tmp_path, labels)
        assert from_arrays((SRC, DST), X, labels, metric="rmse").regression


def test_an_unknown_label_of_a_table_that_became_255(tmp_path: Path) -> None:
    write_tables(tmp_path, np.array([2, -1, 1, -1, 0]).astype(np.uint8))
    tables = Tables(name="mine", raw=str(tmp_path), split="random")
    with pytest.raises(GraphError, match=r"vertices.parquet: row 2: label 255 is what -1 becomes"):
        tables.prepare()


def test_the_largest_class_of_an_unsigned_type_may_occur() -> None:
    every = np.arange(256).astype(np.uint8)
    assert wrapped_label(every, every.dtype) is None
    assert read_labels(every, count=256, source="x").num_classes == 256
    assert wrapped_label(np.array([0, 65535], np.uint16), np.dtype(np.uint16)) == 1
    assert wrapped_label(np.array([0, 255], np.int64), np.dtype(np.int64)) is None


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.eye(3)[[2, 0, 0, 1, 1]], [2, 0, 0, 1, 1]),
        (np.array([1, 0, 1, 0, 1], bool), [1, 0, 1, 0, 1]),
        (np.array([[1], [0], [-1], [0], [2]]), [1, 0, -1, 0, 2]),
        (np.array([0.5, np.nan, 1, 2, 3]), [0.5, np.nan, 1, 2, 3]),
    ],
)
def test_edges_follow_the_rule(tmp_path: Path, labels: Any, expected: list[float]) -> None:
    found = from_arrays((SRC, DST), X, edge_labels=labels).edge_labels
    np.testing.assert_array_equal(found.labels, np.float32(expected))
    arrays = {"edge_index": np.stack([SRC, DST]), "features": X, "edge_labels": labels}
    np.savez(tmp_path / "mine.npz", **arrays)
    fractions = {"train_fraction": 0.4, "valid_fraction": 0.4}
    raw, store = str(tmp_path / "mine.npz"), str(tmp_path / "store")
    stored = Arrays(name="mine", raw=raw, store=store, split="random", **fractions).open()
    np.testing.assert_array_equal(stored.edge_labels.labels, found.labels)
    assert stored.edge_labels.num_classes == found.num_classes
    assert stored.edge_labels.metric == found.metric


def test_edges_have_one_class_or_target() -> None:
    with pytest.raises(GraphError, match=r"int64\[5, 3\]"):
        from_arrays((SRC, DST), X, edge_labels=SEVERAL)
    with pytest.raises(GraphError, match=r"float32\[5, 2\]"):
        from_arrays((SRC, DST), X, edge_labels=TARGETS)


def test_a_metric_decides() -> None:
    kept = from_arrays((SRC, DST), X, ONE_HOT, metric="roc_auc")
    assert (kept.multilabel, kept.num_classes) == (True, 4)
    targets = from_arrays((SRC, DST), X, ONE_HOT, metric="rmse")
    assert (targets.regression, targets.num_classes) == (True, 4)
    classes = from_arrays((SRC, DST), X, np.array([1.0, -1, np.nan, 0, 2]), metric="accuracy")
    assert classes.labels.tolist() == [1, -1, -1, 0, 2]
    # 255 is a target by rmse.
    graph = from_arrays((SRC, DST), X, np.array([255, 3, 7, 0, 255], np.uint8), metric="rmse")
    assert graph.labels.tolist() == [255, 3, 7, 0, 255]


@pytest.mark.parametrize(
    ("dtype", "metric"), [("int64", None), ("bool", "accuracy"), ("float32", None)]
)
def test_one_hot_rows_without_a_one_are_told(caplog, dtype, metric) -> None:
    labels = ONE_HOT.copy()
    labels[2] = 0
    assert from_arrays((SRC, DST), X, labels.astype(dtype), metric=metric).multilabel
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "graph: labels: multi-label, since 1 of 5 rows are all zeros and the remaining rows "
        "one-hot; for one class per vertex, make unknown rows NaN, or labels class numbers and -1"
    )
    caplog.clear()
    from_arrays((SRC, DST), X, SEVERAL.astype(dtype), metric=metric)
    assert not caplog.records


def test_whole_floats_are_warned_of_unless_a_metric_is_given(caplog) -> None:
    caplog.set_level("INFO")
    from_arrays((SRC, DST), X, BINARY.astype(np.float32), metric="rmse")
    from_arrays((SRC, DST), X, BINARY.astype(np.float32))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "makes them classes" not in caplog.messages[0]


def test_classes_without_a_vertex_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert from_arrays((SRC, DST), X, [1, 3, -1, 3, 1]).num_classes == 4
    assert caplog.messages == [
        "graph: labels: 2 of 4 classes have no vertex, such as class 0: classes count from 0"
    ]
    with pytest.raises(GraphError, match=r"expected -1 to 3, got -100; -1 is an unknown label$"):
        from_arrays((SRC, DST), X, [1, 3, -100, 3, 1])


def test_kinds_of_labels_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    from_arrays((SRC, DST), X, np.array([1.0, 0, 2, 1, np.nan]))
    from_arrays((SRC, DST), X, TARGETS)
    from_arrays((SRC, DST), X, ONE_HOT)
    assert caplog.messages == [
        "graph: labels: float64 labels are regression targets, as float32; "
        "metric=accuracy makes them classes",
        "graph: labels: float32 labels are regression targets, as float32",
        "graph: labels: 2 of 4 vertices with a target have some of 2 targets, NaN does not count",
        "graph: labels: every row has a single one, so that each vertex has one class",
    ]


def test_a_column_of_the_only_class_is_multilabel() -> None:
    """As PPI with one of its proteins' classes: each vertex has the class or has it not."""
    found = read_labels(BINARY[:, None], count=5, source="labels", num_classes=1)
    assert (found.num_classes, found.metric) == (1, "micro_f1")
    assert found.values.tolist() == BINARY[:, None].tolist()
    assert from_arrays((SRC, DST), X, BINARY[:, None], num_classes=1).labels.shape == (5, 1)


def test_unknown_classes_are_any_nan() -> None:
    quiet, signalling = 0x7FC00000, 0x7F800001
    bits = np.array([np.float32(3).view(np.uint32), quiet, signalling], np.uint32)
    assert read_labels(
        bits.view(np.float32), count=3, source="x", metric="accuracy"
    ).values.tolist() == [
        *(3, -1, -1),
    ]


@pytest.mark.parametrize("label", [-1.5, 1.5, 2.0**40, np.inf, -np.inf])
def test_labels_that_are_no_classes(label: float) -> None:
    message = r"^labels.npy: label of vertex 1: expected a class from 0 to 1048575,"
    with pytest.raises(GraphError, match=message):
        read_labels(np.array([0, label]), count=2, source="labels.npy", metric="accuracy")
