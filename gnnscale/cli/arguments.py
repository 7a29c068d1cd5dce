"""The arguments of a command, checked before Hydra or a file that they name is touched.

Also which launchers and sweepers of Hydra may be chosen, and completion for shells.
"""

import contextlib
import io
import math
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

from gnnscale.cli import texts
from gnnscale.core import ConfigError, one_line, printable, shown
from gnnscale.core.config import user_code
from gnnscale.core.config.compose import config_groups

#: Groups of Hydra that may be chosen from; their names are those of installed packages.
PLUGIN_GROUPS = ("hydra/launcher", "hydra/sweeper", "hydra/sweeper/sampler")
#: Single options of Hydra that may be given.
_OPTIONS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.verbose")
_OF_PLUGINS = ("hydra.launcher.", "hydra.sweeper.")
#: What options of plugins may not hold: code to import, references to it, other options, and
#: studies that somebody stored (some samplers unpickle those).
_NOT_PLAIN = re.compile(
    r"_target_|_partial_|_args_|_recursive_|_convert_|custom_search_space|\$\{"
    r"|^[+]*hydra\.sweeper\.(?:params|search_space|storage)"
)
_MAX_FAILURE_RATE = "hydra.sweeper.max_failure_rate="
#: What has the plugins that are known, by their groups and names.
_PACKAGES = {
    ("hydra/launcher", "joblib"): "hydra-joblib-launcher",
    ("hydra/launcher", "submitit_local"): "hydra-submitit-launcher",
    ("hydra/launcher", "submitit_slurm"): "hydra-submitit-launcher",
    ("hydra/launcher", "ray"): "hydra-ray-launcher",
    ("hydra/launcher", "rq"): "hydra-rq-launcher",
    ("hydra/sweeper", "optuna"): "hydra-optuna-sweeper",
    ("hydra/sweeper", "ax"): "hydra-ax-sweeper",
    ("hydra/sweeper", "nevergrad"): "hydra-nevergrad-sweeper",
}


def check_hydra_option(argument: str, key: str) -> None:
    """Raise ConfigError for an option of Hydra that names files or code, or is a command's own.

    ``argument`` is as typed, ``key`` its name, which begins with ``hydra``.
    """
    if key == "hydra" or key.startswith("hydra.searchpath"):
        raise ConfigError(f"{shown(argument)}: not allowed, files of your own are config=FILE.yaml")
    of_plugin = key.startswith(_OF_PLUGINS)
    if not (of_plugin or key in _OPTIONS or key in PLUGIN_GROUPS):
        raise ConfigError(
            f"{shown(argument)}: not allowed; of Hydra's options there are output=DIR, "
            f"{', '.join((*PLUGIN_GROUPS[:2], *_OPTIONS[2:]))}, hydra.launcher.* and "
            "hydra.sweeper.*"
        )
    if of_plugin and _NOT_PLAIN.search(argument):
        raise ConfigError(
            f"{shown(argument)}: not allowed; options of plugins are plain values, what is "
            "searched is typed as options, such as optimizer.lr=interval(1e-3,1e-1), and a study "
            "lasts as long as its command"
        )


def check_search(arguments: Sequence[str]) -> None:
    """Raise ConfigError for a search by Optuna that does not say what is better."""
    given = dict(argument.lstrip("+").split("=", 1) for argument in arguments if "=" in argument)
    if given.get("hydra/sweeper") == "optuna" and "hydra.sweeper.direction" not in given:
        raise ConfigError(
            "hydra/sweeper=optuna: say which validation metric is better, "
            "hydra.sweeper.direction=maximize (accuracy, F1) or minimize (an error)"
        )


def defaults_of_search(arguments: Sequence[str]) -> list[str]:
    """Return options that a search has here unless others are typed: failed jobs do not end it."""
    asked = any(each.startswith(_MAX_FAILURE_RATE) for each in arguments)
    return [f"{_MAX_FAILURE_RATE}1.0"] if "hydra/sweeper=optuna" in arguments and not asked else []


def explain_missing_plugin(group: str, name: str) -> str | None:
    """Return what to install for a plugin that is not there; None for one that nobody knows."""
    package = _PACKAGES.get((group, name))
    return None if package is None else f"{group}={name}: not installed, pip install {package}"


