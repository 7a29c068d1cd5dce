"""Quoting of text options, such as paths and names of columns, for Hydra's grammar.

Hydra reads ``true`` as a bool, ``007`` as a number and ``a(1)`` as a function: such a value of a
text option is quoted, and its backslashes are characters. Hydra's quotes, ``null``, ``${...}``,
``choice(a,b)`` and other sweeps, and with -m commas between the jobs of a sweep remain available.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from gnnscale.core.config import user_code

#: Options of Hydra that name folders.
_OF_HYDRA = dict.fromkeys(("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir"), "text")
#: Values that Hydra reads as typed: words and paths, except its keywords.
_PLAIN = re.compile(r"(?!(?:true|false|null|inf|nan)\Z)[A-Za-z_/][\w./:@+-]*", re.ASCII | re.I)
_SWEEP = re.compile(r"(?:choice|range|interval|glob|tag|sort|shuffle)\s*\(.*\)", re.DOTALL)
_PAIRS = {"[": "]", "{": "}", "(": ")"}


def as_typed(argument: str, command: str, *, sweep: bool) -> str:
    """Return ``argument``, its value quoted if it is a text that Hydra would read otherwise.

    In a ``sweep`` commas separate the values of several jobs.
    """
    name, equals, value = argument.partition("=")
    if not equals or value in ("", "null") or _PLAIN.fullmatch(value):
        return argument
    option = name.lstrip("+")
    kind = kind_of(option, value, command)
    if f"{option}." in _kinds(command) and (pairs := _pairs(value)):
        return argument if _is_mapping(value) else f"{name}={_mapping_as_typed(pairs)}"
    if kind is None:
        return argument
    read = _list_as_typed if kind == "texts" else _value_as_typed
    parts = _split(value) if sweep else [value]
    if len(parts) > 1 and not _SWEEP.fullmatch(value.strip()):
        return f"{name}={','.join(read(part.strip(), kind) for part in parts)}"
    return f"{name}={read(value, kind)}"


def kind_of(option: str, value: str, command: str) -> str | None:
    """Return the kind of an option that takes text. None: the option takes no text.

    Kinds are ``text``; ``word``, one of several choices; ``texts``, a list; and ``mixed``, a text
    or another value. ``value`` decides for groups: a choice is a text if it names user code.
    """
    if option in user_code.GROUPS:
        return "text" if user_code.is_name(value) else None
    kinds = {**_kinds(command), **_OF_HYDRA}
    if option in kinds:
        return kinds[option]
    group = option.rpartition(".")[0]
    return kinds.get(f"{group}.") if group else None


@cache
def _kinds(command: str) -> Mapping[str, str]:
    """Return the kind of each text option by dotted name; a dot at its end marks a mapping."""
    text = (resources.files("gnnscale.cli") / "texts.json").read_text()
    kinds: dict[str, str] = json.loads(text)[command]
    return kinds


def quoted(text: str) -> str:
    """Return ``text`` quoted for Hydra's grammar."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text=text, quote=Quote.single).with_quotes()


def working_quotes(argument: str) -> str | None:
    """Return an option that Hydra cannot read with quotes that help it; None: quotes do not."""
    name, equals, value = argument.partition("=")
    changed = f"{name}={_list_as_typed(value, 'mixed')}"
    if changed == argument:
        changed = f"{name}={quoted(value)}"
    return changed if equals and _parsed(changed) is not None else None


def _value_as_typed(value: str, kind: str) -> str:
    """Return one value of an option of ``kind``, quoted if Hydra would otherwise change it."""
    from hydra.core.override_parser.types import ChoiceSweep, Glob, QuotedString, Sweep

    if kind == "mixed" and value.startswith("["):
        return _list_as_typed(value, kind)
    override = _parsed(f"a={value}")
    if override is None:
        return value if kind == "mixed" and value.startswith("{") else quoted(value)
    parsed = override._value  # value() omits the quotes
    if kind == "mixed" or isinstance(parsed, QuotedString) or value == "null":
        return value
    if parsed == value and "\\" not in value:  # a backslash would escape what follows in a list
        return value
    # Hydra's error explains how to pass several values.
    is_list = isinstance(parsed, ChoiceSweep) and parsed.simple_form
    if isinstance(parsed, (Sweep, Glob)) and not (is_list and kind == "text"):
        return value
    return quoted(value)


def _is_mapping(value: str) -> bool:
    """Whether Hydra reads ``value`` as a mapping with a key."""
    override = _parsed(f"a={value}") if value.startswith("{") else None
    return override is not None and isinstance(override._value, dict) and len(override._value) > 0


def repeated_key(value: str) -> str | None:
    """Return a key that a mapping has twice, be it in mappings inside; None: there is none.

    Hydra would keep the last of its values.
    """
    keys = set[str]()
    for key, content in _pairs(value):
        if key.strip() in keys:
            return key.strip()
        keys.add(key.strip())
        if (inside := repeated_key(content)) is not None:
            return inside
    return None


def _pairs(value: str) -> list[tuple[str, str]]:
    """Return keys and values of ``{key: value, ...}`` as typed; empty for any other text."""
    inner = value.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return []
    parts = [part.partition(":") for part in _split(inner[1:-1])]
    return [(key, content) for key, _, content in parts] if all(p[1] for p in parts) else []


def _mapping_as_typed(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a mapping, each text in its values quoted if Hydra would otherwise not read it."""
    read = [f"{key}:{_value_as_typed(content.strip(), 'mixed')}" for key, content in pairs]
    return f"{{{','.join(read)}}}"


def _list_as_typed(value: str, kind: str) -> str:
    """Return a list, each text in it quoted if Hydra would otherwise read another value."""
    inner = value.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        return value if kind == "mixed" else _value_as_typed(value, kind)
    if kind == "mixed" and _parsed(f"a={value}") is not None:
        return value
    parts = _split(inner[1:-1])
    element = "mixed" if kind == "mixed" else "text"
    return f"[{','.join(_value_as_typed(part.strip(), element) for part in parts if part.strip())}]"


def _split(value: str) -> Sequence[str]:
    """Return the parts of ``value`` between commas outside of (closed) brackets and quotes."""
    parts, ends, quote, start = [], list[str](), "", 0
    for i, character in enumerate(value):
        if quote:
            quote = "" if character == quote and value[i - 1] != "\\" else quote
        elif character in "'\"" and not value[start:i].strip():
            quote = character
        elif character in _PAIRS:
            ends.append(_PAIRS[character])
        elif ends and character == ends[-1]:
            ends.pop()
        elif character == "," and not ends:
            parts.append(value[start:i])
            start = i + 1
    parts.append(value[start:])
    return value.split(",") if ends or quote else parts


def parse(argument: str) -> Any:
    """Return an option as parsed by Hydra, which evaluates functions and may raise any error."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(argument)


def _parsed(argument: str) -> Any:
    """Return an option as parsed by Hydra. None: Hydra cannot parse it."""
    try:
        return parse(argument)
    except Exception:
        return None
