import gc
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import ops

ENGINES = ("io_uring", "threads")


def write(path: Path, num_bytes: int) -> Any:
    data = np.random.default_rng(num_bytes).integers(0, 256, num_bytes, np.uint8)
    data.tofile(path)
    return data


def opened(path: Path, **options: Any) -> ops.RowReader:
    try:
        return ops.RowReader(str(path), **{"offset": 0, "max_gap_bytes": 0} | options)
    except PermissionError as error:  # of containers
        pytest.skip(str(error))


def read(reader: ops.RowReader, rows: Any, row_bytes: int) -> Any:
    pool = np.zeros((len(rows), row_bytes), np.uint8)
    slots = np.arange(len(rows), dtype=np.int32)
    reader.wait(reader.submit(rows, (pool, "uint8"), slots))
    return pool


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.mark.long
@settings(max_examples=30)
@given(st.data())
def test_rows_are_those_of_the_file(folder: Path, data: st.DataObject) -> None:
    draw = data.draw
    row_bytes = draw(st.sampled_from([4, 100, 512, 4096, 8192]))
    num_rows, offset = draw(st.integers(1, 500)), draw(st.sampled_from([0, 1, 128, 5000]))
    path = folder / "any"
    whole = write(path, offset + num_rows * row_bytes + draw(st.integers(0, 3)))
    table = whole[offset:][: num_rows * row_bytes].reshape(num_rows, row_bytes)
    reader = opened(
        path,
        offset=offset,
        num_rows=num_rows,
        row_bytes=row_bytes,
        depth=draw(st.integers(1, 70)),
        max_gap_bytes=draw(st.integers(0, 20000)),
        max_request_bytes=draw(st.sampled_from([1, 4096, 10000, 262144])),
        engine=draw(st.sampled_from(ENGINES)),
        direct=draw(st.booleans()),
    )
    submitted = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from([np.int32, np.int64]))
        rows = np.array(draw(st.lists(st.integers(0, num_rows - 1), max_size=50)), kind)
        slots = np.array(draw(st.permutations(range(len(rows) + 2)))[: len(rows)], np.int32)
        pool = np.zeros((len(rows) + 2, row_bytes), np.uint8)
        submitted.append((reader.submit(rows, (pool, "uint8"), slots), rows, slots, pool))
    for ticket, rows, slots, pool in draw(st.permutations(submitted)):
        reader.wait(ticket)
        expected = np.zeros_like(pool)
        expected[slots] = table[rows]
        assert (pool == expected).all()
    wanted = sum(len(np.unique(rows)) for _, rows, _, _ in submitted) * row_bytes
    counters = reader.take_counters()
    assert counters["bytes_wanted"] == wanted <= counters["bytes_read"]
    assert counters["bytes_copied"] == sum(len(rows) for _, rows, _, _ in submitted) * row_bytes
    assert (counters["requests"] > 0) == (counters["busy_s"] > 0) == (wanted > 0)


@pytest.mark.parametrize("row_bytes", [512, 4096])
def test_whole_blocks_go_right_to_slots_of_whole_blocks(folder: Path, row_bytes: int) -> None:
    """Whether a slot, a row and a request are of whole blocks or not, and rows repeat or not."""
    path, num_rows = folder / "blocks", 300
    table = write(path, 4096 + num_rows * row_bytes)[4096:].reshape(num_rows, row_bytes)
    reader = opened(path, offset=4096, num_rows=num_rows, row_bytes=row_bytes, engine="io_uring")
    memory = np.frombuffer(mmap.mmap(-1, (num_rows + 1) * row_bytes), np.uint8)
    rows = np.array([5, 9, 9, 200, 7, 11, 12, 299, 0], np.int32)
    slots = np.array([8, 1, 2, 3, 0, 5, 6, 7, 4], np.int32)
    for shift in (0, 4, 512):
        pool = memory[shift : shift + num_rows * row_bytes].reshape(num_rows, row_bytes)
        pool[:] = 0
        reader.wait(reader.submit(rows, (pool, "uint8"), slots))
        assert np.array_equal(pool[slots], table[rows]), shift
        assert not pool[len(slots) :].any()
    reader.close()


def test_engines_and_requests(folder: Path) -> None:
    write(folder / "choice", 4096)
    options: dict[str, Any] = {"num_rows": 8, "row_bytes": 512}
    direct = opened(folder / "choice", **options, engine="io_uring").direct
    chosen = opened(folder / "choice", **options)
    assert (chosen.engine, chosen.direct) == ("io_uring" if direct else "threads", direct)
    cached = opened(folder / "choice", **options, direct=False)
    assert (cached.engine, cached.direct) == ("threads", False)
    write(folder / "gaps", 100 * 4096)
    counts = {}
    for gap in (0, 4095, 4096, 3 * 4096):
        reader = opened(folder / "gaps", num_rows=100, row_bytes=4096, max_gap_bytes=gap)
        read(reader, np.array([20, 0, 1, 3, 3, 7]), 4096)
        found = reader.take_counters()
        counts[gap] = found["requests"], found["bytes_read"] // 4096
    assert counts == {0: (4, 5), 4095: (4, 5), 4096: (3, 6), 3 * 4096: (2, 9)}


