import pytest
import torch

from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda.backend import CudaErrorContext
from gnnscale.backend.cuda.host_engine import HostReadError


def raised(error: BaseException) -> BaseException:
    naming = CudaErrorContext("cuda:1", "in step %d, of %d seeds", (7, 64))
    with pytest.raises((Exception, KeyboardInterrupt)) as found, naming:
        raise error
    return found.value


def test_memory_that_runs_out() -> None:
    found = raised(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert isinstance(found, DeviceMemoryError)
    assert str(found).startswith(
        "cuda:1: out of device memory in step 7, of 64 seeds: CUDA out of memory. Tried"
    )
    assert "features=host" in str(found)


def test_a_fault_of_the_gpu() -> None:
    found = raised(RuntimeError("CUDA error: an illegal memory access was encountered\nmore"))
    assert isinstance(found, DeviceError)
    assert str(found).startswith("cuda:1: the GPU failed in step 7, of 64 seeds: CUDA error: an il")
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("seeds: 5 appears twice"),
        HostReadError("CUDA would be waited for"),
        DeviceError("CUDA is named already"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_stay(error: BaseException) -> None:
    assert raised(error) is error
