"""One of several processes that divide feature rows, and read those of the others."""

import threading
from pathlib import Path

import numpy as np

from gnnscale.artifact.divided import DividedRows
from gnnscale.core import Array
from gnnscale.runtime.sync.group import Group, join
from gnnscale.runtime.sync.shared_rows import Peers, SharedRows

NUM_ROWS, WIDTH = 1000, 3


def division(group: Group, parts: list[int]) -> tuple[DividedRows, Array]:
    """Return the part of this process, and all rows. Part 1 has every third vertex."""
    every = np.random.default_rng(5).integers(0, 255, (NUM_ROWS, WIDTH), dtype=np.uint8)
    num_parts = max(parts) + 1
    owner = (np.arange(NUM_ROWS) % 3 == 1).astype(np.int16)
    if num_parts == 3:
        owner = (np.arange(NUM_ROWS) % 3).astype(np.int16)
    part = parts[group.rank]
    rows = every[owner == part]
    divided = DividedRows(
        rows, owner, part=part, num_parts=num_parts, partition="0" * 32, path=Path("nowhere")
    )
    return divided, every


def check_reads(group: Group, parts: list[int]) -> None:
    """Each process reads other rows in other steps, some of them none; all are the right ones."""
    divided, every = division(group, parts)
    own = group.with_own_connections()
    peers = Peers.of(parts, group.rank)
    shared = SharedRows(divided, own, peers, dtype_name="uint8")
    assert (shared.num_rows, shared.width, shared.row_bytes) == (NUM_ROWS, WIDTH, WIDTH)
    draw = np.random.default_rng(group.rank)
    pool = np.zeros((2 * NUM_ROWS, WIDTH), np.uint8)
    tickets, known = [], []
    for step in range(20 + 10 * group.rank):
        count = 0 if step % 4 == 3 else int(draw.integers(1, NUM_ROWS // 4))
        vertices = draw.permutation(NUM_ROWS)[:count].astype(np.int32)
        slots = (draw.permutation(NUM_ROWS // 4)[:count] + step % 4 * NUM_ROWS // 4).astype(
            np.int32
        )
        tickets.append(shared.start(vertices, pool, slots))
        known.append((vertices, slots))
        if len(tickets) == 4:
            check_oldest(shared, tickets, known, pool, every)
    while tickets:
        check_oldest(shared, tickets, known, pool, every)
    check_threads(shared, every)
    if group.rank == 0:  # alone, while the others have nothing more to ask
        everything = np.arange(NUM_ROWS, dtype=np.int32)
        assert np.array_equal(shared.read(everything), every)
        assert shared.take_reads().num_requests == 0
    shared.close()
    shared.close()
    shared.abandon()
    group.barrier()


def check_oldest(
    shared: SharedRows,
    tickets: list[int],
    known: list[tuple[Array, Array]],
    pool: Array,
    every: Array,
) -> None:
    vertices, slots = known.pop(0)
    shared.finish(tickets.pop(0))
    assert np.array_equal(pool[slots], every[vertices])
    reads = shared.take_reads()
    missing = int((shared.own_places(vertices) < 0).sum())
    assert reads.num_bytes == missing * (WIDTH + 4) + 8 * reads.num_requests


def check_threads(shared: SharedRows, every: Array) -> None:
    """Several threads read at once."""
    wrong = []

    def read(seed: int) -> None:
        for _ in range(20):
            vertices = np.random.default_rng(seed).permutation(NUM_ROWS)[:100].astype(np.int32)
            if not np.array_equal(shared.read(vertices), every[vertices]):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def run(rank: int, size: int, meeting: Path) -> None:
    with join(rank, size, meeting, backend="gloo") as group:
        check_reads(group, list(range(size)))  # a machine each
        check_reads(group, [0, 0, 1][:size])  # two processes of one machine
