import threading
from multiprocessing import Pipe
from typing import Any

from gnnscale.runtime.processes.worker import Messages, report_error

NUM_MESSAGES = 300
#: Longer than what a connection writes at once, and than what a pipe holds.
LONG = 300_000


def test_messages_of_several_threads_arrive_whole() -> None:
    ours, theirs = Pipe(duplex=False)
    messages = Messages(theirs)
    received: list[tuple[str, Any]] = []

    def receive() -> None:
        while (found := ours.recv())[0] != "end":
            received.append(found)

    def send(letter: str) -> None:
        for number in range(NUM_MESSAGES):
            messages.send(letter, letter * (LONG if number % 10 == 0 else 10))

    receiver = threading.Thread(target=receive, daemon=True)
    senders = [threading.Thread(target=send, args=(each,), daemon=True) for each in "ab"]
    for thread in (receiver, *senders):
        thread.start()
    for thread in senders:
        thread.join(60)
    messages.send("end", None)
    receiver.join(60)
    assert not receiver.is_alive()
    for letter in "ab":
        mine = [len(content) for event, content in received if event == letter]
        assert mine == [LONG if number % 10 == 0 else 10 for number in range(NUM_MESSAGES)]
    assert all(set(content) == {event} for event, content in received)


def test_a_failure_is_told() -> None:
    ours, theirs = Pipe(duplex=False)
    assert report_error(MemoryError("1 GiB"), Messages(theirs)) == 1
    event, failure = ours.recv()
    assert (event, failure.kind, failure.message) == ("failed", "memory", "out of memory (1 GiB)")
