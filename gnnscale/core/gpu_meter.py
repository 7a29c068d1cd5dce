"""What a GPU takes while it works, by its own counters (NVML)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from gnnscale.core import nvml

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
        found = nvml.find_gpus().devices
        if index >= len(found):
            raise nvml.NvmlError(f"there is no GPU {index}")
        self._opened = nvml.opened()
        self._library: Any = self._opened.__enter__()
        self._handle = self._library.nvmlDeviceGetHandleByIndex(found[index].index)
        self._before = self._read()

    @classmethod
    def of(cls, index: int | None) -> GpuMeter | None:
        """Return the meter of a GPU; None if ``index`` is, or if the driver does not answer."""
        if index is not None:
            with suppress(nvml.NvmlError):
                return cls(index)
        return None

    def take(self) -> GpuUse:
        """Return what the GPU took since the last call."""
        now = self._read()
        used, self._before = now.since(self._before), now
        return used

    def close(self) -> None:
        """Close NVML."""
        with suppress(nvml.NvmlError):
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
