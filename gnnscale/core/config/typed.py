"""Conversion of composed configurations to frozen dataclasses with checked values."""

import inspect
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    GrammarParseError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from gnnscale.core import ConfigError, brief, printable
from gnnscale.core.config import user_code
from gnnscale.core.config.option_names import unknown_option
from gnnscale.core.config.renamed import current_path
from gnnscale.core.config.yaml_file import escaped
from gnnscale.core.files import refuse_address

T = TypeVar("T")
#: Key in the metadata of a field: message for a mapping in place of another value, or the reverse.
MAPPING_HINT = "gnnscale.mapping_hint"
#: Hint on a text that was read as a reference.
REFERENCE = "${ begins a reference to an option, in a text it is typed \\${"


def typed(node: Any, base: type[T], *, group: str = "") -> T:
    """Return the frozen dataclass, ``base`` or a subclass, that a configuration node describes.

    Types are checked against the dataclass's annotations, values by its ``__post_init__``. A float
    with an integer value is accepted as an int, and a text as a list of one text. Numbers have 64
    bits and are finite (unless ``allows_infinite``), text has no control characters, and no path is
    empty.

    ``_target_`` may name a subclass of ``base`` that gnnscale has already imported, or that the
    user has named for this process (``user_code.allow``), so that a foreign file runs no code.

    ConfigError, naming the dotted ``group``, for an unknown key, a wrong type, or a refused value.
    """
    if not isinstance(node, DictConfig) or node._is_none() or node._is_missing():
        raise ConfigError(f"{group}={_text(node)}: expected a group of options, got a value")
    cls = _target(node, base, group)
    prefix = f"{group}." if group else ""
    options = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    nested = {name: record for name in options if (record := record_of(hints[name])) is not None}
    listed = {name for name in nested if get_origin(hints[name]) is list}
    for key in node:
        if key != "_target_" and key not in options:
            inner = (f"{name}.{field.name}" for name in nested for field in fields(nested[name]))
            names = (f"{prefix}{name}" for name in (*options, *inner))
            raise ConfigError(unknown_option(f"{prefix}{key!s}", names))
        # OmegaConf counts a missing value as an absent key, for which the default would stand.
        if OmegaConf.is_missing(node, key):
            raise ConfigError(f"{prefix}{key!s}: required")
    _check_mappings(node, cls, prefix)
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
    for name, field in options.items():
        if name not in values and field.default is field.default_factory is MISSING:
            raise ConfigError(f"{prefix}{name}: required")
    return cls(**values)


def _typed_list(node: Any, record: type[T], option: str) -> list[T]:
    if not isinstance(node, ListConfig):
        raise ConfigError(f"{option}={_text(node)}: expected a list of groups of options")
    return [
        typed(_get(node, position, f"{option}."), record, group=f"{option}.{position}")
        for position in range(len(node))
    ]


def record_of(hint: Any) -> Any:
    """Return the dataclass in a type hint: ``D``, ``D | None`` or ``list[D]``; else None."""
    return next((cls for cls in (hint, *get_args(hint)) if is_dataclass(cls)), None)


def _target(node: DictConfig, base: type[T], group: str) -> type[T]:
    target = _get(node, "_target_", f"{group}." if group else "") if "_target_" in node else None
    if target is None:
        if inspect.isabstract(base):
            raise ConfigError(f"{group}._target_: required; name a class of gnnscale")
        return base
    return options_class(target, base, group=group)


def options_class(target: object, base: type[T], *, group: str) -> type[T]:
    """Return the subclass of ``base``, imported or of the user's, that a ``_target_`` names."""
    if user_code.is_name(target):
        return user_code.load_class(str(target), base, group=group)
    option = f"{group}._target_={brief(target)}"
    module, _, name = current_path(str(target)).rpartition(".")
    if not module.startswith("gnnscale."):
        raise ConfigError(f"{option}: expected a class of gnnscale")
    # No module is imported because a file names it.
    cls = getattr(sys.modules.get(module), name, None)
    if cls is None:
        raise ConfigError(f"{option}: no such class")
    if not (isinstance(cls, type) and issubclass(cls, base) and is_dataclass(cls)):
        raise ConfigError(f"{option}: expected a subclass of {base.__name__}")
    if inspect.isabstract(cls):
        raise ConfigError(f"{option}: expected a subclass, got an abstract class")
    if getattr(cls, "only_in_programs", False):
        raise ConfigError(f"{option}: can be set by a program only")
    return cast("type[T]", cls)


def _get(node: DictConfig | ListConfig, name: Any, prefix: str) -> Any:
    """Return ``node[name]``, resolved; an error of OmegaConf becomes a ConfigError."""
    try:
        return node[name]
    except MissingMandatoryValue:
        raise ConfigError(f"{prefix}{name}: required") from None
    except (GrammarParseError, InterpolationResolutionError) as error:
        raise ConfigError(f"{prefix}{name}: {_first_line(error)}; {REFERENCE}") from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"{prefix}{name}: {_first_line(error)}") from None
    except RecursionError:
        raise ConfigError(f"{prefix}{name}: refers to itself, or is nested too deeply") from None


