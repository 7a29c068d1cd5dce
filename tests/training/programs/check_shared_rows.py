"""One of several processes that divide feature rows, and exchange them in lockstep."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core import Array
from gnnscale.distributed.process_group import Group, join
from gnnscale.distributed.sockets import PeerLostError
from gnnscale.features import DiskRows
from gnnscale.features.sharded.exchange import owners_of
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.graph.sharded_features import ShardedFeatures

NUM_ROWS, WIDTH = 1000, 3
STEPS = 40


def division(group: Group, parts: list[int]) -> tuple[ShardedFeatures, Array]:
    """Return the part of this process, and all rows. Part 1 has every third vertex."""
    every = np.random.default_rng(5).integers(0, 255, (NUM_ROWS, WIDTH), dtype=np.uint8)
    num_parts = max(parts) + 1
    owner = (np.arange(NUM_ROWS) % 3 == 1).astype(np.int16)
    if num_parts == 3:
        owner = (np.arange(NUM_ROWS) % 3).astype(np.int16)
    part = parts[group.rank]
    rows = every[owner == part]
    divided = ShardedFeatures(
        rows, owner, part=part, num_parts=num_parts, partition="0" * 32, path=Path("nowhere")
    )
    return divided, every


def check_reads(group: Group, parts: list[int], folder: Path | None = None) -> None:
    """Each process wants other rows in each step, in some of them no rows; all are right.

    Args:
        folder: of files that have the rows of processes other than the second; None for memory.
    """
    divided, every = division(group, parts)
    shared = ShardedStore(divided, group, owners_of(parts, group.rank), dtype_name="uint8")
    assert (shared.num_rows, shared.width, shared.row_bytes) == (NUM_ROWS, WIDTH, WIDTH)
    if folder is None or group.rank == 1:
        mapped_again = divided.rows.copy()
        shared.use_local_mapping(mapped_again)
        assert shared.own is mapped_again
    else:
        read_file(shared, folder / f"rows-{group.rank}.npy")
    check_rehearsal(shared, every)
    assert 0 < shared.seconds_per_row() < 1
    check_evaluation(group, shared, every)
    draw = np.random.default_rng(group.rank)
    pool = np.zeros((NUM_ROWS, WIDTH), np.uint8)
    others = np.flatnonzero(shared.local_indices(np.arange(NUM_ROWS)) < 0)
    tickets, known = [], []
    # Each is as far ahead as it likes.
    ahead = 2 + group.rank
    for step in range(STEPS):
        if (step + group.rank) % 4 == 3:
            shared.skip()
            continue
        count = int(draw.integers(0, NUM_ROWS // 8))
        vertices = draw.permutation(others)[:count].astype(np.int32)
        size = NUM_ROWS // 4
        slots = (draw.permutation(size)[:count] + step % 4 * size).astype(np.int32)
        tickets.append(shared.start(vertices, pool, slots))
        known.append((vertices, slots))
        if len(tickets) == min(ahead, 3):
            check_oldest(group, shared, tickets, known, pool, every)
        if step == STEPS // 2:  # while others may be steps before or after
            check_evaluation(group, shared, every)
    while tickets:
        check_oldest(group, shared, tickets, known, pool, every)
    with pytest.raises(RuntimeError, match="a step reads rows that were not expected"):
        shared.profile_rows(others[:1])
    check_end(group, shared, others[:5].astype(np.int32), every)
    shared.close()
    shared.abandon()
    group.barrier()


def read_file(shared: ShardedStore, path: Path) -> None:
    """Let the rows of this process be those of a file alone."""
    np.save(path, shared.own)
    file: Any = np.load(path, mmap_mode="r")
    options: Any = {"dtype_name": "uint8", "num_features": WIDTH, "max_gap_bytes": 0}
    shared.use_local_file(DiskRows(file, **options))
    shared.own[:] = 0


def check_oldest(
    group: Group,
    shared: ShardedStore,
    tickets: list[int],
    known: list[tuple[Array, Array]],
    pool: Array,
    every: Array,
) -> None:
    vertices, slots = known.pop(0)
    shared.finish(tickets.pop(0))
    assert np.array_equal(pool[slots], every[vertices])
    reads = shared.take_reads()
    assert reads.num_bytes == len(vertices) * (WIDTH + 4) + 4 * (group.size - 1)
    assert reads.num_requests <= group.size - 1


def check_end(group: Group, shared: ShardedStore, wanted: Array, every: Array) -> None:
    """The others serve what rank 0 has begun, and still waits for."""
    pool, slots = np.zeros((5, WIDTH), np.uint8), np.arange(5, dtype=np.int32)
    waiting: list[threading.Thread] = []
    if group.rank == 0:
        tickets = [shared.start(wanted, pool, slots) for _ in range(3)]
        waiting = [threading.Thread(target=shared.finish, args=(each,)) for each in tickets]
    for thread in waiting:
        thread.start()
    shared.close()
    for thread in waiting:
        thread.join()
    assert not waiting or np.array_equal(pool, every[wanted])
    with pytest.raises(PeerLostError, match="the run ends"):
        shared.start(wanted, pool, slots)


def check_rehearsal(shared: ShardedStore, every: Array) -> None:
    """Own rows are themselves, and others are some of the own ones: no other process takes part."""
    own = np.flatnonzero(shared.local_indices(np.arange(NUM_ROWS)) >= 0)
    rows = shared.profile_rows(np.arange(NUM_ROWS, dtype=np.int32))
    assert np.array_equal(rows[own], every[own])
    kept = {row.tobytes() for row in every[own]}
    assert {row.tobytes() for row in rows} == kept


def check_evaluation(group: Group, shared: ShardedStore, every: Array) -> None:
    """Rank 0 reads, from several threads, while the others serve it; or it reads nothing."""
    counted = shared.take_reads()
    with shared.rank0_reads():
        pass
    with shared.rank0_reads():
        if group.rank == 0:
            wrong = []

            def read(seed: int) -> None:
                for _ in range(20):
                    vertices = np.random.default_rng(seed).permutation(NUM_ROWS)[:100]
                    if not np.array_equal(shared.read(vertices.astype(np.int32)), every[vertices]):
                        wrong.append(seed)

            threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong
            assert np.array_equal(shared.read(np.arange(NUM_ROWS, dtype=np.int32)), every)
    assert shared.take_reads().num_bytes == 0 <= counted.num_bytes


def run(rank: int, size: int, meeting: Path) -> None:
    with join(rank, size, meeting, backend="gloo") as group:
        check_reads(group, list(range(size)))  # a machine each
        check_reads(group, list(range(size)), meeting.parent)
        check_reads(group, [0, 0, 1][:size])  # two processes of one machine
