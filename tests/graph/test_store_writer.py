import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays, verify_store
from gnnscale.graph import EdgeData, EdgeLabels, Graph, Split

SRC, DST = np.array([2, 0, 1, 0]), np.array([1, 1, 0, 2])
X = np.arange(8, dtype=np.float32).reshape(4, 2)


def tiny(**changes: Any) -> Graph:
    parts = {"train_idx": [2], "valid_idx": [0], "test_idx": [3, 1]}
    return from_arrays((SRC, DST), **({"features": X, "labels": [0, 1, 1, -1]} | parts | changes))


def same(one: Graph, other: Graph) -> None:
    for name in ("indptr", "indices", "features", "labels", "train_idx", "valid_idx", "test_idx"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(other, name).dtype
    for name in ("name", "num_classes", "metric", "feature_dtype", "attainable_accuracy"):
        assert getattr(one, name) == getattr(other, name)
    of_one, of_other = one.edges.arrays(), other.edges.arrays()
    assert of_one.keys() == of_other.keys()
    for name, array in of_one.items():
        np.testing.assert_array_equal(array, of_other[name], err_msg=name)
        assert array.dtype == of_other[name].dtype
    assert (one.edge_labels is None) == (other.edge_labels is None)
    if one.edge_labels is not None and other.edge_labels is not None:
        for name in ("name", "num_classes", "metric"):
            assert getattr(one.edge_labels, name) == getattr(other.edge_labels, name)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"edge_features": [[1, 2], [3, 4], [5, 6], [7, 8]], "edge_weights": [1, 2, 3, 4]},
        {"edge_labels": [0, 1, -1, 2], "edge_split": ([0], [3], [2, 1])},
        {"edge_labels": [0.5, 1, np.nan, 2], "edge_features": [1, 2, 3, 4]},
        {"features": torch.from_numpy(X).bfloat16()},
        {"features": np.empty((4, 0), np.float32)},
        {"labels": np.array([[0, 1], [1, 1], [0, 0], [1, 0]])},
        {"labels": None, "train_idx": None, "valid_idx": None, "test_idx": None},
        {"train_idx": None, "valid_idx": None, "test_idx": None},
    ],
)
def test_saved_graphs_are_opened(tmp_path: Path, changes: dict[str, Any]) -> None:
    graph = tiny(**changes)
    path = tmp_path / "new" / "store"
    graph.save(path)
    same(Graph.open(path), graph)
    assert [check.problem for check in verify_store(path) if check.problem] == []
    assert os.listdir(path.parent) == ["store"]
    Graph.open(path).save(tmp_path / "again")
    assert Graph.open(tmp_path / "again").content == Graph.open(path).content


def test_what_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny().save(tmp_path / "store")
    message = f"^{tmp_path}/store: exists already; name another directory, or remove it$"
    with pytest.raises(GraphError, match=message):
        tiny().save(tmp_path / "store")
    part = replace(tiny(), degrees=np.ones(4, np.uint32))
    with pytest.raises(GraphError, match=r"^graph: is one part of a graph, copy its folder$"):
        part.save(tmp_path / "part")
    # The folder of a faster process stays.
    rename, late_folder = Path.rename, tmp_path / "late"

    def late(self: Path, target: Path) -> Path:
        target.mkdir()
        (target / "something").touch()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(GraphError, match="Directory not empty"):
        tiny().save(late_folder / "store")
    assert [path.name for path in late_folder.rglob("*")] == ["store", "something"]


def with_rows(rows: list[int], num_rows: int, width: int = 2) -> Graph:
    features = np.ones((num_rows, width), np.float32)
    return replace(tiny(), edges=EdgeData(rows=np.array(rows, np.uint32), features=features))


def with_ends(ends: list[list[int]], num_classes: int = 3, **split: list[int]) -> Graph:
    parts = {"train_idx": [0], "valid_idx": [3], "test_idx": [1]} | split
    labels = EdgeLabels(
        name="graph",
        labels=np.array([0, 1, -1, 2]),
        num_classes=num_classes,
        split=Split(**{name: np.array(rows, np.int32) for name, rows in parts.items()}),
    )
    return replace(tiny(), edges=EdgeData(ends=np.array(ends, np.int32), labels=labels))


INVALID_GRAPHS = [
    (tiny(name="a\nb"), "/meta.json: entry: name is 'a.*', allowed is a printable text"),
    (replace(tiny(), indices=np.array([1, 0, 2, 9])), ": neighbor 9 is out of range"),
    (with_rows([0, 1, 0, 3], 3), ": row of edge features 3 is out of range, allowed are 0 to"),
    (with_rows([0] * 4, 0), "/edge_features.npy: 0 rows for 4 edges, allowed are 1 to 42949"),
    (with_ends([[0, 1]] * 3 + [[4, 0]]), ": end of an edge 4 is out of range, allowed are 0"),
    (with_ends([[0, 1]] * 3), "/edge_labels.npy: 4 labels, edge_ends.npy has 3 rows"),
    (with_ends([[0, 1]] * 4, test_idx=[0]), "/edge_test_rows.npy: edge 0 is in an earlier part"),
    (with_ends([[0, 1]] * 4, test_idx=[4]), "/edge_test_rows.npy: edge id 4 is out of range"),
    (with_ends([[0, 1]] * 4, num_classes=2), "/edge_labels.npy: label 2 of edge 3 is out of"),
    (with_rows([0] * 4, 1, 0), "/edge_features.npy: 0 features an edge, allowed are 1 to 6"),
    (tiny(train_idx=[3], test_idx=[1, 2]), "vertex 3 of train_idx has no label; 1 of"),
    (with_ends([[0, 1]] * 4, train_idx=[2]), r"edge 2 of edge_split\[0\] has no label; 1 of"),
]


@pytest.mark.parametrize(("graph", "message"), INVALID_GRAPHS)
def test_invalid_graphs_are_not_saved(tmp_path: Path, graph: Graph, message: str) -> None:
    # What has no label is named by its part, not by a file of the store.
    begins = "graph: " if "has no label" in message else f"{tmp_path}/store"
    with pytest.raises(GraphError, match=f"^{begins}{message}") as error:
        graph.save(tmp_path / "store")
    assert str(error.value).isprintable()
    assert list(tmp_path.iterdir()) == []


#: Root may read everything, unless it gives these capabilities away.
WITHOUT = "-dac_override,-dac_read_search"
AS_USER = ("setpriv", f"--bounding-set={WITHOUT}", f"--inh-caps={WITHOUT}")


@pytest.mark.long
def test_unreadable_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tiny().save(path)
    program = """
import os, sys
from gnnscale.graph import Graph
for closed in ("features.npy", "."):
    os.chmod(os.path.join(sys.argv[1], closed), 0)
    try:
        Graph.open(sys.argv[1])
    except Exception as error:
        print(error)
"""
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(
        [*AS_USER, *command] if os.geteuid() == 0 else command, capture_output=True, text=True
    )
    path.chmod(0o700)
    files = [path / name for name in ("features.npy", "meta.json")]
    lines = [f"{file}: cannot be read (Permission denied)" for file in files]
    assert done.stdout.splitlines() == lines, done.stderr
