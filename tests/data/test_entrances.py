"""One rule for data that come in memory, as objects of other libraries, as arrays or as tables."""

import csv
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse
import torch

from gnnscale.data import from_arrays, from_dgl, from_networkx, from_pyg, from_scipy
from gnnscale.data.readers.arrays import Arrays
from gnnscale.data.readers.tables import Tables
from gnnscale.graph import Graph, as_float32

COUNT = 12
#: No edge repeats: layouts of files keep an edge once, unless dataset.drop_duplicates=false.
EDGES = np.array([[u, (u * 5 + k) % COUNT] for k in (1, 3) for u in range(COUNT)]).T.copy()
PART_OF = np.arange(COUNT) % 4  # 0 train, 1 valid, 2 test, 3 none


@dataclass(frozen=True, kw_only=True)
class Given:
    """Data of a graph as a user has them."""

    x: np.ndarray = field(default_factory=lambda: np.arange(24, dtype=np.float32).reshape(12, 2))
    labels: np.ndarray | None = field(default_factory=lambda: np.arange(COUNT) % 3)
    parts: tuple[str, ...] = ("train", "valid", "test")
    as_ids: bool = False  #: whether the split is ids, not masks
    weights: np.ndarray | None = None
    edge_features: np.ndarray | None = None

    def split(self, names: dict[str, str]) -> dict[str, np.ndarray]:
        """Return masks, or ids, by the names of the parts."""
        masks = {
            names[part]: number == PART_OF
            for number, part in enumerate(names)
            if part in self.parts
        }
        return {name: np.flatnonzero(mask) if self.as_ids else mask for name, mask in masks.items()}


def arguments(given: Given) -> dict[str, Any]:
    split = given.split({part: f"{part}_idx" for part in ("train", "valid", "test")})
    return {"labels": given.labels, **split}


def in_memory(given: Given, path: Path) -> Graph:
    edge_data = {"edge_weights": given.weights, "edge_features": given.edge_features}
    return from_arrays((EDGES[0], EDGES[1]), given.x, **arguments(given), **edge_data)


def as_lists(given: Given, path: Path) -> Graph:
    split = {name: part.tolist() for name, part in arguments(given).items() if name != "labels"}
    labels = None if given.labels is None else given.labels.tolist()
    edge_data = {"edge_weights": given.weights, "edge_features": given.edge_features}
    return from_arrays(EDGES.tolist(), given.x, labels, **split, **edge_data)


def as_tensors(values: dict[str, np.ndarray | None]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in values.items() if value is not None}


def pyg(given: Given, path: Path) -> Graph:
    data = pytest.importorskip("torch_geometric.data")
    suffix = "idx" if given.as_ids else "mask"
    split = given.split(
        {"train": f"train_{suffix}", "valid": f"val_{suffix}", "test": f"test_{suffix}"}
    )
    edge_data = {"edge_weight": given.weights, "edge_attr": given.edge_features}
    fields = {"x": given.x, "y": given.labels, "edge_index": EDGES, **split, **edge_data}
    return from_pyg(data.Data(**as_tensors(fields)))


def ogb(given: Given, path: Path) -> Graph:
    arrays = {"edge_index": EDGES, "node_feat": given.x, "edge_feat": given.edge_features}
    split = given.split({part: part for part in ("train", "valid", "test")})
    return from_pyg((arrays | {"num_nodes": COUNT}, given.labels), split=split or None)


def dgl(given: Given, path: Path) -> Graph:
    graph = pytest.importorskip("dgl").graph(
        (torch.from_numpy(EDGES[0]), torch.from_numpy(EDGES[1]))
    )
    given = replace(given, as_ids=False)  # its fields have a row for each vertex
    split = given.split({"train": "train_mask", "valid": "val_mask", "test": "test_mask"})
    graph.ndata.update(as_tensors({"feat": given.x, "label": given.labels, **split}))
    graph.edata.update(as_tensors({"w": given.weights, "e": given.edge_features}))
    names = {"edge_weight": "w" if given.weights is not None else None}
    return from_dgl(graph, edge_feature="e" if given.edge_features is not None else None, **names)


