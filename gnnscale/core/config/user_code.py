"""Import of user code that options name, and permission to import it.

Code is imported if the command line, a file given there (``config=FILE``) or a program names it. A
``_target_``, such as a partitioner, is imported only if ``allow`` was called with its name.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from gnnscale.core import ConfigError, brief, one_line, preserved_defaults
from gnnscale.core.config.imports import importing_user_code, is_importable

T = TypeVar("T")

#: Groups of options that accept a user's class.
GROUPS = ("partitioner", "cache_planner", "sampler", "features")

_PACKAGE = Path(__file__).parents[1]
#: Parts of the qualified name of code that a function defines.
_LOCAL = ("<locals>", "<lambda>")

#: Names of classes that the user has named in this process.
_allowed: set[str] = set()
#: File or module name by which a module was loaded, by ``__name__``; for other processes.
_sources: dict[str, str] = {}


class _Passed(threading.local):
    """Code that a program has passed in this thread, by name: threads may use one name twice."""

    def __init__(self) -> None:
        self.code: dict[str, Any] = {}


_PASSED = _Passed()
#: Code that the launching process has sent, by name.
_received: dict[str, Any] = {}

#: Names of the ``forward`` argument for edge features, and of the constructor argument for their
#: number.
EDGE_ATTR = ("edge_attr", "edge_attrs")
EDGE_WIDTH = ("edge_dim", "num_edge_features", "edge_in_channels", "edge_in_feats", "edge_in_size")


def arguments_of(code: Any) -> Iterable[str]:
    """Return the names of the parameters of ``code``; empty if it has no signature."""
    try:
        return inspect.signature(code).parameters
    except (TypeError, ValueError):
        return ()


def check_name(name: Any, *, option: str) -> tuple[str, str]:
    """Return both parts of ``MODULE:NAME`` or ``FILE.py:NAME``; else ConfigError for ``option``."""
    source, colon, path = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    parts = path.split(".") + ([] if source.endswith(".py") else source.split("."))
    if not (colon and source and all(part.isidentifier() or part in _LOCAL for part in parts)):
        raise ConfigError(
            f"{option}={brief(name)}: expected MODULE:NAME, as in mypkg.models:SAGE, or "
            "FILE.py:NAME"
        )
    return source, path


def load_named(name: str, *, option: str) -> Callable[..., Any]:
    """Import and return the class or function ``MODULE:NAME`` or ``FILE.py:NAME``.

    Modules are searched on Python's path and then in the working directory, so a file there never
    replaces an installed package. A file can import modules from its folder.
    """
    passed = {**_received, **_PASSED.code}
    if name in passed:
        return passed[name]  # type: ignore[no-any-return]
    source, path = check_name(name, option=option)
    setting = f"{option}={brief(name)}"
    module = _from_file(source, setting) if source.endswith(".py") else _from_path(source, setting)
    if _is_local(path):
        raise ConfigError(f"{setting}: is defined inside a function; pass it from a program")
    code: Any = module
    for part in path.split("."):
        try:
            code = getattr(code, part)
        except AttributeError:
            file = getattr(module, "__file__", None) or source
            raise ConfigError(f"{setting}: {file} has no {path}") from None
    if not callable(code):
        raise ConfigError(f"{setting}: expected a class or a function, got a {type(code).__name__}")
    if source != "__main__":
        _sources[module.__name__] = str(_absolute(source)) if source.endswith(".py") else source
    return code  # type: ignore[no-any-return]


def pass_code(code: Any) -> str:
    """Return the name of a class, a function or another callable of the program.

    In this thread ``load_named`` returns ``code`` for it, even if its module has something else.
    """
    name = name_of_code(code)
    module, _, path = name.partition(":")
    try:
        importable = attrgetter(path)(sys.modules[module])
    except (KeyError, AttributeError):  # a function defines it
        importable = None
    _PASSED.code.pop(name, None)
    if importable is not code:
        _PASSED.code[name] = code
    return name


def take_code(code: Mapping[str, Any]) -> None:
    """Let ``load_named`` return these classes and functions for their names, in all threads."""
    _received.update(code)


def code_for_workers(names: Iterable[Any]) -> dict[str, Any]:
    """Return, by name, the program's code among ``names`` that workers cannot import."""
    code = {}
    for name in filter(is_name, names):
        module = sys.modules.get(name.rpartition(":")[0])
        if name in _PASSED.code or (module is not None and not is_importable(module)):
            code[name] = load_named(name, option="code")
    return code


