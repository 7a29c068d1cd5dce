"""Untrusted JSON: parsed strictly, with one-line errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError, shown
from gnnscale.dataset.formats.plain import file_bytes, read_file

_KEY = re.compile(r"[0-9]{1,18}")


def parse_json(data: bytes, *, source: object) -> dict[str, Any]:
    """Return the object that ``data`` holds.

    Raises:
        GraphError: it is not UTF-8 or not JSON, nests too deeply, holds NaN, names a key of an
            object twice, or is anything but an object.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_object)
    # Brackets nested too deeply raise RecursionError, numbers of thousands of digits ValueError.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise GraphError(f"{source}: cannot be read as JSON ({reason})") from None
    if not isinstance(value, dict):
        raise GraphError(f"{source}: holds a {type(value).__name__}, not an object")
    return value


def read_versioned(file: Path, *, version: int, max_bytes: int, again: str) -> dict[str, Any]:
    """Return the object in a file that this program wrote; ``again`` says how to remake it.

    Raises:
        GraphError: it cannot be read, has more than ``max_bytes``, or another ``format_version``;
            or as ``parse_json``.
    """
    if file_bytes(file) > max_bytes:
        raise GraphError(f"{file}: more than {max_bytes >> 20} MiB; {again}")
    entries = parse_json(read_file(file), source=file)
    if entries.get("format_version") != version:
        raise GraphError(
            f"{file}: format version {shown(entries.get('format_version'))}, "
            f"this release reads {version}; {again}"
        )
    return entries


def vertex_keys(keys: Iterable[str], *, source: object) -> NDArray[np.int64]:
    """Return the vertex ids that an object's keys name; "7" and "07" are one vertex."""
    names = list(keys)
    for name in names:
        if not _KEY.fullmatch(name):
            raise GraphError(f"{source}: key '{shown(name)}' is not a vertex id")
    ids = np.array(list(map(int, names)), np.int64)
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise GraphError(f"{source}: vertex {distinct[counts > 1][0]} is named twice")
    return ids


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key '{shown(twice)}' stands twice in one object")
    return value
