"""Typed configuration: from what Hydra composed to frozen dataclasses that check themselves."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, make_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from gnnscale.errors import UserError

__all__ = ["ConfigError", "check_choice", "differences", "nearest", "typed", "unknown_option"]

T = TypeVar("T")


class ConfigError(UserError):
    """An option is unknown or has a value that is not allowed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the known name closest to ``name``, or nothing."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {match[0]!r}?" if match else ""


def check_choice(option: str, value: str, allowed: Iterable[str]) -> None:
    """Raise a ConfigError that names ``option``, ``value`` and ``allowed`` unless it is allowed."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(f"{option}={value}: allowed are {', '.join(allowed)}")


def typed(node: DictConfig, base: type[T], *, group: str = "") -> T:
    """Turn a configuration node into the frozen dataclass that its ``_target_`` names.

    Types are checked against the dataclass's annotations, values by its ``__post_init__``; a field
    that is itself a dataclass is built from its own node. A node without ``_target_`` is a
    ``base``. Only subclasses of ``base`` inside gnnscale can be named, so that a configuration
    found in a foreign run directory cannot make the program import or call anything else.

    Args:
        node: the composed configuration.
        base: the class wanted, the base of a configuration group.
        group: where ``node`` stands, the prefix of the options named in errors; empty at the top.

    Raises:
        ConfigError: unknown key, wrong type, or a value the class refuses.
    """
    if not isinstance(node, DictConfig):
        raise ConfigError(f"{group}={node}: a group of options, not a value")
    cls = _target(node, base, group)
    prefix = f"{group}." if group else ""
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in node:
        if key != "_target_" and key not in known:
            raise ConfigError(unknown_option(f"{prefix}{key!s}", (f"{prefix}{k}" for k in known)))
    hints = get_type_hints(cls)
    nested = {name for name in known if is_dataclass(hints[name])}
    plain = [name for name in known if name not in nested]
    values = _convert(node, {name: hints[name] for name in plain}, prefix)
    for name in nested:
        if name in node:
            values[name] = typed(node[name], hints[name], group=f"{prefix}{name}")
    for name, field in known.items():
        if name not in values and _required(field):
            raise ConfigError(f"{prefix}{name}: required, and not given")
    return cls(**values)


def _target(node: DictConfig, base: type[T], group: str) -> type[T]:
    target = node.get("_target_")
    if target is None:
        return base
    module, _, name = str(target).rpartition(".")
    if not module.startswith("gnnscale."):
        raise ConfigError(f"{group}._target_={target}: not a class of gnnscale")
    try:
        cls = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if not module.startswith(str(error.name)):
            raise
        cls = None
    if cls is None:
        raise ConfigError(f"{group}._target_={target}: no such class")
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise ConfigError(f"{group}._target_={target}: not a {base.__name__}")
    return cls


def _convert(node: DictConfig, hints: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Convert the values of ``node`` to the types in ``hints``; absent keys stay absent."""
    schema = OmegaConf.structured(make_dataclass("Options", list(hints.items())))
    values: dict[str, Any] = {}
    for name in hints:
        if name not in node:
            continue
        try:
            value = node[name]
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
            if value is None and type(None) not in get_args(hints[name]):
                raise ConfigError(f"{prefix}{name}=null: a value is required")
            schema[name] = value
            values[name] = schema[name]
        except MissingMandatoryValue:
            raise ConfigError(f"{prefix}{name}: required, and not given") from None
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"{prefix}{name}: {reason}") from None
        if OmegaConf.is_config(values[name]):
            values[name] = OmegaConf.to_object(values[name])
    return values


def _required(field: Field[Any]) -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING


def unknown_option(name: str, known: Iterable[str]) -> str:
    """Say in one line that ``name`` is no option, and which of ``known`` it may stand for.

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

    Args:
        new: nested plain dictionaries; an absent key counts as None.
        old: likewise.
        ignore: dotted keys, or groups of keys, that may differ.
        prefix: where ``new`` and ``old`` stand; used by the recursion.
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
