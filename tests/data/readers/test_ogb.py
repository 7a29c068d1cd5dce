import gzip
import shutil

import numpy as np
import pytest

from gnnscale.data import Ogb


@pytest.fixture
def arxiv(test_data, tmp_path):
    """ogbn-arxiv's labels and split; 20,000 edges and 4 features of our own."""
    root = tmp_path / "ogbn" / "arxiv"
    shutil.copytree(test_data / "ogbn_arxiv_partial", root, copy_function=shutil.copyfile)
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
