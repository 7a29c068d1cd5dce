import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from one_line import one_line

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import StoreOptions, StoreWriter, Tables, from_arrays, verify_store
from gnnscale.data.storage import standardize as scaling
from gnnscale.data.storage.standardize import (
    ColumnScaling,
    Spread,
    read_edge_scaling,
    read_scaling,
    scale_rows,
)
from gnnscale.graph import FeatureMatrix, Graph
from gnnscale.graph.dtypes import as_float32, quantized

ROWS = np.float32([[1, 10, 5], [3, 10, 6], [100, 0, 7]])


def scaled(found: ColumnScaling, rows: np.ndarray, dtype: str = "float32") -> np.ndarray:
    return np.concatenate(list(found.scaled(rows, dtype)))


@pytest.mark.parametrize("slice_bytes", [1, 1 << 20])
def test_mean_and_deviation_are_of_the_training_vertices(monkeypatch, slice_bytes) -> None:
    monkeypatch.setattr(scaling, "_SLICE_BYTES", slice_bytes)
    found = ColumnScaling.of(ROWS, np.array([0, 1]))
    assert found.mean == [2, 10, 5.5]
    assert found.deviation == [1, 1, 0.5]  # 1 for the column of equal numbers
    assert scaled(found, ROWS).tolist() == [[-1, 0, -1], [1, 0, 1], [98, -10, 3]]
    message = r"dataset.standardize=true: expected training vertices, got none"
    with pytest.raises(GraphError, match=message):
        ColumnScaling.of(ROWS, np.array([], np.int32))


def test_categories_and_marks_of_empty_cells_stay_0_and_1() -> None:
    columns = [
        {"width": 2, "categories": ["a", "b"]},
        {"width": 1},
        {"width": 3, "has_gaps": True},
        {"width": 1},
    ]
    found = ColumnScaling(mean=[1.0] * 7, deviation=[2.0] * 7).leaving(columns)
    assert found.mean == [0, 0, 1, 1, 1, 0, 1]
    assert found.deviation == [1, 1, 2, 2, 2, 1, 2]


@settings(max_examples=20)
@given(arrays.arrays(np.float32, (20, 3), elements=st.floats(-1e6, 1e6, width=32)))
def test_scaled_columns_have_mean_0_and_deviation_1(rows: np.ndarray) -> None:
    found = scaled(ColumnScaling.of(rows, np.arange(20)), rows).astype(np.float64)
    assert found.mean(axis=0) == pytest.approx(0, abs=1e-4)
    assert all(each == pytest.approx(1, abs=1e-3) or each < 1e-3 for each in found.std(axis=0))


def test_other_types_of_rows() -> None:
    found = ColumnScaling(mean=[1.0], deviation=[2.0])
    assert scaled(found, np.array([[3]], np.uint8), "uint8").tolist() == [[1]]
    assert scaled(found, np.array([[3]], np.float16), "float16").tolist() == [[1]]
    bits = np.float32([[3]]).view(np.uint32) >> 16
    assert scaled(found, bits.astype(np.uint16), "bfloat16").tolist() == [[1]]
    assert scaled(found, quantized(np.float32([[3]]), "int4"), "int4") == pytest.approx(1)
    graph = from_arrays(([0], [1]), ROWS).with_quantized_features("int8")
    found = ColumnScaling.of(ROWS, None)
    again = scaled_rows(graph, found)
    assert again.dtype == "float32"
    expected = scaled(found, as_float32(graph.features, "int8", ROWS.shape[1]))
    assert np.array_equal(again.rows, expected)


def scaled_rows(graph: Graph, scaling: ColumnScaling) -> FeatureMatrix:
    dtype: Any = graph.feature_dtype
    matrix = FeatureMatrix(rows=graph.features, dtype=dtype, width=graph.num_features)
    return scale_rows(matrix, scaling)


