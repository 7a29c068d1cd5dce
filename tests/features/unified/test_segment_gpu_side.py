from typing import Any

import pytest
import torch
from one_line import one_line

from gnnscale.features.unified import CudaSide, SharedSegment


class Status:
    """What torch's bindings return: a member of an enumeration, which equals no number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __int__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return f"cudaError.{self._number}"


class Runtime:
    """Notes what is registered, and refuses more than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.registered: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size: int, flags: int) -> Status:
        assert flags == 3  # portable and mapped
        if size > self.limit:
            return Status(2)
        self.registered[address] = size
        return Status(0)

    def cudaHostUnregister(self, address: int) -> Status:
        return Status(0 if self.registered.pop(address, None) else 1)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    made = Runtime(1 << 16)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    return made


def test_a_segment_is_registered_and_let_go(runtime: Runtime) -> None:
    segment = SharedSegment.empty((100, 4), "float32")
    segment.register(CudaSide())
    assert runtime.registered == {segment.bytes.data_ptr(): 4096}
    segment.unregister()
    assert not runtime.registered


def test_driver_errors_have_their_number(runtime, monkeypatch) -> None:
    from gnnscale.features.unified import segment as segments

    infinite = segments.resource.RLIM_INFINITY
    monkeypatch.setattr(segments.resource, "getrlimit", lambda _: (infinite, infinite))
    side = CudaSide()
    with pytest.raises(RuntimeError, match="CUDA error 2 of cudaHostRegister"):
        SharedSegment.empty((1 << 16, 4), "float32").register(side)
    with pytest.raises(RuntimeError, match="CUDA error 1 of cudaHostUnregister"):
        side.unregister(torch.zeros(1, dtype=torch.uint8))


def test_without_a_gpu(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with one_line("expected a CUDA device"):
        CudaSide()
