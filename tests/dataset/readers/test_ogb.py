from __future__ import annotations

import gzip
import shutil

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.dataset import Ogb


@pytest.fixture
def arxiv(data, tmp_path):
    """ogbn-arxiv's labels and split; 20,000 edges and 4 features of our own."""
    root = tmp_path / "ogbn" / "arxiv"
    shutil.copytree(data / "ogbn_arxiv_partial", root, copy_function=shutil.copyfile)
    for folder in (root, *root.rglob("*")):
        folder.chmod(0o755)
    generator = np.random.default_rng(0)
    edges = generator.integers(169_343, size=(20_000, 2))
    features = generator.integers(-9, 9, size=(169_343, 4)) / 8
    for name, table, form in (("edge", edges, "%d"), ("node-feat", features, "%.3f")):
        with gzip.open(root / "raw" / f"{name}.csv.gz", "wb", compresslevel=1) as file:
            np.savetxt(file, table, fmt=form, delimiter=",")
    return root, edges, features


def test_raw_text(arxiv, adjacency):
    root, edges, features = arxiv
    graph = Ogb(name="ogbn-arxiv", raw=str(root)).open()
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (169_343, 4, 40)
    splits = (graph.train_idx, graph.valid_idx, graph.test_idx)
    assert tuple(map(len, splits)) == (90_941, 29_799, 48_603)
    assert graph.labels[:3].tolist() == [4, 5, 28]
    np.testing.assert_array_equal(graph.features, features.astype(np.float32))
    assert graph.num_edges == len(np.unique(edges, axis=0))
    assert adjacency(graph)[edges[7, 1], edges[7, 0]] == 1
    # The folder above it will do: that is how the published archive unpacks.
    above = Ogb(name="ogbn-arxiv", raw=str(root.parent), split="random").open()
    assert len(above.train_idx) == round(169_343 * 0.6)


def test_binary_agrees_with_text(arxiv, tmp_path):
    root, edges, features = arxiv
    text = Ogb(name="ogbn-arxiv", raw=str(root), undirected=True).open()
    binary = tmp_path / "binary"
    shutil.copytree(root / "split", binary / "split")
    (binary / "raw").mkdir()
    np.savez_compressed(
        binary / "raw" / "data.npz",
        edge_index=edges.T.copy(),
        node_feat=features.astype(np.float32),
        num_nodes_list=np.array([len(features)]),
    )
    labels = text.labels.astype(np.float32)[:, None]
    labels[169_000] = np.nan
    np.savez(binary / "raw" / "node-label.npz", node_label=labels)
    graph = Ogb(name="ogbn-arxiv", raw=str(binary), split="random", undirected=True).open()
    np.testing.assert_array_equal(graph.indptr, text.indptr)
    np.testing.assert_array_equal(graph.indices, text.indices)
    np.testing.assert_array_equal(graph.features, text.features)
    assert graph.labels[169_000] == -1
    np.testing.assert_array_equal(np.delete(graph.labels, 169_000), np.delete(text.labels, 169_000))
    split = np.concatenate([graph.train_idx, graph.valid_idx, graph.test_idx])
    assert len(split) == 169_342
    assert 169_000 not in split


def tiny(root, **files):
    """Write a raw OGB folder of four vertices, each file from its text."""
    texts = {
        "raw/num-node-list": "4\n",
        "raw/edge": "0,1\n1,2\n2,3\n",
        "raw/node-feat": "0.5,1\n1,2\n2,3\n3,4\n",
        "raw/node-label": "0\n1\n0\n1\n",
        "split/time/train": "0\n1\n",
        "split/time/valid": "2\n",
        "split/time/test": "3\n",
    }
    for name, text in (texts | files).items():
        path = root / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if isinstance(text, str) else text)
    return Ogb(name="tiny", raw=str(root))


def test_multilabel(tmp_path):
    graph = tiny(tmp_path, **{"raw/node-label": "0,1,1\n1,0,0\n0,0,0\n1,1,1\n"}).open()
    assert graph.multilabel
    assert graph.num_classes == 3
    assert graph.metric == "roc_auc"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("raw/edge", "0,1\n1,-2\n", "vertex id -2 is negative"),
        ("raw/edge", "0,1\n1,4\n", "vertex id 4 is out of range, the graph has 4 vertices"),
        ("raw/edge", "0,1\n1,2.5\n", "cannot be read as int64"),
        ("raw/edge", "0,1\n1\n", "cannot be read as int64"),
        ("raw/edge", "0,1\n1,\n", "cannot be read as int64"),
        (
            "raw/edge",
            gzip.compress(b"0,1\n" * 9999, mtime=0)[:-20],
            "cannot be read (Compressed file ended",
        ),
        ("raw/edge", b"not gzip", "cannot be read (Not a gzipped file"),
        ("raw/node-feat", "1,nan\n1,2\n2,3\n3,4\n", "feature 1 of vertex 0 is nan"),
        ("raw/node-feat", "1,1\n1,2\n2,3\n", "3 feature rows for 4 vertices"),
        ("raw/node-feat", "1,1\n1,2\nx,3\n3,4\n", "cannot be read as float32"),
        ("raw/node-label", "0\n1.5\n0\n1\n", "label 1.5 of vertex 1 is not a class"),
        ("raw/node-label", "0\n-1\n0\n1\n", "label -1.0 of vertex 1 is not a class"),
        ("raw/node-label", "0\n1\n0\n", "3 labels for 4 vertices"),
        ("raw/num-node-list", "2\n2\n", "2 graphs, exactly 1 is needed"),
        ("split/time/valid", "1\n", "overlapping splits, vertex 1"),
        ("split/time/test", "9\n", "vertex id 9 is out of range"),
        ("split/time/valid", "", "empty"),
        ("split/sales/train", "0\n", "2 splitting schemes, exactly 1 is needed"),
    ],
)
def test_bad_input(tmp_path, leftovers, name, text, message):
    dataset = tiny(tmp_path / "raw", **{name: text})
    with pytest.raises(GraphError) as error:
        dataset.prepare()
    assert message in str(error.value)
    assert str(tmp_path / "raw" / name.split("/")[0]) in str(error.value)
    assert "\n" not in str(error.value)
    assert leftovers(dataset.store_path()) == []


@pytest.mark.parametrize(
    "name", ["raw/edge", "raw/node-feat", "raw/num-node-list", "split/time/test"]
)
def test_missing_file(tmp_path, name):
    dataset = tiny(tmp_path)
    (tmp_path / f"{name}.csv.gz").unlink()
    with pytest.raises(GraphError, match=rf"{name}.csv.gz: missing"):
        dataset.prepare()
