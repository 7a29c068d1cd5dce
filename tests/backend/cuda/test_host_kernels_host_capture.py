import math

import numpy as np
import pytest
import torch

from gnnscale.backend.cuda.host_kernels import CaptureError, HostKernels, Recording


def test_operations_and_kernels_are_done_again_with_their_memory() -> None:
    x, times = torch.ones(3), torch.zeros(6, dtype=torch.int64)
    kernels = HostKernels(num_threads=1)
    recording = Recording()
    with recording.recorded():
        y = (x * 2).view(3, 1)
        y.add_(1)
        kernels.launch("step_time", times, np.int32(2), grid=1)
    first = int(times[2])
    assert first > 0
    x.fill_(5)
    recording.repeat()
    assert y.flatten().tolist() == [11.0, 11.0, 11.0]
    assert int(times[2]) > first
    assert not times[:2].any()


def test_gradients_are_done_again() -> None:
    x, weight = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0], requires_grad=True)
    recording = Recording()
    with recording.recorded():
        (weight * weight * x).sum().backward()
    grad = weight.grad
    assert grad is not None
    x.copy_(torch.tensor([10.0, 20.0]))
    recording.repeat()
    assert grad.tolist() == [60.0, 160.0]


def test_nothing_is_done_again_outside_of_the_recording() -> None:
    x = torch.zeros(1)
    recording = Recording()
    with recording.recorded():
        x.add_(1)
    x.add_(1)
    HostKernels(num_threads=1).launch(
        "step_time", torch.zeros(6, dtype=torch.int64), np.int32(0), grid=1
    )
    recording.repeat()
    assert float(x) == 3


def test_what_is_not_written_again_is_found() -> None:
    recording = Recording()
    kept: list[torch.Tensor] = []
    with recording.recorded():
        kept.append(torch.ones(2) * 3)
        room = torch.empty(2)
        room[:1].fill_(1)
        numbers = torch.empty(2, dtype=torch.int64)
    recording.repeat()
    assert kept[0].tolist() == [3.0, 3.0]
    assert float(room[0]) == 1
    assert math.isnan(float(room[1]))
    assert (numbers < 0).all()


def test_numbers_of_the_host_cannot_be_brought() -> None:
    with pytest.raises(CaptureError, match="numbers of the host"), Recording().recorded():
        torch.tensor([1.0, 2.0])
