import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays, read_classes
from gnnscale.data.interop import edge_order, in_neighbors
from gnnscale.graph import Graph

SRC, DST = np.array([2, 0, 1, 0]), np.array([1, 1, 0, 2])

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def check(graph):
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 3, 4], [1, 0, 2, 0])
    assert graph.indices.dtype == np.int32
    assert (graph.labels.tolist(), graph.num_classes) == ([0, 1, 1], 2)
    assert (graph.train_idx.tolist(), graph.valid_idx.tolist()) == ([2], [0])
    assert graph.test_idx.tolist() == []


def test_from_arrays():
    graph = from_arrays((SRC, DST), X, np.array([0, 1, 1]), train_idx=[2], valid_idx=[0])
    check(graph)
    assert np.shares_memory(graph.features, X)


def test_weights_and_numbers_follow_their_edges():
    # 0 -> 1 twice, the second before the first of another source.
    src, dst = np.array([2, 0, 1, 0, 0]), np.array([1, 1, 0, 1, 2])
    weights = [0.5, 3, 0, 2, 1]
    graph = from_arrays((src, dst), X, edge_weights=weights, number_edges=True)
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 4, 5], [1, 0, 0, 2, 0])
    assert graph.edge_weights.tolist() == [0, 3, 2, 0.5, 1]
    assert (graph.edge_weights.dtype, graph.edge_ids.tolist()) == (np.float32, [2, 1, 3, 0, 4])
    assert graph.edge_ids.dtype == np.int64
    plain = from_arrays((src, dst), X)
    assert plain.edge_weights is None
    assert plain.edge_ids is None
    assert (plain.labels.tolist(), plain.num_classes, len(plain.train_idx)) == ([-1] * 3, 0, 0)
    weighted = from_arrays((src, dst), X, edge_weights=torch.tensor(weights))
    assert weighted.edge_weights.tolist() == graph.edge_weights.tolist()
    assert weighted.edge_ids is None
    assert from_arrays((src, dst), X, number_edges=True).edge_weights is None


EDGE_FEATURES = np.array([[5, 1], [6, 2], [7, 3], [8, 4]], np.float32)


def test_features_of_edges_stay_and_rows_follow_their_edges():
    graph = from_arrays((SRC, DST), X, edge_features=EDGE_FEATURES)
    assert (graph.indices.tolist(), graph.edge_rows.tolist()) == ([1, 0, 2, 0], [2, 1, 0, 3])
    assert graph.edge_rows.dtype == np.uint32
    assert np.shares_memory(graph.edge_features, EDGE_FEATURES)
    assert (graph.num_edge_features, graph.edge_weights, graph.edge_ids) == (2, None, None)
    both = from_arrays((SRC, DST), X, edge_features=EDGE_FEATURES, edge_weights=[1, 2, 3, 4])
    assert both.edge_weights.tolist() == [3, 2, 1, 4]
    plain = from_arrays((SRC, DST), X)
    assert (plain.edge_rows, plain.edge_features, plain.num_edge_features) == (None, None, 0)


@pytest.mark.parametrize(
    "column",
    [
        [1, 0, 1, 0],
        np.array([1, 0, 1, 0], np.float64),
        np.array([True, False, True, False]),
        torch.tensor([[1], [0], [1], [0]], dtype=torch.uint8),
        torch.tensor([1, 0, 1, 0], dtype=torch.bfloat16),
    ],
)
def test_one_feature_of_edges_of_any_type(caplog, column):
    caplog.set_level("INFO")
    graph = from_arrays((SRC, DST), X, edge_features=column)
    assert graph.edge_features.dtype == np.float32
    assert graph.edge_features.tolist() == [[1], [0], [1], [0]]
    if getattr(column, "dtype", None) != torch.bfloat16:
        (message,) = caplog.messages
        assert message.startswith("graph: edge features: ")
        assert message.endswith(" is converted to float32")


