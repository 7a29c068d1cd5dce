"""Strict reading of options, a mapping of plain values, from untrusted YAML files.

Anchors, tags, settings of Hydra and resolvers are refused before Hydra or OmegaConf sees them.
"""

import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnscale.core import ConfigError, brief, one_line, printable, suggestion

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 24
_MAX_VALUES = 100_000
_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Allowed references: another option, or ``${usable_cores:}``.
_REFERENCE = re.compile(r"\$\{\s*(?:\.*[A-Za-z_][\w.]*|usable_cores:)\s*\}", re.ASCII)
_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_TEXT = "tag:yaml.org,2002:str"
_OTHER_SCALARS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int", _FLOAT)

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Loader that reads scalars as OmegaConf does: ``1e-3`` is a number, and a date is text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return the dictionary of mapping ``node``; raise ConstructorError for a repeated key."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            twice = Counter(keys).most_common(1)[0][0]
            problem = f"{brief(twice)} is given twice"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in (_FLOAT, _TIMESTAMP)]
    for first, pairs in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"[-+]?(?:(?:\d[\d_]*\.[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+"
        r"|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def read_regular(file: Path, *, limit: int) -> bytes:
    """Return a file's content; ConfigError if it is not regular, or exceeds ``limit`` bytes."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{file}: not a regular file")
        if status.st_size > limit:
            raise ConfigError(f"{file}: larger than {limit:,} bytes")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(status.st_size)
    finally:
        os.close(descriptor)


def load_yaml(file: Path, *, is_text: Callable[[str], bool] = lambda option: False) -> Any:
    """Return the plain values of a YAML file; ConfigError for anchors, tags and other problems.

    ``is_text`` says whether an option, given its dotted name, is a text or a list of texts. Scalars
    of such options, for example ``true`` and ``007``, are read as text; null stays None.
    FileNotFoundError if the file does not exist.
    """
    try:
        text = read_regular(file, limit=_MAX_BYTES).decode()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: cannot be read as YAML (not UTF-8)") from None
    _check_events(file, text)
    return _parse(file, text, is_text)


def read_yaml(
    file: Path, *, raw: Collection[str] = (), is_text: Callable[[str], bool] = lambda option: False
) -> dict[str, Any]:
    """Return the options in a YAML file, read by ``load_yaml``; none if the file is empty.

    Names and values are checked (ConfigError), except the values of top-level keys in ``raw``.
    """
    values = load_yaml(file, is_text=is_text)
    if values is None:
        return {}
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else "a single value"
        raise ConfigError(f"{file}: expected a mapping of options, got {kind}")
    unchecked = {key: values.pop(key) for key in raw if key in values}
    _check_plain(file, values, "")
    return values | unchecked


def check_known(file: Path, values: dict[str, Any], names: Collection[str]) -> None:
    """Raise ConfigError for the first top-level key of ``values`` that is not in ``names``."""
    for key in values:
        if key not in names:
            if key in ("hydra", "defaults"):
                raise ConfigError(
                    f"{file}: {key}: expected values of options only; type settings of Hydra on "
                    "the command line"
                )
            raise ConfigError(f"{file}: {brief(key)}: unknown option{suggestion(key, names)}")


def check_references(file: Path, values: Any, *, allowed: bool) -> None:
    """Raise ConfigError for a reference, ``${...}``, in a text of the nested ``values``.

    If ``allowed``, references to options and ``${usable_cores:}`` pass, and any other is an error.
    """
    hint = (
        "refer to options as ${seed}, and to nothing else" if allowed else "it holds values alone"
    )
    for text in _texts(values):
        if "${" in (_REFERENCE.sub("", text) if allowed else text):
            raise ConfigError(f"{file}: {brief(text)}: not allowed in this file; {hint}")


def escaped(values: Any) -> Any:
    """Return nested plain ``values`` for OmegaConf, which reads every ``${`` in them as text."""
    if isinstance(values, dict):
        return {name: escaped(value) for name, value in values.items()}
    if isinstance(values, list):
        return [escaped(value) for value in values]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", values) if isinstance(values, str) else values


def _check_events(file: Path, text: str) -> None:
    """Raise ConfigError if YAML ``text`` has anchors or tags, is too large, or is invalid.

    No values are constructed for this check.
    """
    depth = count = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            count += isinstance(event, yaml.NodeEvent)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH or count > _MAX_VALUES:
                limits = f"{_MAX_DEPTH} levels or {_MAX_VALUES:,} values"
                raise ConfigError(f"{file}: expected at most {limits}")
            if (anchor := getattr(event, "anchor", None)) is not None:
                raise ConfigError(f"{file}: anchor {brief(anchor)}: write the values out instead")
            if (tag := getattr(event, "tag", None)) not in (None, "!"):
                raise ConfigError(f"{file}: tag {brief(tag)}: expected plain values")
    except yaml.YAMLError as error:
        raise _not_yaml(file, error) from None


def _parse(file: Path, text: str, is_text: Callable[[str], bool]) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        _read_as_texts(node, "", is_text)
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise _not_yaml(file, error) from None
    # A number of thousands of digits, or an invalid number.
    except (ValueError, OverflowError, TypeError):
        raise ConfigError(
            f"{file}: cannot be read as YAML (a number is none, or too long)"
        ) from None


def _read_as_texts(node: Any, option: str, is_text: Callable[[str], bool]) -> None:
    """Change the tags of scalars in ``node`` to text if their options are texts; null stays null.

    ``option`` is the dotted name of ``node``.
    """
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _read_as_texts(value, f"{option}.{key.value}" if option else str(key.value), is_text)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            if isinstance(value, yaml.ScalarNode):
                _read_as_texts(value, option, is_text)
    elif node is not None and node.tag in _OTHER_SCALARS and is_text(option):
        node.tag = _TEXT


def _not_yaml(file: Path, error: Any) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        reason = str(error).splitlines()[0]
        return ConfigError(f"{file}: cannot be read as YAML ({one_line(reason, 200)})")
    return ConfigError(f"{file}: not valid YAML in line {mark.line + 1} ({error.problem})")


def _check_plain(file: Path, value: Any, option: str) -> None:
    """Raise ConfigError for an invalid name or value in ``value``, nested values of one option.

    Invalid values are texts with control characters, NaN, and integers over 64 bits. ``option`` is
    the dotted name of ``value``.
    """
    if isinstance(value, dict):
        for key, element in value.items():
            name = f"{option}.{brief(key)}" if option else brief(key)
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                hint = _nested(str(key), element)
                raise ConfigError(f"{file}: {brief(name)}: expected the name of an option{hint}")
            _check_plain(file, element, name)
    elif isinstance(value, list):
        for i, element in enumerate(value):
            _check_plain(file, element, f"{option}.{i}")
    elif isinstance(value, str) and not printable(value):
        setting = f"{brief(option)}={brief(value)}"
        raise ConfigError(f"{file}: {setting}: control characters are not allowed")
    elif isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{file}: {brief(option)}=nan: expected a number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{file}: {brief(option)}: expected a number of 64 bits")


def _nested(key: str, value: Any) -> str:
    """Return the end of an error that says how a name with dots or dashes is written, or ""."""
    names = key.replace("-", "_").split(".")
    if "-" in key and len(names) == 1 and _KEY.fullmatch(names[0]):
        return f"; write {brief(names[0])}"
    if len(names) < 2 or not all(map(_KEY.fullmatch, names)):
        return ""
    levels = "".join(f"{name}: {{" for name in names[:-1])
    return f"; write {brief(f'{levels}{names[-1]}: {value}' + '}' * (len(names) - 1))}"


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, dict):
        for value in values.values():
            yield from _texts(value)
    elif isinstance(values, list):
        for value in values:
            yield from _texts(value)
