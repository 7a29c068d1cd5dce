"""One tiny valid example of every published layout, for tests that damage it."""

import gzip
import json
import pickle
import zipfile
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnscale import data as dataset

_RANDOM = {"split": "random", "train_fraction": 0.3, "valid_fraction": 0.3}


def npz(file, **arrays):
    save = np.savez if len(arrays) % 2 else np.savez_compressed
    save(file, **arrays)


def csr(root):
    indptr, indices = np.array([0, 2, 3, 3, 5]), np.array([1, 2, 0, 3, 1], np.int32)
    npz(root / "toy.npz", indptr=indptr, indices=indices)
    return dataset.Csr(name="toy", raw=str(root), num_features=4, num_classes=2, **_RANDOM)


def gnn_benchmark(root):
    arrays = {
        **{"adj_indptr": np.array([0, 2, 3, 3, 5]), "adj_indices": np.array([1, 2, 0, 3, 1])},
        **{"adj_data": np.ones(5), "adj_shape": np.array([4, 4])},
        **{"attr_indptr": np.array([0, 1, 2, 2, 4]), "attr_indices": np.array([0, 2, 1, 2])},
        **{"attr_data": np.array([1, 0.5, 2, 3], np.float32), "attr_shape": np.array([4, 3])},
        "labels": np.array([0, 1, 1, 0]),
    }
    npz(root / "toy.npz", **arrays)
    return dataset.GnnBenchmark(name="toy", raw=str(root), **_RANDOM)


def heterophilous(root):
    arrays = {
        "edges": np.array([[0, 1], [2, 1]]),
        "node_features": np.ones((3, 2), np.float32),
        "node_labels": np.array([0, 1, 2]),
        "train_masks": np.array([[True, False, False]]),
        "val_masks": np.array([[False, True, False]]),
        "test_masks": np.array([[False, False, True]]),
    }
    npz(root / "toy.npz", **arrays)
    return dataset.Heterophilous(name="toy", raw=str(root))


def graphsaint(root):
    adjacency = scipy.sparse.csr_matrix(([1.0] * 3, ([0, 0, 2], [1, 3, 0])), shape=(4, 4))
    scipy.sparse.save_npz(root / "adj_full.npz", adjacency)
    np.save(root / "feats.npy", np.arange(8.0).reshape(4, 2))
    (root / "class_map.json").write_text(json.dumps({"0": 2, "2": 0, "1": 1, "3": 2}))
    (root / "role.json").write_text(json.dumps({"tr": [3, 0], "va": [1], "te": [2]}))
    return dataset.GraphSaint(name="toy", raw=str(root))


def mag240m(root):
    papers, cites = root / "processed" / "paper", root / "processed" / "paper___cites___paper"
    papers.mkdir(parents=True)
    cites.mkdir()
    np.save(papers / "node_feat.npy", np.arange(12, dtype=np.float16).reshape(4, 3))
    np.save(papers / "node_label.npy", np.array([7, 152, np.nan, np.nan], np.float32))
    np.save(cites / "edge_index.npy", np.array([[0, 1, 3], [1, 2, 1]]))
    split = {"train": [0], "valid": [1], "test-dev": [2], "test-challenge": [3]}
    torch.save({name: np.array(ids) for name, ids in split.items()}, root / "split_dict.pt")
    return dataset.Mag240m(name="toy", raw=str(root))


_MUSAE = {
    "toy_edges.csv": "from,to\n0,1\n2,1\n",
    "toy_features.json": '{"0": [1, 4], "2": [0, 0]}',
    "toy_target.csv": "id,name,target\n2,one,1\n0,two,0\n1,three,1\n",
}


def musae(root):
    for name, text in _MUSAE.items():
        (root / name).write_text(text)
    return dataset.Musae(name="toy", raw=str(root), **_RANDOM)


def musae_zip(root):
    with zipfile.ZipFile(root / "toy.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in _MUSAE.items():
            archive.writestr(f"toy/{name}", text)
    return dataset.Musae(name="toy", raw=str(root / "toy.zip"), **_RANDOM)


def ogb_text(root):
    texts = {
        **{"raw/num-node-list": "4\n", "raw/edge": "0,1\n1,2\n2,3\n"},
        **{"raw/node-feat": "0.5,1\n1,2\n2,3\n3,4\n", "raw/node-label": "0\n1\n0\n1\n"},
        **{"split/time/train": "0\n1\n", "split/time/valid": "2\n", "split/time/test": "3\n"},
    }
    for name, text in texts.items():
        path = root / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return dataset.Ogb(name="toy", raw=str(root))


def ogb_binary(root):
    (root / "raw").mkdir()
    arrays = {
        "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
        "node_feat": np.ones((4, 2), np.float32),
        "num_nodes_list": np.array([4]),
    }
    npz(root / "raw" / "data.npz", **arrays)
    npz(root / "raw" / "node-label.npz", node_label=np.float32([[0], [1], [np.nan], [1]]))
    return dataset.Ogb(name="toy", raw=str(root), **_RANDOM)


def planetoid(root):
    one_hot = np.eye(3, dtype=np.int32)
    known = scipy.sparse.csr_matrix(np.eye(503, 4, dtype=np.float32))
    values = {
        **{"y": one_hot[:2], "allx": known, "ally": one_hot[np.arange(503) % 3], "tx": known[:2]},
        **{"ty": one_hot[:2], "graph": defaultdict(list, {0: [1, 2], 3: [0], 504: [503]})},
    }
    for protocol, (part, value) in enumerate(values.items()):
        (root / f"ind.toy.{part}").write_bytes(pickle.dumps(value, protocol))
    (root / "ind.toy.test.index").write_text("504\n503\n")
    return dataset.Planetoid(name="toy", raw=str(root))


def snap(root):
    edges = b"# a comment\n70 5\n9000000000 5\n5 70\n70 8\n"
    (root / "toy.txt.gz").write_bytes(gzip.compress(edges, mtime=0))
    return dataset.Snap(name="toy", raw=str(root), num_features=4, num_classes=2, **_RANDOM)


LAYOUTS = {
    make.__name__: make
    for make in (
        *(csr, gnn_benchmark, heterophilous, graphsaint, mag240m, musae, musae_zip, ogb_text),
        *(ogb_binary, planetoid, snap),
    )
}


@pytest.fixture
def prepared_in(tmp_path):
    """Return a function that makes the example of a layout in ``tmp_path / "raw"``."""

    def make(layout):
        raw = tmp_path / "raw"
        raw.mkdir()
        return raw, LAYOUTS[layout](raw)

    return make
