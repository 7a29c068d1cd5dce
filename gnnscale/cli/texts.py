"""Options that are texts, such as paths and names of columns: their values are what was typed.

Hydra's grammar reads ``true`` as a truth value, ``007`` as a number and ``a(1)`` as a function, and
refuses ``ü`` and ``;``. A value that it does not read as the text that was typed is put in quotes
before Hydra sees it. What is Hydra's stays so: quotes, ``null``, ``${...}``, functions such as
``choice(a,b)``, characters after a backslash, and with -m the commas between the jobs of a sweep.
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
#: Values that Hydra reads as they are: what begins with a letter, a slash or a dot, without words
#: that it knows.
_PLAIN = re.compile(r"(?!(?:true|false|null|inf|nan)\Z)[A-Za-z_/][\w./:@+-]*", re.ASCII | re.I)
_FUNCTION = re.compile(
    r"(?:int|float|str|bool|choice|range|interval|glob|tag|sort|shuffle)\s*\(.*\)", re.DOTALL
)
#: What a backslash before a character means to Hydra.
_ESCAPED = re.compile(r"\\[\\()\[\]{}:=, \t]")
_PAIRS = {"[": "]", "{": "}", "(": ")"}


def as_typed(argument: str, command: str, *, sweep: bool) -> str:
    """Return an option as Hydra reads it with the text that was typed as its value.

    An option that is no text is returned as it is, and so is one with a value that cannot be meant
    as a text. ``sweep`` is whether commas separate the values of several jobs.
    """
    name, equals, value = argument.partition("=")
    if not equals or value in ("", "null") or _PLAIN.fullmatch(value):
        return argument
    kind = kind_of(name.lstrip("+"), value, command)
    if kind is None:
        return argument
    read = _list_as_typed if kind == "texts" else _value_as_typed
    parts = _split(value) if sweep else None
    if parts is not None and len(parts) > 1 and not _FUNCTION.fullmatch(value.strip()):
        return f"{name}={','.join(read(part.strip(), kind) for part in parts)}"
    return f"{name}={read(value, kind)}"


def kind_of(option: str, value: str, command: str) -> str | None:
    """Return whether an option is a ``text``, a ``word``, ``texts`` or ``mixed``, None for no text.

    A list is ``texts``; a ``word`` is one of some choices; ``mixed`` may be text or another value.
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
    """Return the options of a command that may be texts; the name of a mapping ends in a dot."""
    text = (resources.files("gnnscale.cli") / "texts.json").read_text()
    found: dict[str, str] = json.loads(text)[command]
    return found


def quoted(text: str) -> str:
    """Return ``text`` in quotes, from which Hydra's grammar reads it again."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text=text, quote=Quote.single).with_quotes()


def working_quotes(argument: str) -> str | None:
    """Return an option that Hydra cannot read with quotes by which it can; None if none help."""
    name, equals, value = argument.partition("=")
    changed = f"{name}={_list_as_typed(value, 'mixed')}"
    if changed == argument:
        changed = f"{name}={quoted(value)}"
    return changed if equals and _parsed(changed) is not None else None


def _value_as_typed(value: str, kind: str) -> str:
    """Return one value in Hydra's grammar, which reads it as the text that was typed."""
    from hydra.core.override_parser.types import ChoiceSweep, QuotedString

    if kind == "mixed" and value.startswith("["):
        return _list_as_typed(value, kind)
    override = _parsed(f"a={value}")
    if override is None:
        return value if kind == "mixed" and value.startswith("{") else quoted(value)
    found = override._value  # value() leaves out the quotes
    if kind == "mixed" or isinstance(found, QuotedString) or value == "null":
        return value
    if _FUNCTION.fullmatch(value.strip()) or (isinstance(found, str) and _is_hydras(found, value)):
        return value
    if kind == "word" and isinstance(found, ChoiceSweep):
        return value  # the error says how several are given
    return quoted(value)


def _is_hydras(found: str, value: str) -> bool:
    """Whether a text is what was typed, or what Hydra makes of characters after backslashes."""
    return found == value or _ESCAPED.search(value) is not None


def _list_as_typed(value: str, kind: str) -> str:
    """Return a list in Hydra's grammar, with each of its texts as it was typed."""
    inner = value.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        return value
    parts = _split(inner[1:-1])
    if parts is None or (kind == "mixed" and _parsed(f"a={value}") is not None):
        return value
    of_one = "mixed" if kind == "mixed" else "text"
    return f"[{','.join(_value_as_typed(part.strip(), of_one) for part in parts if part.strip())}]"


def _split(value: str) -> Sequence[str] | None:
    """Return the parts of ``value`` between commas that no bracket or quote is around.

    None: a bracket or a quote has no end.
    """
    parts, ends, quote, start = [], list[str](), "", 0
    for at, character in enumerate(value):
        if quote:
            quote = "" if character == quote and value[at - 1] != "\\" else quote
        elif character in "'\"" and not value[start:at].strip():
            quote = character
        elif character in _PAIRS:
            ends.append(_PAIRS[character])
        elif ends and character == ends[-1]:
            ends.pop()
        elif character == "," and not ends:
            parts.append(value[start:at])
            start = at + 1
    parts.append(value[start:])
    return None if ends or quote else parts


def _parsed(argument: str) -> Any:
    """Return what Hydra's parser makes of an option, None if it cannot read it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    # The parser evaluates functions: it may raise whatever a value brings about.
    try:
        return OverridesParser.create().parse_override(argument)
    except Exception:
        return None
