"""This machine's GPUs by NVML: nothing of CUDA is initialised, so that processes may fork."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gnnscale.core.errors import one_line


class NvmlError(RuntimeError):
    """NVML cannot be asked: there is no driver, or it does not answer. The message is one line."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of this machine."""

    index: int  #: NVML's number: by PCI address, hidden ones included
    name: str  #: of the product
    uuid: str  #: as ``nvidia-smi -L`` shows it
    memory: int | None  #: bytes that it has; None if it shares the host's memory
    free: int | None  #: bytes that no process has taken; None likewise
    capability: tuple[int, int]  #: compute capability, (9, 0) of an H100
    #: whether it lets no further process in: one has it for itself, or nobody may compute on it
    taken: bool


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The driver, and the GPUs that a process may use."""

    driver: str  #: the driver's version
    cuda: tuple[int, int]  #: the newest CUDA version that it runs
    devices: tuple[Gpu, ...]  #: those that ``CUDA_VISIBLE_DEVICES`` does not hide


@contextmanager
def opened() -> Iterator[Any]:
    """Let NVML be asked within the ``with`` block, through the module ``pynvml``.

    Raises:
        NvmlError: there is no driver, or a question is not answered.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            yield pynvml
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError_LibraryNotFound:
        raise NvmlError("there is no NVIDIA driver (libnvidia-ml.so.1)") from None
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML reports: {one_line(error, 100)}") from None


def find_gpus() -> Gpus:
    """Return the GPUs of this machine.

    Raises:
        NvmlError: there is no driver, or it does not answer.
    """
    with opened() as nvml:
        cuda = nvml.nvmlSystemGetCudaDriverVersion()
        found = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        return Gpus(
            driver=nvml.nvmlSystemGetDriverVersion(),
            cuda=(cuda // 1000, cuda % 1000 // 10),
            devices=tuple(visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))),
        )


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory, free = _memory(nvml, handle)
    return Gpu(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        uuid=nvml.nvmlDeviceGetUUID(handle),
        memory=memory,
        free=free,
        capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        taken=_is_taken(nvml, handle),
    )


def _memory(nvml: Any, handle: Any) -> tuple[int | None, int | None]:
    """Return total and free bytes; a GPU that shares the host's memory does not report any."""
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return None, None
    return int(found.total), int(found.free)


def _is_taken(nvml: Any, handle: Any) -> bool:
    mode = nvml.nvmlDeviceGetComputeMode(handle)
    if mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
        return bool(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return bool(mode == nvml.NVML_COMPUTEMODE_PROHIBITED)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def visible(gpus: list[Gpu], wanted: str | None) -> list[Gpu]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, in its order; None leaves all.

    As CUDA reads it, a GPU is named by its number or by the beginning of its UUID, and what follows
    a name that no GPU has, or that comes twice, does not count. Numbers are taken as NVML's, which
    CUDA's are with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, and on machines whose GPUs are alike.
    """
    if wanted is None:
        return gpus
    found: list[Gpu] = []
    for name in (each.strip() for each in wanted.split(",")):
        by_number = [each for each in gpus if _is_number(name) and each.index == int(name)]
        by_uuid = [each for each in gpus if name and each.uuid.startswith(name)]
        named = by_number or (by_uuid if len(by_uuid) == 1 else [])
        if not named or named[0] in found:
            break
        found += named
    return found
