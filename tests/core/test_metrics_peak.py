import mmap
from pathlib import Path

import numpy as np
import pytest

from gnnscale.core.metrics import PeakMemory, note_child, watch_peak

#: Counters of the kernel lag behind by some pages for each core.
SLACK = 8 << 20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "status").write_text("Name:\tx\nVmHWM:\t 5120 kB\nVmRSS:\t 3072 kB\n")
    (tmp_path / "clear_refs").touch()
    return tmp_path


def fill(size: int) -> None:
    """Hold memory for a moment that no allocator has kept from earlier."""
    with mmap.mmap(-1, size) as memory:
        np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1


def test_the_peak_of_a_block_is_measured(tmp_path: Path) -> None:
    fill(200 << 20)  # gone by the time the block begins
    with watch_peak() as peak:
        before = peak.initial
        fill(64 << 20)
    assert peak.bytes >= before + (64 << 20) - SLACK
    if not peak.since_start:
        assert peak.bytes < before + (150 << 20)
    peak = PeakMemory(tmp_path / "nowhere")
    assert peak.since_start
    assert peak.initial is peak.bytes is None


def test_a_child_counts_on_top_of_what_is_held(proc: Path) -> None:
    peak = PeakMemory(proc)
    assert (proc / "clear_refs").read_text() == "5"
    assert not peak.since_start
    assert (peak.initial, peak.bytes) == (3 << 20, 5 << 20)
    peak.add_child(1 << 20)
    assert peak.bytes == 5 << 20
    peak.add_child(4 << 20)
    assert peak.bytes == 7 << 20
    with watch_peak() as peak:
        note_child(1 << 40)
    assert peak.bytes > 1 << 40
    note_child(1 << 50)
    assert peak.bytes < 1 << 50
