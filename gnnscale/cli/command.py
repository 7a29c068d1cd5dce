"""Which command is meant, and how its arguments reach Hydra."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gnnscale.cli import tasks
from gnnscale.cli.errors import explain
from gnnscale.config import ConfigError, nearest
from gnnscale.hardware import torchrun_rank, usable_cores

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "prepare": "raw files to a graph store",
    "train": "train a model, by default a small one on a synthetic graph",
    "evaluate": "measure the best checkpoint of a run: run=DIR",
    "simulate": "predict training on a platform, without training",
    "doctor": "what was found on this machine, what each feature still needs",
}

_USAGE = """\
usage: gnnscale COMMAND [OPTION=VALUE ...] [-m]

{commands}

gnnscale COMMAND --help           the options of a command
gnnscale COMMAND --cfg job        its configuration, not run
gnnscale train config=NAME        a shipped experiment, or your own: config=FILE.yaml
gnnscale train resume=DIR         continue a run
gnnscale train -m seed=0,1,2      a sweep, with a table of results
gnnscale doctor --calibrate       measure this machine for the performance model
gnnscale --shell-completion install=bash
gnnscale --version
"""

_CONFIGS = "pkg://gnnscale.configs"
#: Flags of Hydra's own parser, without and with a value; anything else with dashes is a mistake.
HYDRA_FLAGS = (
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r"),
    *("--multirun", "-m", "--shell-completion", "-sc"),
)
HYDRA_FLAGS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"),
    *("--config-dir", "-cd", "--experimental-rerun", "--info", "-i"),
)


def main() -> int:
    """Run ``gnnscale`` with the arguments of the process and return its exit status."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        return _complete(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE.format(commands=_command_list()), end="")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"gnnscale {metadata.version('gnnscale')}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        known = f"; commands are {', '.join(COMMANDS)}"
        print(f"{command}: unknown command{nearest(command, COMMANDS) or known}", file=sys.stderr)
        return 2
    status = _run(command, arguments[1:])
    if torchrun_rank() is not None:
        _leave(status)
    return status


def _leave(status: int) -> NoReturn:
    """End the process without taking the interpreter down.

    A thread of gloo may still let go of a tensor; without an interpreter it would abort.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _command_list() -> str:
    return "\n".join(f"  {name:<10}{purpose}" for name, purpose in COMMANDS.items())


def _run(command: str, arguments: Sequence[str]) -> int:
    """Run a command, and turn what the user can mend into one line and an exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    # A shell starts background jobs with SIGINT ignored; whoever sends one means it.
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with _translated(command, arguments) as (translated, staging):
            _hydra(command, translated, staging)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(message, file=sys.stderr)
        return 1
    return 0


def _interrupt(number: int, frame: object) -> None:
    """End in order: workers are stopped, and the summary says that the run was."""
    raise KeyboardInterrupt


def _hydra(command: str, arguments: Sequence[str], staging: str) -> None:
    import hydra
    from omegaconf import OmegaConf

    failures: list[Exception] = []
    sweep = False

    def job(options: DictConfig) -> None:
        # Hydra would print a line of its own about an exception, and drop the jobs behind it.
        nonlocal sweep
        sweep = tasks.in_sweep()
        try:
            tasks.TASKS[command](options)
        except Exception as error:
            failures.append(error)
            if sweep:
                print(explain(error) or traceback.format_exc(), file=sys.stderr)

    if torchrun_rank():
        # Only the first of torchrun's processes writes; the others need no run directory.
        arguments = [*arguments, f"hydra.run.dir='{staging}'", "hydra.output_subdir=null"]
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    # Hydra then lets its own exceptions through, which _run explains.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["gnnscale", *arguments]
    hydra.main(version_base="1.3", config_path=_CONFIGS, config_name=command)(job)()
    if failures and sweep:
        raise SystemExit(1)
    if failures:
        raise failures[0]


