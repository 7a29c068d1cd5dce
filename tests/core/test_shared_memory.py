import gc
import os
from dataclasses import replace

import numpy as np
import pytest
from one_line import one_line

from gnnscale.core import hardware, shared_memory
from gnnscale.core.shared_memory import SharedMemory, shared_memory_of


def test_an_array_leads_to_the_memory_that_it_lies_in() -> None:
    memory = SharedMemory.filled(np.arange(6.0).reshape(3, 2))
    array = memory.array((3, 2), np.dtype(np.float64))
    assert array.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert shared_memory_of(array) is memory
    assert shared_memory_of(array[1:]) is None  # it begins later
    assert shared_memory_of(np.arange(6.0)) is None
    memory = SharedMemory.filled(np.arange(4))
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)


@pytest.mark.long
def test_it_is_opened_by_its_path_while_it_is_kept() -> None:
    array = SharedMemory.filled(np.arange(4)).array((4,), np.dtype(np.int64))
    gc.collect()
    memory = shared_memory_of(array)  # which the array has kept
    other = SharedMemory.open(memory.path)
    other.array((4,), np.dtype(np.int64))[0] = 9
    assert array[0] == 9
    path = memory.path
    del memory, array
    gc.collect()
    with pytest.raises(OSError, match="No such file"):
        SharedMemory.open(path)


def test_large_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "CHUNK_BYTES", 24)
    rows = np.arange(20, dtype=np.int32).reshape(10, 2)
    found = SharedMemory.filled(rows).array((10, 2), rows.dtype)
    assert np.array_equal(found, rows)
    little = replace(hardware.read_memory(), available=1000)
    monkeypatch.setattr(shared_memory, "read_memory", lambda: little)
    with one_line("shared memory", "features=device", "device_plan=cpu"):
        SharedMemory.filled(np.zeros(1000))
