"""A source whose rows workers read: they learn of every step, and say when rows are there."""

import numpy as np
import pytest

from gnnscale.distributed.channel import MessageType, pair
from gnnscale.distributed.sockets import PeerLostError
from gnnscale.features.tiered.server import WorkerReadSource


def test_workers_learn_of_their_steps_and_say_when_rows_are_there() -> None:
    ends = [pair() for _ in range(2)]
    rows = WorkerReadSource([near for near, _ in ends])
    for worker in (1, 0, 1):
        rows.expect(worker)
    pool, slots = np.zeros((9, 3), np.float32), np.array([8, 6], np.int32)
    first = rows.start(np.array([5, 4], np.int64), pool, slots)
    rows.skip()
    second = rows.start(np.array([7], np.int32), pool, slots[:1])
    message = ends[1][1].receive()
    assert message.kind == MessageType.READ
    assert [each.tolist() for each in message.rows] == [[5, 4], [8, 6]]
    assert message.rows[0].dtype == np.int64
    assert ends[0][1].receive().kind == MessageType.SKIP
    message = ends[1][1].receive()
    assert [each.tolist() for each in message.rows] == [[7], [8]]
    rows.done(1)
    rows.finish(first)
    rows.close()
    with pytest.raises(PeerLostError, match="worker 1 of this machine has left"):
        rows.finish(second)
    for pair_of_ends in ends:
        for end in pair_of_ends:
            end.close()
