"""How a command ends: by a signal, even while native code runs, or by an error of one line."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from gnnscale.cli.arguments import explain_missing_plugin
from gnnscale.cli.streams import last_words
from gnnscale.core import address_space_reason, explain, nearest, shown, torchrun_rank
from gnnscale.core.files import remove_unfinished_folders
from gnnscale.options import config, run_directory

if TYPE_CHECKING:
    pass

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


def name_lost_files() -> None:
    """Let the process end with a line that names the file if a mapped file became shorter.

    The system sends SIGBUS to a process that reads such a file. The command imports NumPy anyway;
    products are torch's, and NumPy's own library of them would start threads, whose memory a limit
    on address space may refuse.
    """
    name, given = "OPENBLAS_NUM_THREADS", os.environ.get("OPENBLAS_NUM_THREADS")
    if address_space_reason():
        os.environ.setdefault(name, "1")
    from gnnscale.ops import end_on_bus_error

    if given is None:
        os.environ.pop(name, None)

    reason = b": a mapped file became shorter, or its disk fails or is full\n"
    end_on_bus_error(descriptor=2, after=reason, status=1)


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
    if several := re.match(r"Ambiguous value for argument '(([^'=]*)=([^']*))'", reason):
        return (
            f"{shown(several[1])}: add -m to run a sweep over these values, or write "
            f"{shown(several[2])}=[{shown(several[3])}] for a list"
        )
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
    guess = nearest(name, options) or f"; there are {', '.join(options)}"
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
