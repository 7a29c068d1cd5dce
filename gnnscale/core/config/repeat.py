"""Repetition of a run from any folder: absolute paths in its options, and a command line."""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from gnnscale.core.config import untrusted
from gnnscale.core.config.run_directory import CONFIG_FILE
from gnnscale.core.config.untrusted import NamedOption, format_option_value, named_in
from gnnscale.core.errors import ConfigError
from gnnscale.core.files import expanded


def with_absolute_paths(values: Mapping[str, Any], options: type) -> dict[str, Any]:
    """Return ``values``, plain options of a run, with the paths in them made absolute.

    ``options`` is their class. Addresses, names of the package's own parts, and texts that nothing
    but their look makes a path, such as arguments of the user's code, stay. Nothing is changed in
    options of which only a program has a class.
    """
    changed = deepcopy(dict(values))
    for named in _named_in(values, options) or ():
        if named.what in ("place", "program") and not named.guessed:
            group, name = untrusted.group_of(changed, named.option)
            group[name] = _absolute(group[name], named.texts)
    return changed


def _absolute(value: Any, paths: tuple[str, ...]) -> Any:
    """Return ``value`` with each text of ``paths`` in it as an absolute path."""
    if isinstance(value, dict):
        return {key: _absolute(part, paths) for key, part in value.items()}
    if isinstance(value, list):
        return [_absolute(part, paths) for part in value]
    if value in paths and isinstance(value, str) and not untrusted.is_address(value):
        with suppress(RuntimeError):  # ~x without a user x
            return os.path.abspath(expanded(value))
    return value


def repeat_command(directory: Path, values: Mapping[str, Any], options: type) -> str | None:
    """Return the command line that repeats the run in ``directory``, and names its code again.

    ``values`` are the run's plain options. None: only the program of the run has its code.
    """
    words = [f"config={directory / CONFIG_FILE}"]
    named_options = _named_in(values, options)
    if named_options is None:
        return None
    for named in named_options:
        if named.what in ("code", "program"):
            if any(text.startswith("__main__:") for text in named.texts):
                return None
            value = _code(named.value) if named.what == "code" else named.value
            words.append(
                f"{named.option}={format_option_value(value, quotes=named.what != 'code')}"
            )
    return shlex.join(["gnnscale", "train", *dict.fromkeys(words)])


def _named_in(values: Mapping[str, Any], options: type) -> list[NamedOption] | None:
    """Return what ``named_in`` yields. None: no file can name one of the classes."""
    try:
        return [*named_in(values, options)]
    except ConfigError:
        return None


def _code(value: Any) -> Any:
    """Return names of code; those of files, and of modules in the working directory, by path."""
    if isinstance(value, list):
        return [_code(part) for part in value]
    source, _, name = str(value).rpartition(":")
    file = source if source.endswith(".py") else f"{source}.py"
    if file == source or _is_file_of(source, file):
        return f"{os.path.abspath(expanded(file))}:{name}"
    return value


def _is_file_of(module: str, file: str) -> bool:
    """Whether ``module``, imported in this process, is ``file`` in the working directory."""
    imported = getattr(sys.modules.get(module), "__file__", None)
    return imported is not None and os.path.abspath(imported) == os.path.abspath(file)
