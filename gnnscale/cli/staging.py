"""``config=`` and ``resume=``: files that give options, turned into what Hydra may compose.

No text of such a file reaches Hydra. Its values are read, checked, and written anew into a staging
directory, which is what Hydra composes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gnnscale.cli.arguments import (
    HYDRA_FLAGS_WITH_VALUE,
    check_flag,
    check_overrides,
    check_text,
)
from gnnscale.config import ConfigError, nearest
from gnnscale.errors import shown
from gnnscale.foreign import check_named_again, foreign_names
from gnnscale.options_file import check_known, check_references, read_yaml, write_yaml
from gnnscale.run_directory import CONFIG_FILE, check_store_of_run, read_run

__all__ = ["CONFIGS", "experiments", "translate"]

CONFIGS = "pkg://gnnscale.configs"

#: Mappings with whatever names the user's code takes: Hydra adds to them without a plus sign.
_FREE = ("model.arguments",)

_GROUP = re.compile(r"(?:override )?/(\w+)", re.ASCII)
_NAME = re.compile(r"\w+", re.ASCII)


def translate(command: str, arguments: Sequence[str], staging: Path) -> list[str]:
    """Turn the arguments of a command into those of Hydra.

    Args:
        command: the command.
        arguments: as typed.
        staging: an empty directory, which must be there while the command runs.

    Raises:
        ConfigError: an argument, or a file that it names, is not allowed.
    """
    check_text(arguments)
    for argument in arguments:
        if not (command == "doctor" and argument == "--calibrate"):
            check_flag(argument, command)
    resumes = [each for each in arguments if command == "train" and _resumes(each)]
    configs = [each for each in arguments if command == "train" and each.startswith("config=")]
    if len(resumes) > 1 or len(configs) > 1:
        raise ConfigError(f"{shown((resumes + configs)[-1])}: given twice")
    if resumes and configs:
        raise ConfigError(f"{shown(configs[0])}: cannot be given with resume")
    translated: list[str] = []
    typed: list[str] = []
    value_of_flag = False
    for argument in arguments:
        name, _, value = argument.partition("=")
        if argument.startswith("-"):
            translated.append("calibrate=true" if argument == "--calibrate" else argument)
        elif argument in configs:
            translated += _configs(value, staging)
        elif argument in resumes:
            translated += _resume(Path(value), arguments, staging)
        elif resumes and name == "device_plan" and not value.startswith("{"):
            translated += _device_plan(value)
        elif resumes and name in _train_options()[0] and not value.startswith("{"):
            raise ConfigError(
                f"{shown(argument)}: resume=DIR goes on with the {name} of the run; of whole "
                "groups, device_plan alone may be another"
            )
        else:
            if "=" in argument or not value_of_flag:
                typed.append(argument)
            translated.append(f"++{argument}" if _is_free(name) else argument)
        value_of_flag = argument in HYDRA_FLAGS_WITH_VALUE
    check_overrides(typed)
    return translated


def experiments() -> list[str]:
    """Return the names of the experiments that ship."""
    folder = resources.files("gnnscale.configs") / "experiment"
    names = [entry.name for entry in folder.iterdir()]
    return sorted(name[: -len(".yaml")] for name in names if name.endswith(".yaml"))


@cache
def _train_options() -> tuple[frozenset[str], frozenset[str]]:
    """The groups of ``train``, and the names of all its options at the top."""
    file = Path(str(resources.files("gnnscale.configs") / "train.yaml"))
    content = _packaged(file)
    groups = {
        name
        for entry in content["defaults"]
        if isinstance(entry, dict)
        for name in entry
        if _NAME.fullmatch(name) and name != "experiment"
    }
    # An algorithm sets options of other groups, and is none itself.
    return frozenset(groups), frozenset({*groups, *content} - {"defaults", "hydra", "algorithm"})


def _packaged(file: Any) -> Any:
    """Return what a file of this package holds."""
    import yaml  # type: ignore[import-untyped]

    return yaml.safe_load(file.read_text())


def _configs(value: str, staging: Path) -> list[str]:
    """Select the experiments that ``config=`` means; a user's own files are staged."""
    names = [_experiment(name, number, staging) for number, name in enumerate(value.split(","))]
    chosen = [f"experiment={','.join(names)}"]
    if any((staging / "experiment").glob("*")):
        chosen.append(f"--config-dir={staging}")
    return chosen


