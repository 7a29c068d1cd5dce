"""Translation of typed arguments, ``config=FILE`` and ``resume=DIR`` to arguments of Hydra.

No text of a user's file reaches Hydra. The values are read, checked, and put into Hydra's
ConfigStore, which the processes of a launcher get, too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gnnscale.cli import arguments as cli_arguments
from gnnscale.cli import options_file, texts
from gnnscale.core import ConfigError, brief, suggestion
from gnnscale.core.config import compose, escaped, resolved, user_code
from gnnscale.core.config import run_directory as runs
from gnnscale.core.config.option_names import packaged
from gnnscale.core.config.yaml_file import TYPE_MAPPINGS
from gnnscale.core.files import refuse_address

#: Name in Hydra's ConfigStore of a resumed run's options.
_RESUMED = "resumed_run"
#: Mappings with arbitrary keys; users add keys without Hydra's plus sign.
_FREE_MAPPING = "model.arguments"
_FREE = tuple(f"{name}." for name in (_FREE_MAPPING, *TYPE_MAPPINGS))
#: Commands that read a run directory.
_OF_RUNS = ("evaluate", "predict", "export")


@dataclass(frozen=True, kw_only=True)
class TranslatedArguments:
    """Arguments of a command, translated for Hydra."""

    arguments: tuple[str, ...]  #: arguments of Hydra
    config: str  #: name of the configuration to compose
    #: output folder, which may refer to options. None: the command's default
    output: str | None = None
    sweep: bool = False  #: whether the command is a sweep of several jobs
    fresh: bool = True  #: whether an output folder that holds a sweep is refused

    @property
    def overrides(self) -> list[str]:
        """Arguments without flags."""
        return [argument for argument in self.arguments if not argument.startswith("-")]


def translate(command: str, arguments: Sequence[str]) -> TranslatedArguments:
    """Check a command's typed arguments, and translate them to Hydra's.

    User code that they name is allowed, files are read and registered.
    """
    cli_arguments.check_text(arguments)
    for argument in arguments:
        if not (command == "doctor" and argument == "--calibrate"):
            cli_arguments.check_flag(argument, command)
    trains = command == "train"
    resumes = [argument for argument in arguments if trains and _resumes(argument)]
    configs = [argument for argument in arguments if trains and argument.startswith("config=")]
    sweep = not {"-m", "--multirun"}.isdisjoint(arguments)
    special = {*configs, *resumes, *filter(_is_board_file, arguments)}
    arguments = [
        argument if argument in special else texts.as_typed(argument, command, sweep=sweep)
        for argument in arguments
    ]
    outputs = [argument for argument in arguments if _is_output(argument, command, sweep=sweep)]
    for several in (resumes, configs, outputs):
        if len(several) > 1:
            raise ConfigError(f"{brief(several[-1])}: given twice")
    if resumes and (excluded := (*configs, *outputs)):
        raise ConfigError(f"{brief(excluded[0])}: cannot be given with resume")
    translated = TranslatedArguments(arguments=(), config=command, sweep=sweep)
    typed: list[str] = []
    outputs = [argument for argument in outputs if not argument.startswith("hydra.run.dir=")]
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
            # Commands that read a run take user code from the run's options.
            if command not in _OF_RUNS or not any(cli_arguments.named_code([argument])):
                more = _options(argument, command, arguments, resumes=bool(resumes))
            translated = replace(translated, arguments=(*translated.arguments, *more))
        value_of_flag = argument in cli_arguments.HYDRA_FLAGS_WITH_VALUE
    cli_arguments.check_overrides(typed, sweep=sweep)
    _take_code(typed, stored=not resumes and command not in _OF_RUNS)
    return translated


def _take_code(typed: Sequence[str], *, stored: bool) -> None:
    """Allow the user code that the arguments ``typed`` name; if ``stored``, make it a choice."""
    for group, name, chosen in cli_arguments.named_code(typed):
        if chosen and stored:
            compose.store_code(group, name)
        user_code.allow([name])


def _options(argument: str, command: str, typed: Sequence[str], *, resumes: bool) -> Sequence[str]:
    """Return Hydra's arguments, none or one, for ``argument`` of ``typed``.

    ConfigError: the command resumes a run (``resumes``) in which the argument cannot change.
    """
    name, _, value = argument.partition("=")
    if argument == "--calibrate":
        return ["calibrate=true"]
    if command == "train" and name == "config":
        files = [value] if Path(value).exists() else value.split(",")
        options = _typed_options(typed)
        names = [options_file.register(file, number, options) for number, file in enumerate(files)]
        return [f"experiment={','.join(names)}"]
    if _is_board_file(argument):
        return [_board(Path(value))]
    if resumes and name in user_code.GROUPS and user_code.is_name(value):
        return [f"{name}._target_={value}"]
    if resumes and not value.startswith("{"):
        if name == "device_plan":
            return ()  # _resume replaces the run's device plan
        if name == "logger":
            return [_loggers(value)]
        if name in options_file.groups():
            raise ConfigError(
                f"{brief(argument)}: resume=DIR continues with the {name} of the run; options "
                f"that may change are device_plan=NAME, logger=NAME, and {_changeable()}"
            )
    is_free = name == _FREE_MAPPING or name.startswith(_FREE)
    return [f"++{argument}" if is_free else argument]


def _changeable() -> str:
    """Return a comma-separated text of the options that may change when a run is resumed."""
    from gnnscale.run.checkpoint.file import FREE_OPTIONS

    groups = {name: f"{name}.*" for name in (*options_file.groups(), "device_plan")}
    return ", ".join(groups.get(name, name) for name in FREE_OPTIONS if name != "resume")


def _is_output(argument: str, command: str, *, sweep: bool) -> bool:
    """Whether an argument names the output folder of a command; with ``sweep``, of its sweep."""
    if sweep and argument.startswith("hydra.sweep.dir="):
        return True
    prefixes = "output=" if sweep else ("output=", "hydra.run.dir=")
    return argument.startswith(prefixes) and run_directory(command) != "."


def _to_output(translated: TranslatedArguments, argument: str) -> TranslatedArguments:
    """Return ``translated`` with the output folder of ``argument``, such as ``output=FOLDER``.

    Hydra's ``hydra.sweep.dir=FOLDER`` also accepts the folder of an earlier sweep. ConfigError:
    there is no folder; or, for a sweep, links or special files are in it.
    """
    name, _, value = argument.partition("=")
    output = value if name == "output" else cli_arguments.directory_of(argument)
    if not output or output == "null":
        raise ConfigError(f"{argument}: expected a folder")
    refuse_address(output, name)
    if translated.sweep:
        for folder in (Path(output), *Path(output).glob("[0-9]*")):
            runs.check_run_directory(folder)
    return replace(translated, output=output, fresh=name == "output")


@cache
def run_directory(command: str, *, sweep: bool = False) -> str:
    """Return the default output folder of a command or of its sweeps; ``.``: there is none."""
    return str(packaged(command)["hydra"]["sweep" if sweep else "run"]["dir"])


def _is_board_file(argument: str) -> bool:
    """Whether an argument names a file that describes an FPGA card."""
    name, _, value = argument.partition("=")
    return name == "board" and Path(value).suffix in (".yaml", ".yml")


def _board(file: Path) -> str:
    """Register the FPGA card that a user's file describes; return the argument that selects it."""
    from gnnscale.planner.fpga_board import board_values

    staged = "file_" + re.sub(r"\W", "_", file.stem, flags=re.ASCII)[:40]
    compose.store(staged, board_values(file), group="board")
    return f"board={staged}"


