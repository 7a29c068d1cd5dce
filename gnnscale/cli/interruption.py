"""Signals that end a command, even while native code keeps its main thread from hearing of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import NoReturn

from gnnscale.cli.streams import last_words
from gnnscale.core.files import remove_unfinished_folders
from gnnscale.core.hardware import torchrun_rank
from gnnscale.options.run_directory import resume_command

__all__ = ["INTERRUPTED", "interrupt_on_signals", "tell_interrupted"]

#: Exit status of an interrupted command.
INTERRUPTED = 130

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds that the main thread gets to hear of a signal. torchrun kills after thirty.
_PATIENCE_S = 3.0
#: Seconds in which a second signal means the same: a terminal and torchrun send one each, and what
#: clears up behind the first is not to be interrupted.
_TOGETHER_S = 5.0
_SHOW_CURSOR = b"\x1b[?25h"


class _Interruption:
    """Raises KeyboardInterrupt in the main thread, and ends the process where that is too slow."""

    def __init__(self) -> None:
        self._heard = threading.Event()
        self._heard_at = 0.0
        self._told, told = os.pipe()
        os.set_blocking(told, False)
        # Python writes the number of each signal there, whatever the main thread is doing.
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        for number in _SIGNALS:
            # A shell starts background jobs with SIGINT ignored; whoever sends one means it.
            signal.signal(number, self._raise)
        threading.Thread(target=self._watch, name="interruption", daemon=True).start()

    def _raise(self, number: int, frame: object) -> None:
        """End in order: workers are stopped, and the summary says that the run was."""
        now = time.monotonic()
        if self._heard.is_set() and now - self._heard_at < _TOGETHER_S:
            return
        self._heard_at = now
        self._heard.set()
        raise KeyboardInterrupt

    def _watch(self) -> None:
        """Wait for signals; the first that is not heard of is the end."""
        while told := os.read(self._told, 64):
            if set(told) & set(_SIGNALS) and not self._heard.wait(_PATIENCE_S):
                _end()


def interrupt_on_signals() -> None:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt in the main thread, which calls this.

    Where that is in native code for seconds, the process is ended without it: what it has not
    finished is removed, and the cursor shown.
    """
    _Interruption()


def tell_interrupted() -> None:
    """Say that the command was interrupted, and what goes on with its run."""
    print(_last_words(), file=last_words())


def _last_words() -> str:
    command = resume_command()
    if command is None or torchrun_rank():
        return "interrupted"
    if torchrun_rank() is not None:
        # How the processes are started is for whoever started them.
        return f"interrupted; under torchrun as before, this goes on:\n{command}"
    return f"interrupted; this goes on with the run:\n{command}"


def _end() -> NoReturn:
    remove_unfinished_folders()
    line = f"{_last_words()}\n".encode()
    # A terminal hides it under a bar, which has also taken the place of ``sys.stderr``.
    line = _SHOW_CURSOR + b"\n" + line if os.isatty(2) else line
    with suppress(OSError):
        os.write(2, line)
    os._exit(INTERRUPTED)
