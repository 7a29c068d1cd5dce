"""Gather of feature rows by id, from device memory or over the link from host memory.

A dynamic cache in device memory is updated with each batch (Belady; FastGL's Match).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda.device_cache import NO_ROWS, CachedRows, CacheSlots
from gnnscale.backend.cuda.device_sample import DeviceSample
from gnnscale.backend.cuda.kernels import BLOCKS, ROW_TYPES, Kernels, row_bytes
from gnnscale.core import ConfigError, check_choice, check_range

_ABSENT = -1


@dataclass(frozen=True, kw_only=True)
class CacheUpdates:
    """Records of a dynamic cache's updates, by step, which the host writes and kernels read."""

    records: torch.Tensor  #: ``[num_records, 1 + 2 * capacity]`` int32: count, positions, slots
    capacity: int  #: maximum rows that a step replaces


class DynamicCache:
    """Cache of rows in device memory that every step updates.

    The host selects the rows of a mini-batch to copy into the cache, and the slots (row indices)
    for them; the device finds the vertices that they evict. With ``match``, uncached rows of the
    previous mini-batch, still in its output, have slots past the cache's and are read there
    (FastGL's Match). A row without a slot, as batches may differ from the host's plan, is read from
    host memory.
    """

    def __init__(self, rows: torch.Tensor, num_vertices: int, *, match: bool) -> None:
        """Wrap ``rows``, ``[n, width]`` of device memory, as an empty cache.

        ``match``: whether rows of the previous mini-batch are reused.
        """
        self.rows = rows
        self.match = match
        size, device = len(rows), rows.device
        self._slot_of = torch.full((num_vertices,), _ABSENT, dtype=torch.int32, device=device)
        self._vertex_in = torch.full((size,), _ABSENT, dtype=torch.int64, device=device)

    def cached(self, outs: Sequence[torch.Tensor]) -> CachedRows:
        """Return the cache as gathers read it.

        With ``match`` it includes ``outs``, the output buffers of all gathers.
        """
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

        Args:
            replaced: records of the rows to copy, and of their slots, whose earlier rows are
                evicted.
            record_index: ``[1]`` int64 index of the step's record.
            sample: sample of the mini-batch.
            previous: sample of the previous step, whose rows can no longer be reused. None: no such
                step.
            out: gathered rows of the mini-batch.
            number: index of ``out`` among the outputs of the gather.
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


