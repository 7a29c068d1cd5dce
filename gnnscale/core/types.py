"""Strict decoding of dataclasses from untrusted plain values or JSON, and array types."""

import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import brief, one_line

_T = TypeVar("_T")

#: Non-negative integer of 64 bits.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]

_ANY = re.compile(r"\bAny\b")
_PATH = re.compile(r" - at (?:`key` in )?`\$(.*)`\Z")


def decode(cls: type[_T], values: Any, *, source: str) -> _T:
    """Return an object of type ``cls`` built from plain ``values``, or from JSON if they are bytes.

    ``cls`` is a dataclass, or a list, tuple or dict of dataclasses; ``Annotated[...,
    msgspec.Meta(...)]`` declares limits of a field. Values are not converted: a bool is not an int,
    and a str is not a number. Exceptions: an int is accepted as a float, a list as a tuple, and the
    text of a key as an int. Integers have 64 bits and floats are finite, except in fields declared
    as ``Any``. Unknown keys are ignored; the last of several equal keys in JSON counts. The caller
    bounds the size of the JSON.

    Raises:
        ValueError: a field is missing or invalid, or ``__post_init__`` raised a ValueError. The
            message is one line that begins with ``source`` and the path to the field.
    """
    try:
        if isinstance(values, bytes):
            record: _T = msgspec.json.decode(values, type=cls)
        else:
            record = msgspec.convert(values, cls, str_keys=True)
        _check_numbers(record, "")
    except _NumberError as error:
        raise ValueError(one_line(f"{source}{error}")) from None
    except RecursionError:
        raise ValueError(f"{source}: nested too deeply") from None
    except ValueError as error:
        message = str(error)
        path = _PATH.search(message)
        if path is None:
            raise ValueError(one_line(f"{source}: {message}")) from None
        raise ValueError(one_line(f"{source}{path[1]}: {message[: path.start()]}")) from None
    return record


class _NumberError(ValueError):
    """Error for a number not finite or beyond 64 bits; the message begins with its path."""


def _check_numbers(value: Any, path: str) -> None:
    """Raise _NumberError if nested ``value`` has an integer beyond 64 bits, or a float not finite.

    Fields that a dataclass declares as ``Any`` are skipped. ``path`` names ``value`` in the
    message.
    """
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise _NumberError(f"{path}: Expected an integer of 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _NumberError(f"{path}: Expected a finite number, got {value}")
    elif isinstance(value, Mapping):
        for key, element in value.items():
            _check_numbers(key, f"{path}[...]")
            _check_numbers(element, f"{path}.{brief(key)}")
    elif isinstance(value, (list, tuple)):
        for i, element in enumerate(value):
            _check_numbers(element, f"{path}[{i}]")
    elif is_dataclass(value):
        for field in fields(value):
            if not _ANY.search(str(field.type)):
                _check_numbers(getattr(value, field.name), f"{path}.{field.name}")


Array: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]

#: ids of 32 or 64 bits
IntArray: TypeAlias = NDArray[np.integer[Any]]
Int16Array: TypeAlias = NDArray[np.int16]
Int32Array: TypeAlias = NDArray[np.int32]
Int64Array: TypeAlias = NDArray[np.int64]
UInt8Array: TypeAlias = NDArray[np.uint8]
UInt32Array: TypeAlias = NDArray[np.uint32]
UInt64Array: TypeAlias = NDArray[np.uint64]
Float32Array: TypeAlias = NDArray[np.float32]
Float64Array: TypeAlias = NDArray[np.float64]

#: records of several fields
StructArray: TypeAlias = NDArray[np.void]
