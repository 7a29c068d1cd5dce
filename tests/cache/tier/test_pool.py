"""Slots of rows, which are touched before rows arrive."""

import numpy as np
import pytest

from gnnscale.cache.tier import pool
from gnnscale.cache.tier.pool import RowPool


def resident_bytes() -> int:
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024


def test_touching_changes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_TOUCHED_BYTES", 1 << 16)
    slots = RowPool(1 << 14, 64, np.dtype(np.float32))
    assert slots.rows.shape == (1 << 14, 64)
    assert slots.rows.ctypes.data % 4096 == 0
    slots.rows[5] = np.arange(64)
    before = resident_bytes()
    slots.touch(1 << 13)
    assert slots._thread is not None
    slots._thread.join()
    assert resident_bytes() - before > 1 << 20
    assert slots.rows[5].tolist() == list(range(64))
    assert not slots.rows[6].any()
    slots.close()


def test_it_ends_with_its_thread() -> None:
    slots = RowPool(1000, 2, np.dtype(np.float16))
    slots.touch(10**9)  # more than there are
    slots.close()
    assert slots._thread is not None
    assert not slots._thread.is_alive()
    RowPool(0, 4, np.dtype(np.uint8)).close()
