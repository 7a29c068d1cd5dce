from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnscale.features.disk import DiskRates
from gnnscale.features.sharded.store import (
    DiskShardInfo,
    LocalDiskShard,
    open_local_file,
)
from gnnscale.features.tiered.buffer import SourceReads
from gnnscale.features.tiered.sizing import Misses

NUM_ROWS, WIDTH = 10, 3
ROWS = np.arange(NUM_ROWS * WIDTH, dtype=np.float32).reshape(NUM_ROWS, WIDTH)
#: Own rows are those of odd vertices.
OWN = np.arange(1, NUM_ROWS, 2)


class Network:
    """The rows of other machines, in place of their exchange; own ones are in a mapped file."""

    num_rows, width, num_features, dtype_name = NUM_ROWS, WIDTH, WIDTH, "float32"
    dtype, row_bytes, num_own = np.dtype(np.float32), 4 * WIDTH, len(OWN)

    def __init__(self, own):
        self.own = own
        self.log: list[Any] = []
        self._num_bytes = 0

    def local_indices(self, vertices):
        return np.where(vertices % 2 == 1, vertices // 2, -1)

    def start(self, vertices, pool, slots):
        assert (self.local_indices(vertices) < 0).all()
        pool[slots] = ROWS[vertices]
        self.log.append(vertices.tolist())
        self._num_bytes += 16 * len(vertices)
        return 100 + len(self.log)

    def finish(self, ticket):
        assert 100 < ticket <= 100 + len(self.log)

    def skip(self):
        self.log.append("skip")

    def profile_rows(self, vertices):
        return ROWS[vertices]

    def take_reads(self):
        found, self._num_bytes = SourceReads(num_bytes=self._num_bytes, num_requests=1), 0
        return found

    def seconds_per_row(self):
        return 0.5

    def close(self):
        self.log.append("closed")


@pytest.fixture
def network(tmp_path):
    np.save(tmp_path / "features.npy", ROWS[OWN])
    return Network(np.load(tmp_path / "features.npy", mmap_mode="r"))


@pytest.fixture
def source(network):
    return lambda: LocalDiskShard(
        network, open_local_file(network, DiskShardInfo.of(network).max_gap_bytes)
    )


def test_rows_come_from_the_disk_and_from_other_machines(network, source):
    both = source()
    assert (both.num_rows, both.width, both.num_features) == (NUM_ROWS, WIDTH, WIDTH)
    assert (both.dtype, both.dtype_name) == (np.float32, "float32")
    assert both.profile_rows(np.array([3])).tolist() == [[9, 10, 11]]
    assert DiskShardInfo.of(network).rates is None  # a small file is not measured
    pool = np.zeros((8, WIDTH), np.float32)
    steps = [([4, 1, 9], [7, 0, 3]), ([5], [1]), ([2, 8], [2, 4])]
    tickets = []
    for number, (vertices, slots) in enumerate(steps):
        slots_of = np.array(slots, np.int32)
        tickets.append(both.start(np.array(vertices, np.int32), pool, slots_of))
        if number == 0:
            both.skip()
    for ticket, (vertices, slots) in zip(tickets, steps, strict=True):
        both.finish(ticket)
        assert np.array_equal(pool[slots], ROWS[vertices])
    # All machines exchange in each step, also if all rows that it lacks are own ones.
    assert network.log == [[4], "skip", [], [2, 8]]
    reads = both.take_reads()
    assert reads.disk.misses == 3
    # Of a small file all that lies between is read: a block of the disk, or the rows themselves.
    assert reads.disk.link_bytes >= 3 * 4 * WIDTH
    assert reads.disk.link_requests == 2
    assert reads.num_bytes == 3 * 16 + reads.disk.link_bytes
    assert reads.num_requests == 1 + 2
    assert both.take_reads() == SourceReads(num_requests=1)
    both.close()
    assert network.log[-1] == "closed"


def test_waiting_for_the_disk_is_counted_separately(network, source, monkeypatch):
    both = source()
    now = iter([1.0, 1.25, 7.0, 7.5])
    monkeypatch.setattr(
        "gnnscale.features.sharded.store.time", SimpleNamespace(perf_counter=lambda: next(now))
    )
    pool, slots = np.zeros((2, WIDTH), np.float32), np.arange(2, dtype=np.int32)
    for _ in range(2):
        both.finish(both.start(np.array([1, 2], np.int32), pool, slots))
    assert both.take_reads().disk.waited_us == 750_000
    both.close()


def misses_of(*vertices):
    rows = np.array(vertices, np.int64)
    return Misses(num_rows=20, mean=4.0, when_full=len(vertices), vertices=rows)


def test_a_miss_costs_what_the_disk_takes_for_own_rows(network):
    # Own rows 0, 1 and 4 of 12 bytes, in two requests of 24 and 12 bytes, at 0.1 s each; two
    # workers use the disk. Two rows are others'.
    rates = DiskRates(requests_per_s=10, bytes_per_s=1e12)
    disk = DiskShardInfo(rates=rates)
    assert rates.max_gap_bytes > 100
    misses = misses_of(1, 2, 3, 6, 9)
    # The gap is read as well, as it takes less time than a request: one request.
    assert disk.local_share(network, misses, 2) == pytest.approx((3 / 5, 2 * 0.1 / 5))
    # A disk on which a request takes no longer than its bytes.
    slow = DiskShardInfo(rates=DiskRates(requests_per_s=10, bytes_per_s=4096 * 10))
    assert slow.local_share(network, misses, 2) == pytest.approx((3 / 5, 2 * 36 / 40960 / 5))
    unknown = DiskShardInfo(rates=None)
    assert unknown.local_share(network, misses, 2) == (3 / 5, 0)
    assert unknown.local_share(network, misses_of(), 2) == (0, 0)