def test_a_store_with_standardized_features(tmp_path: Path, caplog: Any) -> None:
    vertices = ["id,label,split,income,age"]
    vertices += [
        f"{v},{v % 2},{('train', 'val', 'test')[v % 3]},{1500 + v},{v % 5}" for v in range(30)
    ]
    (tmp_path / "vertices.csv").write_text("\n".join(vertices) + "\n")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    raw: dict[str, Any] = {"name": "mine", "raw": str(tmp_path)}
    plain = Tables(**raw).open()
    assert read_scaling(plain) is None
    (warning,) = [each for each in caplog.messages if "dataset.standardize" in each]
    assert "feature 'income' reaches 1.53e+03, and most only 4" in warning
    caplog.clear()
    graph = Tables(**raw, standardize=True, feature_dtype="float16").open()
    assert not [each for each in caplog.messages if "dataset.standardize" in each]
    assert graph.feature_dtype == "float16"
    rows = graph.features.astype(np.float64)
    assert rows[graph.train_idx].mean(axis=0) == pytest.approx(0, abs=1e-3)
    assert rows[graph.train_idx].std(axis=0) == pytest.approx(1, abs=1e-3)
    found = read_scaling(graph)
    assert found == ColumnScaling.of(plain.features, plain.train_idx)
    again = scaled_rows(plain, found)
    assert np.array(again.rows) == pytest.approx(rows, abs=1e-3)
    assert again.dtype == "float32"
    assert not list(graph.path.glob("unfinished*"))
    # Stores of earlier releases keep their names.
    options = json.loads((plain.path / "meta.json").read_text())["options"]  # type: ignore[operator]
    assert not {"standardize", "unlabelled"} & set(options)
    meta = json.loads((graph.path / "meta.json").read_text())
    for change, message in (
        ({"mean": [1.0], "deviation": [1.0]}, "scaling is of 1 features"),
        ({"mean": [1.0, 2.0], "deviation": [1.0, 0.0]}, "a deviation of 0.0"),
        ({"mean": [1.0, 2.0], "deviation": [1.0]}, "2 means, 1 deviations"),
    ):
        (graph.path / "meta.json").write_text(json.dumps(meta | {"scaling": change}))
        with one_line(message, error=GraphError):
            read_scaling(graph)


EDGES = "source,target,amount,kind\n0,1,100,a\n1,2,300,b\n2,0,500,a\n0,1,900,a\n"
_MORE = ("y,split", "0,train", "1,train", "0,valid", "1,test")
LABELLED = "".join(f"{row},{more}\n" for row, more in zip(EDGES.split(), _MORE, strict=True))


def edge_tables(folder: Path, *, labelled: bool = False, **options: Any) -> Tables:
    """Three vertices without features, and edges of two columns, with labels or without."""
    folder.mkdir(exist_ok=True)
    (folder / "vertices.csv").write_text("id\n0\n1\n2\n")
    (folder / "edges.csv").write_text(LABELLED if labelled else EDGES)
    options |= {"edge_label": "y"} if labelled else {}
    named: dict[str, Any] = {"label": None, "edge_features": ["amount", "kind"], **options}
    return Tables(name="paid", raw=str(folder), **named)


def test_edges_that_train_are_fitted(tmp_path: Path) -> None:
    """Amounts 100 and 300 are those of training; kinds stay 0 and 1."""
    graph = edge_tables(tmp_path, labelled=True, standardize=True).open()
    assert read_edge_scaling(graph) == ColumnScaling(mean=[200, 0, 0], deviation=[100, 1, 1])
    assert graph.edge_features.tolist() == [[-1, 1, 0], [1, 0, 1], [3, 1, 0], [7, 1, 0]]
    assert all(check.problem is None for check in verify_store(graph.path))
    assert {each.name for each in graph.path.glob("*scaled*")} == set()
    graph.save(tmp_path / "saved")
    assert read_edge_scaling(Graph.open(tmp_path / "saved")) == read_edge_scaling(graph)
    changed = replace(graph, edges=replace(graph.edges, features=np.ones((4, 3), np.float32)))
    changed.save(tmp_path / "changed")
    assert read_edge_scaling(Graph.open(tmp_path / "changed")) is None


def test_all_edges_are_fitted_without_labels(tmp_path: Path) -> None:
    """An edge that repeats counts each time; a row of zeros, of added loops, stays one."""
    options: dict[str, Any] = {"undirected": True, "self_loops": "add"}
    graph = edge_tables(tmp_path, standardize=True, **options).open()
    found = read_edge_scaling(graph)
    assert found.mean == [450, 0, 0]
    assert found.deviation == pytest.approx([87500**0.5, 1, 1])
    rows = np.array([[100, 1, 0], [300, 0, 1], [500, 1, 0], [900, 1, 0]])
    expected = [*((rows - found.mean) / found.deviation), [0, 0, 0]]
    assert graph.edge_features == pytest.approx(np.float32(expected))
    # The same rows, scaled afterwards.
    plain = edge_tables(tmp_path, **options).open()
    assert read_edge_scaling(plain) is None
    matrix = FeatureMatrix(rows=plain.edge_features, dtype="float32", width=3)
    assert scale_rows(matrix, found, 4).rows == pytest.approx(graph.edge_features)


def test_features_of_vertices_without_a_split_are_all_fitted(tmp_path: Path) -> None:
    dataset = edge_tables(tmp_path, labelled=True, standardize=True)
    (tmp_path / "vertices.csv").write_text("id,age\n0,10\n1,20\n2,60\n")
    found = read_scaling(dataset.open())
    assert (found.mean, found.deviation) == ([30], pytest.approx([(1400 / 3) ** 0.5]))


