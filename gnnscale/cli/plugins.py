"""Launchers and sweepers of Hydra: which may be chosen, what they may be told, what to install."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gnnscale.core.errors import ConfigError, shown

__all__ = [
    "PLUGIN_GROUPS",
    "check_hydra_option",
    "check_search",
    "defaults_of_search",
    "explain_missing_plugin",
    "lets_jobs_stop",
]

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
    """Refuse an option of Hydra that names files or code, or that a command sets itself.

    Args:
        argument: as typed.
        key: its name, which begins with ``hydra``.

    Raises:
        ConfigError: naming the option, and those that are allowed.
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
    """Refuse a search by Optuna that does not say what is better.

    Args:
        arguments: options as they were typed.

    Raises:
        ConfigError: naming the option.
    """
    given = dict(argument.lstrip("+").split("=", 1) for argument in arguments if "=" in argument)
    if given.get("hydra/sweeper") != "optuna":
        return
    if "hydra.sweeper.direction" not in given:
        raise ConfigError(
            "hydra/sweeper=optuna: say which validation metric is better, "
            "hydra.sweeper.direction=maximize (accuracy, F1) or minimize (an error)"
        )


def defaults_of_search(arguments: Sequence[str]) -> list[str]:
    """Return options that a search has here unless others are typed: failed jobs do not end it."""
    option = "hydra.sweeper.max_failure_rate="
    if "hydra/sweeper=optuna" not in arguments or any(
        each.startswith(option) for each in arguments
    ):
        return []
    return [f"{option}1.0"]


def explain_missing_plugin(group: str, name: str) -> str | None:
    """Return what to install for a plugin that is not there; None for one that nobody knows."""
    package = _PACKAGES.get((group, name))
    return None if package is None else f"{group}={name}: not installed, pip install {package}"


def lets_jobs_stop(command: str, arguments: Sequence[str]) -> bool:
    """Return whether a job of a sweep that fails is to be Hydra's to judge.

    It is where a sweeper was told how many may fail; and where a launcher runs jobs in other
    processes, and no ``summary.json`` tells this one how they ended.
    """
    return any(each.startswith(_MAX_FAILURE_RATE) for each in arguments) or (
        command != "train" and any(each.startswith("hydra/launcher=") for each in arguments)
    )