def _resume(
    translated: TranslatedArguments, directory: Path, typed: Sequence[str]
) -> TranslatedArguments:
    """Return ``translated`` with arguments that resume the run in ``directory``.

    The run's options are registered as the configuration. ``typed`` are the user's arguments.
    """
    if translated.sweep:
        raise ConfigError(f"resume={directory}: cannot be part of a sweep")
    # Imported here so that other commands start quickly.
    from gnnscale.run.config import check_stored_options

    values = runs.read_run(directory, options_file.names(), option="resume")
    check_stored_options(values, directory=directory, overrides=_typed_options(typed))
    for argument in typed:
        name, _, value = argument.partition("=")
        if name == "device_plan" and not value.startswith("{"):
            values["device_plan"] = _device_plan(value)
    if not any(argument.startswith("dataset.store=") for argument in typed):
        dataset = resolved(values).get("dataset")
        store = dataset.get("store") if isinstance(dataset, dict) else None
        store = store if isinstance(store, str) else None
        runs.check_store_of_run(directory / runs.CONFIG_FILE, store)
    compose.store(_RESUMED, values)
    path = escaped(str(directory.resolve()))
    more = ("hydra/job_logging=console", f"resume={texts.quoted(path)}")
    return replace(
        translated, arguments=(*translated.arguments, *more), config=_RESUMED, output=path
    )


def _typed_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the options that ``arguments`` give a value, by dotted name."""
    typed = dict(argument.lstrip("+").split("=", 1) for argument in arguments if "=" in argument)
    # A typed mapping is merged with the run's, so it does not replace all of its options.
    typed = {option: value for option, value in typed.items() if not value.startswith("{")}
    for group, name, _ in cli_arguments.named_code(arguments):
        typed[f"{group}._target_"] = name
    if "device_plan" in typed:
        typed["device_plan.devices"] = typed["device_plan"]
    return typed


def _resumes(argument: str) -> bool:
    return argument.startswith("resume=") and argument not in ("resume=", "resume=null")


def _loggers(value: str) -> str:
    """Return the argument by which a resumed run enables the loggers in ``value`` alone."""
    loggers = [name for name in compose.config_groups()["logger"] if name != "none"]
    enabled = [name.strip() for name in value.removeprefix("[").removesuffix("]").split(",")]
    for name in enabled:
        if name not in ("", "none", *loggers):
            raise ConfigError(f"logger={brief(name)}: no such logger{suggestion(name, loggers)}")
    switches = ",".join(f"{name}:{str(name in enabled).lower()}" for name in loggers)
    return f"++logger={{{switches}}}"


def _device_plan(name: str) -> Any:
    """Return the options of the packaged device plan ``name``, which replace a resumed run's."""
    plans = compose.config_groups()["device_plan"]
    if name not in plans:
        hint = suggestion(name, plans)
        raise ConfigError(f"device_plan={brief(name)}: no such device plan{hint}")
    return packaged(f"device_plan/{name}")
