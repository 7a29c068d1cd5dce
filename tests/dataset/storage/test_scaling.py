import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from one_line import one_line

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.dataset import StoreOptions, StoreWriter, Tables, from_arrays
from gnnscale.dataset.storage import scaling
from gnnscale.dataset.storage.scaling import Scaling, Spread, read_scaling, scaled_graph

ROWS = np.float32([[1, 10, 5], [3, 10, 6], [100, 0, 7]])


def scaled(found: Scaling, rows: np.ndarray, dtype: str = "float32") -> np.ndarray:
    return np.concatenate(list(found.scaled(rows, dtype)))


@pytest.mark.parametrize("slice_bytes", [1, 1 << 20])
def test_mean_and_deviation_are_of_the_training_vertices(
    monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    monkeypatch.setattr(scaling, "_SLICE_BYTES", slice_bytes)
    found = Scaling.of(ROWS, np.array([0, 1]))
    assert found.mean == [2, 10, 5.5]
    assert found.deviation == [1, 1, 0.5]  # 1 for the column of equal numbers
    assert scaled(found, ROWS).tolist() == [[-1, 0, -1], [1, 0, 1], [98, -10, 3]]
    with pytest.raises(GraphError, match="needs training vertices, and there are none"):
        Scaling.of(ROWS, np.array([], np.int32))


@given(arrays.arrays(np.float32, (20, 3), elements=st.floats(-1e6, 1e6, width=32)))
def test_what_is_scaled_has_mean_0_and_deviation_1(rows: np.ndarray) -> None:
    found = scaled(Scaling.of(rows, np.arange(20)), rows).astype(np.float64)
    assert found.mean(axis=0) == pytest.approx(0, abs=1e-4)
    assert all(each == pytest.approx(1, abs=1e-3) or each < 1e-3 for each in found.std(axis=0))


def test_other_types_of_rows() -> None:
    found = Scaling(mean=[1.0], deviation=[2.0])
    assert scaled(found, np.array([[3]], np.uint8), "uint8").tolist() == [[1]]
    assert scaled(found, np.array([[3]], np.float16), "float16").tolist() == [[1]]
    bits = np.float32([[3]]).view(np.uint32) >> 16
    assert scaled(found, bits.astype(np.uint16), "bfloat16").tolist() == [[1]]


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
    (warning,) = [each for each in caplog.messages if "standardize" in each]
    assert "feature 'income' reaches 1.53e+03, and most only 4" in warning
    caplog.clear()
    graph = Tables(**raw, standardize=True, feature_dtype="float16").open()
    assert not [each for each in caplog.messages if "standardize" in each]
    assert graph.feature_dtype == "float16"
    rows = graph.features.astype(np.float64)
    assert rows[graph.train_idx].mean(axis=0) == pytest.approx(0, abs=1e-3)
    assert rows[graph.train_idx].std(axis=0) == pytest.approx(1, abs=1e-3)
    found = read_scaling(graph)
    assert found == Scaling.of(plain.features, plain.train_idx)
    assert found is not None
    again = scaled_graph(plain, found)
    assert np.array(again.features) == pytest.approx(rows, abs=1e-3)
    assert again.feature_dtype == "float32"
    assert graph.path is not None
    assert not list(graph.path.glob("unscaled*"))
    # Stores of earlier releases keep their names.
    options = json.loads((plain.path / "meta.json").read_text())["options"]  # type: ignore[operator]
    assert not {"standardize", "unlabelled"} & set(options)
    meta = json.loads((graph.path / "meta.json").read_text())
    for change, message in (
        ({"mean": [1.0], "deviation": [1.0]}, "scales 1 features"),
        ({"mean": [1.0, 2.0], "deviation": [1.0, 0.0]}, "a deviation of 0.0"),
        ({"mean": [1.0, 2.0], "deviation": [1.0]}, "2 means, 1 deviations"),
    ):
        (graph.path / "meta.json").write_text(json.dumps(meta | {"scaling": change}))
        with one_line(message, error=GraphError):
            read_scaling(graph)


def test_a_split_is_checked_before_its_vertices_are_read(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, StoreOptions(standardize=True)) as writer:
        writer.set_num_vertices(3, source="raw")
        writer.add_edges(np.array([0]), np.array([1]), source="raw")
        writer.write_features([ROWS], num_features=3, dtype="float32", source="raw")
        writer.set_labels(np.array([0, 1, 0]), source="raw")
        writer.set_split(np.array([7]), np.array([1]), np.array([2]), source="raw")
        with pytest.raises(GraphError, match="raw: train split"):
            writer.finish(name="x", source="raw", options={})


def test_fractions_need_another_type() -> None:
    with pytest.raises(ConfigError, match="standardized features are fractions"):
        Tables(name="x", standardize=True, feature_dtype="uint8")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1, 1500]], (1, 1500, 1)),
        ([[1, 90]], None),
        ([[0, 0]], None),
        ([[0, 700], [-2, 3]], (1, 700, 2)),
        ([[0, 1, 1, 1000], [0, 1, 1, 0]], (3, 1000, 1)),
        ([[0, 0, 1000]], None),
    ],
)
def test_columns_of_larger_numbers(rows: list[list[float]], expected: Any) -> None:
    spread = Spread()
    assert [each.tolist() for each in spread.watching([np.float32(rows)])] == [rows]
    assert spread.widest == expected


def test_a_graph_in_memory_has_no_scaling() -> None:
    edges = (np.array([0]), np.array([1]))
    assert read_scaling(from_arrays(edges, ROWS)) is None