@cache
def _plain_options(cls: type) -> type:
    """Return a dataclass, without defaults and checks, of the plain fields of ``cls``."""
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.init]
    plain = [(name, hints[name]) for name in names if record_of(hints[name]) is None]
    return make_dataclass("Options", plain)


def _check_mappings(node: DictConfig, cls: type, prefix: str) -> None:
    """Raise ConfigError, by the metadata, for a mapping in place of a value, or the reverse."""
    for field in fields(cls):
        if MAPPING_HINT not in field.metadata or field.name not in node:
            continue
        value = _get(node, field.name, prefix)
        hints = get_type_hints(cls)[field.name]
        is_mapping = any(get_origin(hint) is dict for hint in (hints, *get_args(hints)))
        if value is not None and isinstance(value, DictConfig) != is_mapping:
            message = field.metadata[MAPPING_HINT]
            raise ConfigError(f"{prefix}{field.name}={_text(value)}: {message}")


def _convert(node: DictConfig, options: type, prefix: str) -> dict[str, Any]:
    """Return the values of ``node``, of the types in ``options``; absent keys stay absent."""
    schema = OmegaConf.structured(options)
    hints = get_type_hints(options)
    values: dict[str, Any] = {}
    for name in hints:
        if name not in node:
            continue
        value = _get(node, name, prefix)
        types = (hints[name], *get_args(hints[name]))
        try:
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
            if value is None and type(None) not in types:
                raise ConfigError(f"{prefix}{name}=null: expected a value")
            if value == "" and Path in types:
                raise ConfigError(f"{prefix}{name}=: expected a file or folder")
            if isinstance(value, str) and Path in types:
                refuse_address(value, f"{prefix}{name}")
            if isinstance(value, str) and list[str] in types:
                value = [value]
            schema[name] = escaped(_whole(value, hints[name]))  # references are resolved
            values[name] = schema[name]
        except MissingMandatoryValue:
            raise ConfigError(f"{prefix}{name}: required") from None
        except InterpolationResolutionError as error:
            raise ConfigError(f"{prefix}{name}: {_first_line(error)}; {REFERENCE}") from None
        except OmegaConfBaseException as error:
            raise ConfigError(f"{prefix}{name}: {_first_line(error)}") from None
        except (OverflowError, RecursionError):
            raise ConfigError(f"{prefix}{name}={_text(value)}: too large, or too deep") from None
        if OmegaConf.is_config(values[name]):
            values[name] = OmegaConf.to_object(values[name])
    return values


def _whole(value: Any, hint: Any) -> Any:
    """Return ``value``, or numbers in it, such as 1e9 as int if ``hint`` is such a type or list."""
    types = (hint, *get_args(hint))
    if list[int] in types and type(value) in (int, float):
        value = [value]  # a number stands for a list of one
    if isinstance(value, list) and get_origin(hint) is list:
        return [_whole(element, get_args(hint)[0]) for element in value]
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole and int in types and float not in types else value


def _check_plain(option: str, value: Any, *, infinite: bool) -> None:
    """Raise ConfigError for a number not of 64 bits, finite unless ``infinite``, or bad text."""
    if isinstance(value, (list, dict)):
        for part in [*value, *(value.values() if isinstance(value, dict) else ())]:
            _check_plain(option, part, infinite=infinite)
    elif isinstance(value, float):
        if math.isnan(value) or (math.isinf(value) and not infinite):
            raise ConfigError(f"{option}={value}: expected a finite number")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ConfigError(f"{option}={_text(value)}: expected a number of 64 bits")
    elif isinstance(value, (str, Path)) and not printable(str(value)):
        raise ConfigError(f"{option}={brief(value)}: holds control characters, or is not UTF-8")


def _text(value: Any) -> str:
    """Return a value for a message; ``...`` for numbers too long for Python to format."""
    try:
        return "null" if value is None else brief(value)
    except (ValueError, RecursionError):
        return "..."


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def differences(
    new: Mapping[str, Any], old: Mapping[str, Any], *, ignore: Iterable[str] = (), prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """Return ``(dotted key, new value, old value)`` of every option that differs between two runs.

    ``new`` and ``old`` are nested plain dictionaries; an absent key counts as None. ``ignore`` are
    dotted keys of options or groups that may differ.
    """
    ignore = tuple(ignore)
    changes: list[tuple[str, Any, Any]] = []
    for key in {**new, **old}:
        name, new_value, old_value = f"{prefix}{key}", new.get(key), old.get(key)
        if name in ignore or new_value == old_value:
            continue
        if isinstance(new_value, Mapping) and isinstance(old_value, Mapping):
            changes += differences(new_value, old_value, ignore=ignore, prefix=f"{name}.")
        else:
            changes.append((name, new_value, old_value))
    return changes
