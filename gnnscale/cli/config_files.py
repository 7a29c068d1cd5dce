"""``config=`` and ``resume=``: files that give options, turned into what Hydra may compose.

No text of such a file reaches Hydra. Its values are read, checked, and handed to Hydra's store of
configurations, which the processes of a launcher get too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gnnscale.cli import arguments as cli_arguments
from gnnscale.cli import texts
from gnnscale.core import ConfigError, nearest, shown
from gnnscale.core.config import compose, user_code
from gnnscale.core.config import untrusted as found
from gnnscale.core.config.run_directory import (
    CONFIG_FILE,
    check_run_directory,
    check_store_of_run,
    read_run,
)
from gnnscale.core.config.yaml_file import check_known, check_references, read_yaml

#: Where the options of a resumed run are, for Hydra to compose.
_RESUMED = "resumed_run"

#: Mappings with whatever names the user's code takes: Hydra adds to them without a plus sign.
_FREE = ("model.arguments",)

#: Commands that read a run directory.
_OF_RUNS = ("evaluate", "predict", "export")
_GROUP = re.compile(r"(?:override )?/(\w+)", re.ASCII)
_NAME = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TranslatedArguments:
    """What the arguments of a command mean."""

    arguments: tuple[str, ...]  #: those of Hydra
    config: str  #: the configuration to compose
    #: the folder to write into, which may refer to options; None for the command's default
    output: str | None = None
    sweep: bool = False  #: whether the command has several jobs
    fresh: bool = True  #: whether a folder that holds a sweep is refused


def translate(command: str, arguments: Sequence[str]) -> TranslatedArguments:
    """Turn the arguments of a command, as typed, into those of Hydra.

    Raises ConfigError if an argument, or a file that it names, is not allowed.
    """
    cli_arguments.check_text(arguments)
    for argument in arguments:
        if not (command == "doctor" and argument == "--calibrate"):
            cli_arguments.check_flag(argument, command)
    resumes = [each for each in arguments if command == "train" and _resumes(each)]
    configs = [each for each in arguments if command == "train" and each.startswith("config=")]
    sweep = not {"-m", "--multirun"}.isdisjoint(arguments)
    special = {*configs, *resumes, *filter(_is_board_file, arguments)}
    arguments = [
        each if each in special else texts.as_typed(each, command, sweep=sweep)
        for each in arguments
    ]
    outputs = [each for each in arguments if _is_output(each, command, sweep=sweep)]
    for several in (resumes, configs, outputs):
        if len(several) > 1:
            raise ConfigError(f"{shown(several[-1])}: given twice")
    for other in (*configs, *outputs):
        if resumes:
            raise ConfigError(f"{shown(other)}: cannot be given with resume")
    translated = TranslatedArguments(arguments=(), config=command, sweep=sweep)
    typed: list[str] = []
    outputs = [each for each in outputs if not each.startswith("hydra.run.dir=")]
    special = {*configs, *resumes, *outputs, *filter(_is_board_file, arguments)}
    value_of_flag = False
    for argument in arguments:
        is_value = value_of_flag and "=" not in argument
        if not (argument.startswith("-") or is_value or argument in special):
            typed.append(argument)
        if argument in outputs:
            translated = _to_output(translated, argument)
        elif argument in resumes:
            translated = _resume(translated, Path(argument.partition("=")[2]), arguments)
        else:
            more: Sequence[str] = ()
            # Commands that read a run have no such groups: what is named is the run's.
            if command not in _OF_RUNS or not any(cli_arguments.named_code([argument])):
                more = _options(argument, command, resumes=bool(resumes))
            translated = replace(translated, arguments=(*translated.arguments, *more))
        value_of_flag = argument in cli_arguments.HYDRA_FLAGS_WITH_VALUE
    cli_arguments.check_overrides(typed, sweep=sweep)
    _take_code(typed, stored=not resumes and command not in _OF_RUNS)
    return translated


def _take_code(typed: Sequence[str], *, stored: bool) -> None:
    """Let options name the user's code that is typed, and Hydra choose it for groups if stored."""
    for group, name, chosen in cli_arguments.named_code(typed):
        if chosen and stored:
            compose.store_code(group, name)
        user_code.allow([name])


