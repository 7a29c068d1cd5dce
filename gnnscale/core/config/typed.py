"""Typed configuration: from what Hydra composed to frozen dataclasses that check themselves."""

import difflib
import inspect
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from gnnscale.core import ConfigError, nearest, printable, shown
from gnnscale.core.config import user_code
from gnnscale.core.config.renamed import current_path

T = TypeVar("T")


def typed(node: Any, base: type[T], *, group: str = "") -> T:
    """Turn a configuration node into the frozen dataclass that its ``_target_`` names.

    Types are checked against the dataclass's annotations, values by its ``__post_init__``; a nested
    dataclass is built from its own node. A node without ``_target_`` is a ``base``. Only subclasses
    of ``base`` can be named that gnnscale has imported already, or that the user has named for this
    process (``user_code.allow``), so that a configuration found in another user's run directory
    cannot make the program import or call anything else. A float that is whole is an integer.

    Numbers fit into 64 bits and are finite (infinite ones are allowed if the class sets
    ``allows_infinite = True``), text has no control characters, and no path is empty. ``group`` is
    the prefix of options in errors; empty at the top.

    Raises:
        ConfigError: unknown key, wrong type, or a value the class refuses.
    """
    if not isinstance(node, DictConfig) or node._is_none() or node._is_missing():
        raise ConfigError(f"{group}={_text(node)}: a group of options, not a value")
    cls = _target(node, base, group)
    prefix = f"{group}." if group else ""
    known = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    nested = {name: record for name in known if (record := record_of(hints[name])) is not None}
    listed = {name for name in nested if get_origin(hints[name]) is list}
    for key in node:
        if key != "_target_" and key not in known:
            inner = (f"{name}.{each.name}" for name in nested for each in fields(nested[name]))
            raise ConfigError(
                unknown_option(f"{prefix}{key!s}", (f"{prefix}{each}" for each in (*known, *inner)))
            )
    values = _convert(node, _plain_options(cls), prefix)  # type: ignore[arg-type]
    for name, value in values.items():
        _check_plain(f"{prefix}{name}", value, infinite=getattr(cls, "allows_infinite", False))
    for name, record in nested.items():
        if name not in node:
            continue
        value = _get(node, name, prefix)
        option = f"{prefix}{name}"
        if name in listed:
            values[name] = _typed_list(value, record, option)
            continue
        optional = value is None and hints[name] is not record
        values[name] = None if optional else typed(value, record, group=option)
    for name, field in known.items():
        if name not in values and _required(field):
            raise ConfigError(f"{prefix}{name}: required, and not given")
    return cls(**values)


def _typed_list(node: Any, record: type[T], option: str) -> list[T]:
    if not isinstance(node, ListConfig):
        raise ConfigError(f"{option}={_text(node)}: a list of groups of options")
    return [
        typed(_get(node, position, f"{option}."), record, group=f"{option}.{position}")
        for position in range(len(node))
    ]


def record_of(hint: Any) -> Any:
    """Return the dataclass that a field holds, may hold, or lists; None if it holds none."""
    return next((each for each in (hint, *get_args(hint)) if is_dataclass(each)), None)


def _target(node: DictConfig, base: type[T], group: str) -> type[T]:
    target = _get(node, "_target_", f"{group}." if group else "") if "_target_" in node else None
    if target is None:
        if inspect.isabstract(base):
            raise ConfigError(f"{group}._target_: required, the class of gnnscale that is meant")
        return base
    return options_class(target, base, group=group)


def options_class(target: object, base: type[T], *, group: str) -> type[T]:
    """Return the class of options that a ``_target_`` names.

    It must be imported already, or code that the user has named.

    Raises:
        ConfigError: it is no subclass of ``base`` in gnnscale or of the user's; names ``group``.
    """
    if user_code.is_name(target):
        return user_code.own_class(str(target), base, group=group)
    option = f"{group}._target_={shown(target)}"
    module, _, name = current_path(str(target)).rpartition(".")
    if not module.startswith("gnnscale."):
        raise ConfigError(f"{option}: not a class of gnnscale")
    # What is not imported by now is imported for no file.
    cls = getattr(sys.modules.get(module), name, None)
    if cls is None:
        raise ConfigError(f"{option}: no such class")
    if not (isinstance(cls, type) and issubclass(cls, base) and is_dataclass(cls)):
        raise ConfigError(f"{option}: not a {base.__name__}")
    if inspect.isabstract(cls):
        raise ConfigError(f"{option}: a base of others, name one of those")
    if getattr(cls, "only_in_programs", False):
        raise ConfigError(f"{option}: has a class of a program, which no option names")
    return cast("type[T]", cls)


