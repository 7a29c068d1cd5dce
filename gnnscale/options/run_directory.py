"""A run directory that somebody hands in: what it may hold, and the options that it gives."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from gnnscale.core.errors import ConfigError
from gnnscale.options.file import check_known, check_references, read_yaml

__all__ = [
    "CONFIG_FILE",
    "METRICS_FILE",
    "check_run_directory",
    "check_store_of_run",
    "read_run",
]

#: The options of a run, in its directory.
CONFIG_FILE = "config.yaml"
#: A line for each of its epochs.
METRICS_FILE = "metrics.jsonl"


def check_run_directory(directory: Path) -> None:
    """Refuse a run directory in which writing could follow a link to somewhere else.

    Raises:
        ConfigError: something in it, in its checkpoints or in ``.hydra`` is neither a regular file
            nor a folder.
    """
    for folder in (directory, directory / "checkpoints", directory / ".hydra"):
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                raise ConfigError(
                    f"{entry.path}: neither a file nor a folder; a run directory holds no links, "
                    "which could lead out of it"
                )


def read_run(directory: Path, known: Collection[str], *, option: str) -> dict[str, Any]:
    """Return the options that a run was started with; what its directory holds is not trusted.

    Args:
        directory: of the run.
        known: names of options that a run has.
        option: which option names the directory, for errors: ``run`` or ``resume``.

    Raises:
        ConfigError: it is no run directory, or ``config.yaml`` holds something else than values of
            options.
    """
    file = directory / CONFIG_FILE
    try:
        check_run_directory(directory)
        values = read_yaml(file)
    except FileNotFoundError:
        raise ConfigError(
            f"{option}={directory}: not a run directory, it has no {CONFIG_FILE}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{option}={directory}: {error.strerror}") from None
    check_known(file, values, known)
    check_references(file, values, allowed=False)
    return values


def check_store_of_run(file: Path, store: str | None) -> None:
    """Refuse to make a graph store where a run directory alone says so.

    Raises:
        ConfigError: the store that ``file`` names does not exist.
    """
    if store is None:
        return
    try:
        found = (Path(store).expanduser() / "meta.json").is_file()
    except (RuntimeError, OSError):  # ~ of nobody, or a name that is too long
        found = False
    if not found:
        raise ConfigError(
            f"{file}: dataset.store={store}: no such graph store; gnnscale prepare makes "
            "it, or name it on the command line"
        )