def _options(argument: str, command: str, *, resumes: bool) -> Sequence[str]:
    """Return what an argument is to Hydra."""
    name, _, value = argument.partition("=")
    if argument == "--calibrate":
        return ["calibrate=true"]
    if command == "train" and name == "config":
        return [_configs(value)]
    if _is_board_file(argument):
        return [_board(Path(value))]
    if resumes and name in user_code.GROUPS and user_code.is_name(value):
        return [f"{name}._target_={value}"]
    if resumes and not value.startswith("{"):
        if name == "device_plan":
            return ()  # it takes the place of the run's own, below
        if name == "logger":
            return [_loggers(value)]
        if name in _train_options()[0]:
            raise ConfigError(
                f"{shown(argument)}: resume=DIR goes on with the {name} of the run; what may "
                f"change is device_plan=NAME, logger=NAME, and {_changeable()}"
            )
    return [f"++{argument}" if _is_free(name) else argument]


def _changeable() -> str:
    """Return the options that may be others when a run goes on."""
    from gnnscale.run.checkpoint.file import FREE_OPTIONS

    whole = {name: f"{name}.*" for name in (*_train_options()[0], "device_plan")}
    return ", ".join(whole.get(name, name) for name in FREE_OPTIONS if name != "resume")


def _is_output(argument: str, command: str, *, sweep: bool) -> bool:
    """Whether an argument names the folder that a command writes into."""
    if sweep and argument.startswith("hydra.sweep.dir="):
        return True
    own = "output=" if sweep else ("output=", "hydra.run.dir=")
    return argument.startswith(own) and run_directory(command) != "."


def _to_output(translated: TranslatedArguments, argument: str) -> TranslatedArguments:
    """Take note of the folder that is asked for."""
    name, _, value = argument.partition("=")
    output = value if name == "output" else cli_arguments.directory_of(argument)
    if not output or output == "null":
        raise ConfigError(f"{argument}: names no folder")
    if translated.sweep:
        for folder in (Path(output), *Path(output).glob("[0-9]*")):
            check_run_directory(folder)
    return replace(translated, output=output, fresh=name == "output")


@cache
def run_directory(command: str, *, sweep: bool = False) -> str:
    """Return the default folder of a command; ``.`` if a run has none."""
    return str(_packaged(command)["hydra"]["sweep" if sweep else "run"]["dir"])


@cache
def _train_options() -> tuple[frozenset[str], frozenset[str]]:
    """The groups of ``train``, and the names of all its options at the top."""
    content = _packaged("train")
    groups = {
        name
        for entry in content["defaults"]
        if isinstance(entry, dict)
        for name in entry
        if _NAME.fullmatch(name) and name != "experiment"
    }
    # An algorithm sets options of other groups, and is none itself.
    return frozenset(groups), frozenset({*groups, *content} - {"defaults", "hydra", "algorithm"})


def _packaged(name: str) -> Any:
    """Return what a configuration that ships holds."""
    import yaml  # type: ignore[import-untyped]

    return yaml.safe_load((resources.files(compose.CONFIGS) / f"{name}.yaml").read_text())


def _is_board_file(argument: str) -> bool:
    """Whether an argument names a file that describes an FPGA card."""
    name, _, value = argument.partition("=")
    return name == "board" and Path(value).suffix in (".yaml", ".yml")


def _board(file: Path) -> str:
    """Select the FPGA card that a user's own file describes."""
    from gnnscale.planner.fpga_board import board_values

    staged = "file_" + re.sub(r"\W", "_", file.stem, flags=re.ASCII)[:40]
    compose.store(staged, board_values(file), group="board")
    return f"board={staged}"


def _configs(value: str) -> str:
    """Select the experiments that ``config=`` means."""
    names = [_experiment(name, number) for number, name in enumerate(value.split(","))]
    return f"experiment={','.join(names)}"


def _experiment(name: str, number: int) -> str:
    """Return the name of an experiment; that of a user's own file, which becomes one."""
    known = compose.config_groups()["experiment"]
    if name in known:
        return name
    file = Path(name)
    if file.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"config={shown(name)}: no such experiment{nearest(name, known)}")
    try:
        values = read_yaml(file, raw=("defaults",), is_text=_is_text)
    except FileNotFoundError:
        raise ConfigError(f"config={shown(name)}: no such file") from None
    defaults = values.pop("defaults", None)
    check_known(file, values, _train_options()[1])
    check_references(file, values, allowed=True)
    for group in user_code.GROUPS:
        options = values.get(group)
        target = options.get("_target_") if isinstance(options, dict) else None
        if user_code.is_name(target):
            user_code.allow([str(target)])
    if defaults is not None:
        values = {"defaults": _defaults(file, defaults), **values}
    staged = f"file{number}_" + re.sub(r"\W", "_", file.stem, flags=re.ASCII)[:40]
    compose.store(staged, values, group="experiment", package="_global_")
    return staged