#: Forbids a system call by a filter (seccomp), as containers do, and reads rows.
FORBIDDEN = """
import ctypes, os, struct, sys
import numpy as np
from gnnscale import ops

path = sys.argv[1]
for call in (425, 426, 427):  # io_uring_setup, _enter and _register, each in a process of its own
    if not os.fork():
        break
    assert os.wait()[1] == 0
else:
    sys.exit()
LOAD, EQUAL, RETURN, ALLOW, EPERM = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50001
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, call), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in steps))
length_and_steps = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert prctl(22, 2, length_and_steps) == 0  # PR_SET_SECCOMP

reader = ops.RowReader(path, offset=0, num_rows=64, row_bytes=512, max_gap_bytes=0)
pool = np.zeros((64, 512), np.uint8)
order = np.arange(64, dtype=np.int32)
reader.wait(reader.submit(order, (pool, "uint8"), order))
assert pool.tobytes() == open(path, "rb").read()
print(reader.engine)
"""


@pytest.mark.long
def test_threads_take_over_if_io_uring_is_forbidden(folder: Path) -> None:
    path = folder / "forbidden"
    path.write_bytes(bytes(range(256)) * 128)
    command = [sys.executable, "-W", "ignore", "-c", FORBIDDEN, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["threads"] * 3, "")


def test_threads_take_over_without_descriptors_for_a_ring(folder: Path) -> None:
    path = folder / "few"
    path.write_bytes(bytes(64 * 512))
    options = {"offset": 0, "num_rows": 64, "row_bytes": 512, "max_gap_bytes": 0}
    descriptors, limits = [], resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with suppress(OSError):
            while True:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match="Too many open files"):
            opened(path, **options)
        os.close(descriptors.pop())
        assert opened(path, **options).engine == "threads"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in descriptors:
            os.close(each)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pools_of_any_type(folder: Path, dtype: torch.dtype) -> None:
    table = (torch.arange(50 * 24).reshape(50, 24) % 200).to(dtype)
    table.view(torch.uint8).numpy().tofile(folder / "typed")
    row_bytes = 24 * table.element_size()
    reader = opened(folder / "typed", num_rows=50, row_bytes=row_bytes)
    wide = torch.zeros(4, 30, dtype=dtype)
    reader.wait(reader.submit(np.array([49, 7]), wide[:, :24], np.int32([3, 0])))
    assert torch.equal(wide[[3, 0], :24], table[[49, 7]])
    assert not wide[:, 24:].any()
    assert not wide[1:3].any()


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_pools_live_as_long_as_their_tickets(folder: Path, engine: str) -> None:
    """And no longer; the reader may go first."""
    write(folder / "kept", 5000 * 512)
    sizes = {"num_rows": 5000, "row_bytes": 512, "max_request_bytes": 512}
    reader = opened(folder / "kept", **sizes, engine=engine)
    pool = np.zeros((5000, 512), np.uint8)
    gone = weakref.ref(pool)
    slots = np.arange(5000, dtype=np.int32)
    ticket = reader.submit(np.arange(5000), (pool, "uint8"), slots)
    del pool
    reader.wait(ticket)
    gc.collect()
    assert gone() is None
    tensor = torch.zeros(5000, 512, dtype=torch.uint8)
    ticket = reader.submit(np.arange(5000), tensor, slots)
    tensor.set_(torch.zeros(1, dtype=torch.uint8))  # type: ignore[no-untyped-call]
    reader.wait(ticket)
    reader.submit(np.arange(5000), torch.zeros(5000, 512, dtype=torch.uint8), slots)
    del reader


def test_children_of_fork_open_the_file_again(folder: Path) -> None:
    write(folder / "forked", 1000)
    code = """
import os, sys, warnings
import numpy as np
from gnnscale import ops
warnings.simplefilter("ignore")
reader = ops.RowReader(sys.argv[1], offset=0, num_rows=10, row_bytes=100, max_gap_bytes=0)
pool = (np.zeros((10, 100), np.uint8), "uint8")
if child := os.fork():
    status = os.waitpid(child, 0)[1]
    reader.wait(reader.submit(np.arange(10), pool, np.arange(10, dtype=np.int32)))
    sys.exit(status != 0)
try:
    reader.submit(np.arange(10), pool, np.arange(10, dtype=np.int32))
except ValueError as error:
    assert "fork" in str(error)
    reader.close()
    del reader
    sys.exit(0)
sys.exit(1)
"""
    arguments = [sys.executable, "-c", code, str(folder / "forked")]
    assert subprocess.run(arguments, timeout=60, check=False).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "ending"),
    [
        *[("io_uring", ""), ("threads", "raise SystemExit"), ("io_uring", "os._exit(0)")],
        *[("io_uring", "reader.wait(0)"), ("threads", "reader.wait(0)")],
    ],
)
def test_exits_and_interrupts_do_not_hang(folder: Path, engine: str, ending: str) -> None:
    write(folder / "left", 5000 * 4096)
    code = f"""
import os, signal, sys, threading
import numpy as np
from gnnscale import ops
signal.signal(signal.SIGINT, signal.default_int_handler)  # which the parent may ignore
rows = np.arange(5000)
reader = ops.RowReader(
    sys.argv[1], offset=0, num_rows=5000, row_bytes=4096, depth=2, max_gap_bytes=0,
    max_request_bytes=4096, engine="{engine}",
)
pool = (np.zeros((5000, 4096), np.uint8), "uint8")
for _ in range(100):
    reader.submit(rows, pool, rows.astype(np.int32))
print(flush=True)
for ticket in range(100 if "{ending}" == "reader.wait(0)" else 0):
    reader.wait(ticket)
{ending}
"""
    arguments = [sys.executable, "-c", code, str(folder / "left")]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if ending == "reader.wait(0)":
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGINT if ending == "reader.wait(0)" else 0), errors
