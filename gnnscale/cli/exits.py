"""Output, signals and errors of a command, up to its exit status.

The reader of a pipe may go away, a signal may come while native code runs, and an error that the
user can mend is one line. Importing this is quick: it is the first thing that a command does.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from gnnscale.cli.arguments import explain_missing_plugin
from gnnscale.core import explain, shown, torchrun_rank
from gnnscale.core.files import remove_unfinished_folders
from gnnscale.options import config, run_directory

if TYPE_CHECKING:
    from typing_extensions import Buffer


#: Exit status of a command whose standard output nobody reads any more, as a shell gives it.
UNREAD = 128 + 13

#: Seconds of silence after which a command says that it has started.
_ON_TERMINAL_S = 0.5
_ELSEWHERE_S = 2.0
_NOTICE = b"starting"
_CLEAR_LINE = b"\r\x1b[K"
#: Names of the standard streams, in the order of their descriptors.
_STREAMS = ("stdin", "stdout", "stderr")
#: Those that the command was started without.
_closed: set[str] = set()


class Streams:
    """Stands in for ``sys.stdout`` and ``sys.stderr`` while a command runs.

    Where the reader of a pipe has gone, what is written is dropped: a run goes on, whoever looks.
    """

    def __init__(self) -> None:
        """Take the streams over; those that are no descriptors of this process are left alone."""
        _open_closed()
        self._lock = threading.Lock()
        self._said = threading.Event()
        self._shown = False
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._raw = {name: self._take_over(name) for name in ("stdout", "stderr")}

    @property
    def unread(self) -> bool:
        """Whether nobody reads standard output any more."""
        raw = self._raw["stdout"]
        return raw is not None and raw.unread

    def flush(self) -> None:
        """Write what is not yet written."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()

    def announce(self, *, at_once: bool) -> None:
        """Report on standard error that the command has started, unless it has printed before.

        On a terminal, the next output takes its place, and ``at_once`` does not wait.
        """
        if self._is_terminal and at_once:
            self._show()
            return
        threading.Thread(target=self._wait, name="announcement", daemon=True).start()

    def said(self) -> None:
        """Take the announcement away, or back: something is about to be said."""
        if self._said.is_set():
            return
        with self._lock:
            self._said.set()
            if self._shown and self._is_terminal:
                os.write(2, _CLEAR_LINE)

    def _wait(self) -> None:
        if not self._said.wait(_ON_TERMINAL_S if self._is_terminal else _ELSEWHERE_S):
            self._show()

    def _show(self) -> None:
        with self._lock:
            if not self._said.is_set():
                self._shown = True
                try:
                    os.write(2, _NOTICE + (b"" if self._is_terminal else b"\n"))
                except OSError:  # nobody reads it
                    self._said.set()

    def _take_over(self, name: str) -> _Raw | None:
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            return None
        stream.flush()
        raw = _Raw(stream.fileno(), self)
        text = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, text)
        return raw


def last_words() -> TextIO:
    """Return where a command says why it ends: standard output if it has no standard error."""
    return sys.stdout if "stderr" in _closed and "stdout" not in _closed else sys.stderr


def _open_closed() -> None:
    """Let streams that the command was started without (``2>&-``) lead nowhere.

    The next file to be opened would get their descriptor otherwise, and be written into.
    """
    for descriptor, name in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        _closed.add(name)
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            os.fstat(descriptor)  # this very one, as a rule
        except OSError:
            os.dup2(nowhere, descriptor)
        # Processes that are started take it over.
        os.set_inheritable(nowhere, nowhere == descriptor)
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, open(nowhere, mode, closefd=False))  # noqa: SIM115


class _Raw(io.FileIO):
    """A descriptor that leads nowhere once its reader has gone."""

    def __init__(self, descriptor: int, streams: Streams) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.unread = False
        self._streams = streams

    def write(self, content: Buffer, /) -> int:
        """Write ``content``, or drop it."""
        self._streams.said()
        try:
            return super().write(content)
        except BrokenPipeError:
            self.unread = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(content).nbytes


#: Exit status of an interrupted command.
INTERRUPTED = 130

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds that the main thread gets to hear of a signal. torchrun kills after thirty.
_PATIENCE_S = 3.0
#: Seconds in which a second signal means the same: a terminal and torchrun send one each, and what
#: cleans up after the first is not to be interrupted.
_TOGETHER_S = 5.0
_SHOW_CURSOR = b"\x1b[?25h"


class _Interruption:
    """Raises KeyboardInterrupt in the main thread, and ends the process if that is too slow."""

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
    command = run_directory.resume_command()
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


def explain_hydra(error: Exception) -> str:
    """Return one line for whatever Hydra raises while it composes and starts a command."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

    known = explain(error)
    if known is not None:
        return known
    if isinstance(error, MissingConfigException):
        return _explain_missing(error)
    if isinstance(error, RecursionError):
        return "the options refer to each other in a circle, or are nested too deeply"
    cause = error.__cause__ or error
    if isinstance(cause, OSError):
        return explain(cause) or str(cause)
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)):
        return config.unknown_option(shown(cause.full_key), _options(cause))
    if isinstance(cause, OmegaConfBaseException):
        # The lines after the first one repeat the key and its type once more.
        lines = str(cause).strip().splitlines()[:1]
    else:
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    reason = " ".join(lines) or type(cause).__name__
    if isinstance(cause, LookupError):
        reason = f"{type(cause).__name__}: {reason}"
    if missing := re.match(r"Could not override '([^']*)'\. No match in the defaults", reason):
        return f"{shown(missing[1])}: this command has no such group of options"
    key = getattr(cause, "full_key", None)
    return f"{key}: {reason}" if key and not reason.startswith(str(key)) else reason


def _explain_missing(error: Any) -> str:
    wanted = str(error.missing_cfg_file)
    group, _, name = wanted.rpartition("/")
    if (missing := explain_missing_plugin(group, name)) is not None:
        return missing
    if not error.options:
        return f"{wanted}: no such configuration"
    options = sorted(error.options)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    guess = f", did you mean {close[0]!r}?" if close else f"; there are {', '.join(options)}"
    return f"{group}={name}: no such {group}{guess}"


def _options(error: Any) -> list[str]:
    """All dotted options of the configuration in which a key was not found."""
    node = error.parent_node
    while node is not None and node._get_parent() is not None:
        node = node._get_parent()
    if node is None:
        return []
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(node, resolve=False)
    if not isinstance(plain, dict):
        return []
    plain.pop("hydra", None)
    return list(_dotted(plain, ""))


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    for key, value in node.items():
        if key != "_target_":
            yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