def _experiment(name: str, number: int, staging: Path) -> str:
    known = experiments()
    if name in known:
        return name
    file = Path(name)
    if file.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"config={shown(name)}: no such experiment{nearest(name, known)}")
    try:
        values = read_yaml(file, raw=("defaults",))
    except FileNotFoundError:
        raise ConfigError(f"config={shown(name)}: no such file") from None
    defaults = values.pop("defaults", None)
    check_known(file, values, _train_options()[1])
    check_references(file, values, allowed=True)
    if defaults is not None:
        values = {"defaults": _defaults(file, defaults), **values}
    staged = f"file{number}_" + re.sub(r"\W", "_", file.stem, flags=re.ASCII)[:40]
    (staging / "experiment").mkdir(exist_ok=True)
    write_yaml(staging / "experiment" / f"{staged}.yaml", values, package="_global_")
    return staged


def _defaults(file: Path, entries: Any) -> list[Any]:
    """Check the defaults list of a user's file: groups of options and experiments that ship."""
    groups = _train_options()[0]
    allowed = f"'_self_', 'override /GROUP: NAME' with a group of {', '.join(sorted(groups))}"
    if not isinstance(entries, list):
        raise ConfigError(f"{file}: defaults={shown(entries)}: must be a list of {allowed}")
    for entry in entries:
        if isinstance(entry, str) and (entry == "_self_" or entry in experiments()):
            continue
        pair = (
            next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else ("", "")
        )
        group, name = _GROUP.fullmatch(pair[0]), pair[1]
        if (
            group is None
            or group[1] not in groups
            or not isinstance(name, str)
            or not _NAME.fullmatch(name)
        ):
            raise ConfigError(f"{file}: defaults: {shown(entry)}: allowed are {allowed}")
    return entries


def _resume(directory: Path, arguments: Sequence[str], staging: Path) -> list[str]:
    """Make the options that a run was started with the defaults of this one, in its directory."""
    if {"-m", "--multirun"} & set(arguments):
        raise ConfigError(f"resume={directory}: cannot be part of a sweep")
    values = read_run(directory, _train_options()[1], option="resume")
    if not any(argument.startswith("dataset.store=") for argument in arguments):
        dataset = values.get("dataset")
        store = dataset.get("store") if isinstance(dataset, dict) else None
        check_store_of_run(directory / CONFIG_FILE, store if isinstance(store, str) else None)
    _check_code(directory, values, arguments)
    write_yaml(staging / CONFIG_FILE, values)
    path = str(directory.resolve())
    if "${" in path or "\\" in path:
        raise ConfigError(f"resume={directory}: a path with ${{ or \\ cannot be resumed")
    quoted = "'" + path.replace("'", "\\'") + "'"
    return [
        f"--config-path={staging}",
        f"--config-name={Path(CONFIG_FILE).stem}",
        f"hydra.searchpath=[{CONFIGS}]",
        "hydra/job_logging=gnnscale",
        "hydra/hydra_logging=gnnscale",
        "hydra.job.name=train",
        f"hydra.run.dir={quoted}",
        f"resume={quoted}",
    ]


def _check_code(directory: Path, values: dict[str, Any], arguments: Sequence[str]) -> None:
    """Refuse to resume a run that names code, unless the command line names it again."""
    # Not for commands that resume nothing: they are to be quick.
    from gnnscale.runtime.settings import TrainConfig

    found = foreign_names(values, TrainConfig)
    typed = dict(each.lstrip("+").split("=", 1) for each in arguments if "=" in each)
    check_named_again(
        found,
        {option: typed.get(option) for option in found},
        source=str(directory / CONFIG_FILE),
        command=f"gnnscale train {shlex.quote(f'resume={directory}')}",
    )


def _is_free(name: str) -> bool:
    """Whether an option is a mapping, or in one, whose names are not known before."""
    return any(name == each or name.startswith(f"{each}.") for each in _FREE)


def _resumes(argument: str) -> bool:
    return argument.startswith("resume=") and argument not in ("resume=", "resume=null")


def _device_plan(name: str) -> list[str]:
    """Make the device plan that ``name`` means options; a resumed run has no groups to choose from.

    It is the only group of a run that may change.
    """
    folder = resources.files("gnnscale.configs") / "device_plan"
    known = sorted(each.name[: -len(".yaml")] for each in folder.iterdir())
    if name not in known:
        raise ConfigError(f"device_plan={shown(name)}: no such device plan{nearest(name, known)}")
    # JSON is what Hydra's grammar reads, but for its quoted keys.
    return [
        f"device_plan.{key}=" + re.sub(r'"(\w+)":', r"\1:", json.dumps(value))
        for key, value in _packaged(folder / f"{name}.yaml").items()
        if key != "_target_"
    ]
