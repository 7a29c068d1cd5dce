"""What drives a board: buffers, transfers and runs through XRT's Python interface.

It imports NumPy alone. The module that talks to the driver, ``pyxrt`` or one with its interface, is
handed in, so that the same code runs on a card, in XRT's emulation, and on a simulated card.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnscale.core import Array, Float32Array, UInt8Array, UInt32Array

#: The kernel's arguments; numbers follow.
_BUFFERS = ("batch", "edges", "features", "weights", "gradients", "scratch", "result")
_PER_SLOT = ("batch", "edges", "features", "result")
#: The host never reads nor writes it.
_DEVICE_ONLY = "scratch"
_PAGE = 4096
_GROWTH = 1.25
#: ``ert_cmd_state`` of a run that has ended; pyxrt has no name for that of one that runs.
_ENDED = ("COMPLETED", "ERROR", "ABORT", "TIMEOUT", "NORESPONSE", "SKERROR", "SKCRASHED")
#: A wait polls the run again after this part of the time that it has taken so far, in seconds.
_PAUSE, _MIN_PAUSE, _MAX_PAUSE = 0.05, 20e-6, 1e-3
_CLOSING_S = 1.0

_SET_UP = "`xrt-smi examine` lists the cards; `source /opt/xilinx/xrt/setup.sh` sets XRT up"
_BUILT_FOR = "is it built for this card and for so many compute units?"
_TAKES_LESS = "a smaller share, fewer neighbours or a lower prefetch depth take less"
_RESET = "`xrt-smi examine` tells how the card is, and `xrt-smi reset` restarts it"


class BoardError(RuntimeError):
    """A board does not do what it should. The message is one line."""


class BoardMemoryError(BoardError):
    """A buffer does not fit into a board's memory. The message is one line."""


