"""The .npz files of Platonov et al., "A critical look at evaluation under heterophily" (2023)."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, ConfigError, GraphError, Int64Array
from gnnscale.core.artifact import file_bytes
from gnnscale.data import base, validation
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.labels import count_classes
from gnnscale.data.storage import StoreWriter, remote

_ADDRESS = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"
_SHA256 = {"tolokers": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"}


@dataclass(frozen=True, kw_only=True)
class Heterophilous(base.Dataset):
    """File ``<name>.npz``: ``edges``, ``node_features``, ``node_labels`` and ``*_masks``.

    The metric is ROC AUC for two classes, else accuracy, as in the paper.

    Attributes:
        mask: number of the published split, 0 to 9.
    """

    mask: int = 0

    _layout: ClassVar[str] = "heterophilous"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask < 0:
            raise ConfigError(f"dataset.mask={self.mask}: expected at least 0")

    def published(self) -> remote.Published:
        """Return the authors' file to download."""
        file = remote.RemoteFile(url=f"{_ADDRESS}/{self.name}.npz", sha256=_SHA256.get(self.name))
        return remote.Published(name=f"heterophilous-{self.name}", license="MIT", files=(file,))

    def raw_files(self) -> list[Path]:
        """Return the path of the .npz file."""
        return [self.raw_file(f"{self.name}.npz")]

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
