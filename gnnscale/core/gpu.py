"""This machine's GPUs by NVML: nothing of CUDA is initialised, so that processes may fork."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

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


Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """What a GPU took; None for what its driver does not count."""

    energy_j: float | None = None  #: joules
    received_bytes: int | None = None  #: over PCIe, from the host
    sent_bytes: int | None = None  #: over PCIe, to the host

    def since(self, before: GpuUse) -> GpuUse:
        """Return what came after ``before``."""
        return GpuUse(
            energy_j=_less(self.energy_j, before.energy_j),
            received_bytes=_less(self.received_bytes, before.received_bytes),
            sent_bytes=_less(self.sent_bytes, before.sent_bytes),
        )

    def __add__(self, other: GpuUse) -> GpuUse:
        return GpuUse(
            energy_j=_sum(self.energy_j, other.energy_j),
            received_bytes=_sum(self.received_bytes, other.received_bytes),
            sent_bytes=_sum(self.sent_bytes, other.sent_bytes),
        )


class GpuMeter:
    """Reads the counters of one GPU, which count for all processes that use it.

    NVML stays open: to open it takes longer than an epoch may.
    """

    def __init__(self, index: int) -> None:
        """Begin to count.

        Args:
            index: among the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves.

        Raises:
            NvmlError: there is no driver, it does not answer, or there is no such GPU.
        """
        found = find_gpus().devices
        if index >= len(found):
            raise NvmlError(f"there is no GPU {index}")
        self._opened = opened()
        self._library: Any = self._opened.__enter__()
        self._handle = self._library.nvmlDeviceGetHandleByIndex(found[index].index)
        self._before = self._read()

    @classmethod
    def of(cls, index: int | None) -> GpuMeter | None:
        """Return the meter of a GPU; None if ``index`` is, or if the driver does not answer."""
        if index is not None:
            with suppress(NvmlError):
                return cls(index)
        return None

    def take(self) -> GpuUse:
        """Return what the GPU took since the last call."""
        now = self._read()
        used, self._before = now.since(self._before), now
        return used

    def close(self) -> None:
        """Close NVML."""
        with suppress(NvmlError):
            self._opened.__exit__(None, None, None)

    def _read(self) -> GpuUse:
        library = self._library
        millijoules = None
        with suppress(library.NVMLError):
            millijoules = library.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        fields = (
            library.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            library.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        )
        counts: list[int | None] = [None, None]
        with suppress(library.NVMLError):
            answers = library.nvmlDeviceGetFieldValues(self._handle, fields)
            counts = [
                int(each.value.ullVal) if each.nvmlReturn == library.NVML_SUCCESS else None
                for each in answers
            ]
        return GpuUse(
            energy_j=None if millijoules is None else millijoules / 1000,
            received_bytes=counts[0],
            sent_bytes=counts[1],
        )


def _less(now: Number | None, before: Number | None) -> Number | None:
    return None if now is None or before is None else now - before


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else one + other
