"""How kernels take matrices: types by number, rows by bytes, columns by fours if they can."""

from __future__ import annotations

import torch

from gnnscale.backend.cuda.kernels import Kernels

#: Blocks of 256 threads that a multiprocessor holds at a time.
BLOCKS = 8
#: ``RowType`` of rows.hpp.
ROW_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.uint8: 3}
#: Columns that a thread takes at once, if rows allow it.
_COLUMNS = 4


def row_type(x: torch.Tensor) -> int:
    """Return the number of the type of ``x``."""
    return ROW_TYPES[x.dtype]


def row_bytes(x: torch.Tensor) -> int:
    """Return the bytes from a row of ``x`` ``[n, f]`` to the next one."""
    assert x.stride(-1) == 1, "the columns of a row lie beside each other"
    return x.stride(0) * x.element_size()


def columns_at_once(*matrices: torch.Tensor | None) -> int:
    """Return 4 if each row of all matrices begins at a multiple of four columns, 1 otherwise."""
    for each in matrices:
        if each is None:
            continue
        whole = _COLUMNS * each.element_size()
        if each.shape[1] % _COLUMNS or row_bytes(each) % whole or each.data_ptr() % whole:
            return 1
    return _COLUMNS


def grid(kernels: Kernels) -> int:
    """Return the blocks of a launch in which every multiprocessor takes part."""
    return BLOCKS * kernels.num_multiprocessors
