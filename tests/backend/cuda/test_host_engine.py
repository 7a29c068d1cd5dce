from typing import Any

import pytest
import torch

from gnnscale.backend.cuda.host_engine import HostReadError, HostStream


@pytest.fixture
def stream() -> Any:
    made = HostStream(1)
    yield made
    made.close()


def test_work_is_done_in_its_order_and_later(stream: HostStream) -> None:
    done: list[float] = []
    for number in range(5):
        stream.run(lambda number=number: done.append(number))
    # Code that may wait reads.
    stream.run(lambda: done.append(torch.full((), 5.0).item()), waits=True)
    mark = stream.mark()
    mark.wait()
    assert mark.is_done
    assert done == [0, 1, 2, 3, 4, 5]


def test_a_stream_waits_for_a_mark_of_another(stream: HostStream) -> None:
    other, seen = HostStream(2), list[str]()
    first = other.mark()
    other.run(lambda: seen.append("first"))
    mark = other.mark()
    stream.wait_for(mark)
    stream.run(lambda: seen.append("second"))
    last = stream.mark()
    last.wait()
    assert seen == ["first", "second"]
    assert last.seconds_since(first) > 0
    other.close()


class Reading(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * grads[0].item()


READS = [
    *(lambda x: x.item(), lambda x: x.tolist(), lambda x: x.numpy(), lambda x: x.cpu()),
    *(lambda x: x.nonzero(), torch.unique),
    lambda x: torch.autograd.backward(Reading.apply(x.requires_grad_()).sum()),
]


@pytest.mark.parametrize("read", READS)
def test_what_a_gpu_would_be_waited_for_is_an_error(stream: HostStream, read: Any) -> None:
    stream.run(lambda: read(torch.ones(1)))
    with pytest.raises(HostReadError, match="waits for the device"):
        stream.mark().wait()


def test_nothing_is_done_after_a_failure(stream: HostStream) -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("broken")

    stream.run(fail)
    stream.run(lambda: done.append(1))
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            stream.mark().wait()
    assert not done


@pytest.mark.timeout(60)
def test_waiting_ends_with_the_stream(stream: HostStream) -> None:
    done: list[str] = []
    stream.run(lambda: done.append("before"))
    stream.close()
    stream.run(lambda: done.append("after"))
    mark = stream.mark()
    assert mark.is_done
    with pytest.raises(RuntimeError, match="the device is closed"):
        mark.wait()
    assert done == ["before"]
    stream.close()
