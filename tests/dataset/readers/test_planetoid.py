"""The Planetoid reader on files made here: CiteSeer's gaps, and pickles that must be refused."""

from __future__ import annotations

import os
import pickle
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse

from gnnscale.core.errors import GraphError
from gnnscale.dataset import Planetoid

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")


@pytest.fixture
def raw(tmp_path):
    """Six hundred vertices; the test vertices are 602, 600 and 604: 601 and 603 are isolated."""
    folder = tmp_path / "raw"
    folder.mkdir()
    one_hot = np.eye(3, dtype=np.int32)
    allx = np.zeros((600, 4), np.float32)
    allx[np.arange(600), np.arange(600) % 4] = 1
    tx = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], np.float32)
    graph = defaultdict(list, {v: [v + 1] for v in range(599)})
    graph |= {602: [0, 0], 600: [5], 604: [604]}
    values = {
        "x": scipy.sparse.csr_matrix(allx[:9]),
        "y": one_hot[np.arange(9) % 3],
        "allx": scipy.sparse.csr_matrix(allx),
        "ally": one_hot[np.arange(600) % 3],
        "tx": scipy.sparse.csr_matrix(tx),
        "ty": one_hot[[0, 1, 2]],
        "graph": graph,
    }
    for part, value in values.items():
        (folder / f"ind.tiny.{part}").write_bytes(pickle.dumps(value, protocol=3))
    (folder / "ind.tiny.test.index").write_text("602\n600\n604\n")
    return folder


def dataset(raw, **options):
    return Planetoid(name="tiny", raw=str(raw), undirected=True, **options)


def test_isolated_test_vertices(raw):
    graph = dataset(raw, self_loops="remove").open()
    assert graph.num_vertices == 605
    assert graph.labels[599:].tolist() == [2, 1, -1, 0, -1, 2]
    assert graph.features[600:].tolist() == [
        [0, 1, 1, 0],
        [0, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 1, 1],
    ]
    assert np.diff(graph.indptr)[600:].tolist() == [1, 0, 1, 0, 0]
    assert graph.train_idx.tolist() == list(range(9))
    assert graph.valid_idx.tolist() == list(range(9, 509))
    assert graph.test_idx.tolist() == [600, 602, 604]


class Malicious:
    def __reduce__(self):
        return os.system, ("touch stolen",)


@pytest.mark.parametrize("part", ["x", "y", "allx", "graph"])
def test_code_is_refused(raw, part, tmp_path, monkeypatch, leftovers):
    monkeypatch.chdir(tmp_path)
    file = raw / f"ind.tiny.{part}"
    file.write_bytes(pickle.dumps(Malicious(), protocol=2))
    if part == "x":  # not read at all
        dataset(raw).prepare()
    else:
        with pytest.raises(GraphError, match=r"refused: it names posix.system") as error:
            dataset(raw).prepare()
        assert str(file) in str(error.value)
        assert leftovers(dataset(raw).store_path()) == []
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.load, "refused: it names numpy.load"),
        (eval, "refused: it names builtins.eval"),
        (np.array([Malicious()], dtype=object), "a dtype of 'O8', read are plain numbers"),
        (scipy.sparse.coo_matrix(np.eye(2)), "refused: it names scipy.sparse._coo.coo_matrix"),
        (bytearray(b"x"), "refused: it names builtins.bytearray"),
    ],
    ids=["function", "builtin", "object array", "other matrix", "bytearray"],
)
def test_other_names_are_refused(raw, value, message):
    (raw / "ind.tiny.allx").write_bytes(pickle.dumps(value, protocol=3))
    with pytest.raises(GraphError, match=rf"allx: .*{message}"):
        dataset(raw).prepare()


def test_matrix_that_points_outside_itself(raw):
    matrix = scipy.sparse.csr_matrix(np.eye(600, 4, dtype=np.float32))
    matrix.indices[0] = 10_000_000
    (raw / "ind.tiny.allx").write_bytes(pickle.dumps(matrix, protocol=3))
    with pytest.raises(GraphError, match=r"allx: not a sparse matrix"):
        dataset(raw).prepare()


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({0: [1.5]}, "vertex ids must be whole numbers of 64 bits, number 0 is 1.5"),
        ({0: [-1]}, "vertex id -1 is negative"),
        ({0: [605]}, "vertex id 605 is out of range, the graph has 605 vertices"),
        ({0: 7}, "holds 7, not lists of neighbours"),
        ([1, 2], "holds a list, not a dict"),
    ],
)
def test_bad_adjacency(raw, graph, message):
    (raw / "ind.tiny.graph").write_bytes(pickle.dumps(graph, protocol=3))
    with pytest.raises(GraphError, match=rf"ind.tiny.graph: {message}"):
        dataset(raw).prepare()