def is_name(value: Any) -> bool:
    """Whether ``value`` names code: a text with a colon."""
    return isinstance(value, str) and ":" in value


def named_functions(value: Any) -> tuple[list[str], Any]:
    """Return the texts of a list of metrics that name code, and the list."""
    return [name for name in value if is_name(name)] if isinstance(value, list) else [], value


def short_name(name: str) -> str:
    """Return NAME for ``MODULE:NAME``, within a function that defines it; other texts unchanged."""
    return name.rpartition(":")[2].rpartition("<locals>.")[2]


def is_of_program(name: Any) -> bool:
    """Whether ``name`` is of code that only its own program can pass: that no file can name."""
    return is_name(name) and (name.startswith("__main__:") or _is_local(name.rpartition(":")[2]))


def is_moved(new: Any, old: Any) -> bool:
    """Whether ``new`` and ``old`` name one class or function, and one of them is of a program."""
    return (is_of_program(new) or is_of_program(old)) and short_name(new) == short_name(old)


def argument(name: str) -> str:
    """Return the text of a Python argument for the code ``MODULE:NAME``: the code or its name."""
    short = short_name(name)
    if is_of_program(name):
        return "..." if "<" in short else short
    return one_line(repr(name), 400)


def load_call(directory: Path, options: Mapping[str, Any]) -> str:
    """Return the call of Python that opens the run with ``options``, plain values."""
    module = options.get("model", {}).get("module")
    code = "" if module is None else f", module={argument(module)}"
    return f"gnnscale.load({str(directory)!r}{code})"


def allow(names: Iterable[str]) -> None:
    """Allow ``_target_`` to name these classes, which the user has typed or passed in a program."""
    _allowed.update(names)


def allowed() -> tuple[str, ...]:
    """Return all names passed to ``allow``, for another process of this command."""
    return tuple(sorted(_allowed))


def name_for_workers(code: Any) -> str | None:
    """Return ``SOURCE:NAME``, by which a worker process loads code that options have named."""
    source = _sources.get(code.__module__)
    if source is None or _is_local(code.__qualname__):
        return None
    return f"{source}:{code.__qualname__}"


def _is_local(path: str) -> bool:
    """Whether ``path``, a qualified name, is that of code that a function defines."""
    return not set(_LOCAL).isdisjoint(path.split("."))


def load_class(name: str, base: type[T], *, group: str) -> type[T]:
    """Import and return the user's class of options that a ``_target_`` of ``group`` names.

    ConfigError: the user has not named it, or it is no concrete dataclass derived from ``base``.
    """
    option = f"{group}._target_"
    setting = f"{option}={brief(name)}"
    if group not in GROUPS:
        raise ConfigError(
            f"{setting}: expected a class of gnnscale; code goes with {', '.join(GROUPS)}"
        )
    if name not in _allowed:
        raise ConfigError(
            f"{setting}: names code, and nothing is imported because a file that was found says "
            f"so; type {group}={name}"
        )
    cls = load_named(name, option=option)
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise ConfigError(f"{setting}: expected a subclass of {base.__module__}.{base.__name__}")
    if inspect.get_annotations(cls).keys() - vars(cls).get("__dataclass_fields__", {}).keys():
        raise ConfigError(
            f"{setting}: expected a dataclass; write @dataclass(frozen=True, kw_only=True) above it"
        )
    if lacking := sorted({*getattr(cls, "__abstractmethods__", ()), *_unset(cls)}):
        raise ConfigError(f"{setting}: lacks {', '.join(lacking)} of {base.__name__}")
    return cls


