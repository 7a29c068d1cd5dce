"""Edge lists of a user, with features and labels in .npy files."""

import gzip
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.data import EdgeList, Snap, read_ids
from gnnscale.data.readers.edge_list import EdgeText


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


gaps = st.tuples(*2 * [st.text(" \t", min_size=1, max_size=3)])
comments = st.sampled_from(["# nodes 3", "% sym 4", "   # indented", "", "\t"])


@settings(max_examples=60)
@given(
    edges=st.lists(st.tuples(*2 * [st.integers(0, 2**62)]), min_size=1, max_size=30),
    data=st.data(),
)
def test_any_blanks_and_comments_are_read(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int]], data: st.DataObject
) -> None:
    lines = []
    tails = data.draw(st.sampled_from([["", "1.5", "{'weight': 3}"], ["1 1200000000"]]))
    for source, target in edges:
        lines += data.draw(st.lists(comments, max_size=1))
        first, between, last = data.draw(st.sampled_from(["", " ", "\t"])), *data.draw(gaps)
        more = data.draw(st.sampled_from(tails))
        lines.append(f"{first}{source}{between}{target}{last}{more}")
    text = data.draw(st.sampled_from(["\n", "\r\n"])).join(lines)
    mark = data.draw(st.sampled_from(["", "\ufeff"]))
    text = mark + text + data.draw(st.sampled_from(["", "\n"]))
    file = tmp_path_factory.mktemp("e") / data.draw(st.sampled_from(["e.txt", "e.txt.gz"]))
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    found = EdgeText.open(file)
    columns = [np.concatenate(column) for column in zip(*found.columns(), strict=True)]
    assert list(zip(*map(list, columns), strict=True)) == edges
    assert found.ids().tolist() == sorted({end for edge in edges for end in edge})


def test_a_line_of_names_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for text in ("# SNAP\nFromNodeId\tToNodeId\n3\t4\n", "source,target\n3,4\n"):
        (tmp_path / "e.txt").write_text(text)
        assert EdgeText.open(tmp_path / "e.txt").ids().tolist() == [3, 4]
    assert "line 2, 'FromNodeId\\tToNodeId', names columns" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("anna bob\nbob\n", ("line 2 is 'bob'", "expected 2 columns, got 1")),
        ("anna,bob\n,carl\n", ("line 2 is ',carl'", "a text is empty")),
        ("New York, Ulm\n", ("line 1 is", "between ids, got both; dataset=tables")),
        ("anna;bob\n", ("between ids, got ';'",)),
        ("# c\n0.0e+00 1.0e+00\n", ("line 2 is", "fmt='%d'")),
        ("1 2\n3 -4\n", ("vertex id -4 is negative",)),
        ("1;2\n", ("line 1 is '1;2'", "between ids, got ';'")),
        ("0 1 2 5\n1 0 3\n2 0\n", ("2 to 4 whole numbers", "networkx.read_adjlist")),
        ("1 2\n3 four\n# c\n5 6\n", ("line 2 is '3 four'",)),
        ("1 2\n# c\n\n3\n", ("line 4 is '3'", "expected 2 columns, got 1")),
        ("# nothing\n\n", ("has no edges",)),
        ("1 2\r3 4\r", ("line 1 has a CR without LF",)),
        ("%%MatrixMarket matrix coordinate pattern general\n", ("dataset=matrix_market",)),
        ("\ufffe1 2\n", ("expected whole numbers or texts as ids",)),
    ],
)
def test_lines_that_are_no_edges(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    file = tmp_path / "e.txt"
    file.write_text(text)
    with one_line(*words, error=GraphError, begins=str(file)):
        EdgeText.open(file).ids()


@pytest.mark.parametrize("comments", ["", "# nodes 4\n", "% sym unweighted\n% 4 4 4\n"])
def test_comments_of_snap_and_of_konect_are_skipped(tmp_path: Path, comments: str) -> None:
    file = tmp_path / "out.txt"
    file.write_text(f"{comments}1 2\n2 3\n3 1\n7 1\n")
    graph = Snap(name="out", raw=str(file), num_features=4, num_classes=2).open()
    assert np.diff(graph.indptr).tolist() == [2, 1, 1, 0]
    assert graph.indices.tolist() == [2, 3, 0, 1]


def test_a_matrix_market_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "m.mtx"
    file.write_text("%%MatrixMarket matrix coordinate pattern general\n% made\n3 3 2\n1 2\n2 3\n")
    with one_line("Matrix Market", "dataset=matrix_market", error=GraphError, begins=str(file)):
        Snap(name="m", raw=str(file)).open()


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("# SNAP\nbob anna\nanna  carl\n% more\n\nÖzil\tbob\n", ["anna", "bob", "carl", "Özil"]),
        ("source,target\nbob, anna\nanna,carl\nÖzil,bob\n", ["anna", "bob", "carl", "Özil"]),
        ("b ob\tan na\n# \tc\nan na \t carl\nÖ\tb ob\n", ["an na", "b ob", "carl", "Ö"]),
        ("b 1\n1 3\nx b\n", ["1", "b", "3", "x"]),
    ],
)
def test_texts_are_ids(tmp_path: Path, text: str, ids: list[str]) -> None:
    graph = edge_list(tmp_path, text).open()
    assert read_ids(graph).to_pylist() == sorted(ids)
    place = {name: number for number, name in enumerate(sorted(ids))}
    first, second, third, fourth = (place[name] for name in ids)
    expected = [[], [], [], []]
    expected[first].append(second), expected[third].append(first), expected[second].append(fourth)
    assert lists(graph) == expected


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(*2 * [st.text(st.characters(categories=["L"]), min_size=1)], st.integers(0, 9)),
        min_size=1,
        max_size=20,
    )
)
def test_any_texts_and_their_weights(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[str, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("e")
    text = "".join(f"x{source} x{target} {weight}\n" for source, target, weight in edges)
    options = {"weighted": True, "drop_duplicates": False, "store": str(folder / "store")}
    graph = edge_list(folder, text, **options).open()
    ids = read_ids(graph).to_pylist()
    stored = zip(
        (ids[source] for source in graph.indices),
        (ids[target] for target in np.repeat(np.arange(len(ids)), np.diff(graph.indptr))),
        graph.edge_weights.tolist(),
        strict=True,
    )
    assert sorted(stored) == sorted((f"x{a}", f"x{b}", weight) for a, b, weight in edges)
