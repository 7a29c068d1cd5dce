"""Module with the names, arguments and behavior of ``pyxrt``, over simulated cards.

It covers the calls of a host program: devices, bitstreams, kernels, runs and buffers. A bitstream
is a library of ``csim.build``. Mistakes that XRT accepts (a scalar out of range, an argument that
is not set, a buffer in another unit's bank) are errors here. A run has three additional
attributes: ``csim_error``, ``csim_counters``, ``csim_seconds``.
"""

# ruff: noqa: N801
# The names are pyxrt's.

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from uuid import UUID

from gnnscale.backend.fpga.csim.card import (
    NUM_CARDS,
    BufferFlags,
    BufferObject,
    Command,
    CommandState,
    ComputeUnit,
    SimulatedCard,
    SyncDirection,
    find_card,
    on_device,
)
from gnnscale.backend.fpga.csim.library import Argument, Library

ert_cmd_state = CommandState
xclBOSyncDirection = SyncDirection  # noqa: N816

_INT32 = range(-(2**31), 2**31)


def enumerate_devices() -> int:
    """Return the number of simulated cards."""
    return NUM_CARDS


class xrt_info_device:
    """Keys of ``device.get_info``."""

    bdf = "bdf"
    name = "name"
    max_clock_frequency_mhz = "max_clock_frequency_mhz"


class uuid:
    """Id of a bitstream."""

    def __init__(self, text: str) -> None:
        self._text = str(UUID(text))

    def to_string(self) -> str:
        """Return the id as text of 36 characters."""
        return self._text


class xclbin:
    """Simulated bitstream: a shared library of one kernel. Any other file is a ``RuntimeError``."""

    class xclbinkernel:
        """Name and number of arguments of a bitstream's kernel."""

        def __init__(self, library: Library) -> None:
            self._library = library

        def get_name(self) -> str:
            """Return the kernel's name, without a compute unit."""
            return self._library.kernel

        def get_num_args(self) -> int:
            """Return the number of the kernel's arguments."""
            return len(self._library.arguments)

    def __init__(self, filename: str) -> None:
        self._library = Library(filename)
        digest = hashlib.sha256(Path(filename).read_bytes()).digest()
        self._uuid = str(UUID(bytes=digest[:16]))

    def get_kernels(self) -> list[xclbinkernel]:
        """Return a list with the only kernel of the bitstream."""
        return [xclbin.xclbinkernel(self._library)]

    def get_uuid(self) -> uuid:
        """Return the id of the bitstream, a hash of the file."""
        return uuid(self._uuid)

    def get_xsa_name(self) -> str:
        """Return the name of the bitstream's platform, ``csim`` for every bitstream."""
        return "csim"


