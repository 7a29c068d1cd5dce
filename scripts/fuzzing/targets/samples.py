"""A small valid input of every published layout, made here; and the real files."""

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

from ..case import Files


class Sample(NamedTuple):
    """A valid input: the layout's class, its options, and its files."""

    layout: str
    options: Mapping[str, Any]
    files: Files


_N = 12
_V = np.arange(_N)
_EDGES = np.random.default_rng(1).integers(_N, size=(40, 2))
SPLIT = {"train_fraction": 0.4, "valid_fraction": 0.3}
_TINY = {"name": "tiny"}
_MADE = {**_TINY, "num_features": 4, "num_classes": 2, **SPLIT}


def _written(write: Callable[[io.BytesIO], Any]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def npy(array: Any) -> bytes:
    return _written(lambda out: np.save(out, np.asarray(array), allow_pickle=False))


def _npz(**arrays: Any) -> bytes:
    return _written(lambda out: np.savez_compressed(out, **arrays))


def _gzipped(text: str) -> bytes:
    return gzip.compress(text.encode(), 1, mtime=0)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _rows(width: int, dtype: Any, num_rows: int = _N) -> Any:
    return np.arange(num_rows * width, dtype=dtype).reshape(num_rows, width)


def _lines(table: Any) -> str:
    return "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in table)


def _csr_matrix(dense: Any, prefix: str) -> dict[str, Any]:
    matrix = scipy.sparse.csr_matrix(dense)
    names = ("data", "indices", "indptr", "shape")
    return {f"{prefix}_{name}": np.array(getattr(matrix, name)) for name in names}


def _zipped(files: Files) -> bytes:
    def write(out: io.BytesIO) -> None:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content)

    return _written(write)


def _planetoid() -> Sample:
    """All but the last three vertices are known; the reader wants 500 for validation."""
    known, classes = 512, np.eye(3, dtype=np.int32)
    allx = scipy.sparse.csr_matrix(np.eye(4, dtype=np.float32)[np.arange(known) % 4])
    graph = defaultdict(list, {v: [v + 1] for v in range(0, known, 9)})
    graph |= {known: [0], known + 1: [5, 5]}
    labels = {"y": classes[np.arange(6) % 3], "ally": classes[np.arange(known) % 3], "ty": classes}
    values = {"x": allx[:6], "allx": allx, "tx": allx[:3], **labels, "graph": graph}
    files = {f"ind.tiny.{part}": pickle.dumps(value, 3) for part, value in values.items()}
    files["ind.tiny.test.index"] = f"{known}\n{known + 2}\n{known + 1}\n".encode()
    return Sample("Planetoid", {**_TINY, "undirected": True}, files)


def _musae() -> list[Sample]:
    """Names as those of GitHub's graph; and the same in an archive, with words for classes."""
    target = "id,name,ml_target\n" + "".join(f"{v},user{v},{v % 2}\n" for v in range(_N))
    files = {
        "musae_git_edges.csv": ("id_1,id_2\n" + _lines(_EDGES)).encode(),
        "musae_git_features.json": _json({str(v): [v, v % 3, 7] for v in range(_N)}),
        "musae_git_target.csv": target.encode(),
    }
    plain = Sample("Musae", {"name": "github", "undirected": True, **SPLIT}, files)
    words = "new_id,mature\n" + "".join(f"{v},{v % 3 == 0}\n" for v in range(_N))
    files = {**files, "musae_git_target.csv": words.encode()}
    packed = {"git.zip": _zipped({f"git/{name}": content for name, content in files.items()})}
    return [plain, Sample("Musae", {"name": "github", **SPLIT}, packed)]


def _ogb() -> list[Sample]:
    """Text, compressed; and archives, some labels unknown."""
    features = np.random.default_rng(2).integers(-9, 9, size=(_N, 3)) / 8
    texts = {"raw/num-node-list": f"{_N}\n", "raw/edge": _lines(_EDGES)}
    texts |= {"raw/node-feat": _lines(features), "raw/node-label": _lines(_V % 3)}
    for name, ids in (("train", _V[:6]), ("valid", _V[6:9]), ("test", _V[9:])):
        texts[f"split/time/{name}"] = _lines(ids)
    csv = {f"{name}.csv.gz": _gzipped(text) for name, text in texts.items()}
    labels = np.where(_V < 9, _V % 3, np.nan).astype(np.float32)[:, None]
    edges, sizes = _EDGES.T.copy(), np.array([_N])
    binary = {
        "raw/data.npz": _npz(edge_index=edges, node_feat=_rows(3, "f2"), num_nodes_list=sizes),
        "raw/node-label.npz": _npz(node_label=labels),
        **{name: content for name, content in csv.items() if name.startswith("split")},
    }
    return [Sample("Ogb", _TINY, csv), Sample("Ogb", _TINY, binary)]