@dataclass
class _BoardBuffer:
    """A buffer of the board: what XRT gave, its copy at the host, and how much of it is in use."""

    bo: Any
    host: UInt8Array | None
    capacity: int
    num_bytes: int

    def words(self) -> UInt32Array:
        """Copy the used part out of the host's copy, which lives as long as ``bo`` only."""
        assert self.host is not None
        copied: UInt32Array = self.host[: self.num_bytes // 4 * 4].view(np.uint32).copy()
        return copied


@dataclass
class _Flight:
    """A run that was started, and the buffers that stay where they are until it has ended."""

    run: Any
    slot: int
    memories: Mapping[str, _BoardBuffer]
    started: float
    seconds: float = 0.0


@dataclass
class _Unit:
    """A compute unit. ``lock`` guards the others; it is never held while bytes move."""

    kernel: Any
    groups: Mapping[str, int]
    memories: dict[tuple[str, int], _BoardBuffer] = field(default_factory=dict)
    flights: deque[_Flight] = field(default_factory=deque)
    last: _Flight | None = None
    last_ended: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenBoard:
    """An FPGA card with a bitstream, as compute units, slots and buffers.

    A compute unit has ``weights``, ``gradients`` and ``scratch``, and for each slot a ``batch``,
    ``edges``, ``features`` and a ``result``. A slot is a mini-batch on its way: one thread may
    ``allocate`` and ``send`` to a slot while another one starts and waits for runs of the others.
    Runs of a compute unit end in the order in which they were started.

    Everything raises a ``BoardError`` of one line, which names the board, what was done, and what
    can be done about it.

    Attributes:
        label: the board's number and name, for messages.
        compute_units: how many there are, numbered from 0.
        slots: mini-batches that each of them can hold.
    """

    def __init__(
        self,
        xrt: Any,
        *,
        index: int,
        bitstream: str,
        kernel: str = "gnnscale_step",
        compute_units: int,
        slots: int,
    ) -> None:
        """Open a card, load the bitstream, and find its compute units.

        Args:
            xrt: ``pyxrt``, or a module with its interface. One with ``hw_context`` (XRT 2.16 and
                later) is used that way, older ones through ``load_xclbin``.
            index: number of the card, as ``xrt-smi examine`` counts.
            bitstream: path of an ``.xclbin``, or of what the simulated card takes for one.
            kernel: its name in the bitstream; compute units are ``{kernel}_1`` and so on.
        """
        self.label = f"board {index}"
        self.compute_units, self.slots = compute_units, slots
        self._xrt = xrt
        self._to_device = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
        self._from_device = xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
        states = xrt.ert_cmd_state
        self._ended = {getattr(states, f"ERT_CMD_STATE_{name}"): name for name in _ENDED}
        with self._doing("opening the card", _SET_UP):
            self._device: Any = xrt.device(index)
            self.label += f" ({self._device.get_info(xrt.xrt_info_device.name)})"
        with self._doing(f"loading {bitstream}", _BUILT_FOR):
            image = xrt.xclbin(bitstream)
            self._num_arguments = self._arguments_of(kernel, image)
            self._units = self._open(image, kernel)

    def allocate(self, unit: int, name: str, num_bytes: int, *, slot: int = 0) -> None:
        """Make a buffer hold ``num_bytes``; one that is too small is replaced, its content is lost.

        A new one has room for a quarter more than the one that it replaces. Runs that were started
        keep theirs.

        Args:
            name: ``gradients``, ``scratch`` or ``result``; what is sent is allocated by itself.
            slot: for ``batch``, ``edges``, ``features`` and ``result``; not in flight.

        Raises:
            BoardMemoryError: the compute unit's memory is too small.
        """
        found = self._unit(unit)
        key = self._key(name, slot)
        with found.lock:
            if name in _PER_SLOT and any(each.slot == slot for each in found.flights):
                raise BoardError(
                    f"{self.label}: slot {slot} of compute unit {unit} is in flight; "
                    "wait for its run first"
                )
            memory = found.memories.get(key)
            if memory is not None and memory.capacity >= num_bytes:
                memory.num_bytes = num_bytes
                return
            wanted = max(num_bytes, int(memory.capacity * _GROWTH) if memory else 1)
            # The old one goes first, so that memory need not hold both.
            found.memories.pop(key, None)
            del memory
            what = f"allocating {wanted / 1e6:,.1f} MB for {name} of compute unit {unit}"
            with self._doing(what, _TAKES_LESS, BoardMemoryError):
                found.memories[key] = self._new(wanted, num_bytes, name, found.groups[name])

    def send_weights(self, words: Array) -> int:
        """Send the weights to every compute unit, none of which may have a run in flight.

        Args:
            words: any shape and type; bytes are sent as they are.

        Returns:
            Bytes that were sent, to all of them.
        """
        for unit, found in enumerate(self._units):
            if found.flights:
                raise BoardError(
                    f"{self.label}: weights change while compute unit {unit} computes with them; "
                    "wait for its runs first"
                )
            self._send(unit, "weights", 0, words)
        return words.nbytes * len(self._units)

    def send(self, unit: int, slot: int, batch: Array, edges: Array, features: Array) -> int:
        """Send a mini-batch to a slot that is not in flight.

        Arrays may have any shape and type, since bytes are sent as they are.

        Returns:
            Bytes that were sent.
        """
        self._send(unit, "batch", slot, batch)
        self._send(unit, "edges", slot, edges)
        self._send(unit, "features", slot, features)
        return batch.nbytes + edges.nbytes + features.nbytes

    def start(self, unit: int, slot: int, scalars: Sequence[int]) -> None:
        """Start the kernel on what a slot holds, after other runs of the compute unit.

        Args:
            slot: of this compute unit; it is in flight until ``wait`` returns its result.
            scalars: what follows the buffers among the kernel's arguments: integers of 32 bits
                with sign. The bits of a float, or of half an integer of 64, are the caller's work.
        """
        found = self._unit(unit)
        takes = self._num_arguments - len(_BUFFERS)
        if len(scalars) != takes:
            raise BoardError(
                f"{self.label}: the kernel takes {takes} numbers, and {len(scalars)} were given; "
                f"the bitstream is of another version"
            )
        with found.lock:
            memories = {}
            for name in _BUFFERS:
                memory = found.memories.get(self._key(name, slot))
                if memory is None:
                    raise BoardError(
                        f"{self.label}: {name} of compute unit {unit}, slot {slot}, holds nothing; "
                        "send or allocate it first"
                    )
                memories[name] = memory
            with self._doing(f"starting compute unit {unit}", _RESET):
                run = self._xrt.run(found.kernel)
                values = (*(each.bo for each in memories.values()), *scalars)
                for position, value in enumerate(values):
                    run.set_arg(position, value)
                started = time.perf_counter()
                run.start()
                found.flights.append(_Flight(run, slot, memories, started))

    def wait(self, unit: int, timeout_s: float) -> UInt32Array:
        """Wait for the oldest run in flight, and fetch its result.

        pyxrt's own wait keeps every other Python thread from running, so this one asks for the
        state and sleeps in between: 5 % of the time so far, at most a millisecond.

        Args:
            timeout_s: seconds; a run that takes longer stays in flight, and may be waited for
                again.

        Returns:
            A copy of the words of ``result``; ``view(numpy.float32)`` has them as floats.
        """
        found = self._unit(unit)
        if not found.flights:
            raise BoardError(f"{self.label}: compute unit {unit} has no run to wait for; start one")
        flight = found.flights[0]
        with self._doing(f"waiting for compute unit {unit}", _RESET):
            state = self._ended_as(flight, timeout_s)
        if state is None:
            raise BoardError(
                f"{self.label}: compute unit {unit} is not done after {timeout_s:g} s; {_RESET}"
            )
        with found.lock:
            now = time.perf_counter()
            observed = now - max(flight.started, found.last_ended)
            flight.seconds = getattr(flight.run, "csim_seconds", observed)
            found.last, found.last_ended = flight, now
            found.flights.popleft()
        if state != "COMPLETED":
            said = getattr(flight.run, "csim_error", "") or f"its state is {state}"
            raise BoardError(
                f"{self.label}: compute unit {unit} failed: {_one_line(said)}; {_RESET}"
            )
        return self._fetch(unit, flight.memories["result"], "the result")

    def gradients(self, unit: int) -> Float32Array:
        """Return a copy of the gradients of the run that was waited for last.

        A run of the same compute unit that was started since writes to the same buffer.
        """
        memory = self._last(unit).memories["gradients"]
        return self._fetch(unit, memory, "gradients").view(np.float32)

    def counters(self, unit: int) -> dict[str, int]:
        """Return what the last run counted, by name: of a simulated card; others count nothing."""
        return dict(getattr(self._last(unit).run, "csim_counters", {}))

    def kernel_seconds(self, unit: int) -> float:
        """Return how long the run took that was waited for last.

        On hardware that is the wall time from its start, or from the end of the run before it, to
        the moment in which ``wait`` noticed its end: an upper bound, too high by 5 % or a
        millisecond if ``wait`` was called in time, and by more if it was called later. A
        simulated card reports how long simulating took, by its own clock.
        """
        return self._last(unit).seconds

    def close(self) -> None:
        """Give runs in flight a second to end, then free all buffers and the card."""
        until = time.perf_counter() + _CLOSING_S
        for found in self._units:
            for flight in found.flights:
                with self._doing("closing", _RESET):
                    self._ended_as(flight, until - time.perf_counter())
        self._units = []
        self._device = None

    def _arguments_of(self, kernel: str, image: Any) -> int:
        kernels = {each.get_name(): each.get_num_args() for each in image.get_kernels()}
        if kernel not in kernels:
            raise RuntimeError(f"it has no kernel {kernel}, but {', '.join(kernels) or 'none'}")
        return int(kernels[kernel])

    def _open(self, image: Any, kernel: str) -> list[_Unit]:
        """Load the bitstream, and open each compute unit by its own name."""
        names = [f"{kernel}:{{{kernel}_{unit + 1}}}" for unit in range(self.compute_units)]
        if hasattr(self._xrt, "hw_context"):
            uuid = self._device.register_xclbin(image)
            context = self._xrt.hw_context(self._device, uuid)
            kernels = [self._xrt.kernel(context, name) for name in names]
        else:
            uuid = self._device.load_xclbin(image)
            shared = self._xrt.kernel.shared
            kernels = [self._xrt.kernel(self._device, uuid, name, shared) for name in names]
        return [
            _Unit(each, {name: each.group_id(index) for index, name in enumerate(_BUFFERS)})
            for each in kernels
        ]

    def _unit(self, unit: int) -> _Unit:
        if not 0 <= unit < len(self._units):
            raise BoardError(
                f"{self.label}: no compute unit {unit}: {len(self._units)} are open; open the "
                "board with more"
            )
        return self._units[unit]

    def _key(self, name: str, slot: int) -> tuple[str, int]:
        """Return where a buffer is kept; what all slots share is kept as slot 0's."""
        if name not in _BUFFERS or not 0 <= slot < self.slots:
            raise BoardError(
                f"{self.label}: no buffer {name} of slot {slot}: there are {', '.join(_BUFFERS)} "
                f"and {self.slots} slots; open the board with more"
            )
        return name, slot if name in _PER_SLOT else 0

    def _last(self, unit: int) -> _Flight:
        last = self._unit(unit).last
        if last is None:
            raise BoardError(f"{self.label}: no run of compute unit {unit} has ended; wait for one")
        return last

    def _new(self, wanted: int, num_bytes: int, name: str, group: int) -> _BoardBuffer:
        """Allocate a buffer of whole pages in a memory bank."""
        capacity = -(-wanted // _PAGE) * _PAGE
        kind = self._xrt.bo
        if name == _DEVICE_ONLY:
            return _BoardBuffer(
                kind(self._device, capacity, kind.device_only, group), None, capacity, 0
            )
        bo = kind(self._device, capacity, kind.normal, group)
        # Through the mapping NumPy copies while other threads run; pyxrt's write does not let them.
        return _BoardBuffer(bo, np.frombuffer(bo.map(), np.uint8), capacity, num_bytes)

    def _send(self, unit: int, name: str, slot: int, data: Array) -> None:
        self.allocate(unit, name, data.nbytes, slot=slot)
        if not data.nbytes:
            return
        memory = self._unit(unit).memories[self._key(name, slot)]
        assert memory.host is not None
        memory.host[: data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        with self._doing(f"sending {name} to compute unit {unit}", _RESET):
            memory.bo.sync(self._to_device, data.nbytes, 0)

    def _fetch(self, unit: int, memory: _BoardBuffer, what: str) -> UInt32Array:
        if memory.num_bytes:
            with self._doing(f"fetching {what} of compute unit {unit}", _RESET):
                memory.bo.sync(self._from_device, memory.num_bytes, 0)
        return memory.words()

    def _ended_as(self, flight: _Flight, timeout_s: float) -> str | None:
        """Return the name of the state in which a run has ended, None if that takes longer."""
        start = time.perf_counter()
        while True:
            state = flight.run.state()
            if state in self._ended:
                flight.run.wait()
                return self._ended[state]
            spent = time.perf_counter() - start
            if spent >= timeout_s:
                return None
            pause = min(max(_PAUSE * spent, _MIN_PAUSE), _MAX_PAUSE)
            time.sleep(min(pause, timeout_s - spent))

    @contextmanager
    def _doing(self, what: str, advice: str, kind: type[BoardError] = BoardError) -> Iterator[None]:
        """Turn any exception of XRT into one line with the board, what was done, and advice."""
        try:
            yield
        except BoardError:
            raise
        except Exception as error:
            raise kind(f"{self.label}: {what}: {_one_line(error)}; {advice}") from error


def _one_line(text: object) -> str:
    return " ".join(str(text).split()) or type(text).__name__
