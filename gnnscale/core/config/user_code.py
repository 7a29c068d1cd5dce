"""User code that options name: how it is found and imported, and which of it may be.

Code is imported if the command line names it, or a file that is given there (``config=FILE``), or
if a program passes it. What a run directory names must be named again; ``found`` checks that.

A part of a run, such as a partitioner, is a class of options of the user's: ``GROUPS`` lists the
groups. Its name is a choice of the group, and the group's ``_target_``. Only names that this
process was given by ``allow`` are imported for a ``_target_``.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from gnnscale.core import ConfigError, kept_defaults, one_line, shown

T = TypeVar("T")

#: Groups of options that take a class of the user's.
GROUPS = ("partitioner", "cache_planner", "sampler", "features")

_PACKAGE = Path(__file__).parents[1]

#: Names of classes that the user has given this process.
_allowed: set[str] = set()
#: What modules were loaded by, a file or a module's name, for another process.
_sources: dict[str, str] = {}

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
    if source != "__main__":
        _sources[module.__name__] = str(_absolute(source)) if source.endswith(".py") else source
    return found  # type: ignore[no-any-return]


def is_name(value: Any) -> bool:
    """Return whether ``value`` is ``MODULE:NAME`` or ``FILE.py:NAME``, as far as a colon says."""
    return isinstance(value, str) and ":" in value


def short_name(name: str) -> str:
    """Return what reports call the code ``MODULE:NAME``: NAME; any other text as it is."""
    return name.rpartition(":")[2]


def allow(names: Iterable[str]) -> None:
    """Let options name these classes: the user has typed them, or passed them in a program."""
    _allowed.update(names)


def allowed() -> tuple[str, ...]:
    """Return what ``allow`` was given, for another process of the same command."""
    return tuple(sorted(_allowed))


def name_for_workers(found: Any) -> str | None:
    """Return the name by which a worker loads a class or a function of the user's.

    None if options did not name its module: then it is found as in any Python program.
    """
    source = _sources.get(found.__module__)
    return None if source is None else f"{source}:{found.__qualname__}"


def own_class(name: str, base: type[T], *, group: str) -> type[T]:
    """Import the class of options that a ``_target_`` of ``group`` names.

    Raises:
        ConfigError: the group takes none, the user has not named it, or it is no complete
            dataclass that inherits from ``base``.
    """
    option = f"{group}._target_"
    given = f"{option}={shown(name)}"
    if group not in GROUPS:
        raise ConfigError(f"{given}: not a class of gnnscale; code goes with {', '.join(GROUPS)}")
    if name not in _allowed:
        raise ConfigError(
            f"{given}: names code, and nothing is imported because a file that was found says so; "
            f"type {group}={name}"
        )
    found = load_named(name, option=option)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{given}: must inherit from {base.__module__}.{base.__name__}")
    if inspect.get_annotations(found).keys() - vars(found).get("__dataclass_fields__", {}).keys():
        raise ConfigError(
            f"{given}: must be a dataclass; write @dataclass(frozen=True, kw_only=True) above it"
        )
    if lacking := sorted({*getattr(found, "__abstractmethods__", ()), *_unset(found)}):
        raise ConfigError(f"{given}: lacks {', '.join(lacking)} of {base.__name__}")
    return found


def _unset(found: type) -> list[str]:
    """Return the class attributes that bases of ``found`` announce, and that it lacks."""
    announced = {name for each in found.__mro__ for name in inspect.get_annotations(each)}
    known = {each.name for each in fields(found)}
    return [name for name in announced - known if not hasattr(found, name)]


def default_options(name: str, *, group: str) -> dict[str, Any]:
    """Return the options of a user's class as plain values, those without a default as ``???``.

    The class is imported; ``own_class`` checks it. Defaults that are no plain values are left out.

    Raises:
        ConfigError: it cannot be imported.
    """
    found = load_named(name, option=group)
    values: dict[str, Any] = {"_target_": name}
    for each in fields(found) if is_dataclass(found) else ():
        if not each.init:
            continue
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if default is MISSING:
            values[each.name] = "???"
        elif _is_plain(default):
            values[each.name] = default
    return values


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def code_digest(cls: type) -> str | None:
    """Return a hash of the file that defines a user's class; None for a class of gnnscale.

    What is made by the class, and kept, is made again if the file has changed.
    """
    if cls.__module__.partition(".")[0] == "gnnscale":
        return None
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    content = Path(file).read_bytes() if file is not None else cls.__qualname__.encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def name_of_code(code: Any) -> str:
    """Return the name for ``load_named`` of a class or a function, or of an object's class."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}:{named.__qualname__}"


def importable_name(code: Any) -> str:
    """Return ``name_of_code`` of a module, or of its class.

    Raises:
        ConfigError: a function defines it, so that no process imports it by this name.
    """
    name = name_of_code(code)
    if "<" in name:
        short = name.rpartition(".")[2]
        raise ConfigError(
            f"{shown(short)}: is defined in a function, and workers import it by its name; move it "
            "to a file, or to the top level of the program"
        )
    return name


def _from_path(name: str, given: str) -> ModuleType:
    _search(Path.cwd())
    try:
        with kept_defaults():
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


def _absolute(file: str) -> Path:
    return Path(file).expanduser().resolve()


def _from_file(name: str, given: str) -> ModuleType:
    file = _absolute(name)
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
        with kept_defaults():
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
    return failed(f"{given}: importing it", error)


def failed(what: str, error: BaseException) -> ConfigError:
    """Return one line about an exception in the user's code, with the place that raised it."""
    source = traceback.extract_tb(error.__traceback__)[-1]
    ours = Path(source.filename).is_relative_to(_PACKAGE)  # the call itself failed
    place = f" ({source.filename}:{source.lineno})" if source.lineno and not ours else ""
    reason = one_line(str(error).partition("\n")[0], 200)
    return ConfigError(f"{what} fails with {type(error).__name__}: {reason}{place}")
