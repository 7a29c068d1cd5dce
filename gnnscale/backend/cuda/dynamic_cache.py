"""Rows in device memory that follow the batches to come (Belady; FastGL's Match)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda import kernels as layouts
from gnnscale.backend.cuda.device_cache import CachedRows, CacheSlots
from gnnscale.backend.cuda.device_sample import DeviceSample
from gnnscale.backend.cuda.kernels import Kernels

_ABSENT = -1


@dataclass(frozen=True, kw_only=True)
class CacheUpdates:
    """What steps replace, in records of memory that the host writes and kernels read."""

    records: torch.Tensor  #: ``[num_records, 1 + 2 * capacity]`` int32: count, positions, slots
    capacity: int  #: rows that a step may replace


class DynamicCache:
    """A cache of rows, and beside it the rows of the mini-batch before (Match).

    A vertex has a slot: of the cache, or after those of the rows that a gather has left in the
    device's memory. The host says which rows of a mini-batch enter the cache and in which slots;
    what a slot held before is the device's to know. If a mini-batch is not read as the host
    expects, a row is missing, and is read at the host.
    """

    def __init__(self, rows: torch.Tensor, num_vertices: int, *, match: bool) -> None:
        """Begin with an empty cache ``rows`` ``[num_rows, width]`` in device memory."""
        self.rows = rows
        self.match = match
        size, device = len(rows), rows.device
        self._slot_of = torch.full((num_vertices,), _ABSENT, dtype=torch.int32, device=device)
        self._vertex_in = torch.full((size,), _ABSENT, dtype=torch.int64, device=device)

    def cached(self, outs: Sequence[torch.Tensor]) -> CachedRows:
        """Return the rows as a gather finds them.

        Args:
            outs: what gathers leave in device memory, whose rows are read by the next one; empty if
                none of it may be read.
        """
        tables = (self.rows, *(outs if self.match else ()))
        first = np.cumsum([0, *map(len, tables)]).tolist()
        return CachedRows(
            slots=CacheSlots(of_vertex=self._slot_of, first=tuple(first)), tables=tables
        )

    def forget(self) -> None:
        """Empty the cache; on a stream."""
        self._slot_of.fill_(_ABSENT)
        self._vertex_in.fill_(_ABSENT)

    def replace(
        self,
        kernels: Kernels,
        replaced: CacheUpdates,
        place: torch.Tensor,
        sample: DeviceSample,
        before: DeviceSample | None,
        out: torch.Tensor,
        number: int,
    ) -> None:
        """Take rows of a mini-batch into the cache, once it was gathered; on the current stream.

        Args:
            place: ``[1]`` int64 the step's record.
            sample: of the step.
            before: of the step before, whose rows are left; None if there was none.
            out: the gathered rows.
            number: of the slot that ``out`` is of.
        """
        grid, wide = layouts.grid(kernels), np.int32(sample.vertices.dtype == torch.int64)
        first, size = np.int64(len(self.rows)), np.int64(replaced.records.shape[1])
        if self.match and before is not None:
            count = before.num_vertices[-1:]
            kernels.launch(
                *("rows_forget", before.vertices, wide, count, self._slot_of, first), grid=grid
            )
        record = (replaced.records, size, np.int64(replaced.capacity), place)
        kernels.launch("rows_leave", *record, self._slot_of, self._vertex_in, grid=grid)
        kernels.launch(
            "rows_enter",
            *record,
            sample.vertices,
            wide,
            sample.num_vertices[-1:],
            out,
            self.rows,
            np.int64(layouts.row_bytes(out)),
            self._slot_of,
            self._vertex_in,
            grid=grid,
        )
        if self.match:
            kernels.launch(
                "rows_remember",
                sample.vertices,
                wide,
                sample.num_vertices[-1:],
                self._slot_of,
                np.int64(len(self.rows) + number * len(out)),
                grid=grid,
            )