def test_a_column_of_edges_of_larger_numbers(tmp_path: Path, caplog: Any) -> None:
    edge_tables(tmp_path).open()
    (warning,) = [each for each in caplog.messages if "standardize" in each]
    assert "edges.csv: feature 'amount' of edges reaches 900, and most only 1; a m" in warning
    caplog.clear()
    edge_tables(tmp_path, standardize=True).open()
    assert not [each for each in caplog.messages if "standardize" in each]
    # One column alone stands beside the rows of layers.
    edge_tables(tmp_path, edge_features=["amount"]).open()
    assert "feature 'amount' of edges reaches 900, and most only 1" in caplog.text


def test_what_has_no_scaling(tmp_path: Path) -> None:
    with one_line("dataset.standardize=true", "vertices.csv has no features", error=ConfigError):
        edge_tables(tmp_path, edge_features=None, standardize=True).open()
    with pytest.raises(ConfigError, match="standardized features are fractions"):
        Tables(name="x", standardize=True, feature_dtype="uint8")
    graph = from_arrays(([0], [1]), ROWS, edge_features=np.ones((1, 2)))
    assert (read_scaling(graph), read_edge_scaling(graph)) == (None, None)


def test_scaled_features_of_edges_that_float32_cannot_hold(tmp_path: Path) -> None:
    """Those of the edges that train are nearly equal, and the others huge."""
    dataset = edge_tables(tmp_path, labelled=True, standardize=True, edge_features=["amount"])
    file = tmp_path / "edges.csv"
    file.write_text(file.read_text().replace("0,1,100", "0,1,1e-36").replace(",300,", ",0,"))
    with one_line("edges.csv: scaled: feature 0 of edge 2 is inf, features must", error=GraphError):
        dataset.open()


def test_a_split_is_checked_before_its_vertices_are_read(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, StoreOptions(standardize=True)) as writer:
        writer.set_num_vertices(3, source="raw")
        writer.add_edges(np.array([0]), np.array([1]), source="raw")
        writer.write_features([ROWS], num_features=3, dtype="float32", source="raw")
        writer.set_labels(np.array([0, 1, 0]), source="raw")
        writer.set_split(np.array([7]), np.array([1]), np.array([2]), source="raw")
        with pytest.raises(GraphError, match="raw: train split"):
            writer.finish(name="x", source="raw", options={})


def test_columns_of_larger_numbers() -> None:
    for rows, expected in (
        ([[1, 1500]], (1, 1500, 1)),
        ([[1, 90]], None),
        ([[0, 0]], None),
        ([[0, 700], [-2, 3]], (1, 700, 2)),
        ([[0, 1, 1, 1000], [0, 1, 1, 0]], (3, 1000, 1)),
        ([[0, 0, 1000]], None),
    ):
        spread = Spread()
        assert [each.tolist() for each in spread.watch([np.float32(rows)])] == [rows]
        assert spread.widest == expected


COLUMNS = (
    {"name": "a", "width": 2, "has_gaps": True},
    {"name": "b", "width": 2, "categories": ["x", "y"]},
    {"name": "c", "width": 3, "has_gaps": True},
)
#: a, whether it is empty; x, y; two numbers of c, whether they are empty
CELLS = np.array(
    [[1, 0, 1, 0, 5, 6, 0], [3, 0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 7, 8, 0], [9, 0, 0, 0, 0, 0, 1]],
    np.float32,
)


def columns():
    return [dict(column) for column in COLUMNS]


def test_means_by_hand() -> None:
    known = columns()
    scaling.set_means(known, CELLS, np.array([0, 1, 2]))
    assert [column.get("mean") for column in known] == [[2], None, [6, 7]]
    (filled,) = scaling.filled(known, CELLS)
    assert filled[:, 0].tolist() == [1, 3, 2, 9]
    assert filled[:, 4:].tolist() == [[5, 6, 0], [6, 7, 1], [7, 8, 0], [6, 7, 1]]
    assert scaling.has_gaps(known)
    assert not scaling.has_gaps(known[1:2])


def test_a_column_that_is_empty_in_training_has_the_mean_of_all() -> None:
    known = columns()
    scaling.set_means(known, CELLS, np.array([1]))
    assert known[2]["mean"] == [6, 7]
    none = [{"name": "a", "width": 2, "has_gaps": True}]
    scaling.set_means(none, np.array([[0, 1], [0, 1]], np.float32), None)
    assert "mean" not in none[0]
    assert np.concatenate([*scaling.filled(none, CELLS[2:3, :2])]).tolist() == [[0, 1]]


@given(st.lists(st.none() | st.integers(-100, 100), min_size=1, max_size=50), st.data())
def test_means_are_of_what_is_known(values, data) -> None:
    rows = np.array([[v or 0, v is None] for v in values], np.float32)
    train = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(values))))
    train = train[train < len(values)]
    column = {"name": "a", "width": 2, "has_gaps": True}
    scaling.set_means([column], rows, train)
    known = [values[i] for i in train if values[i] is not None]
    known = known or [v for v in values if v is not None]
    assert column.get("mean") == (None if not known else [sum(known) / len(known)])