def sparse(given: Given, path: Path) -> Graph:
    values = np.ones(EDGES.shape[1]) if given.weights is None else given.weights
    matrix = scipy.sparse.coo_array((values, tuple(EDGES)), (COUNT, COUNT))
    return from_scipy(matrix.tocsr(), given.x, **arguments(given))


def network(given: Given, path: Path) -> Graph:
    graph = pytest.importorskip("networkx").DiGraph()
    given = replace(given, as_ids=False)
    split = given.split({"train": "train_mask", "valid": "val_mask", "test": "test_mask"})
    for vertex in range(COUNT):
        label = {} if given.labels is None else {"y": given.labels[vertex].tolist()}
        graph.add_node(
            vertex, x=given.x[vertex], **label, **{k: v[vertex] for k, v in split.items()}
        )
    for edge, (u, v) in enumerate(EDGES.T.tolist()):
        of_edge = {"w": given.weights, "e": given.edge_features}
        graph.add_edge(u, v, **{name: of[edge] for name, of in of_edge.items() if of is not None})
    return from_networkx(
        graph,
        ["x"],
        None if given.labels is None else "y",
        weight=None if given.weights is None else "w",
        edge_features=None if given.edge_features is None else ["e"],
    )


def array_files(given: Given) -> dict[str, np.ndarray]:
    suffix = "idx" if given.as_ids else "mask"
    split = given.split({part: f"{part}_{suffix}" for part in ("train", "valid", "test")})
    edge_data = {"edge_weights": given.weights, "edge_features": given.edge_features}
    fields = {
        "features": given.x,
        "labels": given.labels,
        "edge_index": EDGES,
        **split,
        **edge_data,
    }
    return {name: array for name, array in fields.items() if array is not None}


def npz(given: Given, path: Path) -> Graph:
    np.savez(path / "mine.npz", **array_files(given))
    return Arrays(name="graph", raw=str(path / "mine.npz"), store=str(path / "store")).open()


def npy(given: Given, path: Path) -> Graph:
    (path / "mine").mkdir()
    for name, array in array_files(given).items():
        np.save(path / "mine" / f"{name}.npy", array)
    return Arrays(name="graph", raw=str(path / "mine"), store=str(path / "store")).open()


def tables(given: Given, path: Path, kind: str) -> Graph:
    given = replace(given, as_ids=False)
    split = given.split({part: f"{part}_mask" for part in ("train", "valid", "test")})
    vertices = {"id": np.arange(COUNT), "a": given.x[:, 0], "b": given.x[:, 1], **split}
    if given.labels is not None:
        vertices["label"] = given.labels.reshape(-1)
    edges = {"source": EDGES[0], "target": EDGES[1]}
    options: dict[str, Any] = {"features": ["a", "b"]}
    if given.weights is not None:
        edges["weight"] = given.weights
    if given.edge_features is not None:
        columns = given.edge_features.reshape(EDGES.shape[1], -1).T
        options["edge_features"] = [f"e{number}" for number in range(len(columns))]
        edges |= dict(zip(options["edge_features"], columns, strict=True))
    for name, columns in (("vertices", vertices), ("edges", edges)):
        if kind == "parquet":
            pyarrow.parquet.write_table(pyarrow.table(columns), path / f"{name}.parquet")
        else:
            with (path / f"{name}.csv").open("w", newline="") as file:
                rows = zip(*(column.tolist() for column in columns.values()), strict=True)
                csv.writer(file).writerows([columns, *rows])
    label = None if given.labels is None else "label"
    store = str(path / "store")
    return Tables(name="graph", raw=str(path), store=store, label=label, **options).open()


def parquet(given: Given, path: Path) -> Graph:
    return tables(given, path, "parquet")


def csv_tables(given: Given, path: Path) -> Graph:
    return tables(given, path, "csv")


