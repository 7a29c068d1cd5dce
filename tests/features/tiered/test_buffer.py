from pathlib import Path

import numpy as np
import pytest

from gnnscale.features.tiered import buffer as pool
from gnnscale.features.tiered.buffer import RowBuffer, slots_of_file


def resident_bytes() -> int:
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024


def test_touching_changes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_TOUCHED_BYTES", 1 << 16)
    slots = RowBuffer(1 << 14, 64, np.dtype(np.float32))
    assert slots.rows.shape == (1 << 14, 64)
    assert slots.rows.ctypes.data % 4096 == 0
    slots.rows[5] = np.arange(64)
    before = resident_bytes()
    slots.touch(1 << 13)
    slots._thread.join()
    assert resident_bytes() - before > 1 << 20
    assert slots.rows[5].tolist() == list(range(64))
    assert not slots.rows[6].any()
    slots.close()


def test_row_buffers_end_with_their_thread() -> None:
    slots = RowBuffer(1000, 2, np.dtype(np.float16))
    slots.touch(10**9)  # more than there are
    slots.close()
    assert not slots._thread.is_alive()
    RowBuffer(0, 4, np.dtype(np.uint8)).close()


@pytest.mark.parametrize(("num_rows", "header_bytes"), [(1, 4096), (7, 128), (1000, 128)])
def test_rows_of_a_file_come_first(tmp_path: Path, num_rows: int, header_bytes: int) -> None:
    every = np.arange(num_rows * 5, dtype=np.int16).reshape(num_rows, 5)
    path = tmp_path / "rows"
    path.write_bytes(bytes(header_bytes) + every.tobytes())
    file = np.memmap(path, every.dtype, "r", header_bytes, every.shape)
    first = slots_of_file(file)
    assert first >= num_rows
    slots = RowBuffer(first + 3, 5, every.dtype, file=file)
    slots.touch(first + 3)
    assert np.array_equal(slots.rows[:num_rows], every)
    slots.rows[first:] = -1  # they share no page with the file
    assert np.array_equal(slots.rows[:num_rows], every)
    assert (slots.rows[first:] == -1).all()
    assert path.read_bytes() == bytes(header_bytes) + every.tobytes()
    slots.close()


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(4096))
    file = np.memmap(path, np.uint8, "r", 0, (64, 64))
    path.unlink()
    with pytest.raises(FileNotFoundError, match="rows"):
        RowBuffer(slots_of_file(file), 64, np.dtype(np.uint8), file=file)
