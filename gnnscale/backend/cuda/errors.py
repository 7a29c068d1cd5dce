"""Errors of CUDA, with the device and the step in them, and what helps."""

from __future__ import annotations

import torch

from gnnscale.backend.base import DeviceError, DeviceMemoryError
from gnnscale.backend.cuda.host_engine import HostReadError
from gnnscale.core import one_line


class CudaErrorContext:
    """Names the device and the step in errors of CUDA that the ``with`` block raises.

    A class, since each step passes two of these.
    """

    def __init__(self, label: str, when: str, numbers: tuple[int, ...]) -> None:
        """Name a device and what it does.

        Args:
            label: of the device.
            when: with ``%d`` for each of ``numbers``, put together only for an error.
        """
        self._label = label
        self._when = when
        self._numbers = numbers

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Raise what names the device.

        Raises:
            DeviceMemoryError: the device's memory is too small.
            DeviceError: the device has failed.
        """
        if error is None or isinstance(error, HostReadError) or not isinstance(error, Exception):
            return
        label, when = self._label, self._when % self._numbers
        if isinstance(error, torch.OutOfMemoryError):
            raise DeviceMemoryError(
                f"{label}: out of device memory {when}: {one_line(error, 200)}; a smaller "
                "batch_size, fewer neighbours (sampler.fanouts), or features=host and "
                "topology=host of the device take less"
            ) from None
        if "CUDA" in f"{type(error).__name__}: {error}" and not isinstance(error, DeviceError):
            raise DeviceError(
                f"{label}: the GPU failed {when}: {one_line(error, 200)}; with "
                "CUDA_LAUNCH_BLOCKING=1 the operation is named"
            ) from None
