"""Simulated card: memory banks, the loaded bitstream, and its compute units."""

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

#: Alignment of address and size of every buffer, in bytes.
ALIGNMENT = 4096
#: Initial bytes of device memory, which read as NaN in float32.
_NEVER_WRITTEN = 0xFF


class SyncDirection(IntEnum):
    """Direction of ``sync``; pyxrt's ``xclBOSyncDirection``."""

    XCL_BO_SYNC_BO_TO_DEVICE = 0
    XCL_BO_SYNC_BO_FROM_DEVICE = 1


class BufferFlags(IntEnum):
    """Kind of a buffer's memory; pyxrt's ``bo.flags``."""

    normal = 0
    cacheable = 1 << 24
    device_only = 1 << 28
    host_only = 1 << 29
    p2p = 1 << 30
    svm = 1 << 27


class Bank:
    """Memory bank of the simulated device: its size, and the number of its bytes in use."""

    def __init__(self, index: int, num_bytes: int) -> None:
        self.index = index  #: number of the bank
        self.num_bytes = num_bytes  #: size
        self.in_use = 0  #: bytes of allocated buffers
        # Reentrant, since the garbage collector may free a buffer during an allocation.
        self._lock = threading.RLock()

    def take(self, num_bytes: int) -> None:
        """Count further ``num_bytes`` as in use; RuntimeError: the bank has fewer free bytes."""
        with self._lock:
            if self.in_use + num_bytes > self.num_bytes:
                raise RuntimeError(
                    f"out of device memory: bank {self.index} has {self.num_bytes:,} bytes, of "
                    f"which {self.in_use:,} are in use, got a request of {num_bytes:,} more"
                )
            self.in_use += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Count ``num_bytes`` as free again."""
        with self._lock:
            self.in_use -= num_bytes


class BufferObject:
    """Buffer in a memory bank of the device, with a copy in host memory.

    Only ``sync`` copies between both. An access out of range, or to the host copy of a
    ``device_only`` buffer, which has none, is a ``RuntimeError``.
    """

    def __init__(self, bank: Bank, num_bytes: int, flags: BufferFlags) -> None:
        """Allocate ``num_bytes`` of ``bank``, in full pages: 0xFF on the device, zeros on the host.

        Python's garbage collection of the buffer frees them. RuntimeError: the bank is full, or the
        card has no buffers of kind ``flags``.
        """
        if num_bytes < 1:
            raise RuntimeError(f"a buffer of {num_bytes} bytes")
        if flags == BufferFlags.host_only:
            raise RuntimeError("the simulated board has no access to host memory: host_only")
        if flags in (BufferFlags.p2p, BufferFlags.svm):
            raise RuntimeError(f"the simulated board has no {BufferFlags(flags).name} buffers")
        self._bank = bank
        num_aligned = -(-num_bytes // ALIGNMENT) * ALIGNMENT
        bank.take(num_aligned)
        weakref.finalize(self, bank.give_back, num_aligned).atexit = False
        self._device = _aligned(num_bytes)
        self._device.fill(_NEVER_WRITTEN)
        hidden = flags == BufferFlags.device_only
        self._host_copy = None if hidden else _aligned(num_bytes)

    def write(self, data: Any, seek: int) -> None:
        """Copy ``data``, a contiguous buffer, to the host copy from byte ``seek`` on."""
        view = memoryview(data)
        if not view.c_contiguous:
            raise RuntimeError("write: the data is not contiguous")
        source = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
        self._check("write", len(source), seek)
        self._host[seek : seek + len(source)] = source

    def read(self, size: int, skip: int) -> NDArray[np.int8]:
        """Return a copy of ``size`` bytes of the host copy from byte ``skip`` on."""
        self._check("read", size, skip)
        copied: NDArray[np.int8] = self._host[skip : skip + size].copy().view(np.int8)
        return copied

    def sync(
        self, direction: SyncDirection, size: int | None = None, offset: int | None = None
    ) -> None:
        """Copy ``size`` bytes from byte ``offset`` on between the host copy and the device.

        ``direction`` is to or from the device. Both None: copy all bytes; only one None: TypeError.
        """
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
        """Return the writable host copy itself."""
        return self._host.data

    def size(self) -> int:
        """Return the requested number of bytes."""
        return len(self._device)

    def address(self) -> int:
        """Return the address, in this process, of the memory that simulates the device's."""
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
    """Return the index of a buffer's memory bank, and the kernel argument for the buffer."""
    return buffer._bank.index, Buffer(buffer.address(), buffer.size())


def _aligned(num_bytes: int) -> UInt8Array:
    """Return ``[num_bytes]`` zeros at an address that is a multiple of ``ALIGNMENT``."""
    raw = np.zeros(num_bytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + num_bytes]


#: Cards of the simulated machine; unopened cards use no memory.
NUM_CARDS = 16


