"""Why a child ended, from its exit status and its last words."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from .case import Outcome

__all__ = ["end_of_child"]

_SANITIZER = re.compile(r"^.*(?:ERROR: AddressSanitizer: |runtime error: )(.*)$", re.MULTILINE)
_NATIVE_FRAME = re.compile(r"^\s+#\d+ \S+ in (.*(?:gnnscale|pybind11).*)$", re.MULTILINE)
_PYTHON_FRAME = re.compile(
    r'^  File ".*?((?:gnnscale|scipy|numpy|torch|pyarrow)/.*)$', re.MULTILINE
)
_ADDRESS = re.compile(r"0x[0-9a-f]+|(?:pc|bp|sp|T\d+) \S+|-?\d{4,}")


def end_of_child(status: int, output: Path, hanging: bool) -> Outcome | None:
    """Return the finding that a child's end is, None if it ended as it should.

    Args:
        status: from ``os.waitpid``.
        output: file with what it printed.
        hanging: whether it was killed because a case took too long.
    """
    if status == 0:
        return None
    words = _last_words(output)
    if hanging:
        return Outcome("timeout", _place(words), words[-2000:])
    report = _SANITIZER.search(words)
    if report:
        frame = _NATIVE_FRAME.search(words, report.end())
        where = _ADDRESS.sub("N", frame[1]) if frame else _place(words)
        return Outcome(
            "sanitizer",
            f"{_ADDRESS.sub('N', report[1])} in {where}"[:300],
            words[report.start() :][:3000],
        )
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Outcome(f"signal {name}", _place(words), words[-2000:])
    return Outcome(f"exit {os.WEXITSTATUS(status)}", _place(words), words[-2000:])


def _last_words(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 200_000))
        return file.read().decode(errors="replace")


def _place(words: str) -> str:
    """Return the innermost line of Python that faulthandler or a traceback names."""
    found = _PYTHON_FRAME.findall(words)
    return found[0] if found else ""
