"""Checks of a command's arguments before Hydra or a named file is touched, and shell completion."""

import argparse
import contextlib
import io
import math
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from gnnscale.cli import texts
from gnnscale.core import ConfigError, brief, one_line, printable
from gnnscale.core.config import config_groups, user_code

#: Groups of Hydra with choices from installed plugins.
PLUGIN_GROUPS = ("hydra/launcher", "hydra/sweeper", "hydra/sweeper/sampler")
#: Allowed single options of Hydra.
_OPTIONS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.verbose")
_OF_PLUGINS = ("hydra.launcher.", "hydra.sweeper.")
#: Refused content of plugin options: code to import, references, search spaces, and stored studies
#: (some samplers unpickle them).
_NOT_PLAIN = re.compile(
    r"_target_|_partial_|_args_|_recursive_|_convert_|custom_search_space|\$\{"
    r"|^[+]*hydra\.sweeper\.(?:params|search_space|storage)"
)
_MAX_FAILURE_RATE = "hydra.sweeper.max_failure_rate="
#: Package of each known plugin, by group and name.
_PACKAGES = {
    ("hydra/launcher", "submitit_local"): "hydra-submitit-launcher",
    ("hydra/launcher", "submitit_slurm"): "hydra-submitit-launcher",
    **{("hydra/launcher", name): f"hydra-{name}-launcher" for name in ("joblib", "ray", "rq")},
    **{("hydra/sweeper", name): f"hydra-{name}-sweeper" for name in ("optuna", "ax", "nevergrad")},
}


def check_hydra_option(argument: str, key: str) -> None:
    """Raise ConfigError unless ``argument``, which sets Hydra's option ``key``, is allowed.

    Options of plugins are allowed with plain values only: no code, references or search spaces.
    """
    if key == "hydra" or key.startswith("hydra.searchpath"):
        raise ConfigError(f"{brief(argument)}: not allowed, files of your own are config=FILE.yaml")
    is_plugin_option = key.startswith(_OF_PLUGINS)
    if not (is_plugin_option or key in _OPTIONS or key in PLUGIN_GROUPS):
        raise ConfigError(
            f"{brief(argument)}: not allowed; of Hydra's options there are output=DIR, "
            f"{', '.join((*PLUGIN_GROUPS[:2], *_OPTIONS[2:]))}, hydra.launcher.* and "
            "hydra.sweeper.*"
        )
    if is_plugin_option and _NOT_PLAIN.search(argument):
        raise ConfigError(
            f"{brief(argument)}: not allowed; options of plugins are plain values, what is "
            "searched is typed as options, such as optimizer.lr=interval(1e-3,1e-1), and a study "
            "lasts as long as its command"
        )


def searches(arguments: Sequence[str]) -> bool:
    """Whether Optuna chooses the jobs of a sweep."""
    return any(argument.lstrip("+") == "hydra/sweeper=optuna" for argument in arguments)


def check_search(arguments: Sequence[str]) -> None:
    """Raise ConfigError if Optuna is to search without a direction, maximize or minimize."""
    has_direction = any(
        argument.lstrip("+").startswith("hydra.sweeper.direction=") for argument in arguments
    )
    if searches(arguments) and not has_direction:
        raise ConfigError(
            "hydra/sweeper=optuna: expected the direction of the validation metric, "
            "hydra.sweeper.direction=maximize (accuracy, F1) or minimize (an error)"
        )


def defaults_of_search(arguments: Sequence[str]) -> list[str]:
    """Return an argument that lets Optuna, unless a limit is typed, continue after failed jobs."""
    is_typed = any(argument.startswith(_MAX_FAILURE_RATE) for argument in arguments)
    return [f"{_MAX_FAILURE_RATE}1.0"] if searches(arguments) and not is_typed else []


def explain_missing_plugin(group: str, name: str) -> str | None:
    """Return the message that names the package of the plugin ``group=name``; None: unknown."""
    package = _PACKAGES.get((group, name))
    return None if package is None else f"{group}={name}: not installed, pip install {package}"


def explain_dataset(name: str) -> str | None:
    """Return the message on ``dataset=NAME``, no layout, with what to write; None: unknown name."""
    from gnnscale.data.catalog import suggest_options  # takes a while

    hint = suggest_options(name)
    return None if hint is None else f"dataset={brief(name)}: no such dataset; {hint}"


def lets_jobs_stop(command: str, arguments: Sequence[str]) -> bool:
    """Whether failed jobs of a sweep raise, so that Hydra decides whether the sweep ends.

    True with a limit of failures, or a launcher's processes without ``summary.json``.
    """
    return any(argument.startswith(_MAX_FAILURE_RATE) for argument in arguments) or (
        command != "train" and any(argument.startswith("hydra/launcher=") for argument in arguments)
    )


