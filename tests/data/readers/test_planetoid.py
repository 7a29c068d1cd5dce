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


def test_code_other_names_and_matrices_are_refused(toy, tmp_path, monkeypatch, leftovers):
    raw, dataset = toy
    monkeypatch.chdir(tmp_path)
    outside = scipy.sparse.csr_matrix(np.eye(503, 4, dtype=np.float32))
    outside.indices[0] = 10_000_000
    for part, value, message in (
        *((part, Malicious(), "refused: it names posix.system") for part in ("y", "allx", "graph")),
        ("allx", np.array([Malicious()], dtype=object), "a dtype of 'O8', read are plain numbers"),
        ("allx", scipy.sparse.coo_matrix(np.eye(2)), "refused: it names scipy.sparse._coo.coo_mat"),
        ("allx", outside, "not a sparse matrix"),
    ):
        file = raw / f"ind.toy.{part}"
        before = file.read_bytes()
        file.write_bytes(pickle.dumps(value, protocol=3))
        with pytest.raises(GraphError, match=rf"{file}.*{message}"):
            dataset.prepare()
        assert leftovers(dataset.store_path()) == []
        file.write_bytes(before)
    (raw / "ind.toy.x").write_bytes(pickle.dumps(Malicious(), protocol=2))  # not read at all
    dataset.prepare()
    assert not (tmp_path / "stolen").exists()
