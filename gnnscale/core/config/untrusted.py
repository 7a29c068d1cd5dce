"""Checks of untrusted run directories: paths, addresses and code that their options may name.

Paths outside of the run directory and ``GNNSCALE_HOME``, addresses, code and FPGA programs are used
only if the user names them again. Options that this user's ``gnnscale train`` wrote count as named,
except code, since its meaning is known only after the import.
"""

import hashlib
import json
import logging
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from gnnscale.core import ConfigError, brief, check_private, home, one_line, write_atomically
from gnnscale.core.config import run_directory, typed, user_code, yaml_file
from gnnscale.core.config.yaml_file import texts_in

#: Interpretations of an option's texts: a name of code (``MODULE:NAME``); the file of an FPGA
#: program; a path or an address; arguments of code, possibly paths; or plain text.
KINDS = ("code", "program", "place", "arguments", "text")
#: Folder of ``GNNSCALE_HOME`` with digests of the options that this user has written.
_DIGESTS = "runs"
#: Folders of ``GNNSCALE_HOME`` with trusted content, which options of a run may not name.
_TRUSTED = (_DIGESTS, "csim")
_DIGEST_BYTES = 64
_METADATA = "gnnscale.names"
#: Options of a user's module and of the arguments of its constructor.
_MODULE, _ARGUMENTS = "model.module", "model.arguments."
#: Marks of an undeclared text that looks like a path or an address.
_PLACE = re.compile(r"\A~|[/\\]|::")
#: Values that Hydra reads without quotes.
_PLAIN = re.compile(r"[\w./:@+-]+", re.ASCII)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """Declaration of how the texts in a field of options are interpreted, such as paths or code."""

    what: str  #: one of ``KINDS``
    keywords: tuple[str, ...] = ()  #: texts that name a part of the package, not a path
    unless: str | None = None  #: a sibling field; if the user types it, this field is dropped
    #: returns the paths in the field's value, and the value for the user to type again. None: the
    #: paths are the value's texts
    find: Callable[[Any], tuple[list[str], Any]] | None = None
    #: returns the nested mappings of options in the field's value, with the class of each
    entries: Callable[[Any], list[tuple[Mapping[str, Any], type]]] | None = None


@dataclass(frozen=True, kw_only=True)
class NamedOption:
    """Option that names code, a program, a path or an address."""

    option: str  #: dotted name
    what: str  #: one of ``KINDS``, except ``text``
    texts: tuple[str, ...]  #: the names, paths or addresses
    value: Any  #: full value of the option, for the user to type again
    unless: str | None = None  #: an option that replaces this one if the user types it
    guessed: bool = False  #: whether nothing but its look says that it is a path


def names(what: str, **details: Any) -> dict[str, Any]:
    """Return the ``metadata`` of a dataclass field whose texts are interpreted as ``what``.

    ``what`` is one of ``KINDS``, ``details`` are further fields of ``_Declared``. In a field
    without this metadata, a ``Path`` is a path, and so is a text that looks like one.
    """
    assert what in KINDS
    return {_METADATA: _Declared(what=what, **details)}


def declared(options: type, name: str) -> str | None:
    """Return how the texts in field ``name`` of ``options`` are interpreted: one of ``KINDS``.

    A ``Path`` is a ``place`` by default. None: the field declares nothing, and is not a ``Path``.
    """
    (field,) = (field for field in fields(options) if field.name == name)
    declaration = _declaration(field, get_type_hints(options)[name])
    return None if declaration is None else declaration.what


def named_in(values: Mapping[str, Any], options: type, prefix: str = "") -> Iterator[NamedOption]:
    """Yield the options that name code, programs, paths or addresses.

    ``values`` are plain; a ``_target_`` there may name a subclass of ``options``.
    """
    target, cls, group = values.get("_target_"), options, prefix.rstrip(".")
    if user_code.is_name(target) and group in user_code.GROUPS:
        # A user's class is not imported here, so its options are undeclared.
        yield NamedOption(
            option=f"{prefix}_target_", what="code", texts=(str(target),), value=target
        )
        declared_names = {field.name for field in fields(options)} | {"_target_"}
        for name in values.keys() - declared_names:
            yield from _named(None, f"{prefix}{name}", values[name], prefix)
    elif target is not None:
        cls = typed.options_class(target, options, group=group)
    hints = get_type_hints(cls)
    for field in fields(cls):
        value = values.get(field.name)
        if value is None or value in ("", [], {}):
            continue
        option = f"{prefix}{field.name}"
        record = typed.record_of(hints[field.name])
        if record is None:
            yield from _named(_declaration(field, hints[field.name]), option, value, prefix)
            continue
        if isinstance(value, Mapping):
            yield from named_in(value, record, f"{option}.")
        entries = value if isinstance(value, list) else []
        # The user types the whole list again, not one of its entries.
        mappings = [(entry, record) for entry in entries if isinstance(entry, Mapping)]
        yield from _named_in_entries(mappings, option, value)


