import mmap
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from host_side import HostSide
from one_line import one_line

from gnnscale.features.unified import SharedSegment
from gnnscale.features.unified import segment as segments

#: A process that opens a segment by its descriptor, adds 1 to it, and waits to be killed.
_READER = """
import sys, time
from gnnscale.features.unified import SharedSegment
found = SharedSegment.open(int(sys.argv[1]), (3, 2), "float32")
found.tensor.add_(1)
print(found.tensor.sum().item(), flush=True)
time.sleep(60)
"""


def rows() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.mark.long
def test_another_process_reads_and_writes_it_and_may_die() -> None:
    segment = SharedSegment.fill(rows())
    command = [sys.executable, "-c", _READER, str(segment.memory.descriptor)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, pass_fds=[segment.memory.descriptor]
    ) as other:
        assert float(other.stdout.readline()) == 21
        os.kill(other.pid, signal.SIGKILL)
    assert segment.tensor.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64"])
def test_segments_have_the_values_of_the_array(dtype: str) -> None:
    values = np.arange(7).astype(dtype)
    segment = SharedSegment.fill(values)
    assert segment.tensor.dtype == getattr(torch, dtype)
    assert segment.tensor.tolist() == values.tolist()


def test_bfloat16_is_carried_by_uint16() -> None:
    carried = torch.tensor([1.5, -2.0]).to(torch.bfloat16).view(torch.int16).numpy()
    segment = SharedSegment.fill(carried.view(np.uint16), "bfloat16")
    assert segment.tensor.tolist() == [1.5, -2.0]


def test_a_matrix_without_rows_has_a_segment_too() -> None:
    segment = SharedSegment.empty((0, 4), "float32")
    segment.register(HostSide())
    assert segment.tensor.shape == (0, 4)


def test_segments_smaller_than_their_shape_are_refused() -> None:
    segment = SharedSegment.fill(rows())
    with one_line("segment", "expected"):
        SharedSegment.open(segment.memory.descriptor, (1 << 20, 2), "float32")


def test_registration_ends_with_the_segment() -> None:
    gpu = HostSide()
    segment = SharedSegment.fill(rows())
    segment.register(gpu)
    gpu.map(segment.bytes)
    segment.unregister()
    with pytest.raises(RuntimeError, match="not registered"):
        gpu.map(segment.bytes)


def test_memory_that_processes_do_not_share_is_refused() -> None:
    private = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = torch.frombuffer(private, dtype=torch.uint8)
    with one_line("private"):
        segments.register(memory, HostSide())
