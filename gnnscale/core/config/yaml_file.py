"""Strict reading of options from untrusted YAML files: without anchors, tags and resolvers."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnscale.core import ConfigError, brief, one_line, printable, suggestion
from gnnscale.core.files import open_regular

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 24
_MAX_VALUES = 100_000
_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Options with keys of the user's own: names of types, which are any texts.
TYPE_MAPPINGS = (
    "sampler.edge_fanouts",
    *(
        f"dataset.{name}"
        for name in (
            *("vertices", "edges", "foreign_keys", "id", "ends", "features", "categories"),
            *("edge_features", "edge_categories", "times"),
        )
    ),
)
#: Allowed references: another option, or ``${usable_cores:}``.
_REFERENCE = re.compile(r"\$\{\s*(?:\.*[A-Za-z_][\w.]*|usable_cores:)\s*\}", re.ASCII)
#: Escaped beginning of a reference, which is plain text.
_ESCAPED = re.compile(r"(?<!\\)\\(?:\\\\)*\$\{")
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
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise ConfigError(f"{file}: larger than {limit:,} bytes")
        return stream.read(size)


def load_yaml(file: Path, *, is_text: Callable[[str], bool] = lambda option: False) -> Any:
    """Return the plain values of a YAML file; ConfigError for anchors, tags and other problems.

    ``is_text`` says whether an option, given its dotted name, is a text or a list of texts, as
    which ``true`` and ``007`` are read; null stays None. FileNotFoundError: no such file.
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
    """Return the options in a YAML file, checked except values of top-level keys in ``raw``."""
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
    r"""Raise ConfigError for a reference, ``${...}``, in ``values``; options are ``allowed`` ones.

    ``${usable_cores:}`` counts as an option. An escaped reference, ``\${``, is text.
    """
    hint = (
        "refer to options as ${seed}, and to nothing else" if allowed else "it holds values alone"
    )
    for text in texts_in(values):
        # A space for each, so that what is beside it does not become a reference.
        plain = _ESCAPED.sub(" ", text)
        if "${" in (_REFERENCE.sub(" ", plain) if allowed else plain):
            raise ConfigError(f"{file}: {brief(text)}: not allowed in this file; {hint}")


def escaped(value: Any) -> Any:
    """Return plain ``value`` with ``${`` escaped in its texts, so that ``resolved`` returns it."""
    if isinstance(value, Mapping):
        return {key: escaped(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [escaped(element) for element in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + "\\${", value)
    return value


def resolved(values: dict[str, Any]) -> Any:
    """Return plain ``values`` of a file, in which all texts with ``${`` are escaped, unescaped."""
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.create(values), resolve=True)


def _check_events(file: Path, text: str) -> None:
    """Raise ConfigError if YAML has anchors or tags, is too large or invalid, before a parse."""
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
    """Change tags of scalars in ``node``, called ``option``, to text if options are; null stays."""
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
    """Raise ConfigError for invalid names or values in ``value``, of the dotted name ``option``.

    Invalid values are texts with control characters, NaN, and integers over 64 bits.
    """
    if isinstance(value, dict):
        for key, element in value.items():
            name = f"{option}.{brief(key)}" if option else brief(key)
            is_type = option in TYPE_MAPPINGS and isinstance(key, str) and printable(key)
            if not is_type and (not isinstance(key, str) or not _KEY.fullmatch(key)):
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


def texts_in(value: Any) -> list[str]:
    """Return all texts in nested plain values, without keys; other values are converted to text."""
    if isinstance(value, (Mapping, list, tuple)):
        elements = value.values() if isinstance(value, Mapping) else value
        return [text for element in elements for text in texts_in(element)]
    return [] if value is None else [str(value)]
