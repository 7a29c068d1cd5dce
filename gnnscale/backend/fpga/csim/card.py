"""The simulated card: what is loaded on it, its compute units, and what waits for them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from enum import IntEnum

from gnnscale.backend.fpga.csim.library import Buffer, Library, Outcome
from gnnscale.backend.fpga.csim.memory import Bank

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


class Card:
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


_CARDS: weakref.WeakValueDictionary[int, Card] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def card(which: int | str) -> Card:
    """Return a card by its number, or by its address ``Card.bdf``.

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
            found = _CARDS[index] = Card(index)
        return found


def _bdf(index: int) -> str:
    return f"0000:{index + 1:02x}:00.1"
