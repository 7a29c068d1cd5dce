import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.shared_memory import SharedMemory
from gnnscale.distributed import shm_allreduce as shared_sums
from gnnscale.distributed.shm_allreduce import SharedSums


def members(size: int) -> list[SharedSums]:
    memory = SharedMemory.empty(SharedSums.num_bytes(size))
    return [SharedSums(memory, rank, size) for rank in range(size)]


def summed(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    found = [part.clone() for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(SharedSums.sum, members(len(parts)), found))
    return found


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@given(size=st.integers(1, 4), count=st.integers(0, 40), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_sums_are_those_of_one_process_in_rank_order(dtype, size, count, seed) -> None:
    torch.manual_seed(seed)
    scale = 10.0 ** torch.randint(-6, 7, (size, count))
    parts = (torch.randn(size, count, dtype=torch.float64) * scale * 1e6).to(dtype)
    expected = parts[0].clone() if size else parts.sum(0)
    for part in parts[1:]:
        expected += part
    for found in summed(list(parts)):
        assert torch.equal(found, expected)


def test_what_can_be_summed() -> None:
    parts = [torch.arange(300_000.0).view(3, -1) * (rank + 1) for rank in range(3)]
    for found in summed(parts):
        assert torch.equal(found, parts[0] * 6)
    assert [each.item() for each in summed([torch.tensor(2.0)] * 2)] == [4.0, 4.0]
    large, one = torch.tensor([2**63 - 1]), torch.tensor([1])
    assert [each.item() for each in summed([large, one])] == [-(2**63)] * 2
    rows = torch.zeros(4, 4)
    for values in (rows, rows[0], rows.double(), rows.long(), torch.zeros(())):
        assert SharedSums.can_sum(values)
    for values in (rows.half(), rows.int(), rows[:, 0], rows.t()[:2], rows.to("meta")):
        assert not SharedSums.can_sum(values)
    both = [members(2), members(2)]
    found = [[torch.ones(5) for _ in range(2)] for _ in both]

    def work(area: int, rank: int) -> None:
        for _ in range(50):
            both[area][rank].sum(found[area][rank])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [0, 0, 1, 1], [0, 1, 0, 1]))
    assert all(torch.equal(each, torch.full((5,), 2.0**50)) for area in found for each in area)


def test_signals_are_handled_while_others_are_waited_for() -> None:
    def handle(number: int, frame: Any) -> None:
        raise KeyError(number)

    before = signal.signal(signal.SIGUSR1, handle)
    first, second = members(2)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        start = time.monotonic()
        with pytest.raises(KeyError):
            first.sum(torch.ones(1))
        assert time.monotonic() - start < 5
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(RuntimeError, match=r"^rank 0 has left$"):
        second.sum(torch.ones(1))


#: A process that takes part as rank 1 of 2, says so, and sums until it is killed.
OTHER = """
import sys
from pathlib import Path
import torch
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.distributed.shm_allreduce import SharedSums
sums = SharedSums(SharedMemory.open(Path(sys.argv[1])), 1, 2)
print("there", flush=True)
for _ in range(int(sys.argv[2])):
    sums.sum(torch.full((1000,), 2.0))
sys.stdin.read()
"""


@contextmanager
def beside_another(num_sums: int) -> Iterator[tuple[SharedSums, Any]]:
    memory = SharedMemory.empty(SharedSums.num_bytes(2))
    sums = SharedSums(memory, 0, 2)
    command = [sys.executable, "-c", OTHER, str(memory.path), str(num_sums)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            yield sums, process
        finally:
            process.kill()


@pytest.mark.long
def test_a_process_that_stops_is_waited_for_and_one_that_dies_is_noticed() -> None:
    with beside_another(num_sums=3) as (sums, process):
        for number in range(3):
            values = torch.ones(1000)
            if number == 1:  # it may have come to its sum before it stops
                process.send_signal(signal.SIGSTOP)
                threading.Timer(0.4, process.send_signal, (signal.SIGCONT,)).start()
            sums.sum(values)
            assert torch.equal(values, torch.full((1000,), 3.0))
        threading.Timer(0.3, process.kill).start()
        start = time.monotonic()
        with pytest.raises(RuntimeError, match=rf"^process {process.pid} of rank 1 has ended$"):
            sums.sum(torch.ones(1000))
        assert 0.2 < time.monotonic() - start < 5


@pytest.mark.long
def test_memory_has_no_name_and_is_freed() -> None:
    before = set(Path("/dev/shm").iterdir())
    memory = SharedMemory.empty(SharedSums.num_bytes(2))
    both, place = [SharedSums(memory, rank, 2) for rank in range(2)], memory.path
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(SharedSums.sum, both, [torch.ones(3), torch.ones(3)]))
    assert set(Path("/dev/shm").iterdir()) == before
    assert os.readlink(place).startswith("/memfd:")
    del both, memory
    gc.collect()  # memory and its map know each other
    assert not place.exists()


def opened(size: int, paths: Callable[[Any, int], Any]) -> list[SharedSums | None]:
    passed: list[Any] = []
    answers: list[bool] = []
    meeting = threading.Barrier(size)

    def open_one(rank: int) -> SharedSums | None:
        def broadcast(content: Any) -> Any:
            if rank == 0:
                passed.append(content)
            meeting.wait()
            return paths(passed[0], rank)

        def agree(is_so: bool) -> bool:
            answers.append(is_so)
            meeting.wait()
            return all(answers)

        return SharedSums.open(rank, size, broadcast=broadcast, agree=agree)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(open_one, range(size)))


def test_all_open_the_memory_of_the_first(tmp_path: Path) -> None:
    found = opened(3, lambda path, rank: path)
    values = [torch.full((2,), float(rank)) for rank in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(SharedSums.sum, found, values))
    assert [each.tolist() for each in values] == [[3.0, 3.0]] * 3
    assert opened(2, lambda path, rank: path if rank == 0 else str(tmp_path / "none")) == [None] * 2


def test_a_look_at_processes_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[int, int]] = []
    first, second = members(2)
    monkeypatch.setattr(shared_sums, "has_ended", lambda *process: looks.append(process))
    threading.Timer(0.35, second.leave).start()
    with pytest.raises(RuntimeError, match=r"^rank 1 has left$"):
        first.sum(torch.from_numpy(np.ones(1)))
    assert 2 <= len(looks) <= 5  # ten times a second, and never about itself
    assert {number for number, _ in looks} == {os.getpid()}