@contextmanager
def _translated(command: str, arguments: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Turn ``config=`` and ``resume=`` into what Hydra knows, for as long as the command runs.

    Yields:
        The arguments, and a directory that goes away at the end.
    """
    with tempfile.TemporaryDirectory(prefix="gnnscale-") as staging:
        translated: list[str] = []
        resumes = command == "train" and any(map(_resumes, arguments))
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if command == "doctor" and argument == "--calibrate":
                translated.append("calibrate=true")
                continue
            _check_flag(argument, command)
            if command == "train" and name == "config" and equals:
                names = [_experiment(each, Path(staging)) for each in value.split(",")]
                translated.append(f"experiment={','.join(names)}")
            elif command == "train" and _resumes(argument):
                translated += _resume(Path(value), arguments)
            elif resumes and name == "device_plan" and not value.startswith("{"):
                translated += _device_plan(value)
            else:
                translated.append(argument)
        if any((Path(staging) / "experiment").glob("*")):
            translated += ["--config-dir", staging]
        yield _flags_first(translated), staging


def _flags_first(arguments: Sequence[str]) -> list[str]:
    """Move flags before options; Hydra's parser takes options in one piece only."""
    flags: list[str] = []
    options: list[str] = []
    awaits_value = False
    for argument in arguments:
        is_flag = argument.startswith("-")
        (flags if is_flag or (awaits_value and "=" not in argument) else options).append(argument)
        awaits_value = argument in HYDRA_FLAGS_WITH_VALUE
    return [*flags, *options]


def _check_flag(argument: str, command: str) -> None:
    if not argument.startswith("-") or argument in HYDRA_FLAGS:
        return
    name, equals, _ = argument.partition("=")
    if name in HYDRA_FLAGS_WITH_VALUE:
        return
    if equals:
        raise ConfigError(f"{argument}: options have no dashes, as in {argument.lstrip('-')}")
    raise ConfigError(f"{argument}: unknown flag, see gnnscale {command} --help")


def _experiment(name: str, staging: Path) -> str:
    """Return the experiment that ``config=name`` means, copying a user's own file to staging."""
    known = _experiments()
    if name in known:
        return name
    file = Path(name)
    if file.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"config={name}: no such experiment{nearest(name, known)}")
    if not file.is_file():
        raise ConfigError(f"config={name}: no such file")
    text = _yaml(file)
    if not re.search(r"^#\s*@package\b", text, flags=re.MULTILINE):
        text = f"# @package _global_\n{text}"
    staged = "file_" + re.sub(r"\W", "_", file.stem)
    (staging / "experiment").mkdir(exist_ok=True)
    (staging / "experiment" / f"{staged}.yaml").write_text(text)
    return staged


def _yaml(file: Path) -> str:
    """Return the text of a YAML file, after a look at whether it is one."""
    import yaml  # type: ignore[import-untyped]

    try:
        text = file.read_text()
        yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{file}: not valid YAML in line {line} ({error.problem})") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: cannot be read as YAML ({error})") from None
    return text


def _experiments() -> list[str]:
    folder = resources.files("gnnscale.configs") / "experiment"
    names = [entry.name for entry in folder.iterdir()]
    return sorted(name[: -len(".yaml")] for name in names if name.endswith(".yaml"))


def _resume(directory: Path, arguments: Sequence[str]) -> list[str]:
    """Make the options that a run was started with the defaults of this one, in its directory."""
    if {"-m", "--multirun"} & set(arguments):
        raise ConfigError(f"resume={directory}: cannot be part of a sweep")
    if not (directory / "config.yaml").is_file():
        raise ConfigError(f"resume={directory}: not a run directory, it has no config.yaml")
    quoted = "'" + str(directory.resolve()).replace("'", "\\'") + "'"
    return [
        *("--config-path", str(directory.resolve()), "--config-name", "config"),
        f"hydra.searchpath=[{_CONFIGS}]",
        "hydra/job_logging=gnnscale",
        "hydra.job.name=train",
        f"hydra.run.dir={quoted}",
        f"resume={quoted}",
    ]


def _resumes(argument: str) -> bool:
    return argument.startswith("resume=") and argument not in ("resume=", "resume=null")


def _device_plan(name: str) -> list[str]:
    """Make the device plan that ``name`` means options; a resumed run has no groups to choose from.

    It is the only group of a run that may change.
    """
    import yaml

    folder = resources.files("gnnscale.configs") / "device_plan"
    known = sorted(each.name[: -len(".yaml")] for each in folder.iterdir())
    if name not in known:
        raise ConfigError(f"device_plan={name}: no such device plan{nearest(name, known)}")
    values = yaml.safe_load((folder / f"{name}.yaml").read_text())
    # JSON is what Hydra's grammar reads, but for its quoted keys.
    return [
        f"device_plan.{key}=" + re.sub(r'"(\w+)":', r"\1:", json.dumps(value))
        for key, value in values.items()
        if key != "_target_"
    ]


def _complete(arguments: Sequence[str]) -> int:
    """Complete ``gnnscale COMMAND OPTION``; Hydra completes options, given their command."""
    line = os.environ.get("COMP_LINE", "")
    if not arguments[1:2] or not arguments[1].startswith("query="):
        return _run("train", arguments)
    words = line.split()
    command = words[1] if len(words) > 1 else ""
    if command not in COMMANDS or (len(words) == 2 and not line.endswith(" ")):
        print(" ".join(name for name in COMMANDS if name.startswith(command)))
        return 0
    last = "" if line.endswith(" ") else words[-1]
    if command == "train" and last.startswith("config="):
        print(" ".join(f"config={name}" for name in _experiments()))
        return 0
    os.environ["COMP_LINE"] = line.replace(command, "", 1)
    return _run(command, arguments)
