"""Every reader on real files where there are some; the figures are those of the publishers."""

import numpy as np
import pytest
import scipy.sparse

from gnnscale.core.errors import ConfigError
from gnnscale.data import Csr, GnnBenchmark, Heterophilous, Musae, Planetoid, Snap


def sizes(graph):
    return graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes


def split_sizes(graph):
    return len(graph.train_idx), len(graph.valid_idx), len(graph.test_idx)


def test_planetoid_cora(test_data, adjacency):
    graph = Planetoid(name="cora", raw=str(test_data / "planetoid"), undirected=True).open()
    assert sizes(graph) == (2708, 2 * 5278, 1433, 7)
    assert split_sizes(graph) == (140, 500, 1000)
    assert graph.feature_dtype == "uint8"
    assert np.bincount(graph.labels[graph.train_idx]).tolist() == [20] * 7
    assert graph.test_idx[[0, -1]].tolist() == [1708, 2707]
    assert int(graph.features.sum()) == 49216
    matrix = adjacency(graph)
    assert (matrix != matrix.T).nnz == 0


def test_gnn_benchmark_and_planetoid_agree(test_data):
    raw = str(test_data / "gnn_benchmark")
    graph = GnnBenchmark(name="cora", raw=raw, undirected=True).open()
    other = Planetoid(name="cora", raw=str(test_data / "planetoid"), undirected=True).open()
    assert sizes(graph) == sizes(other)
    degrees = [np.sort(np.diff(each.indptr)) for each in (graph, other)]
    np.testing.assert_array_equal(*degrees)
    assert int(graph.features.sum()) == int(other.features.sum())
    assert sorted(np.bincount(graph.labels)) == sorted(np.bincount(other.labels))
    assert split_sizes(graph) == (1625, 542, 541)


def test_gnn_benchmark_keeps_arcs(test_data, adjacency):
    path = test_data / "gnn_benchmark" / "cora.npz"
    graph = GnnBenchmark(name="cora", raw=str(path)).open()
    assert graph.num_edges == 5429
    npz = np.load(path)
    arcs = scipy.sparse.csr_matrix((npz["adj_data"], npz["adj_indices"], npz["adj_indptr"]))
    assert (adjacency(graph) != arcs.T).nnz == 0


def test_heterophilous_tolokers(test_data):
    raw = str(test_data / "heterophilous")
    graph = Heterophilous(name="tolokers", raw=raw, undirected=True).open()
    assert sizes(graph) == (11758, 2 * 519000, 10, 2)
    assert split_sizes(graph) == (5879, 2939, 2940)
    assert (graph.metric, graph.feature_dtype) == ("roc_auc", "float32")
    other = Heterophilous(name="tolokers", raw=raw, undirected=True, mask=9).open()
    assert not np.array_equal(graph.train_idx, other.train_idx)
    npz = np.load(test_data / "heterophilous" / "tolokers.npz")
    np.testing.assert_array_equal(other.test_idx, np.flatnonzero(npz["test_masks"][9]))
    with pytest.raises(ConfigError, match=r"dataset.mask=10: .* has the splits 0 to 9"):
        Heterophilous(name="tolokers", raw=raw, mask=10).open()


def test_musae_github(test_data):
    archive = test_data / "musae_git" / "git_web_ml.zip"
    graph = Musae(name="github", raw=str(archive), undirected=True).open()
    assert sizes(graph) == (37700, 2 * 289003, 4005, 2)
    assert split_sizes(graph) == (22620, 7540, 7540)
    assert graph.feature_dtype == "uint8"
    columns = [1574, 3773, 3571, 2672, 2478, 2534, 3129, 3077, 1171, 2045]
    columns += [1539, 902, 1532, 2472, 1122, 2480, 3098, 2115, 1578]
    assert np.flatnonzero(graph.features[0]).tolist() == sorted(columns)
    assert graph.labels[:4].tolist() == [0, 0, 1, 0]


def test_snap_slashdot(test_data, adjacency):
    graph = Snap(name="soc-Slashdot0902", raw=str(test_data / "snap")).open()
    assert sizes(graph) == (82168, 948464, 64, 16)
    assert graph.indices[graph.indptr[0] : graph.indptr[1]][0] == 0  # a loop
    without = Snap(name="soc-Slashdot0902", raw=str(test_data / "snap"), self_loops="remove").open()
    assert without.num_edges == 948464 - adjacency(graph).diagonal().sum()


def test_csr_cnr_2000(test_data, adjacency):
    path = test_data / "webgraph" / "cnr-2000_csr.npz"
    graph = Csr(name="cnr-2000", raw=str(path)).open()
    assert sizes(graph) == (325557, 3216152, 64, 16)
    npz = np.load(path)
    shape = (325557, 325557)
    ones = np.ones(len(npz["indices"]), np.int64)
    out_links = scipy.sparse.csr_matrix((ones, npz["indices"], npz["indptr"]), shape)
    matrix = adjacency(graph)
    assert (matrix != out_links.T).nnz == 0
    assert matrix.diagonal().sum() == 87442
