"""GraphSAINT (Zeng et al., 2020): Reddit, Yelp, Amazon, Flickr and PPI in the authors' files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.npy import NpzReader, map_npy, row_slices
from gnnscale.dataset.formats.sparse import check_csr, csr_edges
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["GraphSaint"]


@dataclass(frozen=True, kw_only=True)
class GraphSaint(Dataset):
    """A folder with ``adj_full.npz``, ``feats.npy``, ``class_map.json`` and ``role.json``.

    Classes that are lists of zeros and ones are multi-label, judged by micro-F1.
    """

    def read(self, writer: StoreWriter) -> None:
        """Push the graph; row ``i`` of the adjacency matrix lists the in-neighbours of ``i``."""
        path = self.raw_file("adj_full.npz")
        with NpzReader(path) as npz:
            indptr, indices = npz["indptr"], npz["indices"]
        check_csr(indptr, len(indices), path)
        num_vertices = len(indptr) - 1
        writer.set_num_vertices(num_vertices, source=path)
        for dst, src in csr_edges(indptr, indices):
            writer.add_edges(src, dst, source=path)
        path = self.raw_file("feats.npy")
        features = map_npy(path)
        writer.write_features(
            (features[part] for part in row_slices(len(features), features[:1].nbytes)),
            num_features=features.shape[1],
            dtype="float16" if features.dtype == np.float16 else "float32",
            source=path,
        )
        path = self.raw_file("class_map.json")
        labels = _read_classes(path, num_vertices)
        metric = "micro_f1" if labels.ndim == 2 else "accuracy"
        writer.set_labels(labels, metric=metric, source=path)
        path = self.raw_file("role.json")
        role = _read_json(path)
        missing = [part for part in ("tr", "va", "te") if part not in role]
        if missing:
            raise GraphError(f"{path}: has no list {missing[0]!r}")
        writer.set_split(*(np.array(role[part]) for part in ("tr", "va", "te")), source=path)


def _read_classes(path: Path, num_vertices: int) -> NDArray[Any]:
    classes = _read_json(path)
    try:
        ids = np.array([int(id) for id in classes], np.int64)
        values = np.array(list(classes.values()))
    except ValueError as error:
        raise GraphError(f"{path}: not a class or list of classes for each id ({error})") from None
    if not np.array_equal(np.sort(ids), np.arange(num_vertices)):
        raise GraphError(f"{path}: ids must be 0 to {num_vertices - 1}, each once")
    labels = np.empty_like(values)
    labels[ids] = values
    return labels


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise GraphError(f"{path}: missing") from None
    except ValueError as error:
        raise GraphError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise GraphError(f"{path}: holds a {type(value).__name__}, not an object")
    return value
