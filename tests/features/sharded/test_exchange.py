from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.features import DiskRows
from gnnscale.features.sharded.exchange import LocalShard, copy_rows, owners_of

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


def owners(parts: list[int], rank: int) -> list[int]:
    return owners_of(parts, rank).tolist()


def test_rows_come_from_the_process_of_the_same_number() -> None:
    # Two machines of two processes each: ranks 0 and 1, 2 and 3.
    parts = [1, 1, 0, 0]
    assert owners(parts, 0) == [2, 0]
    assert owners(parts, 3) == [3, 1]
    # The second machine has one process, from which both of the first get rows.
    parts = [0, 0, 1]
    assert owners(parts, 0) == [0, 2]
    assert owners(parts, 1) == [1, 2]
    assert owners(parts, 2) == [0, 2]


@pytest.mark.long
@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_every_part_has_an_owner_that_has_it(sizes: list[int], data: st.DataObject) -> None:
    """Machines of any number of processes, whose parts are in any order."""
    order = data.draw(st.permutations(range(len(sizes))))
    parts = [part for part, size in zip(order, sizes, strict=True) for _ in range(size)]
    asked = [0] * len(parts)
    for rank in range(len(parts)):
        found = owners(parts, rank)
        assert [parts[owner] for owner in found] == list(range(len(sizes)))
        assert found[parts[rank]] == rank
        for owner in found:
            asked[owner] += 1
    if len(set(sizes)) == 1:  # then each serves as many as any other
        assert set(asked) == {len(sizes)}