def _mag240m() -> Sample:
    labels = np.where(_V < 8, _V * 19, np.nan).astype(np.float32)
    split = {"train": range(5), "valid": range(5, 8), "test-dev": [8, 9], "test-challenge": [10]}
    arrays = {name: np.array(ids) for name, ids in split.items()}
    files = {
        "processed/paper/node_feat.npy": npy(_rows(3, "f2")),
        "processed/paper/node_label.npy": npy(labels),
        "processed/paper___cites___paper/edge_index.npy": npy(_EDGES.T.copy()),
        "split_dict.pt": _written(lambda out: torch.save(arrays, out)),
    }
    return Sample("Mag240m", {"name": "mag240m"}, files)


def _graphsaint() -> list[Sample]:
    """With lists of zeros and ones for classes; and with one class for each vertex."""
    matrix = scipy.sparse.coo_matrix((np.ones(40, np.float32), _EDGES.T), shape=(_N, _N)).tocsr()
    files = {
        "adj_full.npz": _written(lambda out: scipy.sparse.save_npz(out, matrix)),
        "feats.npy": npy(_rows(2, "f8")),
        "role.json": _json({"tr": list(range(6)), "va": [6, 7, 8], "te": [9, 10, 11]}),
    }
    several = _json({str(v): [v % 2, 1, int(v > 5)] for v in range(_N)})
    single = _json({str(v): v % 3 for v in range(_N)})
    found = [{**files, "class_map.json": classes} for classes in (several, single)]
    return [Sample("GraphSaint", {"name": "flickr"}, each) for each in found]


def _heterophilous() -> Sample:
    part = np.stack([_V % 3, (_V + 1) % 3])
    masks = {f"{name}_masks": part == k for k, name in enumerate(("train", "val", "test"))}
    rows = {"node_features": _rows(2, "f4"), "node_labels": _V % 2}
    content = _npz(edges=_EDGES, **rows, **masks)
    return Sample("Heterophilous", {**_TINY, "mask": 1}, {"tiny.npz": content})


def _gnn_benchmark() -> Sample:
    adjacency = np.zeros((_N, _N), np.float32)
    adjacency[tuple(_EDGES.T)] = 1
    arrays = _csr_matrix(adjacency, "adj") | _csr_matrix(np.eye(_N, 5, dtype=np.float32), "attr")
    return Sample("GnnBenchmark", {**_TINY, **SPLIT}, {"tiny.npz": _npz(**arrays, labels=_V % 3)})


def _structures() -> list[Sample]:
    order = np.argsort(_EDGES[:, 0], kind="stable")
    indptr = np.cumsum([0, *np.bincount(_EDGES[:, 0], minlength=_N)])
    arrays = _npz(indptr=indptr, indices=_EDGES[order, 1].astype(np.int32))
    text = "# a comment\n" + _lines(_EDGES * 7).replace(",", "\t")
    snap = ({"tiny.txt": text.encode()}, {"tiny.txt.gz": _gzipped(text)})
    return [Sample("Csr", _MADE, {"tiny.npz": arrays}), *(Sample("Snap", _MADE, f) for f in snap)]


def _arrays() -> list[Sample]:
    part = _V % 3
    found = {"edge_index": np.ascontiguousarray(_EDGES.T), "edge_weight": np.arange(40) / 4}
    found |= {"x": _rows(2, "f8"), "y": _V % 3}
    found |= {"train_mask": part == 0, "val_idx": np.flatnonzero(part == 1), "test_mask": part == 2}
    more = {**found, "edge_attr": _rows(4, "f4", len(_EDGES))}
    rows = np.arange(len(_EDGES))
    labelled = {**found, "edge_labels": rows % 3, "edge_train_mask": rows < 20}
    labelled |= {"edge_val_idx": rows[20:30], "edge_test_idx": rows[30:]}
    return [
        Sample("Arrays", _TINY, {f"{name}.npy": npy(array) for name, array in arrays.items()})
        for arrays in (found, more, labelled)
    ]


