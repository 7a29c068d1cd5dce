"""Rows of features by their ids, read by kernels: over the link, if the host has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.core import check_choice

#: Blocks of 256 threads that a multiprocessor holds at a time.
_BLOCKS = 8
#: Bytes that a thread reads at once.
_WORDS = (16, 8, 4, 2, 1)
#: ``RowType`` of rows.hpp.
_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.uint8: 3}
_CONVERTED = (torch.float32, torch.bfloat16)
#: No place among the ids.
_ALL_GOOD = -1


@dataclass(frozen=True)
class Gathering:
    """A gather that was launched."""

    out: torch.Tensor  #: ``[max_ids, width]``; rows beyond the number of ids are as before
    wrong: torch.Tensor  #: ``[1]`` int64: the place of the first id that is no row, -1 for none

    def check(self, ids: torch.Tensor, num_rows: int) -> None:
        """Wait for it, and refuse ids that are no rows, which have rows of zeros.

        Raises:
            ValueError: one is no row.
        """
        place = int(self.wrong)
        if place != _ALL_GOOD:
            raise ValueError(f"ids: {int(ids[place])} is not a row, there are {num_rows}")


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
    ) -> None:
        """Make room for the rows of up to ``max_ids`` ids.

        Args:
            table: ``[num_rows, width]`` float32, float16, bfloat16 or uint8, contiguous: in the
                device's memory, or in memory that it reads.
            dtype: float32 or bfloat16, to which rows are converted; None for rows as they are.
            max_multiprocessors: that take part; None for all.
            shifts: whether requests begin at lines.

        Raises:
            ConfigError: the table's type is another.
        """
        check_choice("dtype", str(table.dtype), [str(each) for each in _TYPES])
        out_dtype = table.dtype if dtype is None else dtype
        if out_dtype != table.dtype:
            check_choice("dtype", str(out_dtype), [str(each) for each in _CONVERTED])
        assert table.is_contiguous(), "a row is one piece"
        self._kernels = kernels
        limit = max_multiprocessors or kernels.num_multiprocessors
        self._grid = _BLOCKS * min(limit, kernels.num_multiprocessors)
        self._table = table
        self.out = torch.empty((max_ids, table.shape[1]), dtype=out_dtype, device=kernels.device)
        self._wrong = torch.full((1,), _ALL_GOOD, dtype=torch.int64, device=kernels.device)
        kernel = "gather" if out_dtype == table.dtype else "gather_converted"
        self._kernel = f"{kernel}_{word_bytes(table, self.out)}"
        task = [
            *(table.data_ptr(), len(table), _row_bytes(table)),
            *(self.out.data_ptr(), _row_bytes(self.out)),
            *(_TYPES[table.dtype], _TYPES[out_dtype], int(shifts)),
        ]
        self._task = torch.tensor(task, dtype=torch.int64).to(kernels.device)

    def gather(
        self, ids: torch.Tensor, count: torch.Tensor, *, stream: object | None = None
    ) -> Gathering:
        """Launch the gather of the first ``count`` of ``ids``.

        Args:
            ids: ``[n]`` int32 or int64, on the device.
            count: ``[1]`` int64, on the device: at most ``max_ids``.
        """
        self._wrong.fill_(_ALL_GOOD)
        name = "int32" if ids.dtype == torch.int32 else "int64"
        self._kernels.launch(
            f"{self._kernel}_{name}",
            self._task,
            ids,
            count,
            self._wrong,
            grid=self._grid,
            stream=stream,
        )
        return Gathering(self.out, self._wrong)


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
