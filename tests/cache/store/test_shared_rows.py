"""Rows in memory without a name, which other processes of the machine map."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.cache.store.shared_rows import RowsAddress, map_rows, share_rows

FLOAT = np.dtype(np.float32)
#: Shares 5 rows, tells where they are, and waits.
OWNER = """
import sys
import numpy as np
from gnnscale.cache.store.shared_rows import share_rows
rows, address = share_rows(5, 3, np.dtype(np.float32))
rows[:] = np.arange(15).reshape(5, 3)
print(address.process, address.file, flush=True)
sys.stdin.read()
"""


def read(address: RowsAddress, answers: Any) -> None:
    rows = map_rows(address, 3, FLOAT)
    answers.send((rows.tolist(), rows.flags.writeable))
    # What the owner writes later is seen as well.
    answers.recv()
    answers.send(rows[0].tolist())


def test_another_process_reads_what_the_owner_wrote() -> None:
    rows, address = share_rows(4, 3, FLOAT)
    assert rows.shape == (4, 3)
    assert not rows.any()
    rows[:] = np.arange(12).reshape(4, 3)
    assert address.process == os.getpid()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    reader = context.Process(target=read, args=(address, theirs))
    reader.start()
    theirs.close()
    assert ours.recv() == (rows.tolist(), False)
    rows[0] = -1
    ours.send(None)
    assert ours.recv() == [-1, -1, -1]
    reader.join()
    assert reader.exitcode == 0


def test_peers_cannot_write() -> None:
    rows, address = share_rows(2, 3, FLOAT)
    mapped = map_rows(address, 3, FLOAT)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        mapped.flags.writeable = True
    assert not rows.any()


@pytest.mark.parametrize(("num_rows", "width"), [(0, 3), (0, 0), (3, 0), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.uint8])
def test_of_no_rows_there_are_none(num_rows: int, width: int, dtype: Any) -> None:
    rows, address = share_rows(num_rows, width, np.dtype(dtype))
    mapped = map_rows(address, width, np.dtype(dtype))
    assert rows.shape == mapped.shape == (num_rows, width)
    assert rows.dtype == mapped.dtype == dtype


def shared_memory() -> set[str]:
    """Files of shared memory that have a name."""
    found = {str(each) for each in Path("/dev/shm").iterdir()}
    return found | {str(each) for each in Path(tempfile.gettempdir()).glob("*gnnscale-cache*")}


def memory_files(process: int) -> list[str]:
    links = [os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir()]
    return [each for each in links if "gnnscale-cache" in each]


def test_a_mapping_outlives_its_owner_and_nothing_else_does() -> None:
    before = shared_memory()
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        process, file = map(int, owner.stdout.readline().split())
        assert process == owner.pid
        assert memory_files(process)
        address = RowsAddress(process=process, file=file, num_rows=5)
        opened = len(os.listdir("/proc/self/fd"))
        rows = map_rows(address, 3, FLOAT)
        # No mapping costs its process more than the one file that keeps it alive.
        assert len(os.listdir("/proc/self/fd")) <= opened + 1
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert rows.tolist() == np.arange(15).reshape(5, 3).tolist()
    assert shared_memory() <= before
    with pytest.raises(OSError, match=str(process)):
        map_rows(address, 3, FLOAT)


def test_a_mapping_that_is_dropped_gives_its_file_back() -> None:
    rows, address = share_rows(2, 3, FLOAT)
    gc.collect()
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert map_rows(address, 3, FLOAT).shape == rows.shape
    assert len(os.listdir("/proc/self/fd")) == opened