class device:
    """Simulated ``pyxrt.device``: a card, by its number or by its address on the PCIe bus."""

    def __init__(self, index: int | str = 0) -> None:
        self._card = find_card(index)
        self._registered: dict[str, Library] = {}
        self._loaded: uuid | None = None

    def load_xclbin(self, xclbin_: str | xclbin) -> uuid:
        """Load a bitstream, given as an object or as a path, on the card; return its id."""
        loaded = self.register_xclbin(xclbin_ if isinstance(xclbin_, xclbin) else xclbin(xclbin_))
        self._load(loaded)
        return loaded

    def register_xclbin(self, xclbin_: xclbin) -> uuid:
        """Register a bitstream, not yet loaded, for a ``hw_context`` or kernel; return its id."""
        self._registered[xclbin_._uuid] = xclbin_._library
        return xclbin_.get_uuid()

    def get_xclbin_uuid(self) -> uuid:
        """Return the id of the last bitstream that was loaded on the card through this object."""
        if self._loaded is None:
            raise RuntimeError("no bitstream was loaded")
        return self._loaded

    def get_info(self, key: str) -> str:
        """Return the value of a key of ``xrt_info_device``, as text."""
        if key == xrt_info_device.bdf:
            return self._card.bdf
        if key == xrt_info_device.name:
            return "gnnscale_csim"
        libraries = self._registered.values()
        return str(max((library.clock_hz for library in libraries), default=0) // 10**6)

    def _load(self, which: uuid) -> SimulatedCard:
        text = which.to_string()
        if text not in self._registered:
            raise RuntimeError(f"no xclbin with uuid {text} is registered with the device")
        self._card.load(self._registered[text], text)
        self._loaded = which
        return self._card


class hw_context:
    """Simulated ``pyxrt.hw_context``: its construction loads a registered bitstream on a device."""

    def __init__(self, device_: device, uuid_: uuid) -> None:
        self._card = device_._load(uuid_)


class kernel:
    """Compute units of a kernel: some by ``kernel:{unit,unit}``, or all by the kernel's name."""

    class cu_access_mode(IntEnum):
        """Sharing of compute units; simulated cards ignore it."""

        exclusive = 0
        shared = 1
        none = 2

    exclusive = cu_access_mode.exclusive
    shared = cu_access_mode.shared
    none = cu_access_mode.none

    def __init__(
        self,
        where: device | hw_context,
        what: uuid | str,
        name: str | None = None,
        mode: cu_access_mode = cu_access_mode.shared,
    ) -> None:
        """Open compute units by ``(hw_context, name)``, or by ``(device, uuid, name[, mode])``.

        The bitstream stays on the card while this object lives.
        """
        if isinstance(where, hw_context) and isinstance(what, str) and name is None:
            card, full_name = where._card, what
        elif isinstance(where, device) and isinstance(what, uuid) and isinstance(name, str):
            card, full_name = where._load(what), name
        else:
            raise TypeError("kernel: takes (hw_context, name) or (device, uuid, name[, mode])")
        image = card.image(self)
        self._card = card
        self._name = full_name
        self._arguments: tuple[Argument, ...] = image.library.arguments
        self._units: list[ComputeUnit] = image.matching(full_name)

    def __call__(self, *args: bo | int) -> run:
        """Start a run of the kernel with ``args``, without waiting, and return it."""
        started = run(self)
        for index, value in enumerate(args):
            started.set_arg(index, value)
        started.start()
        return started

    def group_id(self, argument: int) -> int:
        """Return the index of the memory bank for a buffer that is passed as argument ``argument``.

        It is the bank of the first compute unit. IndexError: the argument is no buffer.
        """
        if not 0 <= argument < len(self._arguments) or not self._arguments[argument].is_buffer:
            raise IndexError(f"argument {argument} of {self._name} is no buffer")
        return self._units[0].bank.index


class run:
    """Simulated ``pyxrt.run``: a kernel call, which may be started again once it has ended."""

    def __init__(self, kernel_: kernel) -> None:
        self._kernel = kernel_
        self._values: dict[int, bo | int] = {}
        self._command: Command | None = None

    def set_arg(self, index: int, value: bo | int) -> None:
        """Set an argument: a buffer, or a signed 32-bit integer."""
        arguments = self._kernel._arguments
        if not 0 <= index < len(arguments):
            raise RuntimeError(f"Bad argument index {index}: there are {len(arguments)}")
        if not isinstance(value, bo):
            value = operator.index(value)
            if value not in _INT32:
                raise TypeError(
                    f"argument {index} ({arguments[index].name}) is {value}, which a signed "
                    "integer of 32 bits cannot hold"
                )
        self._values[index] = value

    def start(self) -> None:
        """Queue the run at the least busy compute unit with access to its buffers' bank.

        RuntimeError: the run has not ended, or an argument is missing, wrong or in another bank.
        """
        if self._command is not None and self._command.outcome is None:
            raise RuntimeError("bad command state, can't launch: the run is under way")
        arguments = enumerate(self._kernel._arguments)
        values = [self._checked(index, argument) for index, argument in arguments]
        banks = {on_device(value)[0] for value in values if isinstance(value, bo)}
        units = [unit for unit in self._kernel._units if banks <= {unit.bank.index}]
        if not units:
            raise RuntimeError(self._wrong_bank())
        unit = min(units, key=lambda unit: unit.num_waiting)
        passed = [on_device(value)[1] if isinstance(value, bo) else value for value in values]
        self._command = Command(passed, keep_alive=values)
        unit.submit(self._command)

    def wait(self, timeout_ms: int = 0) -> CommandState:
        """Wait up to ``timeout_ms`` (0: without limit) for the end; return the state or TIMEOUT."""
        if self._command is None:
            raise RuntimeError("wait: the run was not started")
        if not self._command.wait(timeout_ms / 1000 if timeout_ms else None):
            return CommandState.ERT_CMD_STATE_TIMEOUT
        return self._command.state

    def state(self) -> CommandState:
        """Return the current state of the run, NEW before ``start``."""
        return CommandState.ERT_CMD_STATE_NEW if self._command is None else self._command.state

    @property
    def csim_error(self) -> str:
        """Error of the kernel; empty for success, and before the end."""
        outcome = self._command and self._command.outcome
        return outcome.error if outcome else ""

    @property
    def csim_counters(self) -> Mapping[str, int]:
        """Counters of the kernel, by name; empty before the end."""
        outcome = self._command and self._command.outcome
        return outcome.counters if outcome else {}

    @property
    def csim_seconds(self) -> float:
        """Seconds that the host took to simulate the kernel; 0 before the end."""
        outcome = self._command and self._command.outcome
        return outcome.seconds if outcome else 0.0

    def _checked(self, index: int, argument: Argument) -> bo | int:
        """Return an argument's value; RuntimeError: not set, or set to the wrong type."""
        value = self._values.get(index)
        what = f"argument {index} ({argument.name}) of {self._kernel._name}"
        if value is None:
            raise RuntimeError(f"{what} was not set")
        if isinstance(value, bo) != argument.is_buffer:
            expected, got = ("buffer", "scalar") if argument.is_buffer else ("scalar", "buffer")
            raise RuntimeError(f"{what} is a {expected}, and was set to a {got}")
        return value

    def _wrong_bank(self) -> str:
        kernel_ = self._kernel
        units = ", ".join(f"{unit.name} uses bank {unit.bank.index}" for unit in kernel_._units)
        buffers = ", ".join(
            f"argument {index} ({kernel_._arguments[index].name}) is in bank {on_device(value)[0]}"
            for index, value in sorted(self._values.items())
            if isinstance(value, bo)
        )
        return f"wrong bank: {units}; {buffers}"


class bo(BufferObject):
    """Buffer of a device, in the bank with index ``group``, a result of ``kernel.group_id``."""

    flags = BufferFlags
    normal = BufferFlags.normal
    cacheable = BufferFlags.cacheable
    device_only = BufferFlags.device_only
    host_only = BufferFlags.host_only
    p2p = BufferFlags.p2p
    svm = BufferFlags.svm

    def __init__(self, device_: device, size: int, flags: BufferFlags, group: int) -> None:
        self._card = device_._card
        banks = self._card.image(self).banks
        if not 0 <= group < len(banks):
            raise RuntimeError(f"no bank {group}: the card has {len(banks)}")
        super().__init__(banks[group], size, flags)