def test_labels_and_split_of_edges():
    masks = np.array([True, False, False, False]), None, torch.tensor([3, 1])
    graph = from_arrays((SRC, DST), X, edge_labels=[2, 0, -1, 1], edge_split=masks)
    labels = graph.edge_labels
    assert labels.labels.tolist() == [2, 0, -1, 1]
    assert (labels.num_classes, labels.metric, labels.name) == (3, "accuracy", "graph")
    split = (labels.split.train_idx, labels.split.valid_idx, labels.split.test_idx)
    assert [rows.tolist() for rows in split] == [[0], [], [1, 3]]
    assert graph.edges.ends.tolist() == [[2, 1], [0, 1], [1, 0], [0, 2]]
    assert (graph.edge_rows, graph.num_classes) == (None, 0)
    targets = from_arrays((SRC, DST), X, edge_labels=torch.tensor([0.5, torch.nan, 1, 2]))
    assert (targets.edge_labels.num_classes, targets.edge_labels.metric) == (1, "rmse")
    assert from_arrays((SRC, DST), X, edge_features=EDGE_FEATURES).edges.ends is not None
    assert from_arrays((SRC, DST), X, number_edges=True).edges.ends is None


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_masks_of_the_split(kind):
    masks = {"train_idx": kind([False, False, True]), "valid_idx": kind([True, False, False])}
    check(from_arrays((SRC, DST), X, [0, 1, 1], **masks))
    check(
        from_arrays((kind(SRC), kind(DST)), X, kind([0, 1, 1]), train_idx=kind([2]), valid_idx=[0])
    )


@pytest.mark.parametrize("features", [X.astype(np.float64), torch.from_numpy(X).double()])
def test_features_of_64_bits(caplog, features):
    caplog.set_level("INFO")
    graph = from_arrays((SRC, DST), features)
    assert graph.feature_dtype == str(graph.features.dtype) == "float32"
    np.testing.assert_array_equal(graph.features, X)
    assert caplog.messages == ["graph: features: float64 is converted to float32"]
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.uint8):  # others are shared
        rows = torch.from_numpy(X).to(dtype)
        graph = from_arrays((SRC, DST), rows)
        assert graph.feature_dtype == str(dtype).removeprefix("torch.")
        assert graph.features.__array_interface__["data"][0] == rows.data_ptr()


