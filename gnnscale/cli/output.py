"""The folder that a command writes into: made once its options are accepted, and not before."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from gnnscale.core.errors import ConfigError, shown
from gnnscale.core.files import write_atomically
from gnnscale.options.run_directory import CONFIG_FILE

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["Before", "Output", "check_unused", "resolved_now", "resume_command", "taken_back"]

#: What Hydra composed for a run, in its directory.
_COMPOSED = ".hydra"
#: What a run directory has as soon as there is a run in it, and a sweep's folder once it is over.
_OF_RUN = (CONFIG_FILE, "summary.json", "checkpoints", _COMPOSED)
_OF_SWEEP = ("multirun.yaml", "results.json")

#: The run directory that the running command writes into.
_in_use: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a command writes.

    Attributes:
        folder: as it was asked for; it may refer to options. None where Hydra has made it: for
            jobs of a sweep, and for processes of torchrun other than the first.
        fresh: refuse a folder that holds a run.
        log_file: name of a file there for what is logged; None for none.
    """

    folder: str | None = None
    fresh: bool = True
    log_file: str | None = None

    @contextmanager
    def made(self, options: DictConfig) -> Iterator[Path]:
        """Make the folder, with ``.hydra`` and the log file in it.

        Where the ``with`` block raises before anything else is in there, all that is removed again.

        Args:
            options: those of the command, as Hydra composed them.

        Yields:
            The folder, absolute.

        Raises:
            ConfigError: it holds a run, or refers to an option that there is not.
            OSError: it cannot be made.
        """
        from hydra.core.hydra_config import HydraConfig

        global _in_use
        if self.folder is None:
            _in_use = Path(HydraConfig.get().runtime.output_dir)
            yield _in_use
            return
        directory = Path(os.path.abspath(_resolved(self.folder, options)))
        if self.fresh:
            check_unused(directory)
        before = Before(directory)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            # Of two commands at a time, one makes it.
            (directory / _COMPOSED).mkdir(exist_ok=not self.fresh)
        except FileExistsError:
            check_unused(directory)
            raise
        with taken_back(before, _COMPOSED, self.log_file):
            _write_composed(directory, options)
            _in_use = directory
            with _logged(directory, self.log_file):
                yield directory


class Before:
    """What there was of a folder before a command wrote into it."""

    def __init__(self, directory: Path) -> None:
        """Look at ``directory``, which may be missing."""
        self.directory = directory
        around = (directory, *directory.parents)
        #: Folders that are not there, the innermost first.
        self.missing = list(takewhile(lambda each: not os.path.lexists(each), around))
        self.names = _names(directory)


@contextmanager
def taken_back(before: Before, *names: str | None) -> Iterator[None]:
    """Remove what was made in a folder where the ``with`` block raises, if it is not more.

    Args:
        before: the folder; where it was missing, it is removed as well, with the new folders
            around it.
        names: what may be removed from it, unless it was there before.
    """
    try:
        yield
    except BaseException:
        made = _names(before.directory) - before.names
        if made <= set(names):
            for name in made:
                _remove(before.directory / name)
            with suppress(OSError):  # another command has something in it
                for folder in before.missing:
                    folder.rmdir()
        raise


def check_unused(directory: Path, *, jobs: bool = False) -> None:
    """Refuse a folder that holds a run already.

    Args:
        directory: what ``output`` names, may be missing.
        jobs: it is for a sweep, whose jobs have a folder each in there.

    Raises:
        ConfigError: it holds a run, or jobs of a sweep.
    """
    if any(os.path.lexists(directory / name) for name in _OF_RUN):
        raise ConfigError(
            f"output={directory}: holds a run; resume={directory} goes on with it, or name "
            "another folder"
        )
    if jobs and any(os.path.lexists(directory / name) for name in (*_OF_SWEEP, "0")):
        raise ConfigError(f"output={directory}: holds a sweep, name another folder")


def resume_command() -> str | None:
    """Return what to type to go on with the run of this command; None where nothing can be."""
    if _in_use is None or not (_in_use / CONFIG_FILE).exists():
        return None
    return f"gnnscale train {shlex.quote(f'resume={_in_use}')}"


def resolved_now(folder: str) -> str | None:
    """Return the name of a folder with the time in it; None where it refers to options."""
    from hydra.core.utils import setup_globals
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    setup_globals()
    try:
        return str(OmegaConf.create({"folder": folder}).folder)
    except OmegaConfBaseException:
        return None


def _resolved(folder: str, options: DictConfig) -> str:
    """Replace references to options in the name of a folder."""
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    if "${" not in folder:
        return folder
    node = OmegaConf.create({"output": folder})
    merged = OmegaConf.merge(options.copy(), {})
    try:
        with open_dict(merged):
            return str(OmegaConf.merge(merged, node).output)
    except OmegaConfBaseException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"output={shown(folder)}: {shown(reason)}") from None


def _write_composed(directory: Path, options: DictConfig) -> None:
    """Write what Hydra composed as it does itself: the options, its own, and those typed."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    hydra = OmegaConf.create({"hydra": HydraConfig.get()})
    for node in (hydra.hydra, hydra.hydra.runtime):
        OmegaConf.set_readonly(node, False)
    hydra.hydra.run.dir = hydra.hydra.runtime.output_dir = str(directory)
    hydra.hydra.output_subdir = _COMPOSED
    folder = directory / _COMPOSED
    write_atomically(folder / "config.yaml", OmegaConf.to_yaml(options))
    write_atomically(folder / "hydra.yaml", OmegaConf.to_yaml(hydra))
    overrides = OmegaConf.to_yaml(hydra.hydra.overrides.task)
    write_atomically(folder / "overrides.yaml", overrides)


@contextmanager
def _logged(directory: Path, name: str | None) -> Iterator[None]:
    """Log into a file as well, in the form that jobs of a sweep do."""
    if name is None:
        yield
        return
    import yaml  # type: ignore[import-untyped]

    file = resources.files("gnnscale.configs") / "hydra" / "job_logging" / "gnnscale.yaml"
    dated = yaml.safe_load(file.read_text())["formatters"]["dated"]["format"]
    handler = logging.FileHandler(directory / name)
    handler.setFormatter(logging.Formatter(dated))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _names(directory: Path) -> set[str]:
    """Return the names in a folder, none where there is none."""
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def _remove(path: Path) -> None:
    """Remove a file or a folder that this command has made."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
