"""A small valid input of every published layout, made here; and the real files."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse
import torch
from pyarrow import parquet


class Sample(NamedTuple):
    """A valid input: the layout's class, its options, and its files."""

    layout: str
    options: Mapping[str, Any]
    files: Mapping[str, bytes]


_N = 12
SPLIT = {"train_fraction": 0.4, "valid_fraction": 0.3}
_MADE = {"num_features": 4, "num_classes": 2, **SPLIT}


def _edges() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(_N, size=(40, 2))


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def _npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _lines(table: Any) -> str:
    return "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in table)


def _csr(edges: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    order = np.argsort(edges[:, 0], kind="stable")
    counts = np.bincount(edges[:, 0], minlength=_N)
    return np.concatenate([[0], np.cumsum(counts)]), edges[order, 1].astype(np.int32)


def _csr_matrix(dense: Any, prefix: str) -> dict[str, Any]:
    matrix = scipy.sparse.csr_matrix(dense)
    found = {name: getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    return {f"{prefix}_{name}": np.array(value) for name, value in found.items()}


def planetoid() -> Sample:
    """All but the last three vertices are known; the reader wants 500 for validation."""
    known, classes = 512, np.eye(3, dtype=np.int32)
    allx = scipy.sparse.csr_matrix(np.eye(4, dtype=np.float32)[np.arange(known) % 4])
    graph = defaultdict(list, {v: [v + 1] for v in range(0, known, 9)})
    graph |= {known: [0], known + 1: [5, 5]}
    values = {
        **{"x": allx[:6], "allx": allx, "tx": allx[:3]},
        **{"y": classes[np.arange(6) % 3], "ally": classes[np.arange(known) % 3], "ty": classes},
        "graph": graph,
    }
    files = {f"ind.tiny.{part}": pickle.dumps(value, 3) for part, value in values.items()}
    files["ind.tiny.test.index"] = f"{known}\n{known + 2}\n{known + 1}\n".encode()
    return Sample("Planetoid", {"name": "tiny", "undirected": True}, files)


def musae() -> Sample:
    """Names as those of GitHub's graph."""
    features = {str(v): [v, v % 3, 7] for v in range(_N)}
    target = "id,name,ml_target\n" + "".join(f"{v},user{v},{v % 2}\n" for v in range(_N))
    files = {
        "musae_git_edges.csv": ("id_1,id_2\n" + _lines(_edges())).encode(),
        "musae_git_features.json": json.dumps(features).encode(),
        "musae_git_target.csv": target.encode(),
    }
    return Sample("Musae", {"name": "github", "undirected": True, **SPLIT}, files)


def musae_zip() -> Sample:
    """The same in an archive, with words for classes."""
    files = dict(musae().files)
    words = "new_id,mature\n" + "".join(f"{v},{v % 3 == 0}\n" for v in range(_N))
    files["musae_git_target.csv"] = words.encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"git/{name}"), content)
    return Sample("Musae", {"name": "github", **SPLIT}, {"git.zip": out.getvalue()})


def ogb_csv() -> Sample:
    """Text, compressed."""
    features = np.random.default_rng(2).integers(-9, 9, size=(_N, 3)) / 8
    texts = {
        "raw/num-node-list": f"{_N}\n",
        "raw/edge": _lines(_edges()),
        "raw/node-feat": _lines(features),
        "raw/node-label": _lines(np.arange(_N) % 3),
        "split/time/train": _lines(np.arange(6)),
        "split/time/valid": _lines(np.arange(6, 9)),
        "split/time/test": _lines(np.arange(9, _N)),
    }
    files = {
        f"{name}.csv.gz": gzip.compress(text.encode(), 1, mtime=0) for name, text in texts.items()
    }
    return Sample("Ogb", {"name": "tiny"}, files)


def ogb_binary() -> Sample:
    """Archives; some labels unknown."""
    labels = (np.arange(_N) % 3).astype(np.float32)[:, None]
    labels[9:] = np.nan
    features = np.arange(_N * 3, dtype=np.float16).reshape(_N, 3)
    split = {name: file for name, file in ogb_csv().files.items() if name.startswith("split")}
    files = {
        "raw/data.npz": _npz(
            edge_index=_edges().T.copy(), node_feat=features, num_nodes_list=np.array([_N])
        ),
        "raw/node-label.npz": _npz(node_label=labels),
        **split,
    }
    return Sample("Ogb", {"name": "tiny"}, files)


def mag240m() -> Sample:
    """Three arrays and a split that torch saved."""
    labels = np.where(np.arange(_N) < 8, np.arange(_N) * 19, np.nan).astype(np.float32)
    split = {"train": range(5), "valid": range(5, 8), "test-dev": [8, 9], "test-challenge": [10]}
    out = io.BytesIO()
    torch.save({name: np.array(ids) for name, ids in split.items()}, out)
    files = {
        "processed/paper/node_feat.npy": _npy(np.arange(_N * 3, dtype=np.float16).reshape(_N, 3)),
        "processed/paper/node_label.npy": _npy(labels),
        "processed/paper___cites___paper/edge_index.npy": _npy(_edges().T.copy()),
        "split_dict.pt": out.getvalue(),
    }
    return Sample("Mag240m", {"name": "mag240m"}, files)


def graphsaint() -> Sample:
    """With lists of zeros and ones for classes."""
    out = io.BytesIO()
    ones = np.ones(40, np.float32)
    matrix = scipy.sparse.coo_matrix((ones, _edges().T), shape=(_N, _N)).tocsr()
    scipy.sparse.save_npz(out, matrix)
    classes = {str(v): [v % 2, 1, int(v > 5)] for v in range(_N)}
    role = {"tr": list(range(6)), "va": [6, 7, 8], "te": [9, 10, 11]}
    files = {
        "adj_full.npz": out.getvalue(),
        "feats.npy": _npy(np.arange(_N * 2.0).reshape(_N, 2)),
        "class_map.json": json.dumps(classes).encode(),
        "role.json": json.dumps(role).encode(),
    }
    return Sample("GraphSaint", {"name": "flickr"}, files)


