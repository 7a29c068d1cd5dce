"""State of processes, commands that start Python programs, and process-wide settings."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


def process_stat(number: int) -> list[str]:
    """Return the fields of ``/proc/NUMBER/stat`` from the state on; empty: no such process."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def start_of(number: int) -> int:
    """Return the start time of process ``number`` in clock ticks since boot; 0: no such process."""
    stat = process_stat(number)
    return int(stat[19]) if stat else 0


def process_age_s() -> float | None:
    """Return the seconds since this process was started; None if unknown."""
    started = start_of(os.getpid())
    if not started or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def own_process() -> tuple[int, int]:
    """Return this process's id and start time, which together identify it uniquely."""
    return os.getpid(), start_of(os.getpid())


def has_ended(number: int, start: int) -> bool:
    """Whether the process of this id and start time (``own_process``) is gone, or a zombie."""
    stat = process_stat(number)
    return not stat or int(stat[19]) != start or stat[0] in ("Z", "X")


#: Statements that set ``sys.path`` to that of the parent process. Until then ``python -c`` searches
#: modules in the working directory; ``sys`` is built in.
_PATH = (
    "import sys; count = int(sys.argv[1]); "
    "sys.path[:] = sys.argv[2 : 2 + count]; del sys.argv[1 : 2 + count]; "
)


def python_command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs statements with ``arguments`` and the present ``sys.path``."""
    words = map(str, (len(sys.path), *sys.path, *arguments))
    return [sys.executable, "-c", f"{_PATH}{program}", *words]


class SharedSetting:
    """Setting of the process, set by the first of overlapping blocks and restored by the last."""

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        """Share the setting that ``begin`` sets, which returns the function that restores it."""
        self._begin = begin
        self._lock = threading.Lock()
        self._num_blocks = 0
        self._restore: Callable[[], None] = lambda: None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Keep the setting during the ``with`` block, and restore it after the last open block."""
        with self._lock:
            if not self._num_blocks:
                self._restore = self._begin()
            self._num_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_blocks -= 1
                if not self._num_blocks:
                    self._restore()


def _set_default_type(dtype: Any) -> None:
    import torch

    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)


def _begin_float32() -> Callable[[], None]:
    """Make float32 torch's process-wide default type; return the function that restores it."""
    import torch

    dtype = torch.get_default_dtype()
    _set_default_type(torch.float32)
    return lambda: _set_default_type(dtype)


_FLOAT32 = SharedSetting(_begin_float32)
#: Device types of models; each has its own switch of automatic mixed precision.
_AUTOCAST_DEVICES = ("cpu", "cuda")
#: NumPy's handling of floating-point errors in a fresh process.
_NUMPY_ERRORS: Any = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


@contextmanager
def standard_numpy_errors() -> Iterator[None]:
    """Handle NumPy's floating-point errors in the ``with`` block by NumPy's defaults."""
    import numpy as np

    with np.errstate(**_NUMPY_ERRORS):
        yield


@contextmanager
def standard_arithmetic() -> Iterator[None]:
    """Give torch and NumPy, in a block or a decorated function, the defaults of a fresh process.

    In the block torch's default type is float32 and its default device the CPU; gradients are
    recorded, inference mode and automatic mixed precision are off, and NumPy warns of
    floating-point errors. The state is per thread, except the default type.
    """
    torch: Any = sys.modules.get("torch")
    with ExitStack() as block:
        block.enter_context(standard_numpy_errors())
        if torch is None:  # not imported, so without state
            yield
            return
        block.enter_context(_FLOAT32.active())
        if torch.is_inference_mode_enabled():
            block.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            block.enter_context(torch.enable_grad())
        for device in _AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                block.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            block.enter_context(torch.device("cpu"))
        yield


@contextmanager
def preserved_defaults() -> Iterator[None]:
    """Restore torch's and NumPy's defaults after the ``with`` block, which may run foreign code."""
    import numpy as np

    torch: Any = sys.modules.get("torch")
    dtype = "float32" if torch is None else torch.get_default_dtype()
    device = "cpu" if torch is None else str(torch.get_default_device())
    records = torch is None or torch.is_grad_enabled()
    errors = np.geterr()
    try:
        yield
    finally:
        np.seterr(**errors)
        if (torch := sys.modules.get("torch")) is not None:
            _set_default_type(torch.float32 if dtype == "float32" else dtype)
            torch.set_grad_enabled(records)
            if str(torch.get_default_device()) != device:
                torch.set_default_device(None if device == "cpu" else device)