ENTRANCES = (as_lists, pyg, ogb, dgl, sparse, network, npz, npy, parquet, csv_tables)
ROW = np.arange(COUNT)
FLOATS = np.where(ROW == 3, np.nan, ROW / 8)  # vertex 3 is in no part
WEIGHTS = (np.arange(EDGES.shape[1]) / 4).astype(np.float32)
GIVEN = {
    "classes": Given(),
    "classes of int32": Given(labels=(ROW % 3).astype(np.int32)),
    "unknown classes": Given(labels=np.where(ROW == 3, -1, ROW % 3)),
    "booleans": Given(labels=ROW % 2 == 1),
    "one column": Given(labels=(ROW % 3)[:, None]),
    "one column of booleans": Given(labels=(ROW % 2 == 1)[:, None]),
    "one-hot": Given(labels=np.eye(3, dtype=int)[ROW % 3]),
    "one-hot floats": Given(labels=np.eye(3, dtype=np.float32)[ROW % 3]),
    "one-hot booleans": Given(labels=np.eye(3)[ROW % 3] > 0),
    "multi-label": Given(labels=np.stack([ROW % 2, ROW % 3 == 0, ROW > 5], axis=1).astype(int)),
    "targets": Given(labels=FLOATS),
    "targets of float32": Given(labels=FLOATS.astype(np.float32)),
    "one column of targets": Given(labels=FLOATS[:, None]),
    "several targets": Given(labels=np.stack([FLOATS, ROW / 3], axis=1)),
    "no labels": Given(labels=None, parts=()),
    "ids": Given(as_ids=True),
    "no validation": Given(parts=("train", "test")),
    "no test": Given(parts=("train", "valid"), as_ids=True),
    "training alone": Given(parts=("train",)),
    "float64": Given(x=np.arange(24).reshape(12, 2) / 3),
    "float16": Given(x=np.arange(24, dtype=np.float16).reshape(12, 2)),
    "uint8": Given(x=np.arange(24, dtype=np.uint8).reshape(12, 2)),
    "int64": Given(x=np.arange(24).reshape(12, 2) - 9),
    "boolean features": Given(x=np.arange(24).reshape(12, 2) % 3 == 0),
    "weights": Given(weights=WEIGHTS),
    "whole weights": Given(weights=np.arange(EDGES.shape[1]) + 1),
    "edge features": Given(edge_features=np.stack([WEIGHTS, WEIGHTS**2], axis=1)),
    "one edge feature": Given(edge_features=WEIGHTS.astype(np.float64)),
    "weights and edge features": Given(weights=WEIGHTS, edge_features=WEIGHTS[:, None] + 1),
}


def contents(graph: Graph) -> dict[str, np.ndarray | int | str | None]:
    """Return what a graph says, apart from the type in which features are stored."""
    features = as_float32(np.asarray(graph.features), graph.feature_dtype, graph.num_features)
    rows = None if graph.edge_features is None else graph.edge_features[graph.edge_rows]
    arrays = ("indptr", "indices", "labels", "train_idx", "valid_idx", "test_idx", "edge_weights")
    return {
        **{name: getattr(graph, name) for name in (*arrays, "num_classes", "metric")},
        **{"features": features, "edge_features": rows},
    }


def takes(entrance: Callable[[Given, Path], Graph], given: Given) -> bool:
    """Whether an entrance has a place for the data."""
    if entrance is ogb:
        return given.weights is None
    if entrance is sparse:
        return given.edge_features is None
    columns = 1 if given.labels is None or given.labels.ndim == 1 else given.labels.shape[1]
    return columns == 1 or entrance not in (parquet, csv_tables)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "entrance"),
    [(name, each) for name, given in GIVEN.items() for each in ENTRANCES if takes(each, given)],
)
def test_the_same_data_are_the_same_graph(
    name: str, entrance: Callable[[Given, Path], Graph], tmp_path: Path
) -> None:
    given = GIVEN[name]
    graph, expected = entrance(given, tmp_path), in_memory(given, tmp_path)
    for what, value in contents(expected).items():
        np.testing.assert_array_equal(contents(graph)[what], value, err_msg=what)
    if entrance not in (network, parquet, csv_tables):  # which have values one by one
        assert graph.feature_dtype == expected.feature_dtype
    for part in ("train", "valid", "test"):
        assert (len(getattr(graph, f"{part}_idx")) > 0) == (part in given.parts)
