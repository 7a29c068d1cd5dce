"""One of two processes of torchrun that divide rows, of which one asks for what is not there."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from surroundings import logged, set_by_torchrun

from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.process_group import Group, join_torchrun
from gnnscale.distributed.sockets import PeerLostError
from gnnscale.features import DiskRows
from gnnscale.features.sharded.exchange import owners_of
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.graph.sharded_features import ShardedFeatures

#: A process whose peer is gone has to notice within this.
_NOTICED_S = 5.0


def opened(group: Group, owner: list[int]) -> ShardedStore:
    part = group.rank
    rows = np.full((owner.count(part), 2), part, np.float32)
    options = {"part": part, "num_parts": 2, "partition": "0" * 32, "path": Path("nowhere")}
    divided = ShardedFeatures(rows, np.array(owner, np.int16), **options)
    return ShardedStore(divided, group, owners_of([0, 1], part), dtype_name="float32")


def step(shared: ShardedStore, *vertices: int) -> list[list[float]]:
    """Return the rows of ``vertices``, which a step wants."""
    pool = np.zeros((len(vertices), 2), np.float32)
    slots = np.arange(len(vertices), dtype=np.int32)
    shared.finish(shared.start(np.array(vertices, np.int32), pool, slots))
    return pool.tolist()


def evaluate(shared: ShardedStore, *vertices: int) -> list[list[float]]:
    """As ``step``, of an evaluation by rank 0."""
    with shared.rank0_reads():
        return shared.read(np.array(vertices, np.int32)).tolist() if vertices else []


Read = Callable[..., list[list[float]]]


def again_and_again(read: Read, shared: ShardedStore, *vertices: int) -> None:
    start = time.monotonic()
    while time.monotonic() < start + _NOTICED_S:
        read(shared, *vertices)
        time.sleep(0.01)


def check_wrong_question(group: Group, read: Read, lines: list[str]) -> None:
    """The first believes that the second has vertex 0, which the second does not."""
    shared = opened(group, [1, 1, 0] if group.rank == 0 else [0, 1, 0])
    start = time.monotonic()
    if group.rank == 0:
        assert read(shared, 1) == [[1, 1]]
        with pytest.raises(PeerLostError, match="lost the other processes"):
            read(shared, 0)
    else:
        assert read(shared) == []
        line = "another process asks for vertex 0, which part 1 has not"
        with pytest.raises(PeerLostError, match=f"the exchange of rows failed .{line}"):
            again_and_again(read, shared)
        assert f"features=shared: {line}" in lines
    assert time.monotonic() < start + _NOTICED_S
    shared.abandon()


def check_gone(group: Group, read: Read) -> None:
    """The second stops in the middle; the first, which reads on, learns of it."""
    shared = opened(group, [0, 1, 0])
    if group.rank == 1:
        assert read(shared) == []
        shared.abandon()
        shared.close()  # as a run closes everything after an error: it waits for nobody
        with pytest.raises(PeerLostError, match="this process has left"):
            step(shared)
        return
    assert read(shared, 1) == [[1, 1]]
    with pytest.raises(PeerLostError, match="lost the other processes"):
        again_and_again(read, shared, 1)
    shared.abandon()


def check_unreadable(group: Group, read: Read, lines: list[str], path: Path) -> None:
    """The disk fails on which the second has its rows; both learn of it."""
    shared = opened(group, [0, 1, 0])
    if group.rank == 0:
        assert read(shared, 1) == [[1, 1]]
        with pytest.raises(PeerLostError, match="lost the other processes"):
            again_and_again(read, shared, 1)
    else:
        np.save(path, shared.own)
        options: Any = {"dtype_name": "float32", "num_features": 2, "max_gap_bytes": 0}
        shared.use_local_file(DiskRows(np.load(path, mmap_mode="r"), **options))
        assert read(shared) == []
        os.truncate(path, 1)
        with pytest.raises(PeerLostError, match=f"the exchange of rows failed .*{path}"):
            again_and_again(read, shared)
        assert lines[-1].startswith("features=shared: ")
        assert str(path) in lines[-1]
    shared.abandon()


def run(rank: int, size: int, meeting: Path, port: str) -> None:
    set_by_torchrun(rank, size, port)
    lines = logged()
    for number, read in enumerate((step, evaluate)):
        for job, check in enumerate(
            (
                partial(check_wrong_question, lines=lines),
                check_gone,
                partial(check_unreadable, lines=lines, path=meeting.parent / "rows.npy"),
            )
        ):
            with join_torchrun(size, backend="gloo", job=3 * number + job) as group:
                check(group, read)
            STATUS.verdict = None
