"""MAG240M of OGB-LSC (Hu et al., 2021) as a homogeneous graph: papers that cite papers."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.npy import map_npy, row_slices
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["Mag240m"]

_NUM_CLASSES = 153
_NUMPY_GLOBALS: list[Any] = [
    np.ndarray,
    np.dtype,
    np.dtypes.Int64DType,
    (np.array([]).__reduce__()[0], "numpy.core.multiarray._reconstruct"),
    (np.array([]).__reduce__()[0], "numpy._core.multiarray._reconstruct"),
]


@dataclass(frozen=True, kw_only=True)
class Mag240m(Dataset):
    """A folder with ``processed/`` and ``split_dict.pt``, as the published archive unpacks.

    Read are ``paper___cites___paper/edge_index.npy``, ``paper/node_feat.npy`` (float16) and
    ``paper/node_label.npy``. The test vertices are the publisher's test-dev, whose labels are
    hidden: they are -1 here, so that only validation says how good a model is.
    """

    def read(self, writer: StoreWriter) -> None:
        """Push the graph from mapped files, slice by slice."""
        root = self._root()
        papers = root / "processed" / "paper"
        features = map_npy(papers / "node_feat.npy")
        writer.set_num_vertices(len(features), source=papers / "node_feat.npy")
        edge_file = root / "processed" / "paper___cites___paper" / "edge_index.npy"
        edges = map_npy(edge_file)
        if edges.ndim != 2 or len(edges) != 2:
            raise GraphError(f"{edge_file}: {list(edges.shape)}, allowed is [2, num_edges]")
        for part in row_slices(edges.shape[1], 16):
            writer.add_edges(edges[0, part], edges[1, part], source=edge_file)
        writer.write_features(
            (features[part] for part in row_slices(len(features), features[:1].nbytes)),
            num_features=features.shape[1],
            dtype="float16" if features.dtype == np.float16 else "float32",
            source=papers / "node_feat.npy",
        )
        published = np.array(map_npy(papers / "node_label.npy"))
        labels = np.where(np.isnan(published), -1, published).astype(np.int64)
        writer.set_labels(labels, num_classes=_NUM_CLASSES, source=papers / "node_label.npy")
        writer.set_split(*_read_split(root / "split_dict.pt"), source=root / "split_dict.pt")

    def _root(self) -> Path:
        path = self.raw_path()
        for folder in (path, path / "mag240m_kddcup2021"):
            if (folder / "processed").is_dir():
                return folder
        raise GraphError(f"{path}: has no folder processed/")


def _read_split(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    try:
        with torch.serialization.safe_globals(_NUMPY_GLOBALS):
            split = torch.load(path, weights_only=True)
        train, valid, test = (np.asarray(split[part]) for part in ("train", "valid", "test-dev"))
    except FileNotFoundError:
        raise GraphError(f"{path}: missing") from None
    except (KeyError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GraphError(f"{path}: not a split of train, valid and test-dev ({reason})") from None
    return train, valid, test
