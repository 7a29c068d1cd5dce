"""Rows of features by their ids, read by kernels: over the link, if the host has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda.device_cache import NO_ROWS, CachedRows
from gnnscale.backend.cuda.dynamic_cache import DynamicCache
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.core import ConfigError, check_choice, check_range

#: Blocks of 256 threads that a multiprocessor holds at a time.
_BLOCKS = 8
#: Bytes that a thread reads at once.
_WORDS = (16, 8, 4, 2, 1)
#: ``RowType`` of rows.hpp.
_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.uint8: 3}
_CONVERTED = (torch.float32, torch.bfloat16)
#: Names of the types of ids.
_IDS = {torch.int32: "int32", torch.int64: "int64"}
#: No place among the ids.
_ALL_GOOD = -1


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """A gather that was launched. The next one of its slot overwrites it."""

    ids: torch.Tensor  #: that were asked for
    out: torch.Tensor  #: ``[max_ids, width]``; rows beyond the number of ids are as before
    wrong: torch.Tensor  #: ``[1]`` int64: the place of the first id that is no row, -1 for none
    #: ``[num_members + 1]`` int64 rows that were read at each member, and in the table
    found: torch.Tensor
    num_rows: int  #: of the table

    def check(self) -> None:
        """Wait for it, and refuse ids that are no rows, which have rows of zeros.

        Raises:
            ValueError: one is no row.
        """
        place = int(self.wrong)
        if place != _ALL_GOOD:
            raise ValueError(f"ids: {int(self.ids[place])} is not a row, there are {self.num_rows}")


class RowGather:
    """Reads rows of one table, without waiting for the device.

    The requests of a warp begin at lines of 128 bytes, whatever the width of a row: words move from
    thread to thread, and those at the row's end take the place of those at its beginning
    (PyTorch-Direct, section 4.5). A row's width and address decide how many bytes a thread reads at
    once, 16 at most.
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
        """Make room for the rows of up to ``max_ids`` ids.

        Args:
            table: ``[num_rows, width]`` float32, float16, bfloat16 or uint8, contiguous: in the
                device's memory, or in memory that it reads.
            dtype: float32 or bfloat16, to which rows are converted; None for rows as they are.
            max_multiprocessors: as many threads as these hold take part; None for all.
            shifts: whether requests begin at lines.
            num_slots: gathers that are kept at a time.
            cache: rows that are read in device memory, and not in the table.
            following: the same, of rows that follow the batches; what gathers have left is read,
                too, if there are several slots.

        Raises:
            ConfigError: the table's type is another, or a number is not positive.
        """
        check_choice("dtype", str(table.dtype), [str(each) for each in _TYPES])
        out_dtype = table.dtype if dtype is None else dtype
        if out_dtype != table.dtype:
            check_choice("dtype", str(out_dtype), [str(each) for each in _CONVERTED])
        assert table.is_contiguous(), "a row is one piece"
        limit = kernels.num_multiprocessors
        if max_multiprocessors is not None:
            check_range("max_multiprocessors", max_multiprocessors, 1)
            limit = min(limit, max_multiprocessors)
        check_range("max_ids", max_ids, 1)
        check_range("num_slots", num_slots, 1)
        self._kernels = kernels
        self._grid = _BLOCKS * limit
        self._table = table
        shape = (max_ids, table.shape[1])
        # Rows after the last one are read, and multiplied with zeros, which must not give NaN.
        outs = [
            torch.zeros(shape, dtype=out_dtype, device=kernels.device) for _ in range(num_slots)
        ]
        if following is not None:
            if out_dtype != table.dtype:
                raise ConfigError(
                    f"cache_planner: rows that follow the batches are kept as they are stored, as "
                    f"{table.dtype}, and the model takes {out_dtype}; presampled policies do"
                )
            cache = following.cached(outs if num_slots > 1 else ())
        self._cache = cache
        self._slots = [self._slot(each, shifts) for each in outs]
        kernel = "gather" if out_dtype == table.dtype else "gather_converted"
        self._kernel = f"{kernel}_{word_bytes(table, self._slots[0].out)}"

    def out(self, slot: int) -> torch.Tensor:
        """Return the rows that gathers of a slot leave."""
        return self._slots[slot].out

    def found(self, slot: int) -> torch.Tensor:
        """Return the place of what ``Gathering.found`` counts."""
        return self._slots[slot].found

    def gather(
        self,
        ids: torch.Tensor,
        count: torch.Tensor,
        *,
        slot: int = 0,
        stream: object | None = None,
    ) -> Gathering:
        """Launch the gather of the first ``count`` of ``ids``.

        Args:
            ids: ``[n]`` int32 or int64, contiguous, on the device; at most ``max_ids``.
            count: ``[1]`` int64, on the device; what is above n counts as n.
            slot: whose rows are overwritten.

        Raises:
            ValueError: there are more than ``max_ids`` ids, or they are of another form.
        """
        arrays = self._slots[slot]
        name = _IDS.get(ids.dtype)
        room = len(arrays.out)
        if name is None or ids.dim() != 1 or not ids.is_contiguous() or len(ids) > room:
            raise ValueError(
                f"ids: {list(ids.shape)} {ids.dtype}, allowed are up to {room} of int32 or "
                "int64 in one piece"
            )
        self._kernels.launch("gather_begin", arrays.task, arrays.wrong, grid=1, stream=stream)
        self._kernels.launch(
            f"{self._kernel}_{name}",
            arrays.task,
            ids,
            np.int64(len(ids)),
            count,
            arrays.wrong,
            grid=self._grid,
            stream=stream,
        )
        return Gathering(
            ids=ids,
            out=arrays.out,
            wrong=arrays.wrong,
            found=arrays.found,
            num_rows=len(self._table),
        )

    def _slot(self, out: torch.Tensor, shifts: bool) -> _GatherSlot:
        """Return the place of a wrong id, and the words of ``GatherTask``, beside room for rows."""
        table, device, cache = self._table, self._kernels.device, self._cache
        wrong = torch.full((1,), _ALL_GOOD, dtype=torch.int64, device=device)
        num_places = 1 if cache is None else len(cache.tables) + 1
        found = torch.zeros(num_places, dtype=torch.int64, device=device)
        words = [
            *(table.data_ptr(), len(table), _row_bytes(table)),
            *(out.data_ptr(), _row_bytes(out)),
            *(_TYPES[table.dtype], _TYPES[out.dtype], int(shifts)),
            *(NO_ROWS if cache is None else cache.words),
            found.data_ptr(),
        ]
        task = torch.tensor(words, dtype=torch.int64).to(device)
        return _GatherSlot(out=out, wrong=wrong, found=found, task=task)


