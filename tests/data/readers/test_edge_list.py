"""Edge lists of a user, with features and labels in .npy files."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data import EdgeList, read_ids


def edge_list(tmp_path: Path, text: str, rows: int | None = None, **options: Any) -> EdgeList:
    file = tmp_path / "e.txt"
    file.write_text(text)
    if rows is not None:
        np.save(tmp_path / "x.npy", np.arange(rows * 2, dtype=np.float64).reshape(rows, 2))
        options["features_file"] = str(tmp_path / "x.npy")
    return EdgeList(name="e", raw=str(file), **options)


def lists(graph: Any) -> list[list[int]]:
    return [part.tolist() for part in np.split(graph.indices, graph.indptr[1:-1])]


def test_ids_without_rows_are_numbered_and_kept(tmp_path: Path) -> None:
    graph = edge_list(tmp_path, "35  33\n35\t48\n 35\t15\n").open()
    assert lists(graph) == [[2], [2], [], [2]]
    assert read_ids(graph).to_pylist() == [15, 33, 35, 48]
    assert (graph.num_features, graph.num_classes) == (0, 0)
    plain = edge_list(tmp_path, "0 1\n2 0\n").open()
    assert (lists(plain), read_ids(plain)) == ([[2], [0], []], None)


def test_ids_are_rows_or_as_many_as_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = edge_list(tmp_path, "0 2\n2 0\n", rows=4).open()
    assert lists(graph) == [[2], [], [0], []]
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    from_one = edge_list(tmp_path, "1 2\n3 1\n", rows=3).open()
    assert (lists(from_one), read_ids(from_one).to_pylist()) == ([[2], [0], []], [1, 2, 3])
    edge_list(tmp_path, "1 2\n", rows=4).open()
    assert "ids count as numbers of rows from 0, and the smallest is 1" in caplog.text
    with one_line("3 different ids, 1 to 9, for 4 rows", error=GraphError):
        edge_list(tmp_path, "1 2\n9 1\n", rows=4).open()


def test_labels_weights_and_what_networkx_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    club = nx.karate_club_graph()
    labels = np.array([int(club.nodes[v]["club"] != "Mr. Hi") for v in club])
    np.save(tmp_path / "y.npy", labels)
    nx.write_weighted_edgelist(club, tmp_path / "w.txt")
    nx.write_edgelist(club, tmp_path / "d.txt")
    options = {"labels_file": str(tmp_path / "y.npy"), "undirected": True}
    graph = EdgeList(name="k", raw=str(tmp_path / "w.txt"), weighted=True, **options).open()
    weights = nx.to_numpy_array(club)
    assert lists(graph) == [np.flatnonzero(row).tolist() for row in weights]
    assert graph.edge_weights.tolist() == weights[np.nonzero(weights)].tolist()
    assert graph.labels.tolist() == labels.tolist()
    assert list(map(len, (graph.train_idx, graph.valid_idx, graph.test_idx))) == [20, 7, 7]
    unweighted = EdgeList(name="k", raw=str(tmp_path / "d.txt"), **options).open()
    assert lists(unweighted) == lists(graph)
    assert "columns after the first two are not read" in caplog.text
    with one_line("got '{'weight':'", "write_weighted_edgelist", error=GraphError):
        EdgeList(name="k", raw=str(tmp_path / "d.txt"), weighted=True, **options).open()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features_file": "nowhere.npy"}, ("dataset.features_file=nowhere.npy", "no such")),
        ({"labels_file": "short.npy"}, ("short.npy: 3 labels for 4 rows of",)),
        ({"labels_file": "e.txt"}, ("dataset.labels_file=", "expected a .npy file")),
        ({"features_file": "text.npy"}, ("text.npy",)),
        ({"features_file": "empty.npy"}, ("expected a row per vertex",)),
        ({"weighted": True}, ("expected weights in the third column", "two columns")),
        ({"raw": "."}, ("expected the text file of edges, got a folder",)),
    ],
)
def test_one_line_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.txt").write_text("0 1\n")
    for name, array in (("x", np.eye(4)), ("short", np.arange(3)), ("text", np.array(["a"]))):
        np.save(f"{name}.npy", array)
    np.save("empty.npy", np.empty((0, 2)))
    with one_line(*words, error=GraphError):
        EdgeList(**{"name": "e", "raw": "e.txt", "features_file": "x.npy", **options}).open()
