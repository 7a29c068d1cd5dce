"""How a command ends by a signal, from its first moment on and even while native code runs.

Importing this is quick: a command does so before it starts or writes anything.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from gnnscale.cli.stdio import last_words

#: Exit status of an interrupted command.
INTERRUPTED = 130

#: Ctrl-C, what batch systems and torchrun send, and what a terminal sends when it is closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds that the main thread gets to hear of a signal. torchrun kills after thirty.
_PATIENCE_S = 3.0
#: Seconds between two signals to a main thread that imports.
_PAUSE_S = 0.05
#: Seconds in which a second signal means the same: a terminal and torchrun send one each, and what
#: cleans up after the first is not to be interrupted.
_TOGETHER_S = 5.0
_SHOW_CURSOR = b"\x1b[?25h"

_interruption: _Interruption | None = None


class _Interruption:
    """Raises KeyboardInterrupt in the main thread, and ends the process if that is too slow."""

    def __init__(self) -> None:
        self._main_thread = threading.get_ident()
        self._heard = threading.Event()
        self._heard_at = 0.0
        self._is_held = self._is_pending = self._is_importing = False
        self._told, told = os.pipe()
        os.set_blocking(told, False)
        # Python writes the number of each signal there, whatever the main thread is doing.
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        for number in _SIGNALS:
            # A shell starts background jobs with SIGINT ignored; whoever sends one means it.
            # nohup ignores SIGHUP, and means that.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._raise)
        threading.Thread(target=self._watch, name="interruption", daemon=True).start()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Raise KeyboardInterrupt after the ``with`` block for a signal that arrives in it."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def _raise(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, on which a command stops its workers and writes its summary.

        An import or a block of ``held_back`` ends first.
        """
        now = time.monotonic()
        if self._heard.is_set() and now - self._heard_at < _TOGETHER_S:
            return
        if _imports(frame):
            self._is_importing = True
            return
        self._heard_at = now
        self._heard.set()
        if self._is_held:
            self._is_pending = True
            return
        raise KeyboardInterrupt

    def _watch(self) -> None:
        """Wait for signals; the first that is not heard of is the end."""
        while told := os.read(self._told, 64):
            numbers = set(told) & set(_SIGNALS)
            if numbers and not self._is_heard(numbers.pop()):
                _end()

    def _is_heard(self, number: int) -> bool:
        """Return whether the main thread handles a signal in ``_PATIENCE_S``.

        The signal is sent again as long as the main thread imports.
        """
        until = time.monotonic() + _PATIENCE_S
        while not self._heard.wait(_PAUSE_S):
            if time.monotonic() > until:
                return False
            if self._is_importing:
                self._is_importing = False
                signal.pthread_kill(self._main_thread, number)
        return True


def _imports(frame: FrameType | None) -> bool:
    """Return whether ``frame`` runs inside an import.

    The native code of torch runs Python during its import. KeyboardInterrupt in there is lost, or
    makes Python end by SIGINT even if the command has caught the exception.
    """
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def interrupt_on_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, which calls this.

    An import is finished first. Where that or native code takes the main thread seconds, the
    process is ended without it: what it has not finished is removed, and the cursor shown. A second
    call changes nothing.
    """
    global _interruption
    if _interruption is None:
        _interruption = _Interruption()


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Let a signal that arrives in the ``with`` block interrupt the main thread after it."""
    assert _interruption is not None
    with _interruption.held_back():
        yield


def tell_interrupted() -> None:
    """Say that the command was interrupted, and what continues its run."""
    print(_last_words(), file=last_words())


def _last_words() -> str:
    # A command that has not come to import these has no run to go on with.
    if "gnnscale.core.config.run_directory" not in sys.modules:
        return "interrupted"
    from gnnscale.core.config.run_directory import resume_command
    from gnnscale.core.hardware import torchrun_rank

    command = resume_command()
    if command is None or torchrun_rank():
        return "interrupted"
    if torchrun_rank() is not None:
        # How the processes are started is for whoever started them.
        return f"interrupted; under torchrun as before, this goes on:\n{command}"
    return f"interrupted; this goes on with the run:\n{command}"


def _end() -> NoReturn:
    from gnnscale.core.files import remove_unfinished_folders

    remove_unfinished_folders()
    line = f"{_last_words()}\n".encode()
    # A terminal hides it under a bar, which has also taken the place of ``sys.stderr``.
    line = _SHOW_CURSOR + b"\n" + line if os.isatty(2) else line
    with suppress(OSError):
        os.write(2, line)
    os._exit(INTERRUPTED)