class CommandState(IntEnum):
    """State of a run; pyxrt's ``ert_cmd_state``."""

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
    """Kernel call in the queue of a compute unit."""

    def __init__(self, values: Sequence[Buffer | int], keep_alive: object = None) -> None:
        self.values = values  #: arguments of the kernel
        #: objects that live until the kernel is done, such as the buffers of ``values``
        self.keep_alive = keep_alive
        self.outcome: Outcome | None = None  #: None until the call is done
        self._done = threading.Event()

    @property
    def state(self) -> CommandState:
        """State of the call: queued or running, completed, or ended by the kernel's error."""
        if self.outcome is None:
            return CommandState.ERT_CMD_STATE_QUEUED
        if self.outcome.error:
            return CommandState.ERT_CMD_STATE_ERROR
        return CommandState.ERT_CMD_STATE_COMPLETED

    def finish(self, outcome: Outcome) -> None:
        """Set the outcome, wake waiting threads, and drop the objects kept alive for the call."""
        self.outcome = outcome
        self.keep_alive = None
        self._done.set()

    def wait(self, seconds: float | None) -> bool:
        """Wait up to ``seconds`` (None: without limit), and return whether the call is done."""
        return self._done.wait(seconds)


class ComputeUnit:
    """Instance of the kernel, which runs its commands in order, parallel to other instances."""

    def __init__(self, library: Library, name: str, bank: Bank) -> None:
        self.name = name  #: such as ``gnnscale_step_1``
        self.bank = bank  #: bank of its buffers
        self._library = library
        self._lock = threading.Lock()
        self._waiting: deque[Command] = deque()
        self._works = False

    @property
    def num_waiting(self) -> int:
        """Number of commands that are queued or running."""
        return len(self._waiting)

    def submit(self, command: Command) -> None:
        """Queue ``command`` after all earlier ones, without waiting.

        Starts the unit's thread if it is idle.
        """
        with self._lock:
            self._waiting.append(command)
            if not self._works:
                self._works = True
                threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def _work(self) -> None:
        """Run queued commands in order in this thread, until no command is queued."""
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
    """Bitstream loaded on a card: its compute units, and a memory bank for each of them."""

    def __init__(self, library: Library, uuid: str) -> None:
        self.library = library  #: library of the kernels
        self.uuid = uuid  #: id of the bitstream
        #: banks of the card; compute unit k uses bank k-1
        self.banks = [Bank(index, library.bank_bytes) for index in range(library.compute_units)]
        names = [f"{library.kernel}_{bank.index + 1}" for bank in self.banks]
        #: compute units by name
        self.units = {
            name: ComputeUnit(library, name, bank)
            for name, bank in zip(names, self.banks, strict=True)
        }

    def matching(self, name: str) -> list[ComputeUnit]:
        """Return the compute units named by ``kernel``, which means all, or ``kernel:{unit,unit}``.

        RuntimeError: there is none.
        """
        kernel, braced, units = name.partition(":")
        if kernel != self.library.kernel:
            raise RuntimeError(
                f"No such kernel {kernel!r}: the bitstream has {self.library.kernel!r}"
            )
        if not braced:
            return list(self.units.values())
        names = units.strip("{}").split(",")
        matching = [unit for name, unit in self.units.items() if name in names]
        if not matching:
            raise RuntimeError(
                f"No compute units matching {name!r}: the bitstream has {', '.join(self.units)}"
            )
        return matching


class SimulatedCard:
    """Card of the simulated machine, shared by all users in a process."""

    def __init__(self, index: int) -> None:
        self.index = index  #: number of the card
        self.bdf = _bdf(index)  #: its address on the PCIe bus
        self._lock = threading.Lock()
        self._image: Image | None = None
        self._users: weakref.WeakSet[object] = weakref.WeakSet()

    def load(self, library: Library, uuid: str) -> None:
        """Load bitstream ``library`` with id ``uuid``, unless it is loaded already.

        RuntimeError: another bitstream is loaded, and a user of it, see ``image``, still lives.
        """
        with self._lock:
            if self._image is not None and self._image.uuid == uuid:
                return
            # Unreachable users remain in the set until a garbage collection.
            gc.collect()
            if self._image is not None and len(self._users):
                raise RuntimeError(
                    f"the card is busy with bitstream {self._image.library.path}, whose kernels "
                    f"or buffers are in use; {library.path} cannot be loaded"
                )
            self._image = Image(library, uuid)

    def image(self, user: object) -> Image:
        """Return the loaded bitstream; no other bitstream can be loaded while ``user`` lives.

        RuntimeError: no bitstream is loaded.
        """
        with self._lock:
            if self._image is None:
                raise RuntimeError("no bitstream is loaded on the card")
            self._users.add(user)
            return self._image


_CARDS: weakref.WeakValueDictionary[int, SimulatedCard] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def find_card(which: int | str) -> SimulatedCard:
    """Return a card by its number, or by its address ``SimulatedCard.bdf``.

    All callers in a process share a card. RuntimeError: there is no such card.
    """
    index = which
    if isinstance(which, str):
        index = next((number for number in range(NUM_CARDS) if _bdf(number) == which), -1)
    if not isinstance(index, int) or not 0 <= index < NUM_CARDS:
        raise RuntimeError(f"No such device {which!r}: the simulated machine has {NUM_CARDS}")
    with _LOCK:
        simulated = _CARDS.get(index)
        if simulated is None:
            simulated = _CARDS[index] = SimulatedCard(index)
        return simulated


def _bdf(index: int) -> str:
    return f"0000:{index + 1:02x}:00.1"