def _is_text(option: str) -> bool:
    """Whether an option of ``train`` is a text, or a list of texts."""
    return texts.kind_of(option, "", "train") in ("text", "word", "texts")


def _defaults(file: Path, entries: Any) -> list[Any]:
    """Check the defaults list of a user's file: groups of options and experiments that ship."""
    groups = _train_options()[0]
    allowed = f"'_self_', 'override /GROUP: NAME' with a group of {', '.join(sorted(groups))}"
    if not isinstance(entries, list):
        raise ConfigError(f"{file}: defaults={shown(entries)}: must be a list of {allowed}")
    for entry in entries:
        if isinstance(entry, str) and (
            entry == "_self_" or entry in compose.config_groups()["experiment"]
        ):
            continue
        pairs = [*entry.items()] if isinstance(entry, dict) and len(entry) == 1 else [("", "")]
        group, name = _GROUP.fullmatch(pairs[0][0]), pairs[0][1]
        named = isinstance(name, str) and _NAME.fullmatch(name)
        if group is not None and group[1] in user_code.GROUPS and user_code.is_name(name):
            compose.store_code(group[1], name)
            continue
        if group is None or group[1] not in groups or not named:
            raise ConfigError(f"{file}: defaults: {shown(entry)}: allowed are {allowed}")
    return entries


def _resume(
    translated: TranslatedArguments, directory: Path, typed: Sequence[str]
) -> TranslatedArguments:
    """Make the options that a run was started with the defaults of this one, in its directory."""
    if translated.sweep:
        raise ConfigError(f"resume={directory}: cannot be part of a sweep")
    values = read_run(directory, _train_options()[1], option="resume")
    _check_named(directory, values, typed)
    for argument in typed:
        name, _, value = argument.partition("=")
        if name == "device_plan" and not value.startswith("{"):
            values["device_plan"] = _device_plan(value)
    if not any(argument.startswith("dataset.store=") for argument in typed):
        dataset = values.get("dataset")
        store = dataset.get("store") if isinstance(dataset, dict) else None
        check_store_of_run(directory / CONFIG_FILE, store if isinstance(store, str) else None)
    compose.store(_RESUMED, values)
    path = str(directory.resolve())
    if "${" in path:
        raise ConfigError(f"resume={directory}: a path with ${{ cannot be resumed")
    more = ("hydra/job_logging=console", f"resume={texts.quoted(path)}")
    return replace(
        translated, arguments=(*translated.arguments, *more), config=_RESUMED, output=path
    )


def _check_named(directory: Path, values: dict[str, Any], arguments: Sequence[str]) -> None:
    """Refuse to resume a run that names what it may not, unless the command line does so again."""
    # Not for commands that resume nothing: they are to be quick.
    from gnnscale.run.config import RunConfig

    given = dict(each.lstrip("+").split("=", 1) for each in arguments if "=" in each)
    # A mapping is merged with what was found, and so says nothing of the options that it lacks.
    given = {option: value for option, value in given.items() if not value.startswith("{")}
    for group, name, _ in cli_arguments.named_code(arguments):
        given[f"{group}._target_"] = name
    if "device_plan" in given:
        given["device_plan.devices"] = given["device_plan"]
    found.check_found(
        values,
        RunConfig,
        directory=directory,
        given=given,
    )


def _is_free(name: str) -> bool:
    """Whether an option is a mapping, or in one, whose names are not known before."""
    return any(name == each or name.startswith(f"{each}.") for each in _FREE)


def _resumes(argument: str) -> bool:
    return argument.startswith("resume=") and argument not in ("resume=", "resume=null")


def _loggers(value: str) -> str:
    """Return the option that sets the loggers of a run that goes on, in place of those it had."""
    known = [name for name in compose.config_groups()["logger"] if name != "none"]
    wanted = [name.strip() for name in value.removeprefix("[").removesuffix("]").split(",")]
    for name in wanted:
        if name not in ("", "none", *known):
            raise ConfigError(f"logger={shown(name)}: no such logger{nearest(name, known)}")
    chosen = ",".join(f"{name}:{str(name in wanted).lower()}" for name in known)
    return f"++logger={{{chosen}}}"


def _device_plan(name: str) -> Any:
    """Return the options of the device plan ``name``; a resumed run has no groups to choose from.

    It and the loggers are the only groups of a run that may change.
    """
    known = compose.config_groups()["device_plan"]
    if name not in known:
        raise ConfigError(f"device_plan={shown(name)}: no such device plan{nearest(name, known)}")
    return _packaged(f"device_plan/{name}")
