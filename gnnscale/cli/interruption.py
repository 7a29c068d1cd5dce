"""Handling of SIGINT, SIGTERM and SIGHUP, also while native code or imports run.

The handlers come first, so that this module imports quickly.
"""

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
#: Signals of Ctrl-C, of batch systems and torchrun, and of a closed terminal.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds for the main thread to handle a signal. torchrun kills after thirty.
_PATIENCE_S = 3.0
#: Seconds between two signals sent to a main thread that imports.
_PAUSE_S = 0.05
#: Seconds in which a second signal is ignored: a terminal and torchrun send one each, and the
#: cleanup after the first must not be interrupted.
_TOGETHER_S = 5.0
_SHOW_CURSOR = b"\x1b[?25h"

_interruption: "_Interruption | None" = None


class _Interruption:
    """Signal handler that interrupts the main thread, or ends the process after a timeout."""

    def __init__(self) -> None:
        self._main_thread = threading.get_ident()
        self._heard = threading.Event()
        self._heard_at = 0.0
        self._is_held = self._is_pending = self._is_importing = False
        self._signal_pipe, write_end = os.pipe()
        os.set_blocking(write_end, False)
        # Python writes each signal's number to the pipe even while native code runs.
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in _SIGNALS:
            # Shells ignore SIGINT in background jobs; it is handled anyway if sent explicitly.
            # nohup ignores SIGHUP, which stays ignored.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._raise)
        threading.Thread(target=self._watch, name="interruption", daemon=True).start()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Delay signals: KeyboardInterrupt is raised after the ``with`` block."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def _raise(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, unless delayed by an import or ``held_back``; once in 5 s."""
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
        """Wait, as a thread, for signals; end the process if one is handled too late."""
        while content := os.read(self._signal_pipe, 64):
            numbers = set(content) & set(_SIGNALS)
            if numbers and not self._is_heard(numbers.pop()):
                _end()

    def _is_heard(self, number: int) -> bool:
        """Return whether the main thread handles a signal, resent to imports, within 3 s."""
        until = time.monotonic() + _PATIENCE_S
        while not self._heard.wait(_PAUSE_S):
            if time.monotonic() > until:
                return False
            if self._is_importing:
                self._is_importing = False
                signal.pthread_kill(self._main_thread, number)
        return True


def _imports(frame: FrameType | None) -> bool:
    """Whether ``frame`` runs inside an import.

    torch's native code runs Python during its import. A KeyboardInterrupt there is lost, or makes
    Python end by SIGINT even if the command has caught the exception.
    """
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def interrupt_on_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, which calls this.

    An import finishes first. If an import or native code blocks the main thread for seconds, the
    process ends without exception: unfinished folders are removed, and the cursor is shown.
    """
    global _interruption
    if _interruption is None:
        _interruption = _Interruption()


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Delay signals that arrive in the ``with`` block: KeyboardInterrupt is raised at its end."""
    assert _interruption is not None
    with _interruption.held_back():
        yield


def tell_interrupted() -> None:
    """Print that the command was interrupted, and the command that resumes its run."""
    print(_last_words(), file=last_words())


def _last_words() -> str:
    # Without this module the command has not started a run.
    if "gnnscale.core.config.run_directory" not in sys.modules:
        return "interrupted"
    from gnnscale.core.config.run_directory import resume_command
    from gnnscale.core.hardware import torchrun_rank

    command = resume_command()
    if command is None or torchrun_rank():
        return "interrupted"
    if torchrun_rank() is not None:
        # The torchrun command line is unknown here.
        return f"interrupted; under torchrun as before, this goes on:\n{command}"
    return f"interrupted; this goes on with the run:\n{command}"


def _end() -> NoReturn:
    from gnnscale.core.files import remove_unfinished_folders

    remove_unfinished_folders()
    line = f"{_last_words()}\n".encode()
    # A progress bar hides the cursor and replaces ``sys.stderr``.
    line = _SHOW_CURSOR + b"\n" + line if os.isatty(2) else line
    with suppress(OSError):
        os.write(2, line)
    os._exit(INTERRUPTED)