def _named_in_entries(
    entries: Iterable[tuple[Mapping[str, Any], type]], option: str, value: Any
) -> Iterator[NamedOption]:
    """Yield options inside ``entries`` as ``option`` with its full ``value``, to be typed again."""
    for entry, cls in entries:
        for inner in named_in(entry, cls):
            yield replace(inner, option=option, value=value, unless=None)


def _named(
    declaration: _Declared | None, option: str, value: Any, prefix: str
) -> Iterator[NamedOption]:
    """Yield ``option``, of the group ``prefix``, if ``value`` names code, a program or a path.

    ``declaration`` says how to read the value's texts. None: a text that looks like a path is one.
    """
    if declaration is None:
        texts = tuple(filter(_PLACE.search, texts_in(value)))
        if texts:
            yield NamedOption(option=option, what="place", texts=texts, value=value, guessed=True)
    elif declaration.entries is not None:
        yield from _named_in_entries(declaration.entries(value), option, value)
    elif declaration.what == "arguments":
        for key, argument in value.items() if isinstance(value, Mapping) else ():
            yield from _named(None, f"{option}.{key}", argument, prefix)
    elif declaration.what != "text":
        find = declaration.find
        paths, value = (texts_in(value), value) if find is None else find(value)
        texts = tuple(path for path in paths if path not in declaration.keywords)
        unless = None if declaration.unless is None else f"{prefix}{declaration.unless}"
        what = declaration.what
        if texts:
            yield NamedOption(option=option, what=what, texts=texts, value=value, unless=unless)


def check_run_options(
    values: dict[str, Any],
    options: type,
    *,
    directory: Path,
    overrides: Mapping[str, Any],
    in_program: bool = False,
    used: tuple[str, ...] = ("",),
    code_alone: bool = False,
) -> None:
    """Refuse options of an untrusted run directory that name code or forbidden paths.

    Allowed are paths in the run directory and ``GNNSCALE_HOME``, and any in a run that this user
    wrote. A forbidden path that the user replaced by another option becomes None in ``values``.
    ConfigError, with a hint to name it again, for another, for code, or an unknown ``_target_``.

    Args:
        values: plain values of ``config.yaml``.
        overrides: options that the user named again, by dotted name.
        in_program: whether ``gnnscale.load`` was called, and not a command; for the hint.
        used: prefixes of the options that are used; other options are not checked.
        code_alone: whether paths and addresses are not checked, since the user named the file.
    """
    source = directory / run_directory.CONFIG_FILE
    try:
        named_options = [
            named
            for named in named_in(values, options)
            if named.option.startswith(used)
            and (named.what in ("code", "program") or not code_alone)
        ]
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    is_own = is_own_run(directory, values)
    refused: dict[str, NamedOption] = {}
    for named in named_options:
        if named.what != "code" and (is_own or _allowed(named, directory)):
            continue
        if named.option not in overrides and named.unless in overrides:
            group, name = group_of(values, named.option)
            group[name] = None
        else:
            refused.setdefault(named.option, named)
    missing = [named for option, named in refused.items() if option not in overrides]
    if missing:
        hint = (_load_hint if in_program else _command_hint)([*refused.values()])
        raise ConfigError(f"{source}: {_reason(missing)}; if you trust it, {hint}")


def write_own(directory: Path, options: Mapping[str, Any]) -> None:
    """Write ``config.yaml`` into a run directory atomically, and record it by ``remember_own``."""
    from omegaconf import OmegaConf

    values = yaml_file.escaped(options)
    write_atomically(directory / run_directory.CONFIG_FILE, OmegaConf.to_yaml(values))
    remember_own(directory)


def remember_own(directory: Path) -> None:
    """Record a digest of a ``config.yaml`` of this user's, below ``GNNSCALE_HOME``.

    A failure is logged as a warning; the user must then name the run's paths again later.
    """
    record = _record_file(directory)
    try:
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        values = yaml_file.read_yaml(directory / run_directory.CONFIG_FILE)
        write_atomically(record, _digest(values), shared=True)
    except (OSError, ConfigError) as error:
        reason = getattr(error, "strerror", None) or error
        _LOG.warning("%s: cannot note that the run is yours (%s)", record, reason)


def forget_own(directory: Path) -> None:
    """Remove the record by which ``remember_own`` marks the run in ``directory`` as this user's."""
    with suppress(OSError):
        record = _record_file(directory)
        record.unlink(missing_ok=True)
        record.parent.rmdir()  # fails if there are further records


def is_own_run(directory: Path, values: Mapping[str, Any]) -> bool:
    """Whether ``remember_own`` of this user has recorded these options for ``directory``."""
    record = _record_file(directory)
    try:
        check_private(record.parent)
        check_private(record)
        digest = yaml_file.read_regular(record, limit=_DIGEST_BYTES)
    except (OSError, ConfigError):
        return False
    return digest.decode(errors="replace") == _digest(values)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _record_file(directory: Path) -> Path:
    real = os.fsencode(os.path.realpath(directory))
    return home() / _DIGESTS / hashlib.blake2b(real, digest_size=16).hexdigest()


