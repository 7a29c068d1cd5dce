"""The memory of a simulated board: banks of bytes, and buffers with a copy at the host."""

from __future__ import annotations

import threading
import weakref
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.backend.fpga.csim.library import Buffer

#: Every buffer begins at, and takes, a multiple of so many bytes.
ALIGNMENT = 4096
#: What device memory holds before anything was sent there: four of them are a float that is NaN.
_NEVER_WRITTEN = 0xFF


class SyncDirection(IntEnum):
    """Which way ``sync`` copies; pyxrt's ``xclBOSyncDirection``."""

    XCL_BO_SYNC_BO_TO_DEVICE = 0
    XCL_BO_SYNC_BO_FROM_DEVICE = 1


class BufferFlags(IntEnum):
    """Where a buffer lies; pyxrt's ``bo.flags``."""

    normal = 0
    cacheable = 1 << 24
    device_only = 1 << 28
    host_only = 1 << 29
    p2p = 1 << 30
    svm = 1 << 27


class Bank:
    """Device memory that buffers are taken from; it counts bytes, and holds none itself."""

    def __init__(self, index: int, num_bytes: int) -> None:
        self.index = index  #: which bank of the board this is
        self.num_bytes = num_bytes  #: bytes that it has
        self._in_use = 0
        # Reentrant: the collector may free a buffer while another one is taken.
        self._lock = threading.RLock()

    @property
    def in_use(self) -> int:
        """Bytes that buffers take."""
        return self._in_use

    def take(self, num_bytes: int) -> None:
        """Take so many bytes.

        Raises:
            RuntimeError: the bank does not have them.
        """
        with self._lock:
            if self._in_use + num_bytes > self.num_bytes:
                raise RuntimeError(
                    f"out of device memory: bank {self.index} has {self.num_bytes:,} bytes, of "
                    f"which {self._in_use:,} are in use, and {num_bytes:,} more were asked for"
                )
            self._in_use += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Free so many bytes."""
        with self._lock:
            self._in_use -= num_bytes


class BufferObject:
    """Bytes of a bank, and a copy of them at the host; only ``sync`` moves any between the two.

    What is out of range raises a ``RuntimeError``. So does whatever needs the host's copy of a
    buffer that is ``device_only``.
    """

    def __init__(self, bank: Bank, num_bytes: int, flags: BufferFlags) -> None:
        """Take ``num_bytes`` of ``bank``; the device's hold 0xFF, the host's zeros.

        Raises:
            RuntimeError: the bank is full, or no buffer can be made so.
        """
        if num_bytes < 1:
            raise RuntimeError(f"a buffer of {num_bytes} bytes")
        if flags == BufferFlags.host_only:
            raise RuntimeError("the simulated board has no access to host memory: host_only")
        if flags in (BufferFlags.p2p, BufferFlags.svm):
            raise RuntimeError(f"the simulated board has no {BufferFlags(flags).name} buffers")
        self._bank = bank
        taken = -(-num_bytes // ALIGNMENT) * ALIGNMENT
        bank.take(taken)
        weakref.finalize(self, bank.give_back, taken).atexit = False
        self._device = _aligned(num_bytes)
        self._device.fill(_NEVER_WRITTEN)
        hidden = flags == BufferFlags.device_only
        self._host_copy = None if hidden else _aligned(num_bytes)

    def write(self, data: Any, seek: int) -> None:
        """Copy all bytes of ``data`` to the host's copy, at byte ``seek`` of it.

        Args:
            data: an object with a buffer, in one piece: pyxrt would read past its strides.
        """
        view = memoryview(data)
        if not view.c_contiguous:
            raise RuntimeError("write: the data is not contiguous")
        source = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
        self._check("write", len(source), seek)
        self._host[seek : seek + len(source)] = source

    def read(self, size: int, skip: int) -> NDArray[np.int8]:
        """Return ``size`` bytes of the host's copy from byte ``skip`` on, as a copy."""
        self._check("read", size, skip)
        copied: NDArray[np.int8] = self._host[skip : skip + size].copy().view(np.int8)
        return copied

    def sync(
        self, direction: SyncDirection, size: int | None = None, offset: int | None = None
    ) -> None:
        """Copy bytes between host and device: ``size`` from byte ``offset`` on, or all of them."""
        if (size is None) != (offset is None):
            raise TypeError("sync: takes a size with an offset, or neither")
        if size is None or offset is None:
            size, offset = self.size(), 0
        self._check("sync", size, offset)
        part = slice(offset, offset + size)
        if SyncDirection(direction) == SyncDirection.XCL_BO_SYNC_BO_TO_DEVICE:
            self._device[part] = self._host[part]
        else:
            self._host[part] = self._device[part]

    def map(self) -> memoryview:
        """Return the host's copy itself, as bytes that can be written to."""
        return self._host.data

    def size(self) -> int:
        """Return the number of bytes that were asked for."""
        return len(self._device)

    def address(self) -> int:
        """Return where the device finds the buffer."""
        return self._device.ctypes.data

    @property
    def _host(self) -> NDArray[np.uint8]:
        if self._host_copy is None:
            raise RuntimeError("device only buffer has no host buffer")
        return self._host_copy

    def _check(self, what: str, size: int, offset: int) -> None:
        if size < 0 or offset < 0 or offset + size > self.size():
            raise RuntimeError(
                f"{what}: bytes {offset} to {offset + size} of a buffer of {self.size()}"
            )


def on_device(buffer: BufferObject) -> tuple[int, Buffer]:
    """Return the index of a buffer's bank, and what a kernel is called with."""
    return buffer._bank.index, Buffer(buffer.address(), buffer.size())


def _aligned(num_bytes: int) -> NDArray[np.uint8]:
    """Return zeros that begin at a multiple of ``ALIGNMENT``."""
    raw = np.zeros(num_bytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + num_bytes]
