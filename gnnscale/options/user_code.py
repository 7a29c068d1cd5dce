"""Code of the user that options name: how it is found and imported.

Code is imported if the command line names it, or a file that is given there (``config=FILE``), or
if a program passes it. What a run directory names must be named again: ``found`` sees to that.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gnnscale.core.errors import ConfigError, one_line, shown

__all__ = ["check_name", "load_named", "name_of_code"]


def check_name(name: Any, *, option: str) -> tuple[str, str]:
    """Take ``MODULE:NAME`` or ``FILE.py:NAME`` apart; nothing is imported.

    Args:
        name: as in ``mypkg.models:SAGE`` or ``path/to/file.py:SAGE``.
        option: named in errors.

    Raises:
        ConfigError: it is neither.
    """
    where, colon, what = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    parts = what.split(".") + ([] if where.endswith(".py") else where.split("."))
    if not (colon and where and all(part.isidentifier() for part in parts)):
        raise ConfigError(
            f"{option}={shown(name)}: must be MODULE:NAME, as in mypkg.models:SAGE, or FILE.py:NAME"
        )
    return where, what


def load_named(name: str, *, option: str) -> Callable[..., Any]:
    """Import what ``name`` says, and return it.

    Modules are searched where Python searches them, and then in the working directory, which comes
    last: a file there never takes the place of an installed package. A file finds the modules
    beside it.

    Args:
        name: ``MODULE:NAME`` or ``FILE.py:NAME``.
        option: by which it was given, named in errors.

    Raises:
        ConfigError: there is no such module or name, importing it fails, or it cannot be called.
    """
    where, what = check_name(name, option=option)
    said = f"{option}={shown(name)}"
    module = _from_file(where, said) if where.endswith(".py") else _from_path(where, said)
    found: Any = module
    for part in what.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            place = getattr(module, "__file__", None) or where
            raise ConfigError(f"{said}: {place} has no {what}") from None
    if not callable(found):
        raise ConfigError(f"{said}: is a {type(found).__name__}, must be a class or a function")
    return found  # type: ignore[no-any-return]


def name_of_code(code: Any) -> str:
    """Return what ``load_named`` takes for a class or a function; for an object, its class's."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}:{named.__qualname__}"


def _from_path(name: str, said: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(said, error) from None
        raise ConfigError(
            f"{said}: no module {error.name}, neither installed nor in {Path.cwd()}"
        ) from None
    # A program that is imported by mistake may end the process.
    except (Exception, SystemExit) as error:
        raise _failed(said, error) from None


def _from_file(name: str, said: str) -> ModuleType:
    file = Path(name).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"{said}: no such file, {file}")
    # A name that no other module has, and that is the same in every process.
    digest = hashlib.blake2b(str(file).encode(), digest_size=8).hexdigest()
    unique = f"gnnscale_foreign_{digest}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _search(file.parent)
    sys.modules[unique] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[unique]
        raise _failed(said, error) from None
    return module


def _search(folder: Path) -> None:
    """Let Python find modules in ``folder``, after all others: code may import them later, too."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()


def _failed(said: str, error: BaseException) -> ConfigError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f" ({where.filename}:{where.lineno})" if where.lineno else ""
    reason = one_line(str(error).partition("\n")[0], 200)
    return ConfigError(f"{said}: importing it fails with {type(error).__name__}: {reason}{place}")
