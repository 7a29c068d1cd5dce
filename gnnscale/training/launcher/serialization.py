"""How a run's options reach its workers: pickled, with classes and functions by their names.

What the launching program itself defines is in ``__main__``, which a worker has not. If options
name something of it, the worker imports the program, as ``multiprocessing`` does: under another
name, so that what is below ``if __name__ == "__main__":`` is not run again. What options have named
as ``FILE.py:NAME`` or ``MODULE:NAME`` the worker loads by that name again.
"""

from __future__ import annotations

import io
import multiprocessing
import pickle
from collections.abc import Mapping
from multiprocessing import spawn
from pathlib import Path
from types import FunctionType
from typing import Any

from gnnscale.core import ConfigError, kept_defaults, shown
from gnnscale.core.config.user_code import load_named, name_for_workers

_importing = False


def program_of_this_process() -> dict[str, Any]:
    """Return what leads a worker to this process's program; nothing in an interactive session."""
    unset = multiprocessing.get_start_method(allow_none=True) is None
    known = spawn.get_preparation_data("worker")
    if unset:  # it has been set to the default, so that the program could not choose any more
        multiprocessing.set_start_method(None, force=True)
    path = known.get("init_main_from_path")
    if "init_main_from_name" not in known and (path is None or not Path(path).is_file()):
        return {}
    names = ("init_main_from_name", "init_main_from_path", "sys_argv")
    return {name: known[name] for name in names if name in known}


def dump(options: Any) -> bytes:
    """Pickle ``options``.

    Raises:
        ConfigError: they hold a class or a function that workers cannot import.
    """
    content = io.BytesIO()
    try:
        _Pickler(content).dump(options)
    # What has no name, or a wrong one.
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"workers cannot be given what a run uses: {error}") from None
    return content.getvalue()


def load(content: bytes, program: Mapping[str, Any]) -> Any:
    """Undo ``dump``, in a worker of the process with ``program``.

    Raises:
        ImportError: only the process that pickled a class can import it.
        AttributeError: likewise.
    """
    unpickler = _Unpickler(io.BytesIO(content))
    unpickler.program = dict(program)
    # What the program sets when it is imported is for its own computing.
    with kept_defaults():
        return unpickler.load()


def refuse_while_imported() -> None:
    """Refuse to start a run while a worker of another run imports the program.

    Raises:
        ConfigError: it does.
    """
    if _importing:
        raise ConfigError(
            "the program starts a run whenever it is imported, and workers import it; put what "
            'starts it below if __name__ == "__main__":'
        )


class _Pickler(pickle.Pickler):
    def reducer_override(self, found: Any) -> Any:
        """Check classes and functions; what options have named is pickled as its name."""
        if isinstance(found, (type, FunctionType)):
            _check_importable(found)
            if (name := name_for_workers(found)) is not None:
                return _load_again, (name,)
        return NotImplemented


def _load_again(name: str) -> Any:
    return load_named(name, option="worker")


def _check_importable(found: type | FunctionType) -> None:
    name = f"{found.__module__}.{found.__qualname__}"
    if "<" in found.__qualname__:
        raise ConfigError(
            f"{shown(name)}: workers import it by name, so that it must be defined at the top "
            "level of a module or of the program, and be no lambda"
        )
    if found.__module__ == "__main__" and not program_of_this_process():
        raise ConfigError(
            f"{shown(name)}: workers import it by name, and cannot import an interactive session; "
            "define it in a module"
        )


class _Unpickler(pickle.Unpickler):
    program: dict[str, Any]

    def find_class(self, module: str, name: str) -> Any:
        if module == "__main__":
            _import(self.program)
        return super().find_class(module, name)


def _import(program: dict[str, Any]) -> None:
    """Make ``program`` this process's ``__main__``, if it is not yet."""
    global _importing
    _importing = True
    try:
        spawn.prepare(program)
    finally:
        _importing = False
