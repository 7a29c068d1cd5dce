"""Progress of long work: a bar on a terminal, plain log lines elsewhere."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_LOG = logging.getLogger(__name__)
_SHOW_AFTER = 1.0
_BAR_INTERVAL = 0.1
_LINE_INTERVAL = 5.0
_advances = 0


class _ProgressState:
    """Progress of one ``track`` block."""

    def __init__(self, description: str, total: int | None, unit: str) -> None:
        self.description = description
        self.total = total
        self.unit = unit
        self.done = 0
        self.start = time.monotonic()

    def advance(self, amount: int = 1) -> None:
        global _advances
        _advances += 1
        self.done += amount

    def amounts(self) -> str:
        if not self.done and self.total is None:
            return ""
        text = f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"
        return f"{text} {self.unit}".rstrip()

    def line(self) -> str:
        seconds = time.monotonic() - self.start
        return f"{self.description}: {self.amounts()} ({seconds:.0f} s)".replace(":  (", ": (")


class _Bars:
    """Bars on this process's terminal, one for each open ``track`` block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: Progress | None = None

    def show(self, work: _ProgressState) -> TaskID:
        with self._lock:
            if self._progress is None:
                self._progress = Progress(
                    TextColumn("{task.description}", markup=False),
                    BarColumn(),
                    TextColumn("{task.fields[amounts]}"),
                    TimeElapsedColumn(),
                    console=Console(stderr=True),
                    auto_refresh=False,
                    transient=True,
                )
                self._progress.start()
            return self._progress.add_task(work.description, total=work.total, amounts="")

    def update(self, task: TaskID, work: _ProgressState) -> None:
        with self._lock:
            assert self._progress is not None
            self._progress.update(task, completed=work.done, amounts=work.amounts(), refresh=True)

    def hide(self, task: TaskID) -> None:
        with self._lock:
            assert self._progress is not None
            self._progress.remove_task(task)
            if not self._progress.tasks:
                self._progress.stop()
                self._progress = None


_BARS = _Bars()


def num_advances() -> int:
    """Return how many times code in this process has reported progress to any ``track`` block."""
    return _advances


def _draw(work: _ProgressState, finished: threading.Event) -> None:
    task = _BARS.show(work)
    while not finished.wait(_BAR_INTERVAL):
        _BARS.update(task, work)
    _BARS.hide(task)


def _log(work: _ProgressState, finished: threading.Event) -> None:
    _LOG.info("%s", work.line())
    while not finished.wait(_LINE_INTERVAL):
        _LOG.info("%s", work.line())


@contextmanager
def track(
    description: str, total: int | None = None, unit: str = ""
) -> Iterator[Callable[[int], None]]:
    """Show the progress of the ``with`` block, in ``total`` units called ``unit``, after a second.

    A terminal shows a bar, which disappears at the end; otherwise ``logging`` gets a line every few
    seconds. A thread shows the progress, also during one long native call. Blocks may be nested.
    Yields a function that the block calls with the number of units done since the last call.
    """
    work = _ProgressState(description, total, unit)
    finished = threading.Event()
    # A daemon has no standard error.
    show = _draw if sys.stderr is not None and sys.stderr.isatty() else _log

    def watch() -> None:
        if not finished.wait(_SHOW_AFTER):
            show(work, finished)

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    try:
        thread.start()
        yield work.advance
    finally:
        finished.set()
        if thread.ident is not None:
            thread.join()
        if show is _log and time.monotonic() - work.start > _SHOW_AFTER:
            _LOG.info("%s, done", work.line())
