from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe

from gnnscale.training.launcher.worker import Messages, report_error

#: Some are longer than what a connection writes at once, and than what a pipe holds.
LENGTHS = [10 if number % 10 else 300_000 for number in range(300)]


def test_messages_of_several_threads_arrive_whole() -> None:
    ours, theirs = Pipe(duplex=False)
    messages = Messages(theirs)

    def send(letter: str) -> None:
        for length in LENGTHS:
            messages.send(letter, letter * length)

    with ThreadPoolExecutor() as threads:
        for letter in "ab":
            threads.submit(send, letter)
        received = [ours.recv() for _ in range(2 * len(LENGTHS))]
    for letter in "ab":
        mine = [content for event, content in received if event == letter]
        assert mine == [letter * length for length in LENGTHS]


def test_a_failure_is_told() -> None:
    ours, theirs = Pipe(duplex=False)
    assert report_error(MemoryError("1 GiB"), Messages(theirs)) == 1
    event, failure = ours.recv()
    assert (event, failure.kind, failure.message) == ("failed", "memory", "out of memory (1 GiB)")