ENDS = r"edges: expected \(src, dst\), ids of the ends of each edge, got"
DTYPES = "features: expected numbers, such as float32, float16, bfloat16, uint8, got"
SIZES = "features: expected at least one row, of at most 65536 features, got"
FORMS = r"labels: expected labels, classes \[3\], zeros and ones \[3,"
DENSE = "expected a dense tensor on cpu, got torch."
#: For each argument: a value, and what is said of it.
BAD = {
    "edges": [
        ((SRC, DST + 1), "graph: edge destinations: vertex id 3 is out of range"),
        ((SRC - 1, DST), "graph: edge sources: vertex id -1 is negative"),
        ((SRC[1:], DST), "graph: 3 edge sources, 4 destinations"),
        ((SRC * 1.0, DST), "graph: edge sources: expected integers as vertex ids, got float64"),
        ((SRC, DST > 0), "graph: edge destinations: expected ids, got a mask;"),
        ((SRC[:, None], DST), r"graph: edge sources: expected one axis, got \[4, 1\]"),
        ((SRC, SRC, SRC), r"graph: edges: expected 2 rows, \(src, dst\), got 3"),
        (([2**70], [0]), "graph: edge sources: expected integers as vertex ids, got object"),
        (
            ([[0], [0, 1]], DST),
            r"graph: edge sources: expected an array \(setting an array element",
        ),
        ((SRC.astype(np.uint64) + 2**63, DST), "vertex id 9223372036854775810 is out"),
        (scipy.sparse.eye(3).tocsr(), ENDS),
        ({0: [1], 1: [2]}, f"{ENDS} dict"),
        (None, ENDS),
        (5, f"{ENDS} int"),
        (np.array(5), r"edges: expected 2 rows, \(src, dst\), got 1"),
    ],
    "features": [
        (np.float64(X) * 1e300, r"feature 1 of vertex 0 is 1e\+300, float32 cannot hold it$"),
        (X + np.float32(np.inf), "feature 0 of vertex 0 is inf, features must be f"),
        (
            np.ma.masked_greater(X, 3),
            r"masked array that hides 2 of 6; filled\(value\) replaces them",
        ),
        (
            [*map(np.ma.masked_less, X, [1] * 3)],
            r"masked array that hides 1 of 2; filled\(value\) replaces them",
        ),
        (scipy.sparse.eye(3), "features: expected an array, a tensor or a list, got"),
        ({"x": X}, "features: expected an array, a tensor or a list, got dict"),
        (X.astype(complex), DTYPES),
        (X.astype("datetime64[s]"), DTYPES),
        ([["a", 1], ["b", 2], ["c", 3]], "features: expected numbers, such as"),
        (np.array([[1, None]] * 3, object), "features: expected numbers, got None"),
        (X[:, 0], r"features: expected two axes, got \[3\]"),
        (X[:0], SIZES),
        (np.zeros((3, 65_537), np.uint8), SIZES),
        (np.full((3, 2), np.nan, np.float32), "feature 0 of vertex 0 is nan"),
        (
            torch.full((3, 2), torch.inf).bfloat16(),
            "feature 0 of vertex 0 is inf, features must be finite, and at most 3.4e.38",
        ),
        (
            np.full((3, 2), np.inf, np.float16),
            "feature 0 of vertex 0 is inf, features must be finite, and at most 6.55e.04",
        ),
        (
            np.zeros(3, [("a", np.float32), ("b", np.float32)]),
            "features: expected numbers, got a structured array with the fields",
        ),
        (torch.eye(3).to_sparse(), f"features: {DENSE}sparse_coo on"),
        (torch.ones((3, 2), device="meta"), f"features: {DENSE}strided on meta"),
    ],
    "labels": [
        (
            np.ma.masked_equal([0, 1, 2], 2),
            "labels: expected a number for each value, got a masked array that",
        ),
        ({0: 1}, "labels: expected an array, a tensor or a list, got dict"),
        (np.array([0, 1]), "labels: 2 labels for 3 vertices"),
        ([0, np.inf, 1.5], "labels: label of vertex 1: expected a number in the range of"),
        ([np.nan] * 3, "labels: no vertex has a label"),
        (np.zeros((3, 2, 1), int), FORMS),
        (np.array([0, 1, {}]), FORMS),
        (np.array([0, 1, 2**64 - 1], np.uint64), "labels: label 18446744073709551615"),
    ],
    "train_idx": [
        ({0, 1}, "graph: train_idx: expected an array, a tensor or a list, got set"),
        (np.array([5]), "train_idx: vertex id 5 is out of range"),
        ([True, False], r"train_idx: expected bool\[3\] or .*, got bool\[2\]"),
    ],
    "test_idx": [
        (1, r"test_idx: expected one axis, got \[\]"),
        ([1, 1], "test_idx names vertex 1 twice"),
    ],
    "edge_weights": [
        ([1, 2], "edge weights: 2 weights for 4 edges"),
        ([1, 2, -0.5, 1], "edge weights: edge 2: expected a weight of at least 0 in the range"),
        ([1, 1, 1, 1e39], r"weight of at least 0 in the range of float32, got 1e\+39"),
        (np.ones((4, 2)), r"edge weights: expected a weight per edge, got \[4, 2\]"),
        ([True] * 4, r"edge weights: expected numbers, got bool\[4\]"),
    ],
    "edge_features": [
        (EDGE_FEATURES[1:], "graph: 3 rows of features for 4 edges"),
        (EDGE_FEATURES[:, :0], "edge features: expected 1 to 65536 features, got 0"),
        (np.float64(EDGE_FEATURES) * 1e300, r"feature 0 of edge 0 is 5e\+300, float32 cann"),
        (EDGE_FEATURES * np.nan, "graph: feature 0 of edge 0 is nan, features"),
        (EDGE_FEATURES[None], r"features of edges: expected 2 axes, got float32\[1, 4, 2\] with 3"),
        (7, r"features of edges: expected 2 axes, got int64\[\] with 0"),
        (["a"] * 4, r"features of edges: expected numbers, got <U1\[4, 1\]"),
        (torch.eye(4).to_sparse(), f"edge features: {DENSE}sparse_coo"),
    ],
    "edge_labels": [
        ([1, 2], "labels of edges: 2 labels for 4 edges"),
        (["a"] * 4, r"labels of edges: expected labels, classes \[4\], zeros and ones \[4,"),
    ],
}