def _allowed(named: NamedOption, directory: Path) -> bool:
    """Whether an option names only paths in the run directory or GNNSCALE_HOME, and no program."""
    if named.what == "program":
        return False
    # Each option decides whether ~ is a home directory or a folder's name.
    paths = [text for text in named.texts if not is_address(text) and not text.startswith("~")]
    return len(paths) == len(named.texts) and all(
        _in_home(path) or _in_run(path, directory) for path in paths
    )


def _in_home(path: str) -> bool:
    """Whether ``path`` is below ``GNNSCALE_HOME``, where links may be, and not in ``_TRUSTED``."""
    target, root = Path(path).absolute(), home().absolute()
    if ".." in target.parts or not target.is_relative_to(root):
        return False
    folder, *inside = target.relative_to(root).parts or ("",)
    return bool(inside) and folder not in _TRUSTED


def _in_run(path: str, directory: Path) -> bool:
    """Whether ``path`` is in a run directory, with no links or special files in its tree."""
    try:
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(os.path.realpath(directory)):
            return False
        entries = [target] if os.path.lexists(target) else []
        for folder, folders, files in os.walk(target):
            entries += (Path(folder, name) for name in (*folders, *files))
        modes = (entry.lstat().st_mode for entry in entries)
        return all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in modes)
    except (OSError, ValueError):  # a zero byte, a name that is too long
        return False


def is_address(text: str) -> bool:
    """Whether ``text`` is an address such as ``s3://bucket/folder``, or a chain of addresses."""
    return "://" in text or "::" in text


def group_of(values: dict[str, Any], option: str) -> tuple[dict[str, Any], str]:
    """Return the mapping in ``values`` that has ``option``, a dotted name, and its key there."""
    *groups, name = option.split(".")
    for group in groups:
        values = values[group]
    return values, name


def _reason(missing: list[NamedOption]) -> str:
    """Return a clause about ``missing``, the refused options, and why they are refused."""
    because = "because a file that was found says so"
    code = [named.option for named in missing if named.what == "code"]
    if code:
        return f"{', '.join(code)}: names code, and nothing is imported {because}"
    first = missing[0]
    named_option = f"{first.option}={brief(', '.join(first.texts))}"
    if first.what == "program":
        return f"{named_option}: no card is programmed {because}"
    where = "an address" if any(map(is_address, first.texts)) else "outside of the run directory"
    return f"{named_option}: {where}, and not used {because}"


def _command_hint(refused: list[NamedOption]) -> str:
    """Return the hint to add the refused options, as typed on the command line."""
    typed_again = []
    for named in refused:
        value, is_code = named.value, named.what == "code"
        if is_code and user_code.is_of_program(value):  # a command names such code by its file
            value = f"FILE.py:{user_code.short_name(value)}"
        text = f"{named.option}={format_option_value(value, quotes=not is_code)}"
        typed_again.append(shlex.quote(text))
    # No file stores the arguments of a module that a program has built.
    has_module = any(named.option == _MODULE for named in refused)
    more = f" (and {_ARGUMENTS}NAME=VALUE if the class needs more arguments)" if has_module else ""
    return f"add {' '.join(typed_again)}{more}"


def _load_hint(refused: list[NamedOption]) -> str:
    """Return the hint to add the refused options as arguments of ``gnnscale.load``."""
    originals = {named.option: named.value for named in refused}
    has_module = _MODULE in originals
    keywords = [f"module={user_code.argument(originals.pop(_MODULE))}"] if has_module else []
    values = {option: one_line(repr(value), 400) for option, value in originals.items()}
    for keyword, prefix in (("arguments", _ARGUMENTS), ("options", "")):
        options = [option for option in values if option.startswith(prefix)]
        pairs = ", ".join(
            f"{option.removeprefix(prefix)!r}: {values.pop(option)}" for option in options
        )
        keywords += [f"{keyword}={{{pairs}}}"] if pairs else []
    more = " (and arguments={'NAME': VALUE} if the class needs more)" if has_module else ""
    return f"call load(..., {', '.join(keywords)}){more}"


def format_option_value(value: Any, *, quotes: bool = True) -> str:
    """Return a value in the command line's grammar, texts in ``quotes`` if Hydra needs them."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(format_option_value(element, quotes=quotes) for element in value)}]"
    if isinstance(value, Mapping):
        pairs = (
            f"{key}:{format_option_value(element, quotes=quotes)}" for key, element in value.items()
        )
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, str) and quotes and not _PLAIN.fullmatch(value):
        return "'" + value.replace("'", "\\'") + "'"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return one_line(value, 400)


def _declaration(field: Field[Any], hint: Any) -> _Declared | None:
    """Return the declaration of a field: a ``Path`` without one holds paths; None: undeclared."""
    declaration: _Declared | None = field.metadata.get(_METADATA)
    if declaration is None and Path in (hint, *get_args(hint)):
        return _Declared(what="place")
    return declaration
