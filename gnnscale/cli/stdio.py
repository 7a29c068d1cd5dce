"""Standard output and standard error: readers that go away, and silence until something is written.

Importing this is quick: it is the first thing that a command does.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

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


class StandardStreams:
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
                with suppress(OSError):  # it is closed
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
    """A descriptor that leads nowhere once its reader has gone, or its terminal is closed."""

    def __init__(self, descriptor: int, streams: StandardStreams) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.unread = False
        self._streams = streams
        self._was_terminal = os.isatty(descriptor)

    def write(self, content: Buffer, /) -> int:
        """Write ``content``, or drop it."""
        self._streams.said()
        try:
            return super().write(content)
        except OSError as error:
            closed = (errno.EPIPE, errno.EIO) if self._was_terminal else (errno.EPIPE,)
            if error.errno not in closed:
                raise
            self.unread = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(content).nbytes
