"""The Planetoid reader on files made here: CiteSeer's gaps, and pickles that must be refused."""

import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from gnnscale.core.errors import GraphError


@pytest.fixture
def toy(prepared_in):
    """A folder of 503 known vertices, and its dataset."""
    return prepared_in("planetoid")


def test_isolated_test_vertices(toy):
    """The test vertices are 506 and 503: 504 and 505 are isolated."""
    raw, dataset = toy
    (raw / "ind.toy.test.index").write_text("506\n503\n")
    graph = {v: [v + 1] for v in range(502)} | {503: [5], 506: [0, 0, 506]}
    (raw / "ind.toy.graph").write_bytes(pickle.dumps(graph, protocol=3))
    graph = replace(dataset, undirected=True, self_loops="remove").open()
    assert (graph.num_vertices, graph.labels[502:].tolist()) == (507, [1, 1, -1, -1, 0])
    assert graph.features[503:].tolist() == [[0, 1, 0, 0], [0] * 4, [0] * 4, [1, 0, 0, 0]]
    assert np.diff(graph.indptr)[503:].tolist() == [1, 0, 0, 1]
    assert (graph.train_idx.tolist(), graph.valid_idx.tolist()) == ([0, 1], list(range(2, 502)))
    assert graph.test_idx.tolist() == [503, 506]


class Malicious:
    def __reduce__(self):
        return os.system, ("touch stolen",)


@pytest.mark.parametrize("part", ["x", "y", "allx", "graph"])
def test_code_is_refused(toy, part, tmp_path, monkeypatch, leftovers):
    raw, dataset = toy
    monkeypatch.chdir(tmp_path)
    file = raw / f"ind.toy.{part}"
    file.write_bytes(pickle.dumps(Malicious(), protocol=2))
    if part == "x":  # not read at all
        dataset.prepare()
    else:
        with pytest.raises(GraphError, match=r"refused: it names posix.system") as error:
            dataset.prepare()
        assert str(file) in str(error.value)
        assert leftovers(dataset.store_path()) == []
    assert not (tmp_path / "stolen").exists()


def outside():
    """A matrix that points outside itself."""
    matrix = scipy.sparse.csr_matrix(np.eye(503, 4, dtype=np.float32))
    matrix.indices[0] = 10_000_000
    return matrix


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([Malicious()], dtype=object), "a dtype of 'O8', read are plain numbers"),
        (scipy.sparse.coo_matrix(np.eye(2)), "refused: it names scipy.sparse._coo.coo_matrix"),
        (outside(), "not a sparse matrix"),
    ],
    ids=["object array", "other matrix", "outside"],
)
def test_other_names_and_matrices_are_refused(toy, value, message):
    raw, dataset = toy
    (raw / "ind.toy.allx").write_bytes(pickle.dumps(value, protocol=3))
    with pytest.raises(GraphError, match=rf"allx: .*{message}"):
        dataset.prepare()