@dataclass(frozen=True, kw_only=True)
class _GatherSlot:
    """The device's memory of one gather."""

    out: torch.Tensor
    wrong: torch.Tensor
    found: torch.Tensor
    task: torch.Tensor


def row_gather(kernels: Kernels) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a function from rows ``[n, f]`` and ids ``[m]`` to ``[m, f]``, by ``RowGather``.

    Rows of a type that kernels do not gather are indexed by torch.
    """

    def gather(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        if rows.dtype not in _TYPES or not len(ids):
            return rows[ids]
        count = torch.full((1,), len(ids), dtype=torch.int64, device=ids.device)
        made = RowGather(rows, kernels, max_ids=len(ids))
        return made.gather(ids.contiguous(), count).out

    return gather


def word_bytes(table: torch.Tensor, out: torch.Tensor) -> int:
    """Return how many bytes a thread reads at once: they divide rows and their addresses.

    Rows that are not converted are written as they are read.
    """
    sizes = [table.data_ptr(), _row_bytes(table)]
    if table.dtype == out.dtype:
        sizes += [out.data_ptr(), _row_bytes(out)]
    word = next(each for each in _WORDS if not any(size % each for size in sizes))
    return max(word, table.element_size())


def _row_bytes(table: torch.Tensor) -> int:
    return table.shape[1] * table.element_size()


def requests(num_bytes: int, address: int, word: int, *, shifts: bool) -> int:
    """Return how many lines of 128 bytes the threads of a group request to read a row.

    As the kernel reads it: a group's threads read consecutive words at once, and every line that
    they touch is a request.

    Args:
        num_bytes: of the row.
        address: of its first byte.
        word: bytes that a thread reads at once.
    """
    line, num_words = 128, num_bytes // word
    size = 8 if num_words <= 8 else 16 if num_words <= 16 else 32
    shift = address % line // word if shifts and num_words >= line // word else 0
    words = (np.arange(num_words) - shift) % num_words
    lines = (address + words * word) // line
    return sum(len(np.unique(lines[i : i + size])) for i in range(0, num_words, size))