def _get(node: DictConfig | ListConfig, name: Any, prefix: str) -> Any:
    """Return ``node[name]``, resolved; what OmegaConf raises becomes one line."""
    try:
        return node[name]
    except MissingMandatoryValue:
        raise ConfigError(f"{prefix}{name}: required, and not given") from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"{prefix}{name}: {_first_line(error)}") from None
    except RecursionError:
        raise ConfigError(f"{prefix}{name}: refers to itself, or is nested too deeply") from None


@cache
def _plain_options(cls: type) -> type:
    """Return a dataclass of those fields of ``cls`` that hold no dataclass, without its checks."""
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.init]
    plain = [(name, hints[name]) for name in names if record_of(hints[name]) is None]
    return make_dataclass("Options", plain)


def _convert(node: DictConfig, options: type, prefix: str) -> dict[str, Any]:
    """Convert the values of ``node`` to the types of ``options``; absent keys stay absent."""
    schema = OmegaConf.structured(options)
    hints = get_type_hints(options)
    values: dict[str, Any] = {}
    for name in hints:
        if name not in node:
            continue
        value = _get(node, name, prefix)
        try:
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
            if value is None and type(None) not in get_args(hints[name]):
                raise ConfigError(f"{prefix}{name}=null: a value is required")
            if value == "" and Path in (hints[name], *get_args(hints[name])):
                raise ConfigError(f"{prefix}{name}=: names no file or folder")
            schema[name] = _whole(value, hints[name])
            values[name] = schema[name]
        except MissingMandatoryValue:
            raise ConfigError(f"{prefix}{name}: required, and not given") from None
        except OmegaConfBaseException as error:
            raise ConfigError(f"{prefix}{name}: {_first_line(error)}") from None
        except (OverflowError, RecursionError):
            raise ConfigError(f"{prefix}{name}={_text(value)}: too large, or too deep") from None
        if OmegaConf.is_config(values[name]):
            values[name] = OmegaConf.to_object(values[name])
    return values


def _whole(value: Any, hint: Any) -> Any:
    """Return ``value`` with whole floats, such as 1e9, as integers if ``hint`` asks for such."""
    if isinstance(value, list) and get_origin(hint) is list:
        return [_whole(each, get_args(hint)[0]) for each in value]
    wanted = (hint, *get_args(hint))
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole and int in wanted and float not in wanted else value


def _check_plain(option: str, value: Any, *, infinite: bool) -> None:
    """Refuse numbers, texts and paths that have no meaning."""
    if isinstance(value, (list, dict)):
        for each in value.items() if isinstance(value, dict) else value:
            for part in each if isinstance(each, tuple) else (each,):
                _check_plain(option, part, infinite=infinite)
    elif isinstance(value, float):
        if math.isnan(value) or (math.isinf(value) and not infinite):
            raise ConfigError(f"{option}={value}: must be a finite number")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ConfigError(f"{option}={_text(value)}: must fit into 64 bits")
    elif isinstance(value, (str, Path)) and not printable(str(value)):
        raise ConfigError(f"{option}={shown(value)}: holds control characters, or is not UTF-8")


def _text(value: Any) -> str:
    """Return a value for a message; a number of thousands of digits has no text in Python."""
    try:
        return "null" if value is None else shown(value)
    except (ValueError, RecursionError):
        return "..."


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _required(field: Field[Any]) -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING


def unknown_option(name: str, known: Iterable[str]) -> str:
    """Return one line: ``name`` is no option, and which of ``known`` is closest.

    The last part of a dotted name counts most: ``lr`` stands for ``optimizer.lr``.
    """
    known = list(known)
    inside = [option for option in known if option.endswith(f".{name}")]
    guess = f", did you mean {inside[0]!r}?" if inside else nearest(name, known)
    if not guess:
        tails = {option.rpartition(".")[2]: option for option in known}
        close = difflib.get_close_matches(name.rpartition(".")[2], tails, n=1, cutoff=0.75)
        guess = f", did you mean {tails[close[0]]!r}?" if close else ""
    return f"{name}: unknown option{guess}"


def differences(
    new: Mapping[str, Any], old: Mapping[str, Any], *, ignore: Iterable[str] = (), prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """Return ``(dotted key, new value, old value)`` for every option in which two runs differ.

    ``new`` and ``old`` are nested plain dictionaries; an absent key counts as None. ``ignore`` are
    dotted keys, or groups of keys, that may differ; ``prefix`` is used by the recursion.
    """
    ignore = tuple(ignore)
    found: list[tuple[str, Any, Any]] = []
    for key in {**new, **old}:
        name, left, right = f"{prefix}{key}", new.get(key), old.get(key)
        if name in ignore or left == right:
            continue
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differences(left, right, ignore=ignore, prefix=f"{name}.")
        else:
            found.append((name, left, right))
    return found