BAD_INPUT = [
    *(({name: value}, message) for name, cases in BAD.items() for value, message in cases),
    (
        {"edge_labels": [1] * 4, "edge_split": {0: 1}},
        r"edge_split: expected \(train, valid, test\), each of ids, a mask or",
    ),
    (
        {"labels": [0.5, 1, 2], "metric": "accuracy"},
        "labels: label of vertex 0: expected a class from 0 to 1048575, got",
    ),
    ({"labels": [0.5, 1, 2], "num_classes": 3}, "labels: expected num_classes=3 targets, got 1"),
    ({"labels": [0, 1, 5], "num_classes": 3}, "label of vertex 2: expected -1 to 2, got 5"),
    ({"labels": [[0, 0]] * 3, "num_classes": 3}, "labels: expected 3 columns of classes, got 2"),
    (
        {"train_idx": [0], "test_idx": [2, 0]},
        "vertex 0 of test_idx is in train_idx too",
    ),
    ({"edge_labels": [1] * 4, "edge_split": [[0]]}, "edge_split: expected 3 parts, got 1"),
    (
        {"edge_labels": [1] * 4, "edge_split": ([4], [], [])},
        r"edge_split\[0\]: edge id 4 is",
    ),
    (
        {"edge_labels": [1] * 4, "edge_split": ([1, 1], [], [])},
        r"split\[0\] names edge 1 twice",
    ),
    (
        {"edge_labels": [1] * 4, "edge_split": ([1], [1], [])},
        r"1 of edge_split\[1\] is in edge_split\[0",
    ),
    ({"num_classes": -1}, "num_classes=-1: expected 0 to 1048576"),
    ({"valid_idx": np.array([[0, 1]])}, r"valid_idx: expected one axis, got \[1, 2\]"),
    ({"edge_split": ([0], [1], [2])}, "edge_split without edge_labels"),
    ({"split": "random"}, "split='random': no vertex has a label"),
    (
        {"labels": [0, 1, -1], "split": "random"},
        "one labeled entry in each part, got 1, 1",
    ),
    ({"split": "dice"}, "split=dice: expected 'random', or a dictionary of ids or masks"),
    ({"split": {"val": [0], "valid": [1]}}, r"split\['val'\]: expected train, valid and test"),
    ({"split": {"traning": [0]}}, r"split\['traning'\]: expected train, valid and test"),
    ({"split": "random", "train_idx": [0]}, "split: expected no train_idx, valid_idx or test_idx"),
    ({"split": "random", "mask": 0}, "mask=0: expected no split as well"),
    ({"train_idx": [0], "mask": 0}, r"mask=0: expected masks \[3, k\]"),
    ({"train_idx": np.eye(3) > 0}, "train_idx: has 3 masks; mask=0 to 2 chooses one$"),
    ({"train_idx": np.eye(3) > 0, "mask": 3}, "mask=0 to 2 chooses one, got 3"),
    ({"mask": "1"}, "mask=1: expected the number of a column of masks"),
    (
        {"labels": np.array(["a", 1, None], object)},
        "expected texts or numbers, got texts and",
    ),
    ({"features": None}, "features and labels are missing: expected a row per vertex"),
    ({"metric": "mse"}, "metric='mse': expected one of accuracy, micro_f1, roc_auc, rmse"),
]


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT)
def test_bad_input(arguments, message):
    with pytest.raises(GraphError, match=message) as error:
        from_arrays(**({"edges": (SRC, DST), "features": X} | arguments))
    assert str(error.value).startswith("graph: ")
    assert str(error.value).isprintable()


def test_an_array_that_hides_no_value_is_an_array():
    graph = from_arrays((SRC, DST), np.ma.masked_greater(X, 9), np.ma.masked_less([0, 1, 1], 0))
    np.testing.assert_array_equal(graph.features, X)
    assert graph.labels.tolist() == [0, 1, 1]