#: Allowed flags of Hydra's parser, without and with a value.
HYDRA_FLAGS = (
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r"),
    *("--multirun", "-m", "--shell-completion", "-sc"),
)
HYDRA_FLAGS_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--info", "-i")
#: Flags by which a file could set Hydra or be unpickled, and the alternative for each.
REFUSED_FLAGS = {
    **dict.fromkeys(
        ("--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
        "use gnnscale train config=FILE.yaml",
    ),
    "--experimental-rerun": "use gnnscale train resume=DIR",
}

#: Limits on typed options. Hydra's grammar takes a second for 1,000 characters.
_MAX_LENGTH = 1 << 12
_MAX_TOTAL = 1 << 14
_MAX_JOBS = 10_000
_CHOICE = re.compile(r"[\w-]+", re.ASCII)


def check_text(arguments: Sequence[str]) -> None:
    """Raise ConfigError for empty, too long or unprintable arguments, or too many characters."""
    for argument in arguments:
        if not argument.strip() or argument.lstrip("+~").startswith("="):
            raise ConfigError(f"{brief(argument)!r}: expected option=value")
        if (length := len(argument)) > _MAX_LENGTH:
            limit = f"at most {_MAX_LENGTH:,} characters"
            raise ConfigError(f"{brief(argument)}: expected {limit}, got {length:,}")
        if not printable(argument):
            hint = "; a tab as a delimiter is typed tab" if argument.endswith("=\t") else ""
            raise ConfigError(f"{brief(argument)}: holds control characters, or is not UTF-8{hint}")
    if (total := sum(map(len, arguments))) > _MAX_TOTAL:
        raise ConfigError(f"options: expected at most {_MAX_TOTAL:,} characters, got {total:,}")


def check_flag(argument: str, command: str) -> None:
    """Raise ConfigError, with an alternative, if ``argument`` is an unknown or refused flag."""
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
    """Return flags and their values, then options: Hydra's parser needs these in one block."""
    flags: list[str] = []
    options: list[str] = []
    awaits_value = False
    for argument in arguments:
        is_flag = argument.startswith("-")
        (flags if is_flag or (awaits_value and "=" not in argument) else options).append(argument)
        awaits_value = argument in HYDRA_FLAGS_WITH_VALUE
    return [*flags, *options]


class _HydraParser(argparse.ArgumentParser):
    """Parser that takes help texts of any type: Hydra 1.3 has one that is no string."""

    def _check_help(self, action: argparse.Action) -> None:
        """Accept the action; argparse of Python 3.14 calls this method, and earlier ones do not."""


def hydra_parser() -> argparse.ArgumentParser:
    """Return Hydra's parser; from then on Hydra itself makes the same kind, on Python 3.14 too."""
    from hydra._internal import utils

    modified = SimpleNamespace(**(vars(argparse) | {"ArgumentParser": _HydraParser}))
    utils.argparse = modified  # type: ignore[assignment]
    return utils.get_args_parser()


def check_flags(arguments: Sequence[str]) -> None:
    """Raise ConfigError, in one line, if Hydra's parser refuses the flags in ``arguments``."""
    parser = hydra_parser()

    def refuse(message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(list(arguments))
    if flags.package is not None and flags.cfg is None:
        raise ConfigError(f"--package={brief(flags.package)}: goes with --cfg alone")


def check_overrides(arguments: Sequence[str], *, sweep: bool = True) -> None:
    """Raise ConfigError for the first option that Hydra must not get or cannot parse.

    Also for over 10,000 jobs, a launcher or sweeper without ``sweep``, Optuna without direction.
    """
    num_jobs = 1
    for argument in arguments:
        override = _parsed(argument)
        key = str(override.key_or_group)
        if (name := texts.repeated_key(argument.partition("=")[2])) is not None:
            raise ConfigError(f"{brief(argument)}: {brief(name)} appears twice, expected it once")
        if re.match(r"hydra\b", key):
            check_hydra_option(argument, key)
        if key in PLUGIN_GROUPS[:2] and not sweep:
            raise ConfigError(f"{brief(argument)}: goes with -m, a sweep of several jobs")
        if "/" in key or key in config_groups():
            _check_choice(argument, key, override)
        num_jobs *= _num_jobs(override, argument)
        if num_jobs > _MAX_JOBS:
            limit = f"a sweep of at most {_MAX_JOBS:,} jobs"
            raise ConfigError(f"{brief(argument)}: expected {limit}, got {num_jobs:,}")
    check_search(arguments)


def directory_of(argument: str) -> str:
    """Return the folder that an option of Hydra names; ConfigError if it is not a text."""
    override = _parsed(argument)
    value = getattr(override.value(), "text", override.value())
    if not isinstance(value, (str, int, float)):
        raise ConfigError(f"{brief(argument)}: expected the name of a folder")
    return str(value)


def _check_choice(argument: str, group: str, override: Any) -> None:
    """Raise ConfigError unless each choice of ``group`` is a plain word or names user code.

    ``override`` is ``argument`` as Hydra parses it.
    """
    value = override.value()
    if override.is_delete() or isinstance(value, dict):
        return
    for choice in _choices(value):
        if group in user_code.GROUPS and user_code.is_name(choice):
            user_code.check_name(choice, option=group)
        elif not isinstance(choice, str) or not _CHOICE.fullmatch(choice):
            choices = config_groups().get(group)
            if group == "dataset" and (hint := explain_dataset(str(choice))) is not None:
                raise ConfigError(hint)
            names = f", one of {', '.join(choices)}" if choices else ""
            raise ConfigError(f"{brief(argument)}: expected the name of a {group}{names}")


def named_code(arguments: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield ``(group, name, chosen)`` of user code in ``arguments``; chosen by ``group=NAME``."""
    for argument in arguments:
        group = argument.partition("=")[0].lstrip("+")
        chosen = not group.endswith("._target_")
        group = group.removesuffix("._target_")
        if group in user_code.GROUPS and ":" in argument:
            for name in _choices(_parsed(argument).value()):
                if user_code.is_name(name):
                    yield group, name, chosen


def _parsed(argument: str) -> Any:
    """Return an option as Hydra parses it; ConfigError if Hydra cannot."""
    if "=" not in argument and not argument.startswith("~"):
        raise ConfigError(f"{brief(argument)}: expected option=value")
    try:
        return texts.parse(argument)
    except RecursionError:
        raise ConfigError(f"{brief(argument)}: nested too deeply") from None
    # Hydra's parser evaluates functions in the value and may raise any exception.
    except Exception as error:
        reason = one_line(str(error).partition("\n")[0], 120)
        quotes = texts.working_quotes(argument)
        hint = "" if quotes is None else f"; a text goes in quotes, {shlex.quote(quotes)}"
        if argument.partition("=")[2].lstrip().startswith("{"):
            hint = "; keys here are ASCII letters without quotes, config=FILE.yaml takes any"
        raise ConfigError(
            f"{brief(argument)}: cannot be read as an option ({reason}){hint}"
        ) from None


def _choices(value: Any) -> Iterator[Any]:
    """Yield the choices in the value of a group: a value, or the elements of a sweep or list."""
    from hydra.core.override_parser.types import ChoiceSweep, Glob, QuotedString

    if isinstance(value, QuotedString):
        yield value.text
    elif isinstance(value, (list, tuple, ChoiceSweep)):
        for element in value.list if isinstance(value, ChoiceSweep) else value:
            yield from _choices(element)
    elif not isinstance(value, Glob):
        yield value


def _num_jobs(override: Any, argument: str) -> int:
    """Return the number of values over which an option sweeps; ConfigError: without an end."""
    from hydra.core.override_parser.types import ChoiceSweep, RangeSweep

    if not override.is_sweep_override():
        return 1
    value = override.value()
    if isinstance(value, ChoiceSweep):
        return max(len(value.list), 1)
    if not isinstance(value, RangeSweep):
        return 1
    start, stop, step = (float(number or 0) for number in (value.start, value.stop, value.step))
    if not (all(map(math.isfinite, (start, stop, step))) and step):
        raise ConfigError(f"{brief(argument)}: the range has no end")
    return max(math.ceil((stop - start) / step), 1)


def complete(
    arguments: Sequence[str], commands: Collection[str], run: Callable[[str, Sequence[str]], int]
) -> int:
    """Print completions of the command line in ``COMP_LINE``, and return the exit status.

    ``arguments`` are ``-sc query=SHELL`` or ``-sc install=SHELL``. ``run`` runs one of ``commands``
    with arguments: Hydra completes its options. An incomplete line causes no error message.
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
    preceding = words[2:] if not last else words[2:-1]
    options = [word for word in preceding if _is_hydra_option(word, command)]
    os.environ["COMP_LINE"] = " ".join([words[0], *options, last])
    with contextlib.redirect_stderr(io.StringIO()):
        run(command, arguments)
    return 0


def _is_hydra_option(word: str, command: str) -> bool:
    """Whether a word is a valid option that names neither a file nor code."""
    if word.startswith(("config=", "resume=")):
        return False
    try:
        if any(named_code([word])):  # completion imports no user code
            return False
        check_text([word])
        check_flag(word, command)
        if not word.startswith("-"):
            check_overrides([word])
    except ConfigError:
        return False
    return True
