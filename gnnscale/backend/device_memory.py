"""Memory of a device: an account of its bytes, and the errors of a device."""

import threading

from gnnscale.core import errors
from gnnscale.planner import Accelerator


class DeviceError(errors.ConfigError):
    """Failure of a device. The message is one line."""


class DeviceMemoryError(DeviceError):
    """A device's memory is too small. The message is one line."""


class DeviceMemory:
    """Thread-safe account of the bytes in use of a device's ``memory_bytes``.

    Example of a device with a budget of 100 bytes:

        memory.keep(60, "the model")  # for the whole run: ``room`` is 40
        memory.reserve(30, "a mini-batch")  # 90 in use
        memory.reserve(20, "a mini-batch")  # DeviceMemoryError
    """

    def __init__(self, device: Accelerator) -> None:
        self._device = device
        self._in_use = self._permanent = 0
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """Bytes for mini-batches: the budget less all permanent reservations."""
        return self._device.budget_bytes - self._permanent

    def keep(self, num_bytes: int, what: str) -> None:
        """Reserve ``num_bytes`` for the whole run; see ``reserve``."""
        self.reserve(num_bytes, what)
        self._permanent += num_bytes

    def reserve(self, num_bytes: int, what: str) -> None:
        """Reserve ``num_bytes`` of ``what`` until ``free``; DeviceMemoryError without room."""
        budget = self._device.budget_bytes
        with self._lock:
            if self._in_use + num_bytes > budget:
                raise DeviceMemoryError(
                    f"{self._device.label}: out of device memory: {what} needs "
                    f"{num_bytes / 1e6:,.1f} MB beside {self._in_use / 1e6:,.1f} MB in use, and "
                    f"memory_bytes is {budget / 1e6:,.1f} MB; a smaller share, fewer neighbors "
                    "or a smaller cache take less"
                )
            self._in_use += num_bytes

    def free(self, num_bytes: int) -> None:
        """Free ``num_bytes`` of ``reserve``."""
        with self._lock:
            self._in_use -= num_bytes
