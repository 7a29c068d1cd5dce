"""Code of a user's own that options name: how it is found, and who may name it.

Code is imported where the command line names it, or a file that is given there (``config=FILE``),
or where a program passes it. A run directory that was found never imports anything: what its
``config.yaml`` names must be named again. Options classes declare such fields as ``foreign``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

from gnnscale.config import ConfigError, options_class
from gnnscale.errors import one_line, shown

__all__ = ["check_name", "check_named_again", "foreign_names", "load_named", "name_of_code"]

#: The class attribute by which an options class declares its fields that name code.
_DECLARATION = "foreign"


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


def foreign_names(values: Mapping[str, Any], options: type, prefix: str = "") -> dict[str, Any]:
    """Return the options that name code, by their dotted names.

    Args:
        values: options as plain values, such as those in a run's ``config.yaml``.
        options: the options class that they are of; a group's ``_target_`` may name another.
        prefix: where ``values`` stand; used by the recursion.

    Raises:
        ConfigError: a group is of a class that is not known, so that nobody could tell.
    """
    target = values.get("_target_")
    cls = options if target is None else options_class(target, options, group=prefix.rstrip("."))
    found: dict[str, Any] = {}
    hints = get_type_hints(cls)
    for field in fields(cls):
        value = values.get(field.name)
        if value in (None, "", [], {}):
            continue
        option = f"{prefix}{field.name}"
        if field.name in getattr(cls, _DECLARATION, ()):
            found[option] = value
        elif isinstance(value, Mapping) and (group := _record(hints[field.name])) is not None:
            found |= foreign_names(value, group, f"{option}.")
    return found


def check_named_again(
    found: Mapping[str, Any], given: Mapping[str, Any], *, source: str, command: str
) -> None:
    """Refuse to import what a run directory alone names.

    Args:
        found: the names in the run directory, by option.
        given: those that the user gave; whatever they are, they stand for the ones found.
        source: the file that names them, for errors.
        command: as it was typed, up to the names.

    Raises:
        ConfigError: a name was not given; or one was that the run has no use for.
    """
    missing = [option for option in found if given.get(option) is None]
    if missing:
        again = " ".join(shlex.quote(f"{each}={_typed(found[each])}") for each in found)
        raise ConfigError(
            f"{source}: {', '.join(missing)}: names code, and nothing is imported because a file "
            f"that was found says so; if you trust it: {command} {again}"
        )
    for option, name in given.items():
        if name is not None and option not in found:
            raise ConfigError(f"{option}={shown(name)}: the run was trained without one ({source})")


def _typed(value: Any) -> str:
    """Return a value as it is typed on the command line."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_typed, value))}]"
    return one_line(value, 200)


def _record(hint: Any) -> Any:
    return next((each for each in (hint, *get_args(hint)) if is_dataclass(each)), None)


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
