"""The arguments of a command, checked before Hydra or a file that they name is touched."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from gnnscale.cli.plugins import PLUGIN_GROUPS, check_hydra_option, check_search
from gnnscale.core.errors import ConfigError, one_line, printable, shown
from gnnscale.options.compose import config_groups

__all__ = [
    "HYDRA_FLAGS",
    "HYDRA_FLAGS_WITH_VALUE",
    "REFUSED_FLAGS",
    "check_flag",
    "check_flags",
    "check_overrides",
    "check_text",
    "directory_of",
    "flags_first",
    "quoted",
]

#: Flags of Hydra's own parser, without and with a value; anything else with dashes is a mistake.
HYDRA_FLAGS = (
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r"),
    *("--multirun", "-m", "--shell-completion", "-sc"),
)
HYDRA_FLAGS_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--info", "-i")
#: Flags by which a file could give Hydra its settings, or be unpickled; and what does it instead.
REFUSED_FLAGS = {
    **dict.fromkeys(
        ("--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
        "use gnnscale train config=FILE.yaml",
    ),
    "--experimental-rerun": "use gnnscale train resume=DIR",
}

#: More is no option that anybody typed. Hydra's grammar takes a second for 1,000 characters.
_MAX_LENGTH = 1 << 12
_MAX_TOTAL = 1 << 14
_MAX_JOBS = 10_000
_CHOICE = re.compile(r"[\w-]+", re.ASCII)


def check_text(arguments: Sequence[str]) -> None:
    """Refuse arguments that are no text, or too much of it.

    Raises:
        ConfigError: naming the first one.
    """
    for argument in arguments:
        if not argument.strip() or argument.lstrip("+~").startswith("="):
            raise ConfigError(f"{shown(argument)!r}: no option, write option=value")
        if len(argument) > _MAX_LENGTH:
            raise ConfigError(
                f"{shown(argument)}: {len(argument):,} characters, allowed are {_MAX_LENGTH:,}"
            )
        if not printable(argument):
            raise ConfigError(f"{shown(argument)}: holds control characters, or is not UTF-8")
    if (total := sum(map(len, arguments))) > _MAX_TOTAL:
        raise ConfigError(f"{total:,} characters of options: allowed are {_MAX_TOTAL:,}")


def check_flag(argument: str, command: str) -> None:
    """Refuse what begins with a dash and is no flag of a command.

    Raises:
        ConfigError: naming the flag, and what is meant or does it instead.
    """
    if not argument.startswith("-") or argument in HYDRA_FLAGS:
        return
    name, equals, _ = argument.partition("=")
    if name in HYDRA_FLAGS_WITH_VALUE:
        return
    if name in REFUSED_FLAGS:
        raise ConfigError(f"{name}: not allowed, {REFUSED_FLAGS[name]}")
    if equals:
        raise ConfigError(f"{argument}: options have no dashes, as in {argument.lstrip('-')}")
    raise ConfigError(f"{argument}: unknown flag, see gnnscale {command} --help")


def flags_first(arguments: Sequence[str]) -> list[str]:
    """Move flags before options; Hydra's parser takes options in one piece only."""
    flags: list[str] = []
    options: list[str] = []
    awaits_value = False
    for argument in arguments:
        is_flag = argument.startswith("-")
        (flags if is_flag or (awaits_value and "=" not in argument) else options).append(argument)
        awaits_value = argument in HYDRA_FLAGS_WITH_VALUE
    return [*flags, *options]


def check_flags(arguments: Sequence[str]) -> None:
    """Let Hydra's parser of flags read them, whose complaints take several lines.

    Raises:
        ConfigError: a flag lacks its value, or has another than it may.
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(list(arguments))
    if flags.package is not None and flags.cfg is None:
        raise ConfigError(f"--package={shown(flags.package)}: goes with --cfg alone")


def check_overrides(arguments: Sequence[str], *, sweep: bool = True) -> None:
    """Refuse options that Hydra cannot read, that name files, or that sweep over too many jobs.

    Args:
        arguments: options as they were typed, without flags.
        sweep: whether the command has several jobs.

    Raises:
        ConfigError: naming the first such option.
    """
    num_jobs = 1
    for argument in arguments:
        override = _parsed(argument)
        key = str(override.key_or_group)
        if re.match(r"hydra\b", key):
            check_hydra_option(argument, key)
        if key in PLUGIN_GROUPS[:2] and not sweep:
            raise ConfigError(f"{shown(argument)}: goes with -m, a sweep of several jobs")
        if "/" in key or key in config_groups():
            _check_choice(argument, key, override)
        num_jobs *= _num_jobs(override, argument)
        if num_jobs > _MAX_JOBS:
            raise ConfigError(
                f"{shown(argument)}: a sweep of {num_jobs:,} jobs, allowed are {_MAX_JOBS:,}"
            )
    check_search(arguments)


def directory_of(argument: str) -> str:
    """Return the folder that an option of Hydra names.

    Raises:
        ConfigError: it is no text.
    """
    override = _parsed(argument)
    value = getattr(override.value(), "text", override.value())
    if not isinstance(value, (str, int, float)):
        raise ConfigError(f"{shown(argument)}: must be the name of a folder")
    return str(value)


def quoted(text: str) -> str:
    """Return ``text`` as Hydra's grammar reads it, whatever characters it has but backslashes."""
    return "'" + text.replace("'", "\\'") + "'"


def _check_choice(argument: str, group: str, override: Any) -> None:
    """Refuse what is no name in a group; the names are those of files that ship."""
    value = override.value()
    if override.is_delete() or isinstance(value, dict):
        return
    for choice in _choices(value):
        if not isinstance(choice, str) or not _CHOICE.fullmatch(choice):
            known = config_groups().get(group)
            names = f", one of {', '.join(known)}" if known else ""
            raise ConfigError(f"{shown(argument)}: the name of a {group} is needed{names}")


def _parsed(argument: str) -> Any:
    """Parse one option as Hydra does."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if "=" not in argument and not argument.startswith("~"):
        raise ConfigError(f"{shown(argument)}: cannot be read as an option, write option=value")
    try:
        return OverridesParser.create().parse_override(argument)
    except RecursionError:
        raise ConfigError(f"{shown(argument)}: nested too deeply") from None
    # Hydra's parser is a foreign one, and evaluates: it may raise whatever a value brings about.
    except Exception as error:
        reason = one_line(str(error).partition("\n")[0], 120)
        raise ConfigError(f"{shown(argument)}: cannot be read as an option ({reason})") from None


def _choices(value: Any) -> Iterator[Any]:
    """What the value of a group chooses; anything but text is no choice."""
    from hydra.core.override_parser.types import ChoiceSweep, Glob, QuotedString

    if isinstance(value, QuotedString):
        yield value.text
    elif isinstance(value, (list, tuple, ChoiceSweep)):
        for each in value.list if isinstance(value, ChoiceSweep) else value:
            yield from _choices(each)
    elif not isinstance(value, Glob):
        yield value


def _num_jobs(override: Any, argument: str) -> int:
    """How many jobs an option stands for."""
    from hydra.core.override_parser.types import ChoiceSweep, RangeSweep

    if not override.is_sweep_override():
        return 1
    value = override.value()
    if isinstance(value, ChoiceSweep):
        return max(len(value.list), 1)
    if not isinstance(value, RangeSweep):
        return 1
    start, stop, step = (float(each or 0) for each in (value.start, value.stop, value.step))
    if not (math.isfinite(start) and math.isfinite(stop) and math.isfinite(step) and step):
        raise ConfigError(f"{shown(argument)}: the range has no end")
    return max(math.ceil((stop - start) / step), 1)