WIDE = np.array([[1, 2e5], [2, -1e5], [3, 0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": WIDE}, "graph: features: feature 1 reaches 2e+05, and most only 3;"),
        ({"features": torch.from_numpy(WIDE).bfloat16()}, "features: feature 1 reaches 2e+05"),
        ({"features": np.full((3, 2), 3e38)}, "graph: features: features reach 3e+38; sums and"),
        ({"features": torch.full((3, 2), -3e38).bfloat16()}, "e+38; sums and squares"),
        ({"edge_features": EDGE_FEATURES[:, :1] * 1e5}, "edge features: feature 0 reaches 8e+05"),
        ({"edge_features": EDGE_FEATURES * 1e37}, "edge features: features reach 8e+37; sums and"),
    ],
)
def test_features_that_hide_others_are_warned_of(caplog: Any, arguments: Any, message: str) -> None:
    given = {"edges": (SRC, DST), "features": X} | arguments
    from_arrays(**given)
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert message in warnings[0]
    caplog.clear()
    from_arrays(**given, advises=False)
    from_arrays((SRC, DST), X, edge_features=EDGE_FEATURES)
    assert not [each for each in caplog.records if each.levelno == logging.WARNING]


def test_strided_and_unaligned_features_are_copied():
    for rows in (X[::-1], X[:, ::-1], np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]):
        graph = from_arrays((SRC, DST), rows)
        assert graph.features.flags.c_contiguous
        np.testing.assert_array_equal(graph.features, rows)
    tensor = torch.from_numpy(X).bfloat16().T.contiguous().T
    graph = from_arrays((SRC, DST), tensor)
    assert graph.features.tolist() == tensor.contiguous().view(torch.int16).tolist()
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(3, 2)
    unaligned.flags.writeable = False
    assert from_arrays((SRC, DST), unaligned).features.flags.aligned


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40), st.booleans())
def test_against_a_stable_sort(edges: list[tuple[int, int]], wide: bool) -> None:
    dtype = np.int64 if wide else np.int32
    src, dst = given = np.array(edges, dtype).reshape(-1, 2).T.copy()
    before = given.copy()
    expected = sorted(range(len(edges)), key=lambda number: (dst[number], src[number]))
    indptr, order = edge_order(src, dst, 6)
    assert order.tolist() == expected
    assert indptr.tolist() == [0, *np.cumsum(np.bincount(dst, minlength=6))]
    lists = in_neighbors(src, dst, 6)
    assert (lists[0].tolist(), lists[1].tolist()) == (indptr.tolist(), src[order].tolist())
    assert lists[1].dtype == dtype
    np.testing.assert_array_equal(given, before)
    with pytest.raises(ValueError, match="allowed are 0 to 1"):
        edge_order(np.array([2], dtype), np.array([0], dtype), 2)


def test_features_of_other_types_become_those_that_a_graph_holds() -> None:
    for rows, kind in ((X > 2, "uint8"), (X.astype(int), "float32"), (X.astype(">f4"), "float32")):
        graph = from_arrays((SRC, DST), rows)
        assert graph.feature_dtype == str(graph.features.dtype) == kind
        np.testing.assert_array_equal(graph.features, rows)
    mixed = np.array([[True, 0.5], [False, 2], [True, 3]], object)  # as pandas has it
    assert from_arrays((SRC, DST), mixed).features.tolist() == [[1, 0.5], [0, 2], [1, 3]]


def test_texts_are_classes_whose_names_are_kept(tmp_path: Path) -> None:
    for labels in (["dog", "cat", ""], np.array(["dog", "cat", None], object)):
        graph = from_arrays((SRC, DST), X, labels, train_idx=[0, 1])
        assert (graph.labels.tolist(), graph.num_classes) == ([1, 0, -1], 2)
        assert read_classes(graph) == ["cat", "dog"]
    graph.save(tmp_path / "store")
    assert read_classes(Graph.open(tmp_path / "store")) == ["cat", "dog"]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, 0], "Int64", [1, -1, 0]),
        ([1, None, 0], "int8[pyarrow]", [1, -1, 0]),
        ([True, None, False], "boolean", [1, -1, 0]),
        ([True, None, False], "bool[pyarrow]", [1, -1, 0]),
        ([1, None, 0], object, [1, -1, 0]),
        (["b", None, "a"], "string[pyarrow]", [1, -1, 0]),
        (["b", None, "a"], "category", [1, -1, 0]),
        ([0.5, None, 2], object, [0.5, np.nan, 2]),
        ([0.5, None, 2], "Float64", [0.5, np.nan, 2]),
    ],
)
def test_labels_of_pandas_may_have_gaps(values, kind, expected) -> None:
    column = pandas.Series(values, dtype=kind)
    for labels in (column, column.array, column.to_frame(), column.set_axis([7, 5, 3])):
        np.testing.assert_array_equal(from_arrays((SRC, DST), X, labels).labels, expected)


def test_columns_of_data_frames_that_are_no_features_are_warned_of(caplog) -> None:
    columns = {"a": [1, 2], "index": [0, 1], "train_mask": [1, 0], "y": [0, 1], "b": [4, 5]}
    frame = pandas.DataFrame(columns, dtype=np.float32)
    assert from_arrays(([0], [1]), frame).num_features == 5
    (line,) = caplog.messages
    assert line.endswith(
        "that may not be features are read as features: 'index' (the index of pandas), "
        "'train_mask' (a mask), 'y' (a label)"
    )
    caplog.clear()
    from_arrays(([0], [1]), frame[["a", "b"]])
    from_arrays(([0], [1]), frame, advises=False)
    assert not caplog.messages


