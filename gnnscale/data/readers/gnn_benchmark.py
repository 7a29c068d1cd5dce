"""The .npz files of Shchur et al., "Pitfalls of Graph Neural Network Evaluation" (2018)."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gnnscale.core import GraphError
from gnnscale.core.artifact.files import file_bytes
from gnnscale.data import base, validation
from gnnscale.data.formats import NpzReader, sparse
from gnnscale.data.storage import StoreWriter, remote

_ADDRESS = "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz"
_SHA256 = {"cora": "068e22d90c3849b4057dfb05851741428992af058efcd4e7ebb4186f3d581de2"}


@dataclass(frozen=True, kw_only=True)
class GnnBenchmark(base.Dataset):
    """File ``<name>.npz`` with sparse ``adj_*`` and ``attr_*`` matrices and ``labels``."""

    split: str = "random"
    has_split: ClassVar[bool] = False
    _layout: ClassVar[str] = "gnn_benchmark"

    def published(self) -> remote.Published:
        """Return the authors' file to download."""
        file = remote.RemoteFile(url=f"{_ADDRESS}/{self.name}.npz", sha256=_SHA256.get(self.name))
        return remote.Published(name=f"gnn_benchmark-{self.name}", license="MIT", files=(file,))

    def raw_files(self) -> list[Path]:
        """Return the path of the .npz file."""
        return [self.raw_file(f"{self.name}.npz")]

    def read(self, writer: StoreWriter) -> None:
        """Push edges, features and labels into ``writer``.

        Row ``i`` of the adjacency matrix lists the vertices to which edges from ``i`` lead.
        """
        (path,) = self.raw_files()
        with NpzReader(path) as npz:
            indptr, indices = sparse.read_adjacency(npz, "adj_")
            labels, features = npz.vector("labels"), _read_features(npz)
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


def _read_features(npz: NpzReader) -> sparse.CsrMatrix:
    shape = npz.vector("attr_shape").tolist()
    data, indices, indptr = (
        npz.vector(f"attr_{part}", kinds)
        for part, kinds in (("data", "biuf"), ("indices", "iu"), ("indptr", "iu"))
    )
    source = f"{npz.path}: attr_*"
    if len(shape) != 2 or shape[0] != len(indptr) - 1:
        raise GraphError(f"{source}: shape is {shape[:4]}, offsets are of {len(indptr) - 1} rows")
    return sparse.sparse_matrix(
        data, indices, indptr, num_columns=shape[1], num_bytes=file_bytes(npz.path), source=source
    )
