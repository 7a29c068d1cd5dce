from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.features import DiskRows
from gnnscale.features.sharded.exchange import LocalShard, copy_rows

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[[], LocalShard]:
    """Own rows of a file, whose mapping has other ones: it is not to be read."""
    np.save(tmp_path / "features.npy", ROWS)
    mapped: Any = np.load(tmp_path / "features.npy", mmap_mode="r")

    def opened() -> LocalShard:
        own = LocalShard(np.full_like(ROWS, -1))
        own.read_from(DiskRows(mapped, dtype_name="float32", num_features=3, max_gap_bytes=0))
        return own

    return opened


class Sent:
    """Work of torch that is done at once."""

    def __init__(self, log: list[list[list[float]]], buffer: np.ndarray) -> None:
        self.log, self.buffer = log, buffer

    def __call__(self) -> "Sent":
        self.log.append(self.buffer.tolist())
        return self

    def wait(self) -> None:
        pass


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_rows_are_copied_and_sent_wherever_they_are(place: str, on_disk: Any) -> None:
    own = on_disk() if place == "disk" else LocalShard(ROWS)
    target = np.zeros((3, 3), np.float32)
    own.copy(np.array([3, 0]), target, np.array([2, 0]))
    assert target.tolist() == [[0, 1, 2], [0, 0, 0], [9, 10, 11]]
    own.copy(np.array([], np.int32), target, np.array([], np.int64))
    log: list[list[list[float]]] = []
    works = []
    for places in ([1, 1], [], [2, 0]):
        buffer = np.zeros((len(places), 3), np.float32)
        works.append(own.send(np.array(places, np.int32), buffer, Sent(log, buffer)))
    for work in works:
        work.wait()
    # In the order in which they were asked for.
    assert log == [[[3, 4, 5], [3, 4, 5]], [], [[6, 7, 8], [0, 1, 2]]]
    own.close()


def test_rows_that_cannot_be_read_are_not_sent(on_disk: Any, tmp_path: Path) -> None:
    own = on_disk()
    with (tmp_path / "features.npy").open("r+b") as file:
        file.truncate(140)  # the header, and the first row
    log: list[list[list[float]]] = []
    buffer = np.zeros((1, 3), np.float32)
    work = own.send(np.array([3], np.int32), buffer, Sent(log, buffer))
    with pytest.raises(OSError, match=r"features\.npy"):
        work.wait()
    assert log == []
    with pytest.raises(OSError, match=r"features\.npy"):
        own.copy(np.array([3], np.int32), buffer, np.array([0]))
    own.close()


def test_rows_are_copied_byte_by_byte() -> None:
    rows = np.arange(12, dtype=np.float16).reshape(4, 3)
    target = np.zeros((3, 3), np.float16)
    copy_rows(rows, np.array([3, 0]), target, np.array([0, 2]))
    assert target.tolist() == [[9, 10, 11], [0, 0, 0], [0, 1, 2]]
    copy_rows(rows[:0], np.array([], np.int64), target[:0], np.array([], np.int64))
