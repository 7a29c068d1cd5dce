"""Driver of a board through XRT's Python interface: buffers, transfers and runs.

Like ``xrt_card`` it imports no framework but NumPy.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnscale.backend.fpga.xrt_card import BUILT_FOR, BoardBuffer, XrtCard, one_line
from gnnscale.backend.fpga.xrt_card import BoardError as BoardError
from gnnscale.backend.fpga.xrt_card import BoardMemoryError as BoardMemoryError
from gnnscale.core import Array, Float32Array, UInt32Array

#: Buffer arguments of the kernel, which precede its scalars.
_BUFFERS = ("batch", "edges", "features", "weights", "gradients", "scratch", "result")
_PER_SLOT = ("batch", "edges", "features", "result")
#: Buffer without a copy on the host.
_DEVICE_ONLY = "scratch"
_GROWTH = 1.25
_CLOSING_S = 1.0

_TAKES_LESS = "a smaller share, fewer neighbors or a lower prefetch depth take less"
_RESET = "`xrt-smi examine` shows the state of the card, and `xrt-smi reset` restarts it"


@dataclass
class _Flight:
    """Started run of the kernel, with its buffers, which must not be replaced before it ends."""

    run: Any
    slot: int
    memories: Mapping[str, BoardBuffer]
    started: float
    seconds: float = 0.0


@dataclass
class _Unit:
    """Compute unit: its kernel, memory banks, buffers and runs.

    ``lock`` guards the other fields, and is not held during transfers.
    """

    kernel: Any
    groups: Mapping[str, int]
    memories: dict[tuple[str, int], BoardBuffer] = field(default_factory=dict)
    flights: deque[_Flight] = field(default_factory=deque)
    last: _Flight | None = None
    last_ended: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def end_oldest(self) -> None:
        """Move the oldest run in flight, which has ended, to ``last``, and set its duration."""
        with self.lock:
            flight, now = self.flights[0], time.perf_counter()
            observed = now - max(flight.started, self.last_ended)
            flight.seconds = getattr(flight.run, "csim_seconds", observed)
            self.last, self.last_ended = flight, now
            self.flights.popleft()


class OpenBoard:
    """FPGA card with a bitstream: compute units, slots and buffers.

    A compute unit has ``weights``, ``gradients`` and ``scratch``, and for each slot (a mini-batch
    in flight) ``batch``, ``edges``, ``features`` and ``result``. One thread may ``allocate`` and
    ``send`` to a slot while another starts and waits for runs of other slots. Runs of a compute
    unit end in the order of their start. A ``BoardError`` of one line names board, operation and
    remedy.

        board.send(0, 3, batch, edges, features)  # compute unit 0, slot 3
        board.start(0, 3, scalars)
        words = board.wait(0, timeout_s=60.0)
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
        """Open a card, load the bitstream, and open its compute units ``{kernel}_1`` and so on.

        ``xrt`` is ``pyxrt``, or a module with its interface, ``index`` that of ``xrt-smi examine``.
        """
        self.compute_units, self.slots = compute_units, slots
        self._card = XrtCard(
            xrt, index=index, bitstream=bitstream, kernel=kernel, compute_units=compute_units
        )
        self.label = self._card.label
        with self._card.doing(f"loading {bitstream}", BUILT_FOR):
            self._units = [
                _Unit(unit, {name: unit.group_id(i) for i, name in enumerate(_BUFFERS)})
                for unit in self._card.kernels
            ]

    def allocate(self, unit: int, name: str, num_bytes: int, *, slot: int = 0) -> None:
        """Make a buffer (``gradients``, ``scratch``, ``result``) hold ``num_bytes``.

        A smaller buffer is replaced by one of at least 1.25 times its capacity, and its content
        lost. Started runs keep their buffers. BoardMemoryError: the memory is too small.
        BoardError: the buffer belongs to a slot in flight.
        """
        unit_state = self._unit(unit)
        key = self._key(name, slot)
        with unit_state.lock:
            if name in _PER_SLOT and any(flight.slot == slot for flight in unit_state.flights):
                raise BoardError(
                    f"{self.label}: slot {slot} of compute unit {unit} is in flight; "
                    "wait for its run first"
                )
            memory = unit_state.memories.get(key)
            if memory is not None and memory.capacity >= num_bytes:
                memory.num_bytes = num_bytes
                return
            capacity = max(num_bytes, int(memory.capacity * _GROWTH) if memory else 1)
            # The old buffer is freed first, so that the memory need not hold both.
            unit_state.memories.pop(key, None)
            del memory
            what = f"allocating {capacity / 1e6:,.1f} MB for {name} of compute unit {unit}"
            with self._card.doing(what, _TAKES_LESS, BoardMemoryError):
                unit_state.memories[key] = self._card.new_buffer(
                    capacity, num_bytes, unit_state.groups[name], device_only=name == _DEVICE_ONLY
                )

    def send_weights(self, words: Array) -> int:
        """Send ``words`` to all compute units, which must be idle; return the number of bytes."""
        for unit, unit_state in enumerate(self._units):
            if unit_state.flights:
                raise BoardError(
                    f"{self.label}: weights change while compute unit {unit} computes with them; "
                    "wait for its runs first"
                )
            self._send(unit, "weights", 0, words)
        return words.nbytes * len(self._units)

    def send(self, unit: int, slot: int, batch: Array, edges: Array, features: Array) -> int:
        """Send a mini-batch's arrays to a slot that is not in flight; return the bytes sent."""
        for name, array in zip(_PER_SLOT, (batch, edges, features), strict=False):
            self._send(unit, name, slot, array)
        return batch.nbytes + edges.nbytes + features.nbytes

    def start(self, unit: int, slot: int, scalars: Sequence[int]) -> None:
        """Start the kernel on the buffers of a slot, after earlier runs of the compute unit.

        The slot is in flight until ``wait`` returns its result. ``scalars`` are the kernel's
        further arguments, signed 32-bit integers; the caller encodes floats by their bits, and
        64-bit integers by their halves.
        """
        unit_state = self._unit(unit)
        takes = self._card.num_arguments - len(_BUFFERS)
        if len(scalars) != takes:
            raise BoardError(
                f"{self.label}: the kernel takes {takes} scalars, got {len(scalars)}; "
                f"the bitstream is of another version"
            )
        with unit_state.lock:
            memories = {}
            for name in _BUFFERS:
                memory = unit_state.memories.get(self._key(name, slot))
                if memory is None:
                    raise BoardError(
                        f"{self.label}: {name} of compute unit {unit}, slot {slot}, holds nothing; "
                        "send or allocate it first"
                    )
                memories[name] = memory
            with self._card.doing(f"starting compute unit {unit}", _RESET):
                run = self._card.new_run(unit_state.kernel)
                buffers = (memory.bo for memory in memories.values())
                for position, value in enumerate((*buffers, *scalars)):
                    run.set_arg(position, value)
                started = time.perf_counter()
                run.start()
                unit_state.flights.append(_Flight(run, slot, memories, started))

    def wait(self, unit: int, timeout_s: float) -> UInt32Array:
        """Wait for the unit's oldest run in flight; return a copy of the words of its ``result``.

        Words have 32 bits. Polls, since pyxrt's own wait blocks all other Python threads.
        BoardError: the run failed, or it takes longer than ``timeout_s`` and stays in flight.
        """
        unit_state = self._unit(unit)
        if not unit_state.flights:
            raise BoardError(f"{self.label}: compute unit {unit} has no run to wait for; start one")
        flight = unit_state.flights[0]
        with self._card.doing(f"waiting for compute unit {unit}", _RESET):
            state = self._card.wait_for_end(flight.run, timeout_s)
        if state is None:
            raise BoardError(
                f"{self.label}: compute unit {unit} is not done after {timeout_s:g} s; {_RESET}"
            )
        unit_state.end_oldest()
        if state != "COMPLETED":
            reason = getattr(flight.run, "csim_error", "") or f"its state is {state}"
            raise BoardError(
                f"{self.label}: compute unit {unit} failed: {one_line(reason)}; {_RESET}"
            )
        return self._fetch(unit, flight.memories["result"], "the result")

    def gradients(self, unit: int) -> Float32Array:
        """Return a copy of the gradients of the unit's last run that ``wait`` has ended."""
        memory = self._last(unit).memories["gradients"]
        return self._fetch(unit, memory, "gradients").view(np.float32)

    def counters(self, unit: int) -> dict[str, int]:
        """Return the counters of the unit's last ended run by name; empty on a real card."""
        return dict(getattr(self._last(unit).run, "csim_counters", {}))

    def kernel_seconds(self, unit: int) -> float:
        """Return the seconds of the unit's last ended run; on a simulated card, of simulating it.

        On hardware it is the wall time from the run's start, or from the end of the previous run,
        until ``wait`` noticed its end: up to 5 % or a millisecond too long.
        """
        return self._last(unit).seconds

    def close(self) -> None:
        """Give runs in flight one second to end, and free all buffers and the card."""
        deadline = time.perf_counter() + _CLOSING_S
        for unit_state in self._units:
            for flight in unit_state.flights:
                with self._card.doing("closing", _RESET):
                    self._card.wait_for_end(flight.run, deadline - time.perf_counter())
        self._units = []
        self._card.close()

    def _unit(self, unit: int) -> _Unit:
        if not 0 <= unit < len(self._units):
            raise BoardError(
                f"{self.label}: no compute unit {unit}: {len(self._units)} are open; open the "
                "board with more"
            )
        return self._units[unit]

    def _key(self, name: str, slot: int) -> tuple[str, int]:
        """Return the key of a buffer among a unit's; buffers shared by all slots have slot 0.

        BoardError: there is no such buffer or slot.
        """
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

    def _send(self, unit: int, name: str, slot: int, data: Array) -> None:
        self.allocate(unit, name, data.nbytes, slot=slot)
        if data.nbytes:
            memory = self._unit(unit).memories[self._key(name, slot)]
            with self._card.doing(f"sending {name} to compute unit {unit}", _RESET):
                self._card.send(memory, data)

    def _fetch(self, unit: int, memory: BoardBuffer, what: str) -> UInt32Array:
        with self._card.doing(f"fetching {what} of compute unit {unit}", _RESET):
            return self._card.fetch(memory)
