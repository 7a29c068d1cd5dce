"""Structures as one NumPy archive of compressed sparse rows: ``indptr`` and ``indices``."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.dataset.formats.npy import NpzReader
from gnnscale.dataset.formats.sparse import check_csr, csr_edges
from gnnscale.dataset.storage.store import StoreWriter
from gnnscale.dataset.structure import Structure

__all__ = ["Csr"]


@dataclass(frozen=True, kw_only=True)
class Csr(Structure):
    """File ``<name>.npz``: ``indices[indptr[v]:indptr[v+1]]`` are the out-neighbours of ``v``."""

    def read_edges(self, writer: StoreWriter) -> None:
        """Push the edges, from each vertex to its out-neighbours."""
        path = self.raw_file(f"{self.name}.npz")
        with NpzReader(path) as npz:
            indptr, indices = npz["indptr"], npz["indices"]
        check_csr(indptr, len(indices), path)
        writer.set_num_vertices(len(indptr) - 1, source=path)
        for src, dst in csr_edges(indptr, indices):
            writer.add_edges(src, dst, source=path)
