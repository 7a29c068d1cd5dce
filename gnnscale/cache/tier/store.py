"""Features of which host memory holds a part: the store over a tier."""

from __future__ import annotations

from dataclasses import replace

import torch

from gnnscale import ops
from gnnscale.cache.tier.rows import ReadyRows, TierRows
from gnnscale.core import Access, Array, Traffic
from gnnscale.feature import Aggregation, FeatureStore
from gnnscale.feature.store import write_aggregated
from gnnscale.sampler import Block


class TieredFeatures(FeatureStore):
    """Rows of a source, some of which host memory holds.

    The steps of a run are expected in the order in which they are gathered, each at least
    ``rows.lead`` steps ahead. What a step misses is read while steps before it are trained. Any
    other gather is a rehearsal's: it gets what the source has for that at once, and changes
    nothing.
    """

    def __init__(self, rows: TierRows) -> None:
        """Gather ``rows``."""
        self.rows = rows  #: the rows, and what is expected of them

    @property
    def num_rows(self) -> int:
        """Number of rows of the source."""
        return self.rows.source.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self.rows.source.num_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self.rows.source.width * self.rows.source.dtype.itemsize

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        out = ops.empty((len(vertices), self.width), dtype)
        ready = self.rows.ready(vertices)
        matrix = (ready.rows, self.rows.source.dtype_name)
        ops.gather(matrix, ready.slots, out=out, num_threads=num_threads)
        return out, self._served(ready)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated in their slots."""
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        ready = self.rows.ready(vertices)
        # Rows are found by their slots, and not as vertices.
        local = replace(block, edge_vertices=None)
        matrix = (ready.rows, self.rows.source.dtype_name)
        ids = ready.slots
        write_aggregated(matrix, local, aggregation, out=out, ids=ids, num_threads=num_threads)
        return out, self._served(ready)

    def _served(self, ready: ReadyRows) -> Traffic:
        """Give back the slots that a step leaves, and return what it has read."""
        self.rows.served(ready)
        rows = Access(host_bytes=len(ready.slots) * self.row_bytes)
        return Traffic(rows=rows, tier=ready.access, disk=ready.reads.disk)
