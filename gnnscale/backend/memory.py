"""How much of an accelerator's memory is in use."""

from __future__ import annotations

import threading

from gnnscale.backend.base import DeviceMemoryError
from gnnscale.plan import Accelerator

__all__ = ["DeviceMemory"]


class DeviceMemory:
    """Counts bytes against ``memory_bytes``; several threads may take and free them."""

    def __init__(self, device: Accelerator) -> None:
        """Count the memory of ``device``, of which nothing is in use."""
        self._device = device
        self._in_use = self._kept = 0
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """Bytes that what comes and goes may take, all together."""
        return self._device.memory_bytes - self._kept

    def keep(self, num_bytes: int, what: str) -> None:
        """Take ``num_bytes`` for ``what``, which stays.

        Raises:
            DeviceMemoryError: they do not fit beside what is in use.
        """
        self.reserve(num_bytes, what)
        self._kept += num_bytes

    def reserve(self, num_bytes: int, what: str) -> None:
        """Take ``num_bytes`` for ``what``, until they are freed.

        Raises:
            DeviceMemoryError: they do not fit beside what is in use.
        """
        budget = self._device.memory_bytes
        with self._lock:
            if self._in_use + num_bytes > budget:
                raise DeviceMemoryError(
                    f"{self._device.label}: out of device memory: {what} needs "
                    f"{num_bytes / 1e6:,.1f} MB beside {self._in_use / 1e6:,.1f} MB in use, and "
                    f"memory_bytes is {budget / 1e6:,.1f} MB; a smaller share, fewer neighbours "
                    "or a smaller cache take less"
                )
            self._in_use += num_bytes

    def free(self, num_bytes: int) -> None:
        """Give back ``num_bytes`` that were reserved."""
        with self._lock:
            self._in_use -= num_bytes
