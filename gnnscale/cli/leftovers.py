"""Folders that Hydra makes before a command runs, taken away where the command then did nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

__all__ = ["OutputWatch", "remove_leftovers"]

#: The folders that were not there before, the run directory first; and what Hydra writes into it.
_new_folders: list[Path] = []
_of_hydra: set[str] = set()


class OutputWatch(Callback):
    """Hydra calls this before it makes the directory of a run or of a sweep."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Take note of which folders are missing."""
        _watch(config, "run", {str(config.hydra.output_subdir), f"{config.hydra.job.name}.log"})

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Take note of which folders are missing."""
        _watch(config, "sweep", {"multirun.yaml"})


def _watch(config: DictConfig, mode: str, names: set[str]) -> None:
    _new_folders.clear()
    try:
        directory = Path(os.path.abspath(str(config.hydra[mode].dir)))
    except OmegaConfBaseException:
        return  # Hydra will say so
    for folder in (directory, *directory.parents):
        if os.path.lexists(folder):
            break
        _new_folders.append(folder)
    _of_hydra.clear()
    _of_hydra.update(names)


def remove_leftovers() -> None:
    """Remove the run directory if it is new and holds nothing but what Hydra writes at first."""
    if not _new_folders:
        return
    directory, *parents = _new_folders
    _new_folders.clear()
    try:
        if not set(os.listdir(directory)) <= _of_hydra:
            return
        shutil.rmtree(directory)
        for folder in parents:
            folder.rmdir()  # refused where another run has something in it
    except OSError:
        return