#: Bytes that a thread reads with one instruction.
_WORDS = (16, 8, 4, 2, 1)
_CONVERTED = (torch.float32, torch.bfloat16)
#: Names of id types.
_IDS = {torch.int32: "int32", torch.int64: "int64"}
#: Index of a wrong id if all are valid.
_ALL_VALID = -1


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Output of a launched gather: rows, index of a wrong id, and numbers of rows by location.

    Locations are the caches, then the table. The next gather into the same buffer overwrites
    ``out``, ``wrong`` and ``read_counts``.
    """

    ids: torch.Tensor  #: requested ids
    out: torch.Tensor  #: ``[max_ids, width]``; rows past the number of ids are unchanged
    wrong: torch.Tensor  #: ``[1]`` int64 index of the first id out of range, -1 for none
    #: ``[num_members + 1]`` int64 rows read from each member, then from the table
    read_counts: torch.Tensor
    num_rows: int  #: rows of the table

    def check(self) -> None:
        """Wait for the gather; ValueError: an id is out of range (its row is zeros)."""
        index = int(self.wrong)
        if index != _ALL_VALID:
            raise ValueError(f"ids: {int(self.ids[index])} is not a row, there are {self.num_rows}")


class RowGather:
    """Asynchronous gather of rows of one table.

    The requests of a warp start at lines of 128 bytes for any row width: words are shifted between
    threads, and words at the row's end take the positions of those at its start (PyTorch-Direct,
    section 4.5).

        gather = RowGather(table, kernels, max_ids=1024)
        rows = gather.gather(ids, torch.tensor([3], device=device)).out[:3]  # table[ids[:3]]
    """

    def __init__(
        self,
        table: torch.Tensor,
        kernels: Kernels,
        *,
        max_ids: int,
        dtype: torch.dtype | None = None,
        max_multiprocessors: int | None = None,
        shifts: bool = True,
        num_slots: int = 1,
        cache: CachedRows | None = None,
        following: DynamicCache | None = None,
    ) -> None:
        """Allocate outputs for up to ``max_ids`` ids.

        Raises ConfigError if the table's type is not supported, or a number is not positive.

        Args:
            table: ``[num_rows, width]`` float32, float16, bfloat16 or uint8, contiguous, in device
                memory or in host memory that the device reads.
            dtype: output type, float32 or bfloat16. None: the table's type.
            max_multiprocessors: multiprocessors to use. None: all.
            shifts: whether requests start at lines of 128 bytes.
            num_slots: number of outputs, each overwritten by its own next gather.
            cache: static cache; its rows are read instead of the table's.
            following: dynamic cache; its rows, and with several slots the rows of the previous
                output, are read instead of the table's.
        """
        check_choice("dtype", str(table.dtype), [str(allowed) for allowed in ROW_TYPES])
        out_dtype = table.dtype if dtype is None else dtype
        if out_dtype != table.dtype:
            check_choice("dtype", str(out_dtype), [str(allowed) for allowed in _CONVERTED])
        assert table.is_contiguous(), "a row is one piece"
        limit = kernels.num_multiprocessors
        if max_multiprocessors is not None:
            check_range("max_multiprocessors", max_multiprocessors, 1)
            limit = min(limit, max_multiprocessors)
        check_range("max_ids", max_ids, 1)
        check_range("num_slots", num_slots, 1)
        self._kernels = kernels
        self._grid = BLOCKS * limit
        self._table = table
        shape = (max_ids, table.shape[1])
        # Rows past the last one are multiplied with zeros, and must not be NaN.
        device = kernels.device
        outs = [torch.zeros(shape, dtype=out_dtype, device=device) for _ in range(num_slots)]
        if following is not None:
            if out_dtype != table.dtype:
                raise ConfigError(
                    f"cache_planner: a dynamic cache on a GPU has rows of the stored type "
                    f"{table.dtype}; expected {out_dtype}, the model's type; a static policy "
                    "converts rows"
                )
            cache = following.cached(outs if num_slots > 1 else ())
        self._cache = cache
        self._slots = [self._slot(out, shifts) for out in outs]
        kernel = "gather" if out_dtype == table.dtype else "gather_converted"
        self._kernel = f"{kernel}_{word_bytes(table, self._slots[0].out)}"

    def out(self, slot: int) -> torch.Tensor:
        """Return output buffer number ``slot``, ``[max_ids, width]`` rows."""
        return self._slots[slot].out

    def read_counts(self, slot: int) -> torch.Tensor:
        """Return numbers of rows read into buffer ``slot`` from each cache, then from the table."""
        return self._slots[slot].read_counts

    def gather(
        self, ids: torch.Tensor, count: torch.Tensor, *, slot: int = 0, stream: object | None = None
    ) -> Gathering:
        """Launch the gather of the rows of the first ``count`` of ``ids``, and return its output.

        ``ids`` are ``[n]`` int32 or int64, contiguous, on the device, n at most ``max_ids``
        (otherwise ValueError); ``count`` is ``[1]`` int64 on the device, and counts as n if larger.
        ``slot`` is the number of the output buffer.
        """
        arrays = self._slots[slot]
        name = _IDS.get(ids.dtype)
        max_ids = len(arrays.out)
        if name is None or ids.dim() != 1 or not ids.is_contiguous() or len(ids) > max_ids:
            raise ValueError(
                f"ids: expected up to {max_ids} contiguous int32 or int64, got "
                f"{list(ids.shape)} {ids.dtype}"
            )
        self._kernels.launch("gather_begin", arrays.task, arrays.wrong, grid=1, stream=stream)
        self._kernels.launch(
            f"{self._kernel}_{name}",
            *(arrays.task, ids, np.int64(len(ids)), count, arrays.wrong),
            grid=self._grid,
            stream=stream,
        )
        return Gathering(
            ids=ids,
            out=arrays.out,
            wrong=arrays.wrong,
            read_counts=arrays.read_counts,
            num_rows=len(self._table),
        )

    def _slot(self, out: torch.Tensor, shifts: bool) -> "_GatherSlot":
        """Return memory of gathers to ``out``: error flag, read counts, integers of ``GatherTask``.

        ``shifts``: whether requests start at lines of 128 bytes.
        """
        table, device, cache = self._table, self._kernels.device, self._cache
        wrong = torch.full((1,), _ALL_VALID, dtype=torch.int64, device=device)
        num_places = 1 if cache is None else len(cache.tables) + 1
        read_counts = torch.zeros(num_places, dtype=torch.int64, device=device)
        words = [
            *(table.data_ptr(), len(table), _row_bytes(table)),
            *(out.data_ptr(), _row_bytes(out)),
            *(ROW_TYPES[table.dtype], ROW_TYPES[out.dtype], int(shifts)),
            *(NO_ROWS if cache is None else cache.words),
            read_counts.data_ptr(),
        ]
        task = torch.tensor(words, dtype=torch.int64).to(device)
        return _GatherSlot(out=out, wrong=wrong, read_counts=read_counts, task=task)


@dataclass(frozen=True, kw_only=True)
class _GatherSlot:
    """Outputs of one gather, and the integers of its ``GatherTask``, in device memory."""

    out: torch.Tensor
    wrong: torch.Tensor
    read_counts: torch.Tensor
    task: torch.Tensor


def word_bytes(table: torch.Tensor, out: torch.Tensor) -> int:
    """Return the bytes that a thread reads from ``table`` at a time: up to 16, at least an element.

    They divide the table's address and row size, and without conversion those of ``out``.
    """
    sizes = [table.data_ptr(), _row_bytes(table)]
    if table.dtype == out.dtype:
        sizes += [out.data_ptr(), _row_bytes(out)]
    word = next(word_size for word_size in _WORDS if not any(size % word_size for size in sizes))
    return max(word, table.element_size())


def _row_bytes(table: torch.Tensor) -> int:
    return table.shape[1] * table.element_size()


def requests(num_bytes: int, address: int, word: int, *, shifts: bool) -> int:
    """Return the number of 128-byte requests in which the kernel reads a row at ``address``.

    The 8, 16 or 32 threads of a row read consecutive words of ``word`` bytes; with ``shifts`` they
    start at lines of 128 bytes.
    """
    line, num_words = 128, num_bytes // word
    size = 8 if num_words <= 8 else 16 if num_words <= 16 else 32
    shift = address % line // word if shifts and num_words >= line // word else 0
    words = (np.arange(num_words) - shift) % num_words
    lines = (address + words * word) // line
    return sum(len(np.unique(lines[i : i + size])) for i in range(0, num_words, size))
