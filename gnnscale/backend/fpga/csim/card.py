"""The simulated card: its memory banks, what is loaded on it, and its compute units."""

import gc
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.backend.fpga.csim.library import Buffer, Library, Outcome
from gnnscale.core import UInt8Array

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
    def _host(self) -> UInt8Array:
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


def _aligned(num_bytes: int) -> UInt8Array:
    """Return zeros that begin at a multiple of ``ALIGNMENT``."""
    raw = np.zeros(num_bytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + num_bytes]


#: Cards of the simulated machine; one that is never opened takes nothing.
NUM_CARDS = 16


class CommandState(IntEnum):
    """How far a run is; pyxrt's ``ert_cmd_state``."""

    ERT_CMD_STATE_NEW = 1
    ERT_CMD_STATE_QUEUED = 2
    ERT_CMD_STATE_COMPLETED = 4
    ERT_CMD_STATE_ERROR = 5
    ERT_CMD_STATE_ABORT = 6
    ERT_CMD_STATE_SUBMITTED = 7
    ERT_CMD_STATE_TIMEOUT = 8
    ERT_CMD_STATE_NORESPONSE = 9
    ERT_CMD_STATE_SKERROR = 10
    ERT_CMD_STATE_SKCRASHED = 11


class Command:
    """One call of the kernel on its way through a compute unit."""

    def __init__(self, values: Sequence[Buffer | int], held: object = None) -> None:
        self.values = values  #: what the kernel is called with
        #: kept alive until the kernel is done, such as the buffers that ``values`` points to
        self.held = held
        self.outcome: Outcome | None = None  #: what came of it; None until it is done
        self._done = threading.Event()

    @property
    def state(self) -> CommandState:
        """Queued (which running is, too), completed, or ended by an error of the kernel's."""
        if self.outcome is None:
            return CommandState.ERT_CMD_STATE_QUEUED
        if self.outcome.error:
            return CommandState.ERT_CMD_STATE_ERROR
        return CommandState.ERT_CMD_STATE_COMPLETED

    def finish(self, outcome: Outcome) -> None:
        """Wake who waits for it."""
        self.outcome = outcome
        self.held = None
        self._done.set()

    def wait(self, seconds: float | None) -> bool:
        """Return whether it was done within ``seconds``; None for any number of them."""
        return self._done.wait(seconds)


class ComputeUnit:
    """One copy of the kernel. It runs commands in order, and beside other compute units."""

    def __init__(self, library: Library, name: str, bank: Bank) -> None:
        self.name = name  #: such as ``gnnscale_step_1``
        self.bank = bank  #: where its buffers are
        self._library = library
        self._lock = threading.Lock()
        self._waiting: deque[Command] = deque()
        self._works = False

    @property
    def num_waiting(self) -> int:
        """Commands that are not done."""
        return len(self._waiting)

    def submit(self, command: Command) -> None:
        """Run ``command`` once all before it are done; returns at once."""
        with self._lock:
            self._waiting.append(command)
            if not self._works:
                self._works = True
                threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def _work(self) -> None:
        """Run what waits, and end with the last of it."""
        while True:
            command = self._waiting[0]
            outcome = self._library.call(command.values)
            with self._lock:
                self._waiting.popleft()
                self._works = bool(self._waiting)
                last = not self._works
            command.finish(outcome)
            if last:
                return


class Image:
    """A bitstream on a card: its compute units, each with its own bank."""

    def __init__(self, library: Library, uuid: str) -> None:
        self.library = library  #: the kernels
        self.uuid = uuid  #: of the bitstream
        #: of the card; compute unit k uses bank k-1
        self.banks = [Bank(index, library.bank_bytes) for index in range(library.compute_units)]
        names = [f"{library.kernel}_{bank.index + 1}" for bank in self.banks]
        #: compute units by name
        self.units = {
            name: ComputeUnit(library, name, bank)
            for name, bank in zip(names, self.banks, strict=True)
        }

    def matching(self, name: str) -> list[ComputeUnit]:
        """Return the compute units that ``kernel`` or ``kernel:{unit,unit}`` names.

        Raises:
            RuntimeError: there is none; the message lists the valid names.
        """
        kernel, braced, units = name.partition(":")
        if kernel != self.library.kernel:
            raise RuntimeError(
                f"No such kernel {kernel!r}: the bitstream has {self.library.kernel!r}"
            )
        if not braced:
            return list(self.units.values())
        wanted = units.strip("{}").split(",")
        found = [unit for each, unit in self.units.items() if each in wanted]
        if not found:
            raise RuntimeError(
                f"No compute units matching {name!r}: the bitstream has {', '.join(self.units)}"
            )
        return found


class SimulatedCard:
    """A board of the simulated machine, shared by all of a process that open it."""

    def __init__(self, index: int) -> None:
        self.index = index  #: which one
        self.bdf = _bdf(index)  #: where it would be on the PCIe bus
        self._lock = threading.Lock()
        self._image: Image | None = None
        self._users: weakref.WeakSet[object] = weakref.WeakSet()

    def load(self, library: Library, uuid: str) -> None:
        """Put a bitstream on the card, unless it is there already.

        Raises:
            RuntimeError: kernels or buffers of another one are in use.
        """
        with self._lock:
            if self._image is not None and self._image.uuid == uuid:
                return
            # What is no longer in use may still be there, until the collector looks.
            gc.collect()
            if self._image is not None and len(self._users):
                raise RuntimeError(
                    f"the card is busy with bitstream {self._image.library.path}, whose kernels "
                    f"or buffers are in use; {library.path} cannot be loaded"
                )
            self._image = Image(library, uuid)

    def image(self, user: object) -> Image:
        """Return what is loaded; it stays loaded while ``user`` lives.

        Raises:
            RuntimeError: nothing is.
        """
        with self._lock:
            if self._image is None:
                raise RuntimeError("no bitstream is loaded on the card")
            self._users.add(user)
            return self._image


_CARDS: weakref.WeakValueDictionary[int, SimulatedCard] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def card(which: int | str) -> SimulatedCard:
    """Return a card by its number, or by its address ``SimulatedCard.bdf``.

    Raises:
        RuntimeError: there is no such card.
    """
    index = which
    if isinstance(which, str):
        index = next((each for each in range(NUM_CARDS) if _bdf(each) == which), -1)
    if not isinstance(index, int) or not 0 <= index < NUM_CARDS:
        raise RuntimeError(f"No such device {which!r}: the simulated machine has {NUM_CARDS}")
    with _LOCK:
        found = _CARDS.get(index)
        if found is None:
            found = _CARDS[index] = SimulatedCard(index)
        return found


def _bdf(index: int) -> str:
    return f"0000:{index + 1:02x}:00.1"