def _tables() -> list[Sample]:
    parts = ["train"] * 5 + ["valid"] * 3 + ["test"] * 4
    vertices = "".join(f"v{i},{i % 2},{parts[i]},{i / 4},c{i % 3}\n" for i in range(_N))
    edges = "".join(f"v{src},v{dst},{src / 8}\n" for src, dst in _EDGES.tolist())
    csv = {
        "vertices.csv": f"id,label,split,a,b\n{vertices}".encode(),
        "edges.csv": f"source,target,weight\n{edges}".encode(),
    }
    tables = {
        "vertices": {"id": _V + 7, "label": _V % 3, "x": pa.array(_rows(3, "f4").tolist())},
        "edges": {"source": _EDGES[:, 0] + 7, "target": _EDGES[:, 1] + 7},
    }
    of_edges = {"lists": pa.array(_rows(2, "f4", len(_EDGES)).tolist()), "one": _EDGES[:, 0] / 4}
    featured = {**tables, "edges": tables["edges"] | of_edges}
    options = {**_TINY, "split": "random", **SPLIT}
    named = {**options, "edge_features": ["lists", "one"]}
    kinds = "".join(
        f"v{src},v{dst},{'ab'[src % 2]},{parts[place % _N]}\n"
        for place, (src, dst) in enumerate(_EDGES.tolist())
    )
    labelled = {**csv, "edges.csv": f"source,target,kind,split\n{kinds}".encode()}
    return [
        Sample("Tables", _TINY, csv),
        Sample("Tables", options, _packed(tables)),
        Sample("Tables", {**_TINY, "edge_features": ["weight"], "weight": None}, csv),
        Sample("Tables", named, _packed(featured)),
        Sample("Tables", {**_TINY, "edge_label": "kind"}, labelled),
        Sample("Tables", {**_TINY, "edge_features": ["kind"]}, labelled),
    ]


def _edge_files() -> list[Sample]:
    text = "# a comment\n" + "".join(f"{a * 7} \t{b * 7}\t{a / 4}\n" for a, b in _EDGES.tolist())
    entries = "".join(f"{a + 1} {b + 1} {a / 4}\n" for a, b in _EDGES.tolist())
    matrix = f"%%MatrixMarket matrix coordinate real general\n% c\n{_N} {_N} 40\n{entries}"
    return [
        *(
            Sample("EdgeList", {**_TINY, "weighted": w}, {"e.txt": text.encode()})
            for w in (False, True)
        ),
        Sample("EdgeList", _TINY, {"e.txt.gz": _gzipped(text)}),
        Sample("MatrixMarket", _TINY, {"m.mtx": matrix.encode()}),
        Sample(
            "MatrixMarket", _TINY, {"m.mtx.gz": _gzipped(matrix.replace("general", "symmetric"))}
        ),
    ]


def _graphml() -> list[Sample]:
    keys = "".join(
        f'<key id="{name}" for="{of}" attr.name="{name}" attr.type="{kind}"/>'
        for name, of, kind in (
            *(("label", "node", "string"), ("split", "node", "string"), ("age", "node", "double")),
            ("weight", "edge", "float"),
        )
    )
    parts = ["train"] * 5 + ["valid"] * 3 + ["test"] * 4
    nodes = "".join(
        f'<node id="n{v}"><data key="label">c{v % 2}</data><data key="split">{parts[v]}</data>'
        f'<data key="age">{v / 4}</data></node>\n'
        for v in range(_N)
    )
    edges = "".join(
        f'<edge source="n{a}" target="n{b}"><data key="weight">{a / 4}</data></edge>\n'
        for a, b in _EDGES.tolist()
    )
    text = (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{keys}\n'
        f'<graph edgedefault="undirected">\n{nodes}{edges}</graph></graphml>\n'
    )
    files = ({"g.graphml": text.encode()}, {"g.graphml.gz": _gzipped(text)})
    return [Sample("GraphMl", {**_TINY, "features": ["age"]}, each) for each in files]


