"""Graph structure as compressed sparse rows ``indptr`` and ``indices`` in a NumPy archive."""

from dataclasses import dataclass
from pathlib import Path

from gnnscale.core import GraphError
from gnnscale.core.artifact.files import file_bytes
from gnnscale.data import structure_only, validation
from gnnscale.data.formats import sparse
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.storage.writer import StoreWriter

#: Arrays of a matrix that SciPy saved; the values are not read.
_ARRAYS = {"indptr", "indices", "shape", "format", "data"}


@dataclass(frozen=True, kw_only=True)
class Csr(structure_only.Structure):
    """File ``<name>.npz``: ``indices[indptr[v]:indptr[v+1]]`` are the out-neighbors of ``v``.

    An archive with further arrays is refused, since they may be features and labels.
    """

    def raw_files(self) -> list[Path]:
        """Return the archive."""
        return [self.raw_file(f"{self.name}.npz")]

    def read_edges(self, writer: StoreWriter) -> None:
        """Push the edges, from each vertex to its out-neighbors."""
        (path,) = self.raw_files()
        with NpzReader(path) as npz:
            unread = sorted(set(npz.names) - _ARRAYS)
            if unread:
                raise GraphError(
                    f"{path}: expected only {', '.join(sorted(_ARRAYS))}, got also "
                    f"{', '.join(unread)}; dataset=arrays reads features and labels"
                )
            indptr, indices = sparse.read_adjacency(npz)
        validation.check_num_vertices(len(indptr) - 1, file_bytes(path), path)
        writer.set_num_vertices(len(indptr) - 1, source=path)
        for src, dst in sparse.csr_edges(indptr, indices):
            writer.add_edges(src, dst, source=path)
