"""The layouts of which no real file is at hand, and the odd corners of the others."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnscale.core.errors import GraphError
from gnnscale.dataset import Csr, GraphSaint, Heterophilous, Mag240m, Musae, Snap


def lists(graph):
    """In-neighbours of each vertex."""
    return [
        graph.indices[a:b].tolist() for a, b in zip(graph.indptr, graph.indptr[1:], strict=False)
    ]


# GraphSAINT


def graphsaint(root, **files):
    root.mkdir(exist_ok=True)
    adjacency = scipy.sparse.csr_matrix(([1.0] * 3, ([0, 0, 2], [1, 3, 0])), shape=(4, 4))
    scipy.sparse.save_npz(root / "adj_full.npz", adjacency)
    np.save(root / "feats.npy", files.get("feats", np.arange(8.0).reshape(4, 2)))
    classes = files.get("class_map", {"0": 2, "2": 0, "1": 1, "3": 2})
    (root / "class_map.json").write_text(json.dumps(classes))
    role = files.get("role", {"tr": [3, 0], "va": [1], "te": [2]})
    (root / "role.json").write_text(json.dumps(role))
    return GraphSaint(name="flickr", raw=str(root))


def test_graphsaint(tmp_path):
    graph = graphsaint(tmp_path / "raw").open()
    assert lists(graph) == [[1, 3], [], [0], []]
    assert graph.labels.tolist() == [2, 1, 0, 2]
    assert graph.train_idx.tolist() == [0, 3]
    assert graph.features.dtype == np.float32
    assert graph.features[3].tolist() == [6, 7]
    assert graph.metric == "accuracy"


def test_graphsaint_multilabel(tmp_path):
    classes = {"0": [1, 0, 1], "1": [0, 0, 0], "2": [1, 1, 1], "3": [0, 1, 0]}
    graph = graphsaint(tmp_path / "raw", class_map=classes).open()
    assert graph.labels[2].tolist() == [1, 1, 1]
    assert (graph.num_classes, graph.metric) == (3, "micro_f1")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"class_map": {"0": 1, "1": 1, "2": 0}}, "class_map.json: ids must be 0 to 3"),
        (
            {"class_map": {"0": [1], "1": [1, 0], "2": [0], "3": [0]}},
            "class_map.json: class of vertex 1 is a list",
        ),
        ({"class_map": [1, 2]}, "class_map.json: holds a list"),
        (
            {"class_map": {"0": 1, "1": 1, "2": 0, "3": "x"}},
            "class_map.json: classes must be whole numbers",
        ),
        ({"role": {"tr": [0], "va": [1]}}, "role.json: has no list 'te'"),
        ({"role": {"tr": [0], "va": [1], "te": []}}, "role.json: the test split is empty"),
        ({"feats": np.full((4, 2), np.nan)}, "feats.npy: feature 0 of vertex 0 is nan"),
        ({"feats": np.ones((3, 2))}, "feats.npy: 3 feature rows for 4 vertices"),
        ({"feats": np.array([{}] * 4, dtype=object)}, "feats.npy: not a readable .npy file"),
    ],
)
def test_graphsaint_bad_input(tmp_path, files, message):
    with pytest.raises(GraphError) as error:
        graphsaint(tmp_path / "raw", **files).prepare()
    assert message in str(error.value)


# MAG240M


@pytest.fixture
def mag240m(tmp_path):
    root = tmp_path / "mag240m_kddcup2021"
    papers, cites = root / "processed" / "paper", root / "processed" / "paper___cites___paper"
    papers.mkdir(parents=True)
    cites.mkdir()
    np.save(papers / "node_feat.npy", np.arange(12, dtype=np.float16).reshape(4, 3))
    np.save(papers / "node_label.npy", np.array([7, 152, np.nan, np.nan], np.float32))
    np.save(cites / "edge_index.npy", np.array([[0, 1, 3], [1, 2, 1]]))
    split = {"train": [0], "valid": [1], "test-dev": [2], "test-challenge": [3]}
    torch.save({name: np.array(ids) for name, ids in split.items()}, root / "split_dict.pt")
    return tmp_path


def test_mag240m(mag240m):
    graph = Mag240m(name="mag240m", raw=str(mag240m)).open()
    assert lists(graph) == [[], [0, 3], [1], []]
    assert graph.feature_dtype == "float16"
    assert graph.features[3].tolist() == [9, 10, 11]
    assert graph.labels.tolist() == [7, 152, -1, -1]
    assert graph.num_classes == 153
    assert [ids.tolist() for ids in (graph.train_idx, graph.valid_idx, graph.test_idx)] == [
        [0],
        [1],
        [2],
    ]


class Malicious:
    def __reduce__(self):
        return print, ("stolen",)


def test_mag240m_split_runs_no_code(mag240m, capsys):
    torch.save({"train": Malicious()}, mag240m / "mag240m_kddcup2021" / "split_dict.pt")
    with pytest.raises(GraphError, match=r"data.pkl: .*it names builtins.print"):
        Mag240m(name="mag240m", raw=str(mag240m)).prepare()
    assert capsys.readouterr().out == ""


# SNAP


def snap(tmp_path, text, name="toy.txt", **options):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    options = {
        "num_classes": 2,
        "num_features": 4,
        "train_fraction": 0.3,
        "valid_fraction": 0.3,
    } | options
    return Snap(name="toy", raw=str(tmp_path), **options)


@pytest.mark.parametrize("name", ["toy.txt", "toy.txt.gz"])
@pytest.mark.parametrize("mark", ["\t", " ", ","])
def test_snap_ids_lose_their_gaps(tmp_path, name, mark):
    text = f"# two\n# comments\n70{mark}5\n9000000000{mark}5\n5{mark}70\n70{mark}8\n"
    graph = snap(tmp_path, text, name).open()
    # 5, 8, 70 and 9000000000 become 0 to 3.
    assert lists(graph) == [[2, 3], [2], [0], []]
    assert graph.num_features == 4
    assert sorted(np.bincount(graph.labels)) == [2, 2]


def test_snap_extra_columns_are_left_out(tmp_path):
    graph = snap(tmp_path, "0 1 0.5 1999\n1 2 0.5 1999\n3 4 1 1\n").open()
    assert lists(graph) == [[], [0], [1], [], [3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\t1\n1.5\t2\n", "line 2 is .* cannot be read as int64"),
        ("0\t1\n1\tx\n", "line 2 is .* cannot be read as int64"),
        ("0\t1\n1\n", "line 2 is .* cannot be read as int64"),
        ("0\t1\n-4\t2\n", "vertex id -4 is negative"),
        ("# nothing\n", "has no edges"),
        ("", "empty"),
        ("0\t99999999999999999999\n", "line 1 is .* cannot be read as int64"),
    ],
)
def test_snap_bad_input(tmp_path, text, message):
    with pytest.raises(GraphError, match=rf"toy.txt: {message}"):
        snap(tmp_path, text).prepare()


# NumPy CSR


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2, 1, 3], [0, 1, 2], " indptr must rise from 0 to 3"),
        ([0, 1, 2], [0, 1, 2], " indptr must rise from 0 to 3"),
        ([1, 2, 3], [0, 1, 2], " indptr must rise from 0 to 3"),
        ([0.0, 3.0], [0, 1, 2], "indptr.npy: float64"),
        ([0, 2, 3], [0, 1, 2], " vertex id 2 is out of range, the graph has 2 vertices"),
        ([0, 2, 3], [0, 1, -1], " vertex id -1 is negative"),
        ([0, 2, 3], [0.0, 1.0, 1.0], "indices.npy: float64"),
    ],
)
def test_csr_bad_input(tmp_path, indptr, indices, message):
    np.savez(tmp_path / "web.npz", indptr=np.array(indptr), indices=np.array(indices))
    with pytest.raises(GraphError, match=rf"web.npz.{message}"):
        Csr(name="web", raw=str(tmp_path)).prepare()


def test_csr_without_its_arrays(tmp_path):
    np.savez(tmp_path / "web.npz", indptr=np.array([0, 1]))
    with pytest.raises(GraphError, match=r"web.npz: has no array 'indices', only indptr"):
        Csr(name="web", raw=str(tmp_path)).prepare()


# MUSAE


def musae(root, **files):
    texts = {
        "musae_DE_edges.csv": "from,to\n0,1\n2,1\n",
        "musae_DE_features.json": '{"0": [1, 4], "2": [0, 0]}',
        "musae_DE_target.csv": "id,mature,new_id\n900,True,2\n901,False,0\n902,True,1\n",
    }
    for name, text in (texts | files).items():
        (root / name).write_text(text)
    return Musae(
        name="twitch",
        raw=str(root),
        part="DE",
        undirected=True,
        valid_fraction=0.3,
        train_fraction=0.3,
    )


def test_musae_words_and_new_ids(tmp_path):
    (tmp_path / "musae_ES_target.csv").write_text("another language")
    graph = musae(tmp_path).open()
    assert graph.labels.tolist() == [0, 1, 1]
    assert graph.features.tolist() == [[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert lists(graph) == [[1], [0, 2], [1]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("musae_DE_edges.csv", "from,to\n0,3\n", "vertex id 3 is out of range"),
        ("musae_DE_edges.csv", "from,to\n0,x\n", "cannot be read as int64"),
        ("musae_DE_features.json", '{"0": [1.5]}', "not lists of column numbers"),
        ("musae_DE_features.json", '{"0": [-1]}', "not lists of column numbers"),
        ("musae_DE_features.json", '{"7": [1]}', "vertex id 7 is out of range"),
        ("musae_DE_features.json", '{"0": [1', "cannot be read as JSON"),
        ("musae_DE_target.csv", "id,colour\n0,red\n", "columns are id, colour; needed are"),
        ("musae_DE_target.csv", "id,target\n0,1\n2,1\n", "ids must be 0 to 1, each once"),
        ("musae_DE_target.csv", "id,target\nx,1\n", "ids must be whole numbers"),
        ("other_DE_edges.csv", "", "2 files"),
    ],
)
def test_musae_bad_input(tmp_path, name, text, message):
    with pytest.raises(GraphError) as error:
        musae(tmp_path, **{name: text}).prepare()
    assert message in str(error.value)


# Heterophilous


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": np.zeros((3, 3), int)}, "allowed is \\[edges, 2\\]"),
        ({"edges": np.array([[0.5, 1]])}, "float64.1, 2., needed are whole numbers"),
        ({"train_masks": np.ones((1, 9), bool)}, "masks are not \\[splits, 3\\]"),
        ({"val_masks": np.zeros((1, 3), bool)}, "the valid split is empty"),
        ({"val_masks": np.array([[True, False, False]])}, "overlapping splits, vertex 0"),
    ],
)
def test_heterophilous_bad_input(tmp_path, change, message):
    arrays = {
        "edges": np.array([[0, 1]]),
        "node_features": np.ones((3, 2), np.float32),
        "node_labels": np.array([0, 1, 2]),
        "train_masks": np.array([[True, False, False]]),
        "val_masks": np.array([[False, True, False]]),
        "test_masks": np.array([[False, False, True]]),
    }
    np.savez(tmp_path / "toy.npz", **(arrays | change))
    with pytest.raises(GraphError, match=rf"toy.npz.*{message}"):
        Heterophilous(name="toy", raw=str(tmp_path)).prepare()
