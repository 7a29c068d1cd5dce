"""OGB's node property graphs, and MAG240M of its large-scale challenge."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, GraphError
from gnnscale.core.artifact import map_npy, row_slices, total_bytes
from gnnscale.data import base, validation
from gnnscale.data.formats.archive import Archive
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.formats.safe_pickle import array_of, parse_pickle
from gnnscale.data.formats.text import csv_columns, csv_table, num_columns
from gnnscale.data.storage import remote
from gnnscale.data.storage.writer import StoreWriter

_ADDRESS = "https://snap.stanford.edu/ogb/data/nodeproppred"

_ARCHIVES = {
    "ogbn-arxiv": ("arxiv", "ODC-BY"),
    "ogbn-products": ("products", "Amazon license"),
    "ogbn-papers100M": ("papers100M-bin", "ODC-BY"),
}

_BINARY = ("data.npz", "node-label.npz")
_TEXT = ("num-node-list.csv.gz", "edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")


@dataclass(frozen=True, kw_only=True)
class Ogb(base.Dataset):
    """Folder with ``raw/`` and ``split/<scheme>/``, as the published archive unpacks.

    ``raw/`` holds ``edge.csv.gz``, ``node-feat.csv.gz``, ``node-label.csv.gz`` and
    ``num-node-list.csv.gz``, or ``data.npz`` and ``node-label.npz``. NaN is an unknown label.
    Several columns of labels are multi-label with the metric ROC AUC.
    """

    _layout: ClassVar[str] = "ogb"
    _raw_form: ClassVar[str] = (
        f"the unpacked folder with raw/{{{','.join(_TEXT)}}} or raw/{{{','.join(_BINARY)}}}, and "
        "split/*/{train,valid,test}.csv.gz"
    )

    def published(self) -> remote.Published | None:
        """Return OGB's archive to download; None if no archive is known for this name."""
        if self.name not in _ARCHIVES:
            return None
        archive, license = _ARCHIVES[self.name]
        file = remote.RemoteFile(url=f"{_ADDRESS}/{archive}.zip", unpack=True)
        return remote.Published(name=self.name, license=license, files=(file,))

    def raw_files(self) -> list[Path]:
        """Return the files of the graph and, with ``split=published``, of the split."""
        raw = self._root() / "raw"
        names = _BINARY if (raw / _BINARY[0]).exists() else _TEXT
        files = [raw / name for name in names]
        if self.split == "published":
            files += _split_files(raw.parent / "split")
        total_bytes(files)  # GraphError: one is missing
        return files

    def read(self, writer: StoreWriter) -> None:
        """Push the graph and its split, from binary files if they exist, else from CSV."""
        files = self.raw_files()
        num_bytes = total_bytes(files)
        if files[0].name == _BINARY[0]:
            _read_binary(writer, files[0], files[1], num_bytes)
        else:
            _read_text(writer, files[0].parent, num_bytes)
        if self.split == "published":
            parts = (
                csv_table(file, ["int64"], source=file, max_rows=writer.num_vertices)[:, 0]
                for file in files[-3:]
            )
            writer.set_split(*parts, source=files[-1].parent)

    def _root(self) -> Path:
        path = self.raw_path()
        if not path.is_dir():
            raise GraphError(f"{path}: expected {self._raw_form}, got a file")
        folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())]
        for folder in folders:
            if (folder / "raw").is_dir():
                return folder
        raise GraphError(f"{path}: has no folder raw/; needed is {self._raw_form}")


def _read_text(writer: StoreWriter, raw: Path, num_bytes: int) -> None:
    sizes, edge_file, feature_file, label_file = (raw / name for name in _TEXT)
    count = csv_table(sizes, ["int64"], source=sizes, max_rows=1 << 20)
    if count.shape != (1, 1):
        raise GraphError(f"{sizes}: {len(count)} graphs, exactly 1 is needed")
    num_vertices = int(count[0, 0])
    validation.check_num_vertices(num_vertices, num_bytes, sizes)
    width = num_columns(label_file, source=label_file)
    labels = csv_table(label_file, ["float64"] * width, source=label_file, max_rows=num_vertices)
    _set_graph(writer, labels, num_vertices, label_file)
    for src, dst in csv_columns(edge_file, ["int64"] * 2, source=edge_file):
        writer.add_edges(src, dst, source=edge_file)
    width = num_columns(feature_file, source=feature_file)
    # Rows of zeros compress well, unlike edges.
    columns = csv_columns(feature_file, ["float32"] * width, source=feature_file, ratio=200)
    writer.write_features(
        (np.stack(block, axis=1) for block in columns),
        num_features=width,
        dtype="float32",
        source=feature_file,
    )


