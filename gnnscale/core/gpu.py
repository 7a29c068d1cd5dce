"""GPUs of this machine, read through NVML. CUDA is not initialized, so processes may fork."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from gnnscale.core.errors import one_line


class NvmlError(RuntimeError):
    """Error of NVML: no driver, or the driver does not answer. The message is one line."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Description of one GPU."""

    index: int  #: NVML index: in the order of PCI addresses, hidden GPUs included
    name: str  #: product name
    uuid: str  #: as ``nvidia-smi -L`` shows it
    memory: int | None  #: total bytes. None: the GPU shares the host's memory
    free: int | None  #: free bytes. None: the GPU shares the host's memory
    capability: tuple[int, int]  #: compute capability, (9, 0) for an H100
    #: whether no further process may use the GPU: another process has it in exclusive mode, or its
    #: compute mode is ``prohibited``
    is_busy: bool


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """Versions of the NVIDIA driver, and the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible."""

    driver: str  #: the driver's version
    cuda: tuple[int, int]  #: newest CUDA version that the driver supports
    devices: tuple[Gpu, ...]  #: GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible


@contextmanager
def nvml_session() -> Iterator[Any]:
    """Yield the module ``pynvml``, initialized for the block; errors of NVML become NvmlError."""
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
    """Return the driver's versions and this machine's visible GPUs; NvmlError if NVML fails."""
    with nvml_session() as nvml:
        cuda = nvml.nvmlSystemGetCudaDriverVersion()
        gpus = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        return Gpus(
            driver=nvml.nvmlSystemGetDriverVersion(),
            cuda=(cuda // 1000, cuda % 1000 // 10),
            devices=tuple(visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))),
        )


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    total = free = None  # the GPU shares the host's memory
    with suppress(nvml.NVMLError_NotSupported):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = int(memory.total), int(memory.free)
    return Gpu(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        uuid=nvml.nvmlDeviceGetUUID(handle),
        memory=total,
        free=free,
        capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        is_busy=_is_busy(nvml, handle),
    )


def _is_busy(nvml: Any, handle: Any) -> bool:
    mode = nvml.nvmlDeviceGetComputeMode(handle)
    if mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
        return bool(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return bool(mode == nvml.NVML_COMPUTEMODE_PROHIBITED)


def visible(gpus: list[Gpu], cuda_visible_devices: str | None) -> list[Gpu]:
    """Return the ``gpus`` that ``CUDA_VISIBLE_DEVICES`` selects, in its order; all if it is None.

    As in CUDA, a GPU is named by its number or by a prefix of its UUID. The list ends before the
    first name that is unknown or repeated. Numbers are NVML's, CUDA's too with equal GPUs.
    """
    if cuda_visible_devices is None:
        return gpus
    selected: list[Gpu] = []
    for name in (entry.strip() for entry in cuda_visible_devices.split(",")):
        number = int(name) if name.isascii() and name.isdecimal() else None
        by_number = [gpu for gpu in gpus if gpu.index == number]
        by_uuid = [gpu for gpu in gpus if name and gpu.uuid.startswith(name)]
        named = by_number or (by_uuid if len(by_uuid) == 1 else [])
        if not named or named[0] in selected:
            break
        selected += named
    return selected


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """Energy and PCIe traffic of a GPU, in total or of a time span; None: no such counter."""

    energy_j: float | None = None  #: joules
    received_bytes: int | None = None  #: over PCIe, from the host
    sent_bytes: int | None = None  #: over PCIe, to the host

    def since(self, earlier: GpuUse) -> GpuUse:
        """Return the use from ``earlier`` to this; both are totals read from the counters."""
        return self._combine(earlier, operator.sub)

    def __add__(self, other: GpuUse) -> GpuUse:
        return self._combine(other, operator.add)

    def _combine(self, other: GpuUse, operation: Callable[[Any, Any], Any]) -> GpuUse:
        pairs = {name: (value, getattr(other, name)) for name, value in vars(self).items()}
        return GpuUse(
            **{name: None if None in pair else operation(*pair) for name, pair in pairs.items()}
        )


class GpuMeter:
    """Meter of a GPU's energy and PCIe traffic by all processes; NVML is initialized once."""

    def __init__(self, index: int) -> None:
        """Start to meter visible GPU number ``index``; NvmlError if it is missing or NVML fails."""
        gpus = find_gpus().devices
        if index >= len(gpus):
            raise NvmlError(f"there is no GPU {index}")
        self._nvml_block = nvml_session()
        self._library: Any = self._nvml_block.__enter__()
        self._handle = self._library.nvmlDeviceGetHandleByIndex(gpus[index].index)
        self._last_reading = self._read()

    @classmethod
    def of(cls, index: int | None) -> GpuMeter | None:
        """Return a meter of visible GPU number ``index``; None: there is none, or NVML fails."""
        if index is not None:
            with suppress(NvmlError):
                return cls(index)
        return None

    def take(self) -> GpuUse:
        """Return the GPU's use since the last call; the first call, since the meter was made."""
        reading = self._read()
        use, self._last_reading = reading.since(self._last_reading), reading
        return use

    def close(self) -> None:
        """Shut down this meter's NVML session."""
        with suppress(NvmlError):
            self._nvml_block.__exit__(None, None, None)

    def _read(self) -> GpuUse:
        library = self._library
        millijoules = None
        with suppress(library.NVMLError):
            millijoules = library.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        fields = (library.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, library.NVML_FI_DEV_PCIE_COUNT_TX_BYTES)
        counts: list[int | None] = [None, None]
        with suppress(library.NVMLError):
            counts = [
                int(answer.value.ullVal) if answer.nvmlReturn == library.NVML_SUCCESS else None
                for answer in library.nvmlDeviceGetFieldValues(self._handle, fields)
            ]
        return GpuUse(
            energy_j=None if millijoules is None else millijoules / 1000,
            received_bytes=counts[0],
            sent_bytes=counts[1],
        )