def _packed(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    return {
        f"{name}.parquet": _written(lambda out, t=table: parquet.write_table(pa.table(t), out))
        for name, table in tables.items()
    }


def _shop() -> list[Sample]:
    users, items = np.arange(_N), np.arange(6)
    tables: dict[str, dict[str, Any]] = {
        "users": {
            "id": [f"u{v}" for v in users],
            "age": [None if v == 3 else float(v) for v in users],
            "town": [("Bonn", "Rom", None)[v % 3] for v in users],
            "left": [("yes", "no")[v % 2] for v in users],
            "split": ["train"] * 5 + ["valid"] * 3 + ["test"] * 4,
        },
        "items": {"id": items, "price": items / 4},
        "orders": {
            "user": [f"u{v}" for v in _EDGES[:, 0]],
            "item": _EDGES[:, 1] % 7,
            "weight": np.ones(40),
            "amount": [None if v == 9 else v / 4 for v in range(40)],
            "paid": [("card", "cash")[v % 2] for v in range(40)],
        },
    }
    of_edges = {"edge_features": {"user-buys-item": ["amount", "paid"]}}
    by_edges = {
        "vertices": {"user": "users.csv", "item": "items.csv"},
        "edges": {"user-buys-item": "orders.csv"},
        "target": "user",
        "label": "left",
    }
    texts = {f"{name}.csv": _csv(columns) for name, columns in tables.items()}
    in_parquet = {
        "vertices": {"user": "users.parquet", "item": None},
        "edges": {"user-buys-item": "orders.parquet"},
        **{"target": "user", "label": "left", "split": "random", **SPLIT},
    }
    keys = {
        "vertices": {"user": "users.csv", "item": "items.csv", "order": "orders.csv"},
        "foreign_keys": {"order.user": "user", "order.item": "item"},
        **{"target": "user", "label": "left"},
    }
    return [
        Sample("TypedTables", {**_TINY, **by_edges, **of_edges}, texts),
        Sample("TypedTables", {**_TINY, **in_parquet, **of_edges}, _packed(tables)),
        Sample("TypedTables", {**_TINY, **keys}, texts),
    ]


def _relational() -> Sample:
    """Return customers, payments by two foreign keys at a time, and a task of two parts."""
    generator = np.random.default_rng(0)
    days = [str(np.datetime64("2024-01-01") + int(day)) for day in range(40)]
    payments = {
        "id": [*range(40)],
        "payer": [number % 7 for number in range(40)],
        "payee": [None if number % 5 == 0 else number % 9 for number in range(40)],
        "day": days,
        "amount": generator.integers(1, 99, 40).tolist(),
    }
    task = {
        "customer": [0, 1, 2, 0, 3, 1],
        "day": [days[number] for number in (9, 9, 9, 19, 19, 29)],
        "late": [0, 1, 1, 0, 1, 0],
        "split": ["train"] * 3 + ["valid"] * 2 + ["test"],
    }
    files = {
        "customers.csv": _csv({"id": [*range(8)], "town": ["a", "b"] * 4, "age": [5, None] * 4}),
        "payments.csv": _csv(payments),
        "late.csv": _csv(task),
        "schema.yaml": b"""tables:
  customers: {file: customers.csv, key: id, null: '\\N'}
  payments:
    {file: payments.csv, key: id, foreign_keys: {payer: customers, payee: customers}, time: day}
tasks:
  late: {file: late.csv, table: customers, vertex: customer, cutoff: day, label: late}
""",
    }
    return Sample("Relational", {**_TINY, "task": "late"}, files)


def _csv(columns: Mapping[str, Any]) -> bytes:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join([",".join(columns), *lines, ""]).encode()


def _heco() -> Sample:
    generator = np.random.default_rng(0)
    papers, authors, subjects = 24, 10, 4
    files = {
        "pa.txt": "".join(f"{p} {p % authors}\n" for p in range(papers)).encode(),
        "ps.txt": "".join(f"{p} {p % subjects}\n" for p in range(papers)).encode(),
        "labels.npy": npy(np.arange(papers) % 3),
    }
    for name, count in (("p", papers), ("a", authors)):
        matrix = scipy.sparse.csr_matrix(generator.integers(0, 2, (count, 5)).astype(float))
        files[f"{name}_feat.npz"] = _written(lambda out, m=matrix: scipy.sparse.save_npz(out, m))
    order = generator.permutation(papers)
    for name, ids in (("train", order[:9]), ("val", order[9:15]), ("test", order[15:])):
        files[f"{name}_20.npy"] = npy(np.sort(ids))
    return Sample("Heco", {**_TINY, "labels_per_class": 20}, files)


_ALL = [_planetoid(), *_musae(), *_ogb(), _mag240m(), *_graphsaint(), _heterophilous()]
_ALL += [_gnn_benchmark(), *_structures(), *_arrays(), *_tables(), *_edge_files(), *_graphml()]
#: Samples by layout.
SAMPLES: dict[str, tuple[Sample, ...]] = {
    name: tuple(each for each in _ALL if each.layout == name)
    for name in dict.fromkeys(sample.layout for sample in _ALL)
}
#: Samples of graphs with types.
TYPED_SAMPLES = {
    "TypedTables": tuple(_shop()),
    "Heco": (_heco(),),
    "Relational": (_relational(),),
}


def real_samples() -> dict[str, Sample]:
    """Return the real files of ``GNNSCALE_TEST_DATA`` that are small enough, by layout."""
    root = Path(os.environ.get("GNNSCALE_TEST_DATA", "/nowhere"))
    found: dict[str, Sample] = {}
    for layout, folder in (("Planetoid", "planetoid"), ("GnnBenchmark", "gnn_benchmark")):
        files = {path.name: path.read_bytes() for path in sorted(root.glob(f"{folder}/*cora*"))}
        if files:
            found[layout] = Sample(layout, {"name": "cora", "undirected": True}, files)
    return found
