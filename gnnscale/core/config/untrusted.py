"""What a run directory that was found may name: the one rule, and the options that it is about.

A path, an address or a device file is used only if it lies inside the run directory or a folder of
``GNNSCALE_HOME``, or if the user names it again. Code, and a program for a card, is used only if
the user names it again. Options that the user's own ``gnnscale train`` wrote to this place count as
named, but for code: what its name means is only known when it is imported.

Fields of options classes declare by ``names`` what their texts mean; a ``Path`` is a place by its
type. Undeclared texts are places if they look like one.
"""

import hashlib
import json
import logging
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from gnnscale.core import ConfigError, check_private, home, one_line, shown, write_atomically
from gnnscale.core.config import run_directory, user_code
from gnnscale.core.config import typed as config
from gnnscale.core.config import yaml_file as file

#: What texts of an option may be: a name of code (``MODULE:NAME``); the file of a program for a
#: card; a path or an address; arguments of code, any of which may be a place; or none of these.
KINDS = ("code", "program", "place", "arguments", "text")
#: Runs whose options this user has written, in the home of all stores.
_OWN = "runs"
#: Folders of that home in which nothing may be made, or looked for, because a run says so.
_TRUSTED = (_OWN, "csim")
_DIGEST_BYTES = 64
_METADATA = "gnnscale.names"
#: The name of a module of the user's, and the arguments of its constructor.
_MODULE, _ARGUMENTS = "model.module", "model.arguments."
#: Values that Hydra reads without quotes.
_PLAIN = re.compile(r"[\w./:@+-]+", re.ASCII)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """What the texts of a field name."""

    what: str  #: one of ``KINDS``
    known: tuple[str, ...] = ()  #: texts that stand for what ships with the package
    unless: str | None = None  #: a field beside it; if that one is typed, this one is not needed
    #: returns the places that the field's value means, and what is typed again; None for its texts
    #: and the value itself
    places: Callable[[Any], tuple[list[str], Any]] | None = None
    #: returns the option mappings in the field's value, each with its class
    entries: Callable[[Any], list[tuple[Mapping[str, Any], type]]] | None = None


@dataclass(frozen=True, kw_only=True)
class NamedOption:
    """An option that names something."""

    option: str  #: its dotted name
    what: str  #: one of ``KINDS``, without ``text``
    texts: tuple[str, ...]  #: what it names
    value: Any  #: what is to be typed again, the option's whole value
    unless: str | None = None  #: an option which, typed, makes this one needless


def names(what: str, **details: Any) -> dict[str, Any]:
    """Return the ``metadata`` of a field whose texts name something, or declaredly nothing.

    ``what`` is one of ``KINDS``, ``details`` are further fields of ``_Declared``.
    """
    assert what in KINDS
    return {_METADATA: _Declared(what=what, **details)}


def declared(options: type, name: str) -> str | None:
    """Return which of ``KINDS`` a field is declared to name, None if undeclared."""
    (found,) = (each for each in fields(options) if each.name == name)
    how = _declaration(found, get_type_hints(options)[name])
    return None if how is None else how.what


def named_in(values: Mapping[str, Any], options: type, prefix: str = "") -> Iterator[NamedOption]:
    """Yield what options, plain values such as those in a run's ``config.yaml``, name.

    ``options`` is their class; a group's ``_target_`` may name another, and is a ConfigError if it
    is unknown. ``prefix`` of dotted names is used by the recursion.
    """
    target, cls, group = values.get("_target_"), options, prefix.rstrip(".")
    if user_code.is_name(target) and group in user_code.GROUPS:
        # A class of a user's is not imported here: its options may be places if they look like one.
        yield NamedOption(
            option=f"{prefix}_target_", what="code", texts=(str(target),), value=target
        )
        known = {each.name for each in fields(options)} | {"_target_"}
        for name in values.keys() - known:
            yield from _named(None, f"{prefix}{name}", values[name], prefix)
    elif target is not None:
        cls = config.options_class(target, options, group=group)
    hints = get_type_hints(cls)
    for each in fields(cls):
        value = values.get(each.name)
        if value is None or value in ("", [], {}):
            continue
        record = config.record_of(hints[each.name])
        if record is not None:
            if isinstance(value, Mapping):
                yield from named_in(value, record, f"{prefix}{each.name}.")
            for entry in value if isinstance(value, list) else ():
                # Nothing types a single record of a list again: the list is the option.
                for inner in named_in(entry, record) if isinstance(entry, Mapping) else ():
                    option = f"{prefix}{each.name}"
                    yield NamedOption(
                        option=option, what=inner.what, texts=inner.texts, value=value
                    )
            continue
        how = _declaration(each, hints[each.name])
        yield from _named(how, f"{prefix}{each.name}", value, prefix)