def lets_jobs_stop(command: str, arguments: Sequence[str]) -> bool:
    """Return whether Hydra judges a job of a sweep that fails.

    It does if an option says how many may fail; and if a launcher runs jobs in other processes,
    and no ``summary.json`` records how they ended.
    """
    return any(each.startswith(_MAX_FAILURE_RATE) for each in arguments) or (
        command != "train" and any(each.startswith("hydra/launcher=") for each in arguments)
    )


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
    """Raise ConfigError for the first argument that is no text, or too much of it."""
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
    """Raise ConfigError for what begins with a dash and is no flag of a command; names another."""
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
    """Raise ConfigError, in one line, for flags that Hydra's parser would refuse in several."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(list(arguments))
    if flags.package is not None and flags.cfg is None:
        raise ConfigError(f"--package={shown(flags.package)}: goes with --cfg alone")


def check_overrides(arguments: Sequence[str], *, sweep: bool = True) -> None:
    """Raise ConfigError for options that Hydra cannot read, name files, or make too many jobs.

    ``arguments`` are options as typed, without flags; ``sweep`` is whether there are several jobs.
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
    """Return the folder that an option of Hydra names; raise ConfigError if it is no text."""
    override = _parsed(argument)
    value = getattr(override.value(), "text", override.value())
    if not isinstance(value, (str, int, float)):
        raise ConfigError(f"{shown(argument)}: must be the name of a folder")
    return str(value)


def _check_choice(argument: str, group: str, override: Any) -> None:
    """Refuse what is no name in a group; the names are those of files that ship."""
    value = override.value()
    if override.is_delete() or isinstance(value, dict):
        return
    for choice in _choices(value):
        if group in user_code.GROUPS and user_code.is_name(choice):
            user_code.check_name(choice, option=group)
        elif not isinstance(choice, str) or not _CHOICE.fullmatch(choice):
            known = config_groups().get(group)
            names = f", one of {', '.join(known)}" if known else ""
            raise ConfigError(f"{shown(argument)}: the name of a {group} is needed{names}")


def named_code(arguments: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield what options, as typed, name of the user's code for groups that take it.

    As ``(group, name, chosen)``; ``chosen`` is whether it is a choice of the group, and not the
    group's ``_target_``. Options that cannot be read name nothing.
    """
    for argument in arguments:
        group = argument.partition("=")[0].lstrip("+")
        chosen = not group.endswith("._target_")
        group = group.removesuffix("._target_")
        if group in user_code.GROUPS and ":" in argument:
            for name in _choices(_parsed(argument).value()):
                if user_code.is_name(name):
                    yield group, name, chosen


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
        quotes = texts.working_quotes(argument)
        hint = "" if quotes is None else f"; a text goes in quotes, {shlex.quote(quotes)}"
        raise ConfigError(
            f"{shown(argument)}: cannot be read as an option ({reason}){hint}"
        ) from None


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


def complete(
    arguments: Sequence[str], commands: Collection[str], run: Callable[[str, Sequence[str]], int]
) -> int:
    """Complete the command line in ``COMP_LINE``; Hydra completes options, given their command.

    A line that is half typed is no error: nothing is printed about it. The shell calls it with
    ``-sc query=SHELL``, or ``-sc install=SHELL``; ``run`` runs a command with arguments.
    """
    if not arguments[1:2] or not arguments[1].startswith("query="):
        return run("train", arguments)
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    command = words[1] if len(words) > 1 else ""
    if command not in commands or (len(words) == 2 and not line.endswith(" ")):
        print(" ".join(name for name in commands if name.startswith(command)))
        return 0
    last = "" if line.endswith(" ") else words[-1]
    if command == "train" and last.startswith("config="):
        print(" ".join(f"config={name}" for name in config_groups()["experiment"]))
        return 0
    before = words[2:] if not last else words[2:-1]
    known = [word for word in before if _known_to_hydra(word, command)]
    os.environ["COMP_LINE"] = " ".join([words[0], *known, last])
    with contextlib.redirect_stderr(io.StringIO()):
        run(command, arguments)
    return 0


def _known_to_hydra(word: str, command: str) -> bool:
    """Whether a word in front of the one to complete is an option that names no file."""
    if word.startswith(("config=", "resume=")):
        return False
    try:
        if any(named_code([word])):  # nothing is imported for what is half typed
            return False
        check_text([word])
        check_flag(word, command)
        if not word.startswith("-"):
            check_overrides([word])
    except ConfigError:
        return False
    return True
