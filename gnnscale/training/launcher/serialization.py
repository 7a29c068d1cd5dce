"""Data that the launching process and its workers exchange, pickled with classes by name.

If options name a class of the launching program's ``__main__``, the worker imports the program
under another name, as ``multiprocessing`` does, so that code below ``if __name__ == "__main__":``
does not run again. A class that an option names as ``FILE.py:NAME`` or ``MODULE:NAME`` is loaded by
this name.
"""

import io
import multiprocessing
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from types import FunctionType
from typing import Any

from gnnscale.core import ConfigError, brief, preserved_defaults
from gnnscale.core.config.user_code import load_named, name_for_workers
from gnnscale.planner.registry import DeviceKind
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.config import RunConfig

_importing = False


def program_data() -> dict[str, Any]:
    """Return the data to import this process's ``__main__`` elsewhere; empty if it is no file."""
    unset = multiprocessing.get_start_method(allow_none=True) is None
    data = spawn.get_preparation_data("worker")
    if unset:  # the call above has fixed the default, which the program could not change
        multiprocessing.set_start_method(None, force=True)
    path = data.get("init_main_from_path")
    if "init_main_from_name" not in data and (path is None or not Path(path).is_file()):
        return {}
    names = ("init_main_from_name", "init_main_from_path", "sys_argv")
    return {name: data[name] for name in names if name in data}


def dump(options: Any) -> bytes:
    """Pickle ``options``; ConfigError: workers cannot import a class or function in it by name."""
    content = io.BytesIO()
    try:
        _Pickler(content).dump(options)
    # Objects without an importable name.
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"options cannot be sent to workers: {error}") from None
    return content.getvalue()


def load(content: bytes, program: Mapping[str, Any]) -> Any:
    """Return the object that ``dump`` pickled; import the sender's ``program`` if needed."""
    unpickler = _Unpickler(io.BytesIO(content))
    unpickler.program = dict(program)
    # Settings of torch by the program's import must not affect the worker.
    with preserved_defaults():
        return unpickler.load()


def refuse_while_imported() -> None:
    """Raise ConfigError if this is a worker that imports the program, which starts a run."""
    if _importing:
        raise ConfigError(
            "the program starts a run when workers import it; start the run below "
            'if __name__ == "__main__":'
        )


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Pickle a class or function by the name that an option gives it, if any.

        ConfigError: workers cannot import it. Other values are pickled as usual.
        """
        if isinstance(value, (type, FunctionType)):
            _check_importable(value)
            if (name := name_for_workers(value)) is not None:
                return _load_again, (name,)
        return NotImplemented


def _load_again(name: str) -> Any:
    return load_named(name, option="worker")


def _check_importable(value: type | FunctionType) -> None:
    name = f"{value.__module__}.{value.__qualname__}"
    if "<" in value.__qualname__:
        raise ConfigError(
            f"{brief(name)}: expected a class or function at the top level of a module or of the "
            "program, which workers can import by name"
        )
    if value.__module__ == "__main__" and not program_data():
        raise ConfigError(
            f"{brief(name)}: workers cannot import it from an interactive session; define it in a "
            "module"
        )


class _Unpickler(pickle.Unpickler):
    program: dict[str, Any]

    def find_class(self, module: str, name: str) -> Any:
        if module == "__main__":
            _import(self.program)
        return super().find_class(module, name)


def _import(program: dict[str, Any]) -> None:
    """Import ``program`` as this process's ``__main__``, unless it is imported."""
    global _importing
    _importing = True
    try:
        spawn.prepare(program)
    finally:
        _importing = False


#: Replies of the launching process to a finished epoch.
STOP, CONTINUE = b"stop", b"continue"


@dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """Arguments of a worker process."""

    config: RunConfig  #: options of the run
    directory: Path  #: the run directory
    options: dict[str, Any]  #: ``config`` as plain values
    rank: int  #: position of the worker's device in the plan
    size: int  #: number of workers
    rendezvous: Path | None  #: file through which workers connect; None: there is one worker
    heartbeats: Path  #: file of all heartbeats
    backend: str  #: backend of torch.distributed
    artifacts: tuple[RunArtifact, ...]  #: artifacts made by the launching process
    kinds: tuple[DeviceKind, ...]  #: custom device kinds that the launching process has registered
    profiles_memory: bool = False  #: whether to profile memory instead of training
    #: whether an observer may end training, so that workers wait for its reply after each epoch
    may_stop: bool = False


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Reason why a worker ends early."""

    #: ``user``: the user can fix it, ``peer``: another worker failed, ``memory``: out of memory,
    #: ``killed``: the process has ended without a report, ``error``: any other error
    kind: str
    message: str  #: one line
    trace: str = ""  #: the traceback
