"""Dynamic cache of rows in device memory, updated with each batch (Belady; FastGL's Match)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda.device_cache import CachedRows, CacheSlots
from gnnscale.backend.cuda.device_sample import DeviceSample
from gnnscale.backend.cuda.kernels import Kernels, row_bytes

_ABSENT = -1


@dataclass(frozen=True, kw_only=True)
class CacheUpdates:
    """Cache updates of steps, in records that the host writes and kernels read."""

    records: torch.Tensor  #: ``[num_records, 1 + 2 * capacity]`` int32: count, positions, slots
    capacity: int  #: maximum rows that a step replaces


class DynamicCache:
    """Cache of rows, extended by the rows of the previous mini-batch (Match).

    A vertex has a slot of the cache, or a slot past the cache for its row of the previous batch,
    still in device memory. The host selects the rows of a mini-batch and the slots that they enter;
    the device finds the vertices that they evict. A row that is missing, because batches differ
    from the host's plan, is read from host memory.
    """

    def __init__(self, rows: torch.Tensor, num_vertices: int, *, match: bool) -> None:
        """Create an empty cache; ``match``: rows of the previous mini-batch are reused."""
        self.rows = rows
        self.match = match
        size, device = len(rows), rows.device
        self._slot_of = torch.full((num_vertices,), _ABSENT, dtype=torch.int32, device=device)
        self._vertex_in = torch.full((size,), _ABSENT, dtype=torch.int64, device=device)

    def cached(self, outs: Sequence[torch.Tensor]) -> CachedRows:
        """Return the cache as gathers read it; with ``match`` also rows of the outputs ``outs``."""
        tables = (self.rows, *(outs if self.match else ()))
        first = np.cumsum([0, *map(len, tables)]).tolist()
        return CachedRows(
            slots=CacheSlots(of_vertex=self._slot_of, first=tuple(first)), tables=tables
        )

    def forget(self) -> None:
        """Empty the cache, on the current stream."""
        self._slot_of.fill_(_ABSENT)
        self._vertex_in.fill_(_ABSENT)

    def replace(
        self,
        kernels: Kernels,
        replaced: CacheUpdates,
        record_index: torch.Tensor,
        sample: DeviceSample,
        previous: DeviceSample | None,
        out: torch.Tensor,
        number: int,
    ) -> None:
        """Copy rows of a gathered mini-batch into the cache, on the current stream.

        ``record_index`` is the ``[1]`` int64 record of the step, ``out`` the rows of slot
        ``number``. Rows of the ``previous`` step can no longer be reused. None: no such step.
        """
        wide, num_rows = np.int32(sample.vertices.dtype == torch.int64), len(self.rows)
        if self.match and previous is not None:
            departing = (previous.vertices, wide, previous.num_vertices[-1:])
            kernels.launch("rows_forget", *departing, self._slot_of, np.int64(num_rows))
        size, capacity = np.int64(replaced.records.shape[1]), np.int64(replaced.capacity)
        record = (replaced.records, size, capacity, record_index)
        slots, vertices = self._slot_of, (sample.vertices, wide, sample.num_vertices[-1:])
        kernels.launch("rows_leave", *record, slots, self._vertex_in)
        rows = (out, self.rows, np.int64(row_bytes(out)))
        kernels.launch("rows_enter", *record, *vertices, *rows, slots, self._vertex_in)
        if self.match:
            first = np.int64(num_rows + number * len(out))
            kernels.launch("rows_remember", *vertices, slots, first)
