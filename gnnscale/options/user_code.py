"""User code that options name: how it is found and imported.

Code is imported if the command line names it, or a file that is given there (``config=FILE``), or
if a program passes it. What a run directory names must be named again; ``found`` checks that.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from gnnscale.core import ConfigError, one_line, shown

#: Names of the argument of a module's ``forward`` that gets features of edges, and of the one of
#: its constructor that gets their number.
EDGE_ATTR = ("edge_attr", "edge_attrs")
EDGE_WIDTH = ("edge_dim", "num_edge_features", "edge_in_channels", "edge_in_feats", "edge_in_size")


def arguments_of(code: Any) -> Iterable[str]:
    """Return the names of the arguments that ``code`` takes, if these can be known."""
    try:
        return inspect.signature(code).parameters
    except (TypeError, ValueError):
        return ()


def check_name(name: Any, *, option: str) -> tuple[str, str]:
    """Split ``MODULE:NAME`` or ``FILE.py:NAME``; nothing is imported.

    Raises:
        ConfigError: it is neither; names ``option``.
    """
    source, colon, what = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    parts = what.split(".") + ([] if source.endswith(".py") else source.split("."))
    if not (colon and source and all(part.isidentifier() for part in parts)):
        raise ConfigError(
            f"{option}={shown(name)}: must be MODULE:NAME, as in mypkg.models:SAGE, or FILE.py:NAME"
        )
    return source, what


def load_named(name: str, *, option: str) -> Callable[..., Any]:
    """Import and return what ``name``, ``MODULE:NAME`` or ``FILE.py:NAME``, refers to.

    Modules are searched on Python's path, and then in the working directory, which comes last: a
    file there never takes the place of an installed package. A file finds the modules beside it.

    Raises:
        ConfigError: there is no such module or name, importing it fails, or it cannot be called;
            names ``option``.
    """
    source, what = check_name(name, option=option)
    given = f"{option}={shown(name)}"
    module = _from_file(source, given) if source.endswith(".py") else _from_path(source, given)
    found: Any = module
    for part in what.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            place = getattr(module, "__file__", None) or source
            raise ConfigError(f"{given}: {place} has no {what}") from None
    if not callable(found):
        raise ConfigError(f"{given}: is a {type(found).__name__}, must be a class or a function")
    return found  # type: ignore[no-any-return]


def name_of_code(code: Any) -> str:
    """Return the name for ``load_named`` of a class or a function, or of an object's class."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}:{named.__qualname__}"


def _from_path(name: str, given: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(given, error) from None
        raise ConfigError(
            f"{given}: no module {error.name}, neither installed nor in {Path.cwd()}"
        ) from None
    # A program that is imported by mistake may end the process.
    except (Exception, SystemExit) as error:
        raise _failed(given, error) from None


def _from_file(name: str, given: str) -> ModuleType:
    file = Path(name).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"{given}: no such file, {file}")
    # A name that no other module has, and that is the same in every process.
    digest = hashlib.blake2b(str(file).encode(), digest_size=8).hexdigest()
    unique = f"gnnscale_user_code_{digest}"
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
        raise _failed(given, error) from None
    return module


def _search(folder: Path) -> None:
    """Append ``folder`` to Python's path, after all others: code may import from it later, too."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()


def _failed(given: str, error: BaseException) -> ConfigError:
    source = traceback.extract_tb(error.__traceback__)[-1]
    place = f" ({source.filename}:{source.lineno})" if source.lineno else ""
    reason = one_line(str(error).partition("\n")[0], 200)
    return ConfigError(f"{given}: importing it fails with {type(error).__name__}: {reason}{place}")
