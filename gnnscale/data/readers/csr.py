"""Structures as one NumPy archive of compressed sparse rows: ``indptr`` and ``indices``."""

from dataclasses import dataclass
from pathlib import Path

from gnnscale.core import GraphError
from gnnscale.core.artifact.files import file_bytes
from gnnscale.data import structure_only as structure
from gnnscale.data import validation as checks
from gnnscale.data.formats import sparse
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.storage.writer import StoreWriter

#: What SciPy saves beside a structure; the values of a matrix are not read.
_ARRAYS = {"indptr", "indices", "shape", "format", "data"}


@dataclass(frozen=True, kw_only=True)
class Csr(structure.Structure):
    """File ``<name>.npz``: ``indices[indptr[v]:indptr[v+1]]`` are the out-neighbours of ``v``.

    An archive with further arrays is refused: these may be its features and labels.
    """

    def raw_files(self) -> list[Path]:
        """Return the archive."""
        return [self.raw_file(f"{self.name}.npz")]

    def read_edges(self, writer: StoreWriter) -> None:
        """Push the edges, from each vertex to its out-neighbours."""
        (path,) = self.raw_files()
        with NpzReader(path) as npz:
            others = sorted(set(npz.names) - _ARRAYS)
            if others:
                raise GraphError(
                    f"{path}: has also the arrays {', '.join(others)}, which the layout csr would "
                    "ignore, since it makes features and labels"
                )
            indptr, indices = sparse.read_adjacency(npz)
        checks.check_num_vertices(len(indptr) - 1, file_bytes(path), path)
        writer.set_num_vertices(len(indptr) - 1, source=path)
        for src, dst in sparse.csr_edges(indptr, indices):
            writer.add_edges(src, dst, source=path)
