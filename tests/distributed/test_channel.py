import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.distributed.channel import Channel, MessageType, Rendezvous, connect, pair


@contextmanager
def ends() -> Iterator[tuple[Channel, Channel]]:
    near, far = pair()
    yield near, far
    near.close()
    far.close()


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(MessageType)),
            st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3),
            st.sampled_from([np.uint8, np.int32, np.int64]),
            st.lists(st.integers(0, 127), max_size=50),
        ),
        max_size=8,
    )
)
def test_messages_arrive_as_they_were_sent(messages: Any) -> None:
    with ends() as (near, far):
        for kind, numbers, dtype, content in messages:
            near.send(kind, numbers=numbers, array=np.array(content, dtype))
        near.hang_up()
        for kind, numbers, dtype, content in messages:
            found = far.receive()
            assert (found.kind, found.numbers) == (kind, numbers)
            assert found.array.dtype == dtype
            assert found.array.tolist() == content
        assert far.receive() is None


def test_threads_send_and_are_woken_by_the_end() -> None:
    with ends() as (near, far):
        array = np.arange(1 << 20)
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(near.send, MessageType.EXPECT, array=array)
            found = far.receive()
            sent.result()
        assert np.array_equal(found.array, array)
    for end in ("refuse", "hang_up"):
        with ends() as (_, far), ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(far.receive)
            getattr(far, end)()
            assert waiting.result(timeout=10) is None
    # A message that breaks off is none.
    with ends() as (near, far):
        near._socket.sendall(b"abc")
        near.hang_up()
        assert far.receive() is None
    with ends() as (near, _):
        started = threading.Event()

        def send() -> None:
            started.set()
            near.send(MessageType.READY, array=np.zeros(1 << 24, np.uint8))

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send)
            started.wait()
            near.hang_up()
            with pytest.raises(OSError, match=r"Broken pipe|reset"):
                sending.result(timeout=10)


def test_processes_of_one_user_meet_by_a_name(tmp_path, monkeypatch) -> None:
    meeting = Rendezvous()
    there = connect(meeting.name)
    here = meeting.accept()
    meeting.close()
    there.send_values(MessageType.SETUP, {"rank": 1, "of": [2, 3]})
    message = here.receive()
    assert message.values == {"rank": 1, "of": [2, 3]}
    (tmp_path / "file").write_bytes(b"content")
    with open(tmp_path / "file", "rb") as file:
        here.send_file(file.fileno())
    descriptor = there.receive_file()
    assert os.pread(descriptor, 100, 0) == b"content"
    os.close(descriptor)
    here.hang_up()
    with pytest.raises(ConnectionError, match="gone"):
        there.receive_file()
    here.close()
    there.close()
    with pytest.raises(ConnectionRefusedError):
        connect(meeting.name)
    meeting = Rendezvous()
    strange, own = connect(meeting.name), connect(meeting.name)
    given = iter([os.getuid() + 1, os.getuid()])
    monkeypatch.setattr(os, "getuid", lambda: next(given))
    here = meeting.accept()
    assert strange.receive() is None
    own.send(MessageType.END)
    message = here.receive()
    assert message.kind == MessageType.END
    for each in (meeting, strange, own, here):
        each.close()