def _unset(cls: type) -> list[str]:
    """Return attributes without a value that ``cls`` or its bases annotate, except fields."""
    declared = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    field_names = {field.name for field in fields(cls)}
    return [name for name in declared - field_names if not hasattr(cls, name)]


def default_options(name: str, *, group: str) -> dict[str, Any]:
    """Import a user's class, and return the plain defaults of its options, with ``_target_``.

    An option without a default is ``???``.
    """
    cls = load_named(name, option=group)
    values: dict[str, Any] = {"_target_": name}
    for field in fields(cls) if is_dataclass(cls) else ():
        if not field.init:
            continue
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is MISSING:
            values[field.name] = "???"
        elif _is_plain(default):
            values[field.name] = default
    return values


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def code_digest(cls: type) -> str | None:
    """Return a hash of the file of a user's class, for artifacts. None: a class of gnnscale.

    It covers the methods of a class of the program as well, which a notebook may define again.
    """
    if cls.__module__.partition(".")[0] == "gnnscale":
        return None
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    content = b"" if file is None else Path(file).read_bytes()
    if file is None or cls.__module__ == "__main__":
        methods = (getattr(value, "__code__", None) for value in vars(cls).values())
        content += "".join([cls.__qualname__, *map(_text_of, filter(None, methods))]).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _text_of(code: CodeType) -> str:
    """Return a text that differs if ``code`` computes something else."""
    constants = (
        _text_of(constant) if isinstance(constant, CodeType) else repr(constant)
        for constant in code.co_consts
        if not isinstance(constant, frozenset)  # in another order in each process
    )
    return f"{code.co_code.hex()}{code.co_names}{code.co_varnames}{[*constants]}"


def name_of_code(code: Any) -> str:
    """Return ``MODULE:NAME`` of a class or function, also in a partial, or of an object's class."""
    while isinstance(code, partial):
        code = code.func
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}:{named.__qualname__}"


def _from_path(name: str, setting: str) -> ModuleType:
    """Import ``name`` from Python's path or the working directory; errors name ``setting``."""
    _search(Path.cwd())
    try:
        with preserved_defaults(), importing_user_code():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise user_code_error(f"{setting}: importing it", error) from None
        raise ConfigError(
            f"{setting}: no module {error.name}, neither installed nor in {Path.cwd()}"
        ) from None
    # A script that is imported by mistake may call sys.exit.
    except (Exception, SystemExit) as error:
        raise user_code_error(f"{setting}: importing it", error) from None


def _absolute(file: str) -> Path:
    return Path(file).expanduser().resolve()


def _from_file(name: str, setting: str) -> ModuleType:
    """Import the file ``name`` as a module, unless it is imported; errors name ``setting``."""
    file = _absolute(name)
    if not file.is_file():
        raise ConfigError(f"{setting}: no such file, {file}")
    # The module's name is unique, and equal in every process.
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
        with preserved_defaults(), importing_user_code():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[unique]
        raise user_code_error(f"{setting}: importing it", error) from None
    return module


def _search(folder: Path) -> None:
    """Append ``folder`` to the end of Python's path, permanently: code may import lazily."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()


def user_code_error(action: str, error: BaseException) -> ConfigError:
    """Return the one-line error that ``action`` fails with ``error``, at a line of user code."""
    source = traceback.extract_tb(error.__traceback__)[-1]
    in_package = Path(source.filename).is_relative_to(_PACKAGE)  # the call itself failed
    location = f" ({source.filename}:{source.lineno})" if source.lineno and not in_package else ""
    reason = one_line(str(error).partition("\n")[0], 200)
    return ConfigError(f"{action} fails with {type(error).__name__}: {reason}{location}")
