"""What preparing a graph takes of memory and disk, told and looked at before it begins."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from gnnscale.dataset.storage.edge_spool import spooled_bytes
from gnnscale.dataset.storage.space import check_space, size
from gnnscale.dataset.storage.weighted_lists import EDGE_BYTES
from gnnscale.graph import FEATURE_DTYPES, vertex_dtype

__all__ = ["Needs"]

_LOG = logging.getLogger(__name__)
#: Slices of edges and of features that are read, converted and written.
_SLICES_BYTES = 256 << 20
#: In-degrees, then offsets, of all vertices; and of those whose lists are sorted at once.
_VERTEX_BYTES, _SORTED_VERTEX_BYTES = 32, 24


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Sizes of a graph that is to be prepared.

    Attributes:
        num_vertices: number of vertices.
        num_edges: number of edges, reverse edges and loops that are added included.
        num_features: length of a feature row.
        feature_dtype: the entry of ``FEATURE_DTYPES`` that is stored.
        label_bytes: bytes of a vertex's labels.
        weighted: whether edges have weights.
        memory_bytes: what edges may take while they are held and sorted.
    """

    num_vertices: int
    num_edges: int
    num_features: int
    feature_dtype: str
    label_bytes: int
    weighted: bool
    memory_bytes: int

    @property
    def memory(self) -> int:
        """Bytes of memory that preparing takes at most, beside single lists that exceed it."""
        list_bytes = EDGE_BYTES if self.weighted else self._word_bytes
        edge_bytes = 2 * self._word_bytes + list_bytes  # held, and sorted
        sorting = edge_bytes * self.num_edges + _SORTED_VERTEX_BYTES * self.num_vertices
        vertices = (_VERTEX_BYTES + 2 * self.label_bytes) * self.num_vertices
        slices = min(_SLICES_BYTES, 4 * (16 * self.num_edges + self._feature_bytes))
        return vertices + min(sorting, self.memory_bytes) + slices

    @property
    def disk(self) -> int:
        """Bytes of disk that preparing takes at most: of the store, and of edges meanwhile."""
        itemsize = vertex_dtype(self.num_vertices).itemsize
        spooled = spooled_bytes(self.num_edges, self._word_bytes, self.memory_bytes)
        stored = itemsize + (4 if self.weighted else 0)
        vertices = (8 + self.label_bytes + itemsize) * self.num_vertices
        return spooled + stored * self.num_edges + vertices + self._feature_bytes

    @property
    def _word_bytes(self) -> int:
        """Bytes of a source or destination before it is in a list."""
        return 8 if self.weighted else vertex_dtype(self.num_vertices).itemsize

    @property
    def _feature_bytes(self) -> int:
        row = self.num_features * FEATURE_DTYPES[self.feature_dtype].itemsize
        return self.num_vertices * row

    def check(self, what: object, folder: Path) -> None:
        """Log the needs in one line, and refuse what there is no room for.

        Args:
            what: named in the line.
            folder: where the disk is needed.

        Raises:
            NoSpaceError: tells what is needed and what there is.
        """
        _LOG.info(
            "%s: %d vertices, up to %d edges; preparing takes up to %s of memory and %s of disk",
            what,
            self.num_vertices,
            self.num_edges,
            size(self.memory),
            size(self.disk),
        )
        check_space(f"{what}: preparing", folder, memory=self.memory, disk=self.disk)