def _named(how: _Declared | None, option: str, value: Any, prefix: str) -> Iterator[NamedOption]:
    if how is None:
        texts = tuple(each for each in _texts(value) if _looks_like_place(each))
        if texts:
            yield NamedOption(option=option, what="place", texts=texts, value=value)
    elif how.entries is not None:
        for entry, cls in how.entries(value):
            for each in named_in(entry, cls):
                yield NamedOption(option=option, what=each.what, texts=each.texts, value=value)
    elif how.what == "arguments":
        for key, argument in value.items() if isinstance(value, Mapping) else ():
            yield from _named(None, f"{option}.{key}", argument, prefix)
    elif how.what != "text":
        found, value = (_texts(value), value) if how.places is None else how.places(value)
        texts = tuple(each for each in found if each not in how.known)
        unless = None if how.unless is None else f"{prefix}{how.unless}"
        if texts:
            yield NamedOption(option=option, what=how.what, texts=texts, value=value, unless=unless)


def check_found(
    values: dict[str, Any],
    options: type,
    *,
    directory: Path,
    given: Mapping[str, Any],
    in_program: bool = False,
    used: tuple[str, ...] = ("",),
) -> None:
    """Check the options of a run directory, plain ``values``, by the rule for what was found.

    A place that is neither allowed nor needed becomes None. ``given`` are options that the user
    named again, by dotted name; ``in_program`` means that ``gnnscale.load`` was called, and no
    command; ``used`` are prefixes of the options that are used.

    Raises:
        ConfigError: the run names what it may not, with what to type; or a group's class is
            unknown.
    """
    source = directory / run_directory.CONFIG_FILE
    try:
        found = [each for each in named_in(values, options) if each.option.startswith(used)]
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    own = wrote_it(directory, values)
    asked: dict[str, NamedOption] = {}
    for each in found:
        if each.what != "code" and (own or _allowed(each, directory)):
            continue
        if each.option not in given and each.unless in given:
            _drop(values, each.option)
        else:
            asked.setdefault(each.option, each)
    missing = [each for option, each in asked.items() if option not in given]
    if missing:
        again = (_given_again if in_program else _typed_again)([*asked.values()])
        raise ConfigError(f"{source}: {_reason(missing)}; if you trust it, {again}")


def write_own(directory: Path, options: Mapping[str, Any]) -> None:
    """Write ``config.yaml`` into a run directory, atomically, and ``remember_own`` it.

    Raises:
        OSError: it cannot be written.
    """
    from omegaconf import OmegaConf

    write_atomically(directory / run_directory.CONFIG_FILE, OmegaConf.to_yaml(dict(options)))
    remember_own(directory)


def remember_own(directory: Path) -> None:
    """Record that this process has written the ``config.yaml`` in a run directory.

    If that fails, a warning is logged, and the user names the run's places again later.
    """
    place = _record_of(directory)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(
            place, _digest(file.read_yaml(directory / run_directory.CONFIG_FILE)), shared=True
        )
    except (OSError, ConfigError) as error:
        reason = getattr(error, "strerror", None) or error
        _LOG.warning("%s: cannot note that the run is yours (%s)", place, reason)


def forget_own(directory: Path) -> None:
    """Remove the record of ``remember_own`` for a run that was refused."""
    with suppress(OSError):
        place = _record_of(directory)
        place.unlink(missing_ok=True)
        place.parent.rmdir()  # if there is no other


def wrote_it(directory: Path, values: Mapping[str, Any]) -> bool:
    """Return whether this user's ``gnnscale train`` has written these options to this place."""
    place = _record_of(directory)
    try:
        check_private(place.parent)
        check_private(place)
        noted = file.read_regular(place, limit=_DIGEST_BYTES)
    except (OSError, ConfigError):
        return False
    return noted.decode(errors="replace") == _digest(values)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _record_of(directory: Path) -> Path:
    real = os.fsencode(os.path.realpath(directory))
    return home() / _OWN / hashlib.blake2b(real, digest_size=16).hexdigest()


def _allowed(named: NamedOption, directory: Path) -> bool:
    """Whether all that an option names lies in a place that a found directory may name."""
    if named.what == "program":
        return False
    # Whether ~ is somebody's home or a folder's name is for each option to say.
    paths = [each for each in named.texts if not is_address(each) and not each.startswith("~")]
    found = (_in_home(each) or _in_run(each, directory) for each in paths)
    return len(paths) == len(named.texts) and all(found)


