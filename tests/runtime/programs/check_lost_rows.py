"""One of two processes of torchrun that divide rows, of which one asks for what is not there."""

import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest

from gnnscale.artifact.divided import DividedRows
from gnnscale.runtime.sync.group import Group, PeerLostError, join_torchrun
from gnnscale.runtime.sync.pulse import OWN
from gnnscale.runtime.sync.shared_rows import Peers, SharedRows

#: A process whose peer is gone has to notice within this.
_NOTICED_S = 5.0


def opened(group: Group, owner: list[int]) -> SharedRows:
    part = group.rank
    rows = np.full((owner.count(part), 2), part, np.float32)
    options = {"part": part, "num_parts": 2, "partition": "0" * 32, "path": Path("nowhere")}
    divided = DividedRows(rows, np.array(owner, np.int16), **options)
    peers = Peers.of([0, 1], part)
    return SharedRows(divided, group.with_own_connections(), peers, dtype_name="float32")


def ask_on(shared: SharedRows, vertex: int) -> None:
    """Ask for a vertex again and again."""
    start = time.monotonic()
    while time.monotonic() < start + _NOTICED_S:
        shared.read(np.array([vertex], np.int32))
        time.sleep(0.01)


def check_wrong_question(group: Group, caplog: list[str]) -> None:
    """The second believes that the first has vertex 1, which the first does not."""
    shared = opened(group, [0, 1, 0] if group.rank == 0 else [0, 0, 1])
    start = time.monotonic()
    if group.rank == 1:
        assert shared.read(np.array([0, 2], np.int32)).tolist() == [[0, 0], [1, 1]]
        with pytest.raises(PeerLostError, match="lost the other processes"):
            shared.read(np.array([1], np.int32))
    else:
        with pytest.raises(PeerLostError, match="asks for vertex 1, which part 0 has not"):
            ask_on(shared, 0)
        assert any("asks for vertex 1" in line for line in caplog)
    assert time.monotonic() < start + _NOTICED_S
    shared.abandon()


def check_gone(group: Group) -> None:
    """The first stops in the middle; the second, which asks on, learns of it."""
    shared = opened(group, [0, 1, 0])
    if group.rank == 0:
        assert shared.read(np.array([1], np.int32)).tolist() == [[1, 1]]
        shared.abandon()
        with pytest.raises(PeerLostError, match="this process has left"):
            shared.read(np.array([1], np.int32))
        return
    with pytest.raises(PeerLostError, match="lost the other processes"):
        ask_on(shared, 0)
    shared.abandon()


def run(rank: int, size: int, meeting: Path, port: str) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    lines: list[str] = []
    logger = logging.getLogger("gnnscale")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    with join_torchrun(size, backend="gloo", job=0) as group:
        check_wrong_question(group, lines)
    OWN.verdict = None
    with join_torchrun(size, backend="gloo", job=1) as group:
        check_gone(group)
