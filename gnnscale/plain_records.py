"""Records from plain values that somebody else wrote: every field has the type that it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gnnscale.core.errors import shown

__all__ = ["fields_from", "record_from"]

T = TypeVar("T")


def record_from(cls: type[T], values: Any, *, where: str) -> T:
    """Build the dataclass ``cls`` from a mapping; keys that it does not know are left out.

    Args:
        cls: its fields are int, float, str, bool, None, records, and dicts, lists and tuples of
            these.
        values: the mapping.
        where: what the mapping is, for errors.

    Raises:
        ValueError: a field is missing, has another type, or is no finite number.
    """
    return cls(**fields_from(cls, values, where=where))


def fields_from(
    cls: type[Any], values: Any, *, where: str, without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the arguments of ``record_from``, but for fields that come from elsewhere."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: {shown(values)} is no record")
    hints = _hints(cls)  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in without:
            continue
        if field.name in values:
            place = f"{where}.{field.name}"
            found[field.name] = _checked(hints[field.name], values[field.name], place)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}: {field.name} is missing")
    return found


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def _checked(hint: Any, value: Any, where: str) -> Any:
    """Return ``value`` as what ``hint`` says."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        (other,) = (each for each in inner if each is not NoneType)
        return _checked(other, value, where)
    if is_dataclass(hint):
        return record_from(hint, value, where=where)  # type: ignore[arg-type]
    # Wider numbers have no place in an array, and the widest no float.
    fits = type(value) is not int or -_64 <= value < _64
    if hint is float and type(value) in (int, float) and fits and math.isfinite(value):
        return float(value)
    if hint in (int, str, bool) and type(value) is hint and fits:
        return value
    if origin is dict and isinstance(value, Mapping):
        return {
            _checked(inner[0], key, where): _checked(inner[1], each, f"{where}.{shown(key)}")
            for key, each in value.items()
        }
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        return origin(_checked(inner[0], each, f"{where}.{i}") for i, each in enumerate(value))
    raise ValueError(f"{where}: {shown(value)} is no {getattr(hint, '__name__', hint)}")


_64 = 2**63
