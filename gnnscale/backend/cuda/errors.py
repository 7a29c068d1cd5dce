"""CUDA errors with the device, the step and a remedy."""

from __future__ import annotations

import torch

from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda.host_engine import HostReadError
from gnnscale.core import one_line


class CudaErrorContext:
    """Context manager that adds the device and the step to CUDA errors of its block.

    A class instead of a generator, since each step enters two.
    """

    def __init__(self, label: str, when: str, numbers: tuple[int, ...]) -> None:
        """Set the device's name, and ``when``: a text with a ``%d`` for each of ``numbers``."""
        self._label = label
        self._when = when
        self._numbers = numbers

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Raise a CUDA error as an error of the device."""
        if error is None or isinstance(error, HostReadError) or not isinstance(error, Exception):
            return
        label, when = self._label, self._when % self._numbers
        if isinstance(error, torch.OutOfMemoryError):
            raise DeviceMemoryError(
                f"{label}: out of device memory {when}: {one_line(error, 200)}; a smaller "
                "batch_size, fewer neighbors (sampler.fanouts), or features=host and "
                "topology=host of the device take less"
            ) from None
        if "CUDA" in f"{type(error).__name__}: {error}" and not isinstance(error, DeviceError):
            raise DeviceError(
                f"{label}: the GPU failed {when}: {one_line(error, 200)}; with "
                "CUDA_LAUNCH_BLOCKING=1 the operation is named"
            ) from None
