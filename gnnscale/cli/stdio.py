"""Standard streams of a command, which imports this module first: it imports quickly."""

import errno
import io
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from gnnscale.core.json_log import json_line

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Option by which a command writes standard error as JSON.
LOG_JSON = "log=json"
#: Exit status if the reader of standard output is gone, as a shell reports SIGPIPE.
UNREAD = 128 + 13

#: Seconds without output after which a command prints that it is starting.
_ON_TERMINAL_S = 0.5
_ELSEWHERE_S = 2.0
_NOTICE = b"starting"
_CLEAR_LINE = b"\r\x1b[K"
#: Names of the standard streams, in the order of their descriptors.
_STREAMS = ("stdin", "stdout", "stderr")
#: Streams that were closed when the command started.
_closed: set[str] = set()


class StandardStreams:
    """Standard streams that drop output once its reader is gone, with a notice of the start."""

    def __init__(self, *, json_lines: bool = False) -> None:
        """Replace both streams, except a stream without a descriptor; closed ones are opened.

        With ``json_lines`` each line of standard error is a JSON object, and there is no notice.
        """
        _open_closed()
        self._lock = threading.Lock()
        self._has_output = threading.Event()
        self._notice_visible = False
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._raw = {name: self._take_over(name) for name in ("stdout", "stderr")}
        if json_lines and sys.stderr is not None:
            sys.stderr = _JsonLines(sys.stderr)
            self._has_output.set()

    @property
    def unread(self) -> bool:
        """Whether output was dropped because the reader of standard output is gone."""
        raw = self._raw["stdout"]
        return raw is not None and raw.unread

    def flush(self) -> None:
        """Flush standard output and standard error."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()

    def announce(self, *, at_once: bool) -> None:
        """Print the notice that the command starts: now on a terminal if ``at_once``, else later.

        Later is after 0.5 s without output on a terminal, or after 2 s elsewhere.
        """
        if self._is_terminal and at_once:
            self._show()
            return
        threading.Thread(target=self._wait, name="announcement", daemon=True).start()

    def cancel_notice(self) -> None:
        """Cancel the notice of the start, or remove it from a terminal, since output follows."""
        if self._has_output.is_set():
            return
        with self._lock:
            self._has_output.set()
            if self._notice_visible and self._is_terminal:
                with suppress(OSError):  # standard error is closed
                    os.write(2, _CLEAR_LINE)

    def _wait(self) -> None:
        if not self._has_output.wait(_ON_TERMINAL_S if self._is_terminal else _ELSEWHERE_S):
            self._show()

    def _show(self) -> None:
        with self._lock:
            if not self._has_output.is_set():
                self._notice_visible = True
                try:
                    os.write(2, _NOTICE + (b"" if self._is_terminal else b"\n"))
                except OSError:  # the reader is gone
                    self._has_output.set()

    def _take_over(self, name: str) -> "_Raw | None":
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
    """Return the stream for the final message: standard output if standard error is closed."""
    return sys.stdout if "stderr" in _closed and "stdout" not in _closed else sys.stderr


def _open_closed() -> None:
    """Open the null device for each closed stream (``2>&-``), or the next file gets its output."""
    for descriptor, name in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        _closed.add(name)
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            os.fstat(descriptor)  # usually ``nowhere`` itself
        except OSError:
            os.dup2(nowhere, descriptor)
        # Child processes inherit standard streams.
        os.set_inheritable(nowhere, nowhere == descriptor)
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, open(nowhere, mode, closefd=False))  # noqa: SIM115


class _JsonLines(io.TextIOBase):
    """Stream that writes lines as JSON objects; lines that are JSON objects stay as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""

    def write(self, text: str, /) -> int:
        """Write all lines that ``text`` ends; return its length."""
        *lines, self._line = (self._line + text).split("\n")
        for line in filter(None, lines):
            if not (line.startswith("{") and line.endswith("}")):
                line = json_line(line, level="ERROR", logger="gnnscale", time_s=time.time())
            self._stream.write(f"{line}\n")
        return len(text)

    def flush(self) -> None:
        """Flush the stream; an unfinished line waits for its end."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self._stream.fileno()


class _Raw(io.FileIO):
    """Stream that switches to the null device once its reader is gone or its terminal closed."""

    def __init__(self, descriptor: int, streams: StandardStreams) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.unread = False
        self._streams = streams
        self._was_terminal = os.isatty(descriptor)

    def write(self, content: "Buffer", /) -> int:
        """Write ``content``, or drop it if the reader is gone; return the number of bytes."""
        self._streams.cancel_notice()
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
