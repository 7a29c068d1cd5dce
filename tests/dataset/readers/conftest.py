"""One tiny valid example of every layout, for tests that damage it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from pyarrow import parquet

from gnnscale.dataset import (
    Csr,
    GnnBenchmark,
    GraphSaint,
    Heterophilous,
    Mag240m,
    Musae,
    Ogb,
    Planetoid,
    Snap,
    Tables,
)

_RANDOM = {"split": "random", "train_fraction": 0.3, "valid_fraction": 0.3}


def npz(**arrays):
    buffer = io.BytesIO()
    save = np.savez if len(arrays) % 2 else np.savez_compressed
    save(buffer, **arrays)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def csr(root):
    (root / "toy.npz").write_bytes(
        npz(indptr=np.array([0, 2, 3, 3, 5]), indices=np.array([1, 2, 0, 3, 1], np.int32))
    )
    return Csr(name="toy", raw=str(root), num_features=4, num_classes=2, **_RANDOM)


def gnn_benchmark(root):
    arrays = {
        "adj_indptr": np.array([0, 2, 3, 3, 5]),
        "adj_indices": np.array([1, 2, 0, 3, 1]),
        "adj_data": np.ones(5),
        "adj_shape": np.array([4, 4]),
        "attr_indptr": np.array([0, 1, 2, 2, 4]),
        "attr_indices": np.array([0, 2, 1, 2]),
        "attr_data": np.array([1, 0.5, 2, 3], np.float32),
        "attr_shape": np.array([4, 3]),
        "labels": np.array([0, 1, 1, 0]),
    }
    (root / "toy.npz").write_bytes(npz(**arrays))
    return GnnBenchmark(name="toy", raw=str(root), **_RANDOM)


def heterophilous(root):
    arrays = {
        "edges": np.array([[0, 1], [2, 1]]),
        "node_features": np.ones((3, 2), np.float32),
        "node_labels": np.array([0, 1, 2]),
        "train_masks": np.array([[True, False, False]]),
        "val_masks": np.array([[False, True, False]]),
        "test_masks": np.array([[False, False, True]]),
    }
    (root / "toy.npz").write_bytes(npz(**arrays))
    return Heterophilous(name="toy", raw=str(root))


def graphsaint(root):
    buffer = io.BytesIO()
    adjacency = scipy.sparse.csr_matrix(([1.0] * 3, ([0, 0, 2], [1, 3, 0])), shape=(4, 4))
    scipy.sparse.save_npz(buffer, adjacency)
    (root / "adj_full.npz").write_bytes(buffer.getvalue())
    (root / "feats.npy").write_bytes(npy(np.arange(8.0).reshape(4, 2)))
    (root / "class_map.json").write_text(json.dumps({"0": 2, "2": 0, "1": 1, "3": 2}))
    (root / "role.json").write_text(json.dumps({"tr": [3, 0], "va": [1], "te": [2]}))
    return GraphSaint(name="toy", raw=str(root))


def mag240m(root):
    papers, cites = root / "processed" / "paper", root / "processed" / "paper___cites___paper"
    papers.mkdir(parents=True)
    cites.mkdir()
    (papers / "node_feat.npy").write_bytes(npy(np.arange(12, dtype=np.float16).reshape(4, 3)))
    (papers / "node_label.npy").write_bytes(npy(np.array([7, 9, np.nan, np.nan], np.float32)))
    (cites / "edge_index.npy").write_bytes(npy(np.array([[0, 1, 3], [1, 2, 1]])))
    split = {"train": [0], "valid": [1], "test-dev": [2], "test-challenge": [3]}
    torch.save({name: np.array(ids) for name, ids in split.items()}, root / "split_dict.pt")
    return Mag240m(name="toy", raw=str(root))


_MUSAE = {
    "toy_edges.csv": "from,to\n0,1\n2,1\n",
    "toy_features.json": '{"0": [1, 4], "2": [0, 0]}',
    "toy_target.csv": "id,name,target\n2,one,1\n0,two,0\n1,three,1\n",
}


def musae(root):
    for name, text in _MUSAE.items():
        (root / name).write_text(text)
    return Musae(name="toy", raw=str(root), **_RANDOM)


def musae_zip(root):
    with zipfile.ZipFile(root / "toy.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in _MUSAE.items():
            archive.writestr(f"toy/{name}", text)
    return Musae(name="toy", raw=str(root / "toy.zip"), **_RANDOM)


def ogb_text(root):
    texts = {
        "raw/num-node-list": "4\n",
        "raw/edge": "0,1\n1,2\n2,3\n",
        "raw/node-feat": "0.5,1\n1,2\n2,3\n3,4\n",
        "raw/node-label": "0\n1\n0\n1\n",
        "split/time/train": "0\n1\n",
        "split/time/valid": "2\n",
        "split/time/test": "3\n",
    }
    for name, text in texts.items():
        path = root / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return Ogb(name="toy", raw=str(root))


def ogb_binary(root):
    (root / "raw").mkdir()
    arrays = {
        "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
        "node_feat": np.ones((4, 2), np.float32),
        "num_nodes_list": np.array([4]),
    }
    (root / "raw" / "data.npz").write_bytes(npz(**arrays))
    labels = np.array([[0], [1], [np.nan], [1]], np.float32)
    (root / "raw" / "node-label.npz").write_bytes(npz(node_label=labels))
    return Ogb(name="toy", raw=str(root), **_RANDOM)


def planetoid(root):
    one_hot = np.eye(3, dtype=np.int32)
    known = scipy.sparse.csr_matrix(np.eye(503, 4, dtype=np.float32))
    values = {
        "y": one_hot[:2],
        "allx": known,
        "ally": one_hot[np.arange(503) % 3],
        "tx": known[:2],
        "ty": one_hot[:2],
        "graph": defaultdict(list, {0: [1, 2], 3: [0], 504: [503]}),
    }
    for protocol, (part, value) in enumerate(values.items()):
        (root / f"ind.toy.{part}").write_bytes(pickle.dumps(value, protocol))
    (root / "ind.toy.test.index").write_text("504\n503\n")
    return Planetoid(name="toy", raw=str(root))


def snap(root):
    (root / "toy.txt.gz").write_bytes(
        gzip.compress(b"# a comment\n70 5\n9000000000 5\n5 70\n70 8\n", mtime=0)
    )
    return Snap(name="toy", raw=str(root), num_features=4, num_classes=2, **_RANDOM)


def tables_csv(root):
    rows = ["u7,ape,train,1,2", "u5,bee,valid,3,4", '"u 8",ape,test,5,6', "u9,,,7,8"]
    (root / "vertices.csv").write_text("\n".join(["id,label,split,a,b", *rows]) + "\n")
    edges = b"source,target,weight\nu7,u5,1\nu9,u5,2\nu5,u 8,0.5\n"
    (root / "edges.csv.gz").write_bytes(gzip.compress(edges, mtime=0))
    return Tables(name="toy", raw=str(root))


def tables_parquet(root):
    columns = {
        "id": [7, -5, 2**40, 9],
        "label": [0.5, 1.5, None, 2],
        "split": ["train", "valid", None, "test"],
        "x": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32())),
    }
    parquet.write_table(pa.table(columns), root / "vertices.parquet")
    edges = pa.table({"source": [7, 9, -5], "target": [-5, -5, 2**40]})
    parquet.write_table(edges, root / "edges.parquet")
    return Tables(name="toy", raw=str(root))


LAYOUTS = {
    make.__name__: make
    for make in (
        csr,
        gnn_benchmark,
        heterophilous,
        graphsaint,
        mag240m,
        musae,
        musae_zip,
        ogb_text,
        ogb_binary,
        planetoid,
        snap,
        tables_csv,
        tables_parquet,
    )
}


@pytest.fixture(scope="session")
def layouts():
    """Return functions that fill a folder and return its Dataset, by the layout's name."""
    return LAYOUTS


@pytest.fixture
def prepared_in(tmp_path, layouts):
    """Return a function that makes the example of a layout in ``tmp_path / "raw"``."""

    def make(layout):
        raw = tmp_path / "raw"
        raw.mkdir()
        return raw, layouts[layout](raw)

    return make
