"""Benchmarks whose authors publish one .npz file for each graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, ConfigError, GraphError, Int64Array
from gnnscale.core.artifact.files import file_bytes
from gnnscale.data import base, validation
from gnnscale.data.formats import sparse
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.labels import count_classes
from gnnscale.data.storage import remote
from gnnscale.data.storage.writer import StoreWriter


@dataclass(frozen=True, kw_only=True)
class NpzDataset(base.Dataset):
    """Base of the layouts of one file ``<name>.npz``, which is downloaded."""

    #: URL of the folder of files, and the checksums that are known, by name.
    _address: ClassVar[str] = ""
    _sha256: ClassVar[Mapping[str, str]] = {}

    def published(self) -> remote.Published:
        """Return the authors' file to download."""
        url, sha256 = f"{self._address}/{self.name}.npz", self._sha256.get(self.name)
        name = f"{self._layout}-{self.name}"
        files = (remote.RemoteFile(url=url, sha256=sha256),)
        return remote.Published(name=name, license="MIT", files=files)

    def raw_files(self) -> list[Path]:
        """Return the path of the .npz file."""
        return [self.raw_file(f"{self.name}.npz")]


@dataclass(frozen=True, kw_only=True)
class GnnBenchmark(NpzDataset):
    """File ``<name>.npz`` with sparse ``adj_*`` and ``attr_*`` matrices and ``labels``.

    As of Shchur et al., "Pitfalls of Graph Neural Network Evaluation" (2018).
    """

    split: str = "random"
    has_split: ClassVar[bool] = False
    _layout: ClassVar[str] = "gnn_benchmark"
    _address: ClassVar[str] = (
        "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz"
    )
    _sha256: ClassVar[Mapping[str, str]] = {
        "cora": "068e22d90c3849b4057dfb05851741428992af058efcd4e7ebb4186f3d581de2"
    }

    def read(self, writer: StoreWriter) -> None:
        """Push edges, features and labels into ``writer``.

        Row ``i`` of the adjacency matrix lists the vertices to which edges from ``i`` lead.
        """
        (path,) = self.raw_files()
        with NpzReader(path) as npz:
            indptr, indices = sparse.read_adjacency(npz, "adj_")
            labels, features = npz.vector("labels"), sparse.read_features(npz, "attr_")
        num_vertices = len(indptr) - 1
        if not num_vertices == len(labels) == features.shape[0]:
            raise GraphError(
                f"{path}: {num_vertices} vertices, {len(labels)} labels, "
                f"{features.shape[0]} feature rows"
            )
        validation.check_num_vertices(num_vertices, file_bytes(path), path)
        writer.set_num_vertices(num_vertices, source=path)
        writer.set_labels(labels, source=path)
        for src, dst in sparse.csr_edges(indptr, indices):
            writer.add_edges(src, dst, source=path)
        writer.write_matrix(features, source=path)


@dataclass(frozen=True, kw_only=True)
class Heterophilous(NpzDataset):
    """File ``<name>.npz``: ``edges``, ``node_features``, ``node_labels`` and ``*_masks``.

    As of Platonov et al., "A critical look at evaluation under heterophily" (2023): the metric is
    ROC AUC for two classes, else accuracy.

    Attributes:
        mask: number of the published split, 0 to 9.
    """

    mask: int = 0

    _layout: ClassVar[str] = "heterophilous"
    _address: ClassVar[str] = (
        "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"
    )
    _sha256: ClassVar[Mapping[str, str]] = {
        "tolokers": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask < 0:
            raise ConfigError(f"dataset.mask={self.mask}: expected at least 0")

    def read(self, writer: StoreWriter) -> None:
        """Push the graph and its split; each row of ``edges`` is one edge, first to second."""
        (path,) = self.raw_files()
        with NpzReader(path) as npz:
            labels, features, edges = _read_graph(npz)
            split = [self._read_part(npz, part, len(labels)) for part in ("train", "val", "test")]
        validation.check_num_vertices(len(labels), file_bytes(path), path)
        writer.set_num_vertices(len(labels), source=path)
        writer.add_edges(edges[:, 0], edges[:, 1], source=path)
        writer.write_matrix(features, source=path)
        metric = "roc_auc" if count_classes(labels, path) == 2 else "accuracy"
        writer.set_labels(labels, metric=metric, source=path)
        writer.set_split(*split, source=path)

    def _read_part(self, npz: NpzReader, part: str, num_vertices: int) -> Int64Array:
        masks = npz.matrix(f"{part}_masks", kinds="b")
        if masks.shape[1] != num_vertices:
            raise GraphError(
                f"{npz.path}: {part}_masks are {list(masks.shape)}, "
                f"masks are not [splits, {num_vertices}]"
            )
        if self.mask >= len(masks):
            raise ConfigError(
                f"dataset.mask={self.mask}: {npz.path} has the splits 0 to {len(masks) - 1}"
            )
        return np.flatnonzero(masks[self.mask])


def _read_graph(npz: NpzReader) -> tuple[Array, Array, Array]:
    labels, features = npz.vector("node_labels"), npz.matrix("node_features")
    edges = npz.matrix("edges", kinds="iu")
    if edges.shape[1] != 2:
        raise GraphError(f"{npz.source('edges')}: {list(edges.shape)}, allowed is [edges, 2]")
    if len(features) != len(labels):
        raise GraphError(
            f"{npz.path}: {len(features)} feature rows for {len(labels)} vertices with a label"
        )
    return labels, features, edges
