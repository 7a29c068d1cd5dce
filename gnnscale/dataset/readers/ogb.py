"""Open Graph Benchmark, node property prediction (Hu et al., 2020): raw csv.gz or binary npz."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.npy import NpzReader
from gnnscale.dataset.formats.text import csv_columns, csv_table, head_lines
from gnnscale.dataset.storage.download import Published, RemoteFile
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["Ogb"]

_ADDRESS = "https://snap.stanford.edu/ogb/data/nodeproppred"
_ARCHIVES = {
    "ogbn-arxiv": ("arxiv", "ODC-BY"),
    "ogbn-products": ("products", "Amazon licence"),
    "ogbn-papers100M": ("papers100M-bin", "ODC-BY"),
}


@dataclass(frozen=True, kw_only=True)
class Ogb(Dataset):
    """A folder with ``raw/`` and ``split/<scheme>/``, as the published archive unpacks.

    ``raw/`` holds ``edge.csv.gz``, ``node-feat.csv.gz``, ``node-label.csv.gz`` and
    ``num-node-list.csv.gz``, or ``data.npz`` and ``node-label.npz``. Labels that are NaN are
    unknown. A table of labels with several columns is multi-label, judged by ROC AUC.
    """

    def published(self) -> Published | None:
        """Return the archive; the datasets without node features are not read."""
        if self.name not in _ARCHIVES:
            return None
        archive, licence = _ARCHIVES[self.name]
        file = RemoteFile(url=f"{_ADDRESS}/{archive}.zip", unpack=True)
        return Published(name=self.name, licence=licence, files=(file,))

    def read(self, writer: StoreWriter) -> None:
        """Push the graph, as csv or binary, whichever is there."""
        root = self._root()
        if (root / "raw" / "data.npz").exists():
            labels = _read_binary(writer, root / "raw")
        else:
            labels = _read_text(writer, root / "raw")
        source = root / "raw" / "node-label"
        if labels.ndim == 2 and labels.shape[1] == 1:
            writer.set_labels(_classes(labels[:, 0], source), source=source)
        else:
            writer.set_labels(labels, metric="roc_auc", source=source)
        if self.split == "published":
            parts, folder = _read_split(root / "split")
            writer.set_split(*parts, source=folder)

    def _root(self) -> Path:
        path = self.raw_path()
        folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())]
        for folder in folders:
            if (folder / "raw").is_dir():
                return folder
        raise GraphError(f"{path}: has no folder raw/")


def _read_text(writer: StoreWriter, raw: Path) -> NDArray[Any]:
    sizes = raw / "num-node-list.csv.gz"
    count = csv_table(sizes, ["int64"], source=sizes)
    if count.shape != (1, 1):
        raise GraphError(f"{sizes}: {len(count)} graphs, exactly 1 is needed")
    writer.set_num_vertices(int(count[0, 0]), source=sizes)
    edges = raw / "edge.csv.gz"
    for src, dst in csv_columns(edges, ["int64"] * 2, source=edges):
        writer.add_edges(src, dst, source=edges)
    feature_file = raw / "node-feat.csv.gz"
    width = head_lines(feature_file, source=feature_file)[0].count(",") + 1
    columns = csv_columns(feature_file, ["float32"] * width, source=feature_file)
    writer.write_features(
        (np.stack(block, axis=1) for block in columns),
        num_features=width,
        dtype="float32",
        source=feature_file,
    )
    label_file = raw / "node-label.csv.gz"
    width = head_lines(label_file, source=label_file)[0].count(",") + 1
    return csv_table(label_file, ["float64"] * width, source=label_file)


def _read_binary(writer: StoreWriter, raw: Path) -> NDArray[Any]:
    path = raw / "data.npz"
    with NpzReader(path) as npz:
        writer.set_num_vertices(int(npz["num_nodes_list"].sum()), source=path)
        for src, dst in npz.pairs("edge_index"):
            writer.add_edges(src, dst, source=path)
        dtype = "float16" if npz.dtype("node_feat") == np.float16 else "float32"
        writer.write_features(
            npz.rows("node_feat"),
            num_features=npz.shape("node_feat")[1],
            dtype=dtype,
            source=path,
        )
    with NpzReader(raw / "node-label.npz") as npz:
        labels = npz["node_label"]
    return labels.reshape(len(labels), -1)


def _classes(column: NDArray[Any], source: object) -> NDArray[np.int64]:
    """Turn classes published as floating point, NaN where unknown, into integers."""
    known = ~np.isnan(column) if column.dtype.kind == "f" else np.ones(len(column), bool)
    labels = np.full(len(column), -1, np.int64)
    labels[known] = column[known].astype(np.int64)
    wrong = known & (labels != column)
    if wrong.any() or (labels[known] < 0).any():
        vertex = int(np.flatnonzero(wrong | (known & (labels < 0)))[0])
        raise GraphError(f"{source}: label {column[vertex]} of vertex {vertex} is not a class")
    return labels


def _read_split(folder: Path) -> tuple[Iterator[NDArray[Any]], Path]:
    schemes = sorted(child for child in folder.glob("*") if child.is_dir())
    if len(schemes) != 1:
        raise GraphError(f"{folder}: {len(schemes)} splitting schemes, exactly 1 is needed")
    files = (schemes[0] / f"{part}.csv.gz" for part in ("train", "valid", "test"))
    return (csv_table(file, ["int64"], source=file)[:, 0] for file in files), schemes[0]
