from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale import ops
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.backend.cuda.row_gather import RowGather, requests, word_bytes

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
ROWS = 37


def table_of(dtype: torch.dtype, width: int, *, offset: int = 0) -> torch.Tensor:
    """Random bits as rows, not-a-numbers and infinities among them, ``offset`` elements in."""
    size = torch.empty((), dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(width)
    bits = torch.randint(0, 256, ((ROWS * width + offset) * size,), generator=generator)
    return bits.to(torch.uint8).view(dtype)[offset:].view(ROWS, width)


def gathered(table: torch.Tensor, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    gather = RowGather(table, HostKernels(num_threads=2), max_ids=max(len(ids), 1), **options)
    found = gather.gather(ids, torch.tensor([len(ids)]))
    found.check()
    return found.out[: len(ids)]


@settings(max_examples=25)
@given(
    dtype=st.sampled_from(TYPES),
    width=st.integers(1, 90),
    offset=st.integers(0, 5),
    to=st.sampled_from([None, torch.float32, torch.bfloat16]),
    wide=st.booleans(),
    shifts=st.booleans(),
    ids=st.lists(st.integers(0, ROWS - 1), max_size=20),
)
def test_rows_are_those_of_the_native_gather(dtype, width, offset, to, wide, shifts, ids) -> None:
    table = table_of(dtype, width, offset=offset)
    chosen = torch.tensor(ids, dtype=torch.int64 if wide else torch.int32)
    found = gathered(table, chosen, dtype=to, shifts=shifts)
    if to is None or to == dtype:
        known = table[chosen.long()]
        assert torch.equal(found.view(torch.uint8), known.view(torch.uint8))
    else:
        is_bfloat16 = dtype == torch.bfloat16
        stored = table.view(torch.int16).numpy().view(np.uint16) if is_bfloat16 else table.numpy()
        rows = (stored, str(dtype).removeprefix("torch."))
        out = torch.empty((len(ids), width), dtype=to)
        known = ops.gather(rows, chosen.numpy(), out=out, num_threads=1)
        # Which not-a-number it is depends on the processor.
        torch.testing.assert_close(found, known, rtol=0, atol=0, equal_nan=True)


def test_only_as_many_rows_as_there_are_ids() -> None:
    table = table_of(torch.float32, 5)
    gather = RowGather(table, HostKernels(num_threads=1), max_ids=4, num_slots=2)
    ids = torch.tensor([3, 1, 2, 0])
    first = gather.gather(ids, torch.tensor([4]))
    first.out.fill_(7)
    gather.gather(ids, torch.tensor([4]), slot=1)
    found = gather.gather(ids, torch.tensor([2]))
    found.check()
    assert found.out is first.out
    assert torch.equal(found.out[:2].view(torch.int32), table[[3, 1]].view(torch.int32))
    assert torch.equal(found.out[2:], torch.full((2, 5), 7.0))
    # A number above that of the ids reads no further.
    gather.gather(ids[:3], torch.tensor([2**40])).check()


@pytest.mark.parametrize("wrong", [-1, ROWS, 2**40])
def test_ids_that_are_no_rows(wrong: int) -> None:
    """A gather is kept until its slot is used again."""
    table = table_of(torch.float16, 9)
    ids = torch.tensor([0, 5, wrong, 1, -7])
    gather = RowGather(table, HostKernels(num_threads=1), max_ids=5, num_slots=2)
    found = gather.gather(ids, torch.tensor([5]))
    good = gather.gather(ids[:2].contiguous(), torch.tensor([2]), slot=1)
    good.check()
    with one_line(f"ids: {wrong} is not a row, there are {ROWS}", error=ValueError):
        found.check()
    assert not found.out[2].any()
    assert torch.equal(found.out[3].view(torch.int16), table[1].view(torch.int16))
    assert torch.equal(good.out[1].view(torch.int16), table[5].view(torch.int16))
    gather.gather(ids[:2].contiguous(), torch.tensor([2])).check()


def test_fewer_threads_read_the_same() -> None:
    table, ids = table_of(torch.float32, 33), torch.arange(ROWS)
    found = [gathered(table, ids, max_multiprocessors=limit) for limit in (1, 100)]
    assert torch.equal(found[0].view(torch.int32), found[1].view(torch.int32))


def test_ids_types_and_limits_that_are_refused() -> None:
    kernels, rows = HostKernels(num_threads=1), torch.zeros(4, 4)
    gather = RowGather(rows, kernels, max_ids=8)
    wide = torch.zeros(9).long()
    for ids in (torch.zeros(3, dtype=torch.int16), torch.zeros(6).long()[::2], wide):
        with one_line("ids: ", "up to 8 contiguous int32 or int64", error=ValueError):
            gather.gather(ids, torch.tensor([1]))
    for table, options, words in (
        (rows, {"max_multiprocessors": 0}, ["max_multiprocessors=0"]),
        (rows.double(), {}, ["dtype", "torch.float64"]),
        (rows, {"dtype": torch.float16}, ["dtype", "torch.float16"]),
    ):
        with one_line(*words):
            RowGather(table, kernels, max_ids=1, **options)


@pytest.mark.parametrize(
    ("dtype", "width", "offset", "word"),
    [
        (torch.float32, 100, 0, 16),
        (torch.float32, 602, 0, 8),
        (torch.float32, 513, 0, 4),
        (torch.float16, 100, 0, 8),
        (torch.float16, 100, 1, 2),
        (torch.uint8, 100, 0, 4),
        (torch.uint8, 13, 0, 1),
    ],
)
def test_threads_read_as_much_as_rows_allow(dtype, width, offset, word) -> None:
    table = table_of(dtype, width, offset=offset)
    if (table.data_ptr() - offset * table.element_size()) % 16 == 0:
        assert word_bytes(table, torch.empty(3, width)) == word


@pytest.mark.parametrize("num_bytes", range(2048, 2080, 4))
def test_requests_of_the_papers_rows(num_bytes: int) -> None:
    """Rows of 2,048 to 2,076 bytes, as in figure 7: one after the other in a table."""
    plain = shifted = least = 0
    for row in range(64):
        address = row * num_bytes
        plain += requests(num_bytes, address, 4, shifts=False)
        shifted += requests(num_bytes, address, 4, shifts=True)
        least += -(-(address % 128 + num_bytes) // 128)
    # The first read has the row's end, too: a request more at most.
    assert least <= shifted <= least + 64
    if num_bytes % 128:
        assert plain > 1.7 * shifted
    else:
        assert plain == shifted == least


@settings(max_examples=20)
@given(st.integers(1, 700), st.integers(0, 400), st.sampled_from([4, 8, 16]))
def test_a_row_takes_its_lines_and_a_request_more_at_most(words, place, word) -> None:
    num_bytes, address = words * word, place * word
    lines = -(-(address % 128 + num_bytes) // 128)
    found, plain = (requests(num_bytes, address, word, shifts=each) for each in (True, False))
    assert lines <= found <= min(lines + 1, plain)