def _read_binary(writer: StoreWriter, path: Path, label_file: Path, num_bytes: int) -> None:
    with NpzReader(path) as npz:
        sizes = npz.vector("num_nodes_list")
        if len(sizes) != 1:
            raise GraphError(f"{path}: {len(sizes)} graphs, exactly 1 is needed")
        num_vertices = int(sizes[0])
        validation.check_num_vertices(num_vertices, num_bytes, path)
        header = npz.header("node_feat", axes=2, kinds="f")
        if header.shape[0] != num_vertices:
            raise GraphError(f"{path}: {header.shape[0]} feature rows for {num_vertices} vertices")
        with NpzReader(label_file) as label_npz:
            labels = label_npz.labels("node_label", num_vertices)
        _set_graph(writer, labels, num_vertices, label_file)
        for src, dst in npz.pairs("edge_index"):
            writer.add_edges(src, dst, source=path)
        writer.write_features(
            npz.rows("node_feat", "f"),
            num_features=header.shape[1],
            dtype="float16" if header.dtype == np.float16 else "float32",
            source=path,
        )


def _set_graph(writer: StoreWriter, labels: Array, num_vertices: int, source: Path) -> None:
    """Set number and labels of the vertices in ``writer``; GraphError: one has no row of labels."""
    writer.set_num_vertices(num_vertices, source=source)
    several = labels.ndim == 2 and labels.shape[1] > 1
    writer.set_labels(labels, metric="roc_auc" if several else "accuracy", source=source)


def _split_files(folder: Path) -> list[Path]:
    schemes = sorted(child for child in folder.glob("*") if child.is_dir())
    if len(schemes) != 1:
        raise GraphError(f"{folder}: {len(schemes)} splitting schemes, exactly 1 is needed")
    return [schemes[0] / f"{part}.csv.gz" for part in ("train", "valid", "test")]


_NUM_CLASSES = 153
_PARTS = ("train", "valid", "test-dev")
#: torch.save does not compress, so an unpacked member is hardly larger than a packed one.
_SPLIT_ALLOWANCE, _SPLIT_RATIO = 8 << 20, 4


@dataclass(frozen=True, kw_only=True)
class Mag240m(base.Dataset):
    """Folder with ``processed/`` and ``split_dict.pt``, as the published archive unpacks.

    The reader uses ``paper___cites___paper/edge_index.npy``, ``paper/node_feat.npy`` (float16) and
    ``paper/node_label.npy``. The test vertices are test-dev, whose labels are hidden (-1), so only
    validation measures a model.
    """

    _raw_form: ClassVar[str] = (
        "the unpacked folder, with processed/paper/node_feat.npy and node_label.npy, "
        "processed/paper___cites___paper/edge_index.npy and split_dict.pt, from "
        "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/mag240m_kddcup2021.zip"
    )

    def raw_files(self) -> list[Path]:
        """Return the files of features, labels, edges and split."""
        root = self._root()
        papers = root / "processed" / "paper"
        edges = root / "processed" / "paper___cites___paper" / "edge_index.npy"
        files = [papers / "node_feat.npy", papers / "node_label.npy", edges, root / "split_dict.pt"]
        total_bytes(files)  # GraphError: one is missing
        return files

    def read(self, writer: StoreWriter) -> None:
        """Push the graph and its split into ``writer``, slice by slice from mapped files."""
        files = self.raw_files()
        feature_file, label_file, edge_file, split_file = files
        features = map_npy(feature_file, axes=2, kinds="f")
        validation.check_num_vertices(len(features), total_bytes(files), feature_file)
        labels = map_npy(label_file, axes=1, kinds="iuf")
        writer.set_num_vertices(len(features), source=feature_file)
        writer.set_labels(labels, num_classes=_NUM_CLASSES, source=label_file)
        edges = map_npy(edge_file, axes=2, kinds="iu")
        if len(edges) != 2:
            raise GraphError(f"{edge_file}: {list(edges.shape)}, allowed is [2, num_edges]")
        for part in row_slices(edges.shape[1], 16):
            writer.add_edges(edges[0, part], edges[1, part], source=edge_file)
        writer.write_matrix(features, source=feature_file)
        writer.set_split(*_read_split(split_file, len(features)), source=split_file)

    def _root(self) -> Path:
        path = self.raw_path()
        for folder in (path, path / "mag240m_kddcup2021"):
            if (folder / "processed").is_dir():
                return folder
        raise GraphError(f"{path}: has no folder processed/; needed is {self._raw_form}")


def _read_split(path: Path, num_vertices: int) -> list[Array]:
    """Return train, valid and test-dev ids from a dictionary of arrays that torch.save wrote.

    GraphError: one is not below ``num_vertices``.
    """
    with Archive(path) as archive:
        names = [name for name in archive.names if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise GraphError(f"{path}: {len(names)} members data.pkl, torch.save writes 1")
        data = archive.read(
            names[0],
            allowance=_SPLIT_ALLOWANCE,
            ratio=_SPLIT_RATIO,
            advice="torch.save does not compress",
        )
    source = f"{path}/{names[0]}"
    split = parse_pickle(data, source=source)
    if not isinstance(split, dict):
        raise GraphError(
            f"{source}: holds {validation.quoted(split)}, not a split of {', '.join(_PARTS)}"
        )
    parts = []
    for part in _PARTS:
        if part not in split:
            raise GraphError(f"{source}: not a split of {', '.join(_PARTS)}: it has no {part!r}")
        ids = array_of(split[part], axes=1, kinds="iu", source=f"{source}: {part}")
        validation.check_ids(ids, num_vertices, f"{source}: {part}")
        parts.append(ids)
    return parts