def test_rows_in_another_order_than_their_index_are_warned_of(caplog) -> None:
    frame = pandas.DataFrame(X, index=[2, 0, 1])
    from_arrays((SRC, DST), frame, frame[0] > 1)
    assert [line.partition(":")[2].partition(",")[0] for line in caplog.messages] == [
        " features: row i is vertex i",
        " labels: row i is vertex i",
    ]
    caplog.clear()
    for index in ([0, 1, 2], [5, 3, 4], [*"cab"]):
        from_arrays((SRC, DST), frame.set_axis(index))
    assert not caplog.messages


@pytest.mark.parametrize("column", [["a", "b", "c"], [1.0, float("nan"), 2.0]])
def test_columns_of_a_frame_that_are_no_numbers_suggest_tables(column: list[Any]) -> None:
    with pytest.raises(GraphError, match=r"gnnscale\.from_tables reads columns of texts") as error:
        from_arrays((SRC, DST), pandas.DataFrame({"age": [1, 2, 3], "column": column}))
    assert isinstance(column[0], float) or "column 'column': expected num" in str(error.value)


def test_a_data_frame_of_two_columns_is_edges() -> None:
    frame = pandas.DataFrame({"a": [2, 0], "b": [1, 1]})
    for kinds in ("int64", "Int64", "uint8[pyarrow]", {"a": "category", "b": "int8"}):
        graph = from_arrays(frame.astype(kinds), X)
        assert (graph.indices.tolist(), graph.indptr.tolist()) == ([0, 2], [0, 0, 2, 2])
    with pytest.raises(
        GraphError, match="a data frame of two columns, source and destination, got a"
    ):
        from_arrays(frame.assign(w=3), X)
    with pytest.raises(GraphError, match=r"expected 2 rows, \(src, dst\), got 4; edges.T has them"):
        from_arrays(np.stack([SRC, DST], axis=1), X)


def test_labels_count_the_vertices_without_features() -> None:
    graph = from_arrays((SRC, DST), None, [0, 1, 1])
    assert (graph.num_vertices, graph.num_features) == (3, 0)


def test_lists_ascend_by_time_and_all_data_of_edges_with_them() -> None:
    src, dst = np.array([2, 0, 1, 0, 0]), np.array([1, 1, 0, 1, 2])
    graph = from_arrays(
        (src, dst),
        X,
        edge_weights=[0.5, 3, 0, 2, 1],
        edge_features=[0, 1, 2, 3, 4],
        edge_times=np.array([3, 4, 9, 3, 1], "datetime64[D]"),
        vertex_times=np.array([2, 0, 4], "datetime64[D]"),
        number_edges=True,
    )
    # Vertex 2 is known from day 4 on, and so is its edge; of two edges at 4, source 0 comes first.
    assert (graph.indptr.tolist(), graph.indices.tolist()) == ([0, 1, 4, 5], [1, 0, 0, 2, 0])
    assert graph.times is not None
    assert (graph.times.unit, graph.times.edges.tolist()) == ("day", [9, 3, 4, 4, 2])
    assert graph.times.vertices.tolist() == [2, 0, 4]
    assert graph.edge_ids.tolist() == graph.edge_rows.tolist() == [2, 3, 1, 0, 4]
    assert graph.edge_weights.tolist() == [0, 2, 3, 0.5, 1]
    assert graph.edges.ends.tolist() == np.stack([src, dst], axis=1).tolist()
    bare = from_arrays((src, dst), X, vertex_times=[2, 0, 4], time_unit="step")
    assert (bare.times.unit, bare.times.edges.tolist()) == ("step", [0, 2, 2, 4, 2])
    assert (bare.edge_ids, bare.indices.tolist()) == (None, [1, 0, 0, 2, 0])
    assert from_arrays((src, dst), X).times is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edge_times": [1]}, r"graph: times of edges: expected 4, got \[1\]"),
        ({"edge_times": np.array(["NaT"] * 4, "M8[s]")}, "times of edges: .* got NaT for 4 of 4"),
        (
            {"edge_times": np.zeros(4, "M8[s]"), "vertex_times": np.zeros(3, "M8[ns]")},
            "graph: expected times of one unit, got vertices in ns, edges in s",
        ),
    ],
)
def test_bad_times(arguments: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        from_arrays((SRC, DST), X, **arguments)