def _in_home(path: str) -> bool:
    """Whether ``path`` is in a folder of ``GNNSCALE_HOME``; links there are the user's own.

    Not in those whose content is trusted, and not in the home itself, which has files of its own.
    """
    place, root = Path(path).absolute(), home().absolute()
    if ".." in place.parts or not place.is_relative_to(root):
        return False
    folder, *inside = place.relative_to(root).parts or ("",)
    return bool(inside) and folder not in _TRUSTED


def _in_run(path: str, directory: Path) -> bool:
    """Whether ``path`` is in a run directory, from which no link leads out."""
    try:
        place = Path(os.path.realpath(path))
        within = place.is_relative_to(os.path.realpath(directory))
        return within and all(map(_is_plain, _below(place)))
    except (OSError, ValueError):  # a zero byte, a name that is too long
        return False


def _below(place: Path) -> Iterator[Path]:
    """Yield ``place`` if it exists, and all that is in it; no link is followed."""
    if os.path.lexists(place):
        yield place
    for folder, folders, files in os.walk(place):
        yield from (Path(folder, each) for each in (*folders, *files))


def _is_plain(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def is_address(text: str) -> bool:
    """Whether ``text`` is an address such as ``s3://bucket/folder``, or a chain, and no path."""
    return "://" in text or "::" in text


def _looks_like_place(text: str) -> bool:
    return any(each in text for each in ("/", "\\", "::")) or text.startswith("~")


def _drop(values: dict[str, Any], option: str) -> None:
    *groups, name = option.split(".")
    for group in groups:
        values = values[group]
    values[name] = None


def _reason(missing: list[NamedOption]) -> str:
    """Return what is wrong with what a run names."""
    code = [each.option for each in missing if each.what == "code"]
    if code:
        return (
            f"{', '.join(code)}: names code, and nothing is imported because a file that was found "
            "says so"
        )
    first = missing[0]
    named_option = f"{first.option}={shown(', '.join(first.texts))}"
    if first.what == "program":
        return f"{named_option}: no card is programmed because a file that was found says so"
    where = "an address" if any(map(is_address, first.texts)) else "outside of the run directory"
    return f"{named_option}: {where}, and not used because a file that was found says so"


def _typed_again(asked: list[NamedOption]) -> str:
    """Return what a command is to be given in addition."""
    typed = " ".join(
        shlex.quote(f"{each.option}={written(each.value, quotes=each.what != 'code')}")
        for each in asked
    )
    # The arguments of a module that a program has built are in no file.
    own = any(each.option == _MODULE for each in asked)
    more = f" (and {_ARGUMENTS}NAME=VALUE if the class needs more arguments)" if own else ""
    return f"add {typed}{more}"


def _given_again(asked: list[NamedOption]) -> str:
    """Return what ``gnnscale.load`` is to be given in addition."""
    values = {each.option: one_line(repr(each.value), 400) for each in asked}
    module = values.pop(_MODULE, None)
    given = [] if module is None else [f"module={module}"]
    for keyword, prefix in (("arguments", _ARGUMENTS), ("options", "")):
        some = [each for each in values if each.startswith(prefix)]
        pairs = ", ".join(f"{each.removeprefix(prefix)!r}: {values.pop(each)}" for each in some)
        given += [f"{keyword}={{{pairs}}}"] if pairs else []
    more = " (and arguments={'NAME': VALUE} if the class needs more)" if module else ""
    return f"call load(..., {', '.join(given)}){more}"


def written(value: Any, *, quotes: bool = True) -> str:
    """Return a value as it is typed on the command line, with ``quotes`` around odd texts."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(written(each, quotes=quotes) for each in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{key}:{written(each, quotes=quotes)}" for key, each in value.items())
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, str) and quotes and not _PLAIN.fullmatch(value):
        return "'" + value.replace("'", "\\'") + "'"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return one_line(value, 400)


def _texts(value: Any) -> list[str]:
    """Return all texts in the value of an option; numbers are converted to texts."""
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, (list, tuple)):
        return [text for each in value for text in _texts(each)]
    return [] if value is None else [str(value)]


def _declaration(of: Field[Any], hint: Any) -> _Declared | None:
    """Return what is declared of a field; a ``Path`` is a place by its type."""
    found: _Declared | None = of.metadata.get(_METADATA)
    if found is None and Path in (hint, *get_args(hint)):
        return _Declared(what="place")
    return found
