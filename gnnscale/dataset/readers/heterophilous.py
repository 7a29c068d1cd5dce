"""The .npz files of Platonov et al., "A critical look at evaluation under heterophily" (2023)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnscale.config import ConfigError
from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.npy import NpzReader
from gnnscale.dataset.storage.download import Published, RemoteFile
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["Heterophilous"]

_ADDRESS = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"
_SHA256 = {"tolokers": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"}


@dataclass(frozen=True, kw_only=True)
class Heterophilous(Dataset):
    """File ``<name>.npz``: ``edges``, ``node_features``, ``node_labels`` and ``*_masks``.

    Two classes are judged by ROC AUC, more by accuracy, as in the paper.

    Attributes:
        mask: which of the ten published splits.
    """

    mask: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask < 0:
            raise ConfigError(f"dataset.mask={self.mask}: allowed are 0 and up")

    def published(self) -> Published:
        """Return the authors' file."""
        file = RemoteFile(url=f"{_ADDRESS}/{self.name}.npz", sha256=_SHA256.get(self.name))
        return Published(name=f"heterophilous-{self.name}", licence="MIT", files=(file,))

    def read(self, writer: StoreWriter) -> None:
        """Push the graph; each row of ``edges`` is an undirected edge."""
        path = self.raw_file(f"{self.name}.npz")
        with NpzReader(path) as npz:
            labels, features, edges = npz["node_labels"], npz["node_features"], npz["edges"]
            writer.set_num_vertices(len(labels), source=path)
            if edges.ndim != 2 or edges.shape[1] != 2:
                raise GraphError(f"{path}: edges are {list(edges.shape)}, allowed is [edges, 2]")
            writer.add_edges(edges[:, 0], edges[:, 1], source=path)
            writer.write_features(
                [features], num_features=features.shape[1], dtype="float32", source=path
            )
            num_classes = int(labels.max(initial=-1)) + 1
            metric = "roc_auc" if num_classes == 2 else "accuracy"
            writer.set_labels(labels, metric=metric, source=path)
            masks = [npz[f"{part}_masks"] for part in ("train", "val", "test")]
        if self.mask >= min(map(len, masks)):
            raise ConfigError(
                f"dataset.mask={self.mask}: {path} has the splits 0 to {min(map(len, masks)) - 1}"
            )
        if any(mask.shape[1:] != labels.shape for mask in masks):
            raise GraphError(f"{path}: masks are not [splits, {len(labels)}]")
        writer.set_split(*(np.flatnonzero(mask[self.mask]) for mask in masks), source=path)
