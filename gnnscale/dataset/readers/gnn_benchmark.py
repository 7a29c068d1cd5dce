"""The .npz files of Shchur et al., "Pitfalls of Graph Neural Network Evaluation" (2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import scipy.sparse

from gnnscale.dataset.base import Dataset
from gnnscale.dataset.formats.npy import NpzReader
from gnnscale.dataset.formats.sparse import check_csr, csr_edges, dense_rows, holds_bytes
from gnnscale.dataset.storage.download import Published, RemoteFile
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.graph import GraphError

__all__ = ["GnnBenchmark"]

_ADDRESS = "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz"
_SHA256 = {"cora": "068e22d90c3849b4057dfb05851741428992af058efcd4e7ebb4186f3d581de2"}


@dataclass(frozen=True, kw_only=True)
class GnnBenchmark(Dataset):
    """File ``<name>.npz`` with sparse ``adj_*`` and ``attr_*`` matrices and ``labels``."""

    split: str = "random"
    has_split: ClassVar[bool] = False

    def published(self) -> Published:
        """Return the authors' file."""
        file = RemoteFile(url=f"{_ADDRESS}/{self.name}.npz", sha256=_SHA256.get(self.name))
        return Published(name=f"gnn_benchmark-{self.name}", licence="MIT", files=(file,))

    def read(self, writer: StoreWriter) -> None:
        """Push the graph; row ``i`` of the adjacency matrix lists the targets of vertex ``i``."""
        path = self.raw_file(f"{self.name}.npz")
        with NpzReader(path) as npz:
            indptr, indices = npz["adj_indptr"], npz["adj_indices"]
            check_csr(indptr, len(indices), path)
            writer.set_num_vertices(len(indptr) - 1, source=path)
            for src, dst in csr_edges(indptr, indices):
                writer.add_edges(src, dst, source=path)
            data = npz["attr_data"]
            try:
                features = scipy.sparse.csr_matrix(
                    (data, npz["attr_indices"], npz["attr_indptr"]), shape=tuple(npz["attr_shape"])
                )
                features.check_format(full_check=True)
            except ValueError as error:
                if isinstance(error, GraphError):
                    raise
                raise GraphError(f"{path}: attr_* is not a sparse matrix ({error})") from None
            writer.write_features(
                dense_rows(features),
                num_features=features.shape[1],
                dtype="uint8" if holds_bytes(data) else "float32",
                source=path,
            )
            writer.set_labels(npz["labels"], source=path)
