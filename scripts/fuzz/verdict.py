"""What counts as a clear refusal: the right exception, one line, naming what is wrong."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from .case import OK, REFUSED, Outcome

__all__ = ["WrongResultError", "failure", "guarded", "line_fault", "strange_files"]

_MAX_LINE = 2600


class WrongResultError(Exception):
    """The program went on and came to something that cannot be right. Raised by the fuzzer."""


def guarded(
    body: Callable[[], None], refusals: tuple[type[Exception], ...], names: Sequence[str]
) -> Outcome:
    """Run ``body`` and judge how it ends.

    Args:
        body: what a case does; raises ``WrongResultError`` where the answer is wrong.
        refusals: exceptions that tell the user what is wrong.
        names: the message of a refusal has to hold one of these.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            body()
        except refusals as error:
            outcome = _refusal(error, names)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            outcome = failure(error)
        else:
            outcome = Outcome(OK)
    if caught and not outcome.is_finding:
        first = caught[0]
        place = f"{Path(first.filename).name}:{first.lineno}"
        return Outcome("warning", f"{first.category.__name__} at {place}", str(first.message))
    return outcome


def failure(error: BaseException) -> Outcome:
    """Return the finding that an exception is which should not have come this far."""
    text = "".join(traceback.format_exception(error, limit=-12))[-3000:]
    if isinstance(error, WrongResultError):
        return Outcome("wrong result", str(error)[:200], text)
    verdict = "memory" if isinstance(error, MemoryError) else "traceback"
    return Outcome(verdict, f"{type(error).__name__} at {_place(error)}", text)


def line_fault(text: str) -> str:
    """Return what is wrong with a message as one line for a terminal, nothing if it is fine."""
    if len(text.splitlines()) != 1:
        return "several lines" if text.strip() else "empty message"
    if not text.isprintable():
        return "control characters"
    return "long line" if len(text) > _MAX_LINE else ""


def strange_files(folder: Path, expected: Collection[str]) -> Outcome | None:
    """Return the finding that something below ``folder`` is, None if all may be there.

    Args:
        folder: of a case.
        expected: paths below it that may be there, whatever they hold.
    """
    for place, folders, files in os.walk(folder):
        inside = Path(os.path.relpath(place, folder))
        folders[:] = [name for name in folders if str(inside / name) not in expected]
        paths = [str(inside / name) for name in files]
        # A folder is judged by its content, and where it is empty by its being there.
        paths += [f"{inside / name}/" for name in folders if not any(Path(place, name).iterdir())]
        for path in paths:
            if Path(path).name.startswith("executed"):
                return Outcome("executed", "code in the input ran", path)
            if path.rstrip("/") not in expected:
                return Outcome("left files", Path(path).suffix or Path(path).name[:20], path)
    return None


def _refusal(error: Exception, names: Sequence[str]) -> Outcome:
    text = str(error)
    fault = line_fault(text)
    if not fault and not any(name in text for name in names):
        fault = "names nothing"
    if not fault and "File too large" in text:
        fault = "disk"
    if fault:
        return Outcome(fault, f"{type(error).__name__} at {_place(error)}", repr(text[:500]))
    return Outcome(REFUSED)


def _place(error: BaseException) -> str:
    """Return the innermost line of gnnscale that an exception passed, and what it called."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame
        for frame in frames
        if "/gnnscale/" in frame.filename and "/fuzz/" not in frame.filename
    ]
    if not frames:
        return "nowhere"
    frame = (ours or frames)[-1]
    return f"{frame.filename.rpartition('/gnnscale/')[2]}:{frame.lineno} {frame.name}"