def graphsaint_single() -> Sample:
    """With one class for each vertex."""
    files = dict(graphsaint().files)
    files["class_map.json"] = json.dumps({str(v): v % 3 for v in range(_N)}).encode()
    return Sample("GraphSaint", {"name": "flickr"}, files)


def heterophilous() -> Sample:
    """Two splits."""
    part = np.stack([np.arange(_N) % 3, (np.arange(_N) + 1) % 3])
    content = _npz(
        edges=_edges(),
        node_features=np.arange(_N * 2, dtype=np.float32).reshape(_N, 2),
        node_labels=np.arange(_N) % 2,
        train_masks=part == 0,
        val_masks=part == 1,
        test_masks=part == 2,
    )
    return Sample("Heterophilous", {"name": "tiny", "mask": 1}, {"tiny.npz": content})


def gnn_benchmark() -> Sample:
    """Two sparse matrices and labels."""
    adjacency = np.zeros((_N, _N), np.float32)
    adjacency[tuple(_edges().T)] = 1
    arrays = _csr_matrix(adjacency, "adj") | _csr_matrix(np.eye(_N, 5, dtype=np.float32), "attr")
    files = {"tiny.npz": _npz(**arrays, labels=np.arange(_N) % 3)}
    return Sample("GnnBenchmark", {"name": "tiny", **SPLIT}, files)


def csr() -> Sample:
    """Structure alone, as arrays."""
    indptr, indices = _csr(_edges())
    files = {"tiny.npz": _npz(indptr=indptr, indices=indices)}
    return Sample("Csr", {"name": "tiny", **_MADE}, files)


def arrays() -> Sample:
    """A custom graph, with weights."""
    part = np.arange(_N) % 3
    found = {
        "edge_index": np.ascontiguousarray(_edges().T),
        "edge_weight": np.arange(len(_edges())) / 4,
        "x": np.arange(2.0 * _N).reshape(_N, 2),
        "y": np.arange(_N) % 3,
        "train_mask": part == 0,
        "val_idx": np.flatnonzero(part == 1),
        "test_mask": part == 2,
    }
    files = {f"{name}.npy": _npy(array) for name, array in found.items()}
    return Sample("Arrays", {"name": "tiny"}, files)


def tables() -> Sample:
    parts = (["train"] * 5 + ["valid"] * 3 + ["test"] * 4)[:_N]
    vertices = "".join(f"v{i},{i % 2},{parts[i]},{i / 4},{1 - i}\n" for i in range(_N))
    edges = "".join(f"v{src},v{dst},{src / 8}\n" for src, dst in _edges().tolist())
    files = {
        "vertices.csv": f"id,label,split,a,b\n{vertices}".encode(),
        "edges.csv": f"source,target,weight\n{edges}".encode(),
    }
    return Sample("Tables", {"name": "tiny"}, files)


def parquet_tables() -> Sample:
    edges = pa.table({"source": _edges()[:, 0] + 7, "target": _edges()[:, 1] + 7})
    rows = pa.array(np.arange(_N * 3, dtype=np.float32).reshape(_N, 3).tolist())
    vertices = pa.table({"id": np.arange(_N) + 7, "label": np.arange(_N) % 3, "x": rows})
    files = {}
    for name, table in (("vertices", vertices), ("edges", edges)):
        out = io.BytesIO()
        parquet.write_table(table, out)
        files[f"{name}.parquet"] = out.getvalue()
    return Sample("Tables", {"name": "tiny", "split": "random", **SPLIT}, files)


def snap() -> Sample:
    """Structure alone, as text."""
    text = "# a comment\n" + _lines(_edges() * 7).replace(",", "\t")
    return Sample("Snap", {"name": "tiny", **_MADE}, {"tiny.txt": text.encode()})


def snap_gz() -> Sample:
    """The same, compressed."""
    packed = gzip.compress(snap().files["tiny.txt"], 1, mtime=0)
    return Sample("Snap", {"name": "tiny", **_MADE}, {"tiny.txt.gz": packed})


_MAKERS: tuple[Callable[[], Sample], ...] = (
    *(planetoid, musae, musae_zip, ogb_csv, ogb_binary, mag240m, graphsaint, graphsaint_single),
    *(heterophilous, gnn_benchmark, csr, snap, snap_gz, arrays, tables, parquet_tables),
)
_MADE_SAMPLES = [make() for make in _MAKERS]
#: Samples by layout.
SAMPLES: dict[str, tuple[Sample, ...]] = {
    name: tuple(each for each in _MADE_SAMPLES if each.layout == name)
    for name in dict.fromkeys(sample.layout for sample in _MADE_SAMPLES)
}


def real_samples() -> dict[str, Sample]:
    """Return the real files of ``GNNSCALE_TEST_DATA`` that are small enough, by layout."""
    root = Path(os.environ.get("GNNSCALE_TEST_DATA", "/nowhere"))
    options = {"name": "cora", "undirected": True}
    found: dict[str, Sample] = {}
    for layout, folder in (("Planetoid", "planetoid"), ("GnnBenchmark", "gnn_benchmark")):
        files = {path.name: path.read_bytes() for path in sorted(root.glob(f"{folder}/*cora*"))}
        if files:
            found[layout] = Sample(layout, options, files)
    return found
