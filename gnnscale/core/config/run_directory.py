"""Run directories: creation, locks, log file, and checks of directories from other users."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.core import ConfigError, brief, write_atomically
from gnnscale.core.config.yaml_file import check_known, read_regular, read_yaml
from gnnscale.core.files import refuse_address
from gnnscale.core.locks import LOCK_FILE, sole_writer
from gnnscale.core.process import SharedSetting

if TYPE_CHECKING:
    from omegaconf import DictConfig


#: Options of the run.
CONFIG_FILE = "config.yaml"
#: One line for each epoch.
METRICS_FILE = "metrics.jsonl"
#: One line for each step.
STEPS_FILE = "steps.jsonl"
#: Results of the run.
SUMMARY_FILE = "summary.json"
#: torchrun's ``--rdzv-id`` of a run whose processes torchrun restarts.
TORCHRUN_FILE = "rdzv-id"
#: Maximum bytes of ``TORCHRUN_FILE``.
_MAX_NAME = 1000
_LOG_FILE = "train.log"
#: Folder of the options that Hydra composed.
COMPOSED = ".hydra"
#: Entries that mark a directory as a run directory.
_OF_RUN = (CONFIG_FILE, METRICS_FILE, SUMMARY_FILE, "checkpoints", COMPOSED)
#: Further files that a run and its loggers write into the directory.
_WRITTEN_BY_RUN = (
    *(STEPS_FILE, "trace.json", "report.html", _LOG_FILE, "evaluation.json"),
    *("metrics.csv", "metrics.prom", "tensorboard"),
)
#: Files of a sweep's directory; the folders of its jobs are named by numbers.
_OF_SWEEP = ("multirun.yaml", "results.json", "results.csv", "results.svg", "report.html")

#: Run directory that this process wrote to last.
_in_use: Path | None = None


@contextmanager
def create_run_directory(
    folder: str | Path,
    options: DictConfig,
    hydra: DictConfig,
    *,
    fresh: bool = True,
    option: str = "output",
    wait_s: float = 0.0,
) -> Iterator[Path]:
    """Create and lock a run directory with ``.hydra`` and a log file; yield its absolute path.

    If the block raises before it writes other files, the new files and folders are removed.
    ConfigError: another command still writes to the directory after ``wait_s`` seconds; the
    directory cannot be created; with ``fresh``, it contains files of a run; or without ``fresh``,
    it contains a link, which could lead elsewhere. ``option`` names the directory in errors.
    ``hydra`` are settings as ``compose`` returns them.
    """
    refuse_address(folder, option)
    directory = Path(os.path.abspath(folder))
    if not fresh:
        check_run_directory(directory)
    with (
        removed_on_error(directory) as new_names,
        sole_writer(directory, option=option, wait_s=wait_s),
    ):
        if fresh:
            check_unused(directory, option=option)
            check_output(directory, _WRITTEN_BY_RUN, option=option)
        (directory / COMPOSED).mkdir(exist_ok=True)
        new_names.update((COMPOSED, _LOG_FILE))
        write_composed(directory, options, hydra)
        with logged(directory):
            yield directory


@contextmanager
def create_output_folder(
    folder: str | Path, names: Collection[str], *, option: str = "output", force: bool | None = None
) -> Iterator[Path]:
    """Create a folder for files called ``names``, lock it, and yield its absolute path.

    If the ``with`` block raises, the new files and folders are removed. ConfigError as for
    ``check_output``; or if another command writes to the folder, or it cannot be created. With
    ``force`` existing files called ``names`` are removed first.
    """
    refuse_address(folder, option)
    directory = Path(os.path.abspath(folder))
    with removed_on_error(directory) as new_names, sole_writer(directory, option=option):
        check_output(directory, names, option=option, force=force)
        if force:
            for name in names:
                _remove(directory / name)
        new_names.update(names)
        yield directory


def check_output(
    directory: Path, names: Collection[str], *, option: str = "output", force: bool | None = None
) -> None:
    """Raise ConfigError if writing files called ``names`` would overwrite files or follow a link.

    Args:
        directory: the output folder, which may be missing.
        option: option that names the folder, for errors.
        force: whether existing files called ``names`` may be replaced, provided that the folder
            contains nothing else and no link. None: the command has no such option.
    """
    existing = [name for name in names if os.path.lexists(directory / name)]
    if not existing:
        return
    if not force:
        hint = "name another folder" + (", or add force=true" if force is False else "")
        raise ConfigError(
            f"{option}={directory}: holds {existing[0]}, which would be overwritten; {hint}"
        )
    foreign = sorted(_names(directory) - {*names, LOCK_FILE})
    if foreign:
        raise ConfigError(
            f"{option}={directory}: holds {brief(foreign[0])}, which is not of this command, so "
            "that the folder is not replaced; name another folder, or move that away"
        )
    for folder, folders, files in os.walk(directory):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise ConfigError(f"{path}: neither a file nor a folder; force=true replaces those")


@contextmanager
def removed_on_error(directory: Path) -> Iterator[set[str]]:
    """Create a folder; if the ``with`` block raises, remove new entries and new parents.

    Yields a set to which the caller adds the names that may be removed. If the block created an
    entry that is not in the set, nothing is removed.
    """
    folders = (directory, *directory.parents)
    missing = list(takewhile(lambda folder: not os.path.lexists(folder), folders))
    initial_names, removable = _names(directory), set[str]()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from None
    try:
        yield removable
    except BaseException:
        new_names = _names(directory) - initial_names
        if new_names <= removable:
            for name in new_names:
                _remove(directory / name)
            with suppress(OSError):  # not empty: another command writes there
                for folder in missing:
                    folder.rmdir()
        raise


@contextmanager
def logged(directory: Path) -> Iterator[None]:
    """Log to a file of a run directory during the ``with`` block.

    ``resume_command`` then names this directory. The handlers and levels of the program's own
    logging stay in effect.
    """
    global _in_use
    _in_use = directory
    file = logging.FileHandler(directory / _LOG_FILE)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    try:
        with _written_to(file):
            yield
    finally:
        file.close()


def _begin_to_log() -> Callable[[], None]:
    """Enable INFO records of the package, and return the function that restores its logger.

    Meanwhile the program's handlers get only records of the program's level.
    """
    package = logging.getLogger("gnnscale")
    if package.isEnabledFor(logging.INFO):  # the lines then reach the root logger
        return lambda: None
    level, propagate, forwarding = package.level, package.propagate, _ForwardingHandler()
    package.setLevel(logging.INFO)
    package.propagate = False
    package.addHandler(forwarding)

    def restore() -> None:
        package.removeHandler(forwarding)
        package.setLevel(level)
        package.propagate = propagate

    return restore


_LOGS = SharedSetting(_begin_to_log)
#: Threads that run a training in this process; each run has a log file.
_threads_of_runs: list[int] = []


@contextmanager
def _written_to(file: logging.Handler) -> Iterator[None]:
    """Add the handler ``file`` to the log during the ``with`` block.

    It gets all records but those from the threads of other runs.
    """
    thread = threading.get_ident()
    file.addFilter(lambda record: record.thread == thread or record.thread not in _threads_of_runs)
    with _LOGS.held():
        # At the root logger, the file also gets the program's own lines.
        package = logging.getLogger("gnnscale")
        log = logging.getLogger() if package.propagate else package
        _threads_of_runs.append(thread)
        log.addHandler(file)
        try:
            yield
        finally:
            log.removeHandler(file)
            _threads_of_runs.remove(thread)


class _ForwardingHandler(logging.Handler):
    """Handler of the package's logger that passes records to the root logger's handlers.

    Records below the root logger's level are dropped.
    """

    def emit(self, record: logging.LogRecord) -> None:
        root = logging.getLogger()
        if root.isEnabledFor(record.levelno):
            root.handle(record)


@contextmanager
def locked_run(run: Path, file: Path | None = None) -> Iterator[None]:
    """Lock the run directory ``run`` while a command writes ``file`` into it.

    None: a file of any name. A file outside of the directory needs no lock. A folder without a run
    is not locked, since the command refuses it.
    """
    inside = file is None or Path(os.path.realpath(file)).is_relative_to(os.path.realpath(run))
    is_run = os.path.lexists(run / CONFIG_FILE)
    with sole_writer(run, option="run") if inside and is_run else nullcontext():
        yield


def check_unused(directory: Path, *, option: str = "output", jobs: bool = False) -> None:
    """Raise ConfigError if ``directory`` exists and holds a run, or with ``jobs`` also a sweep."""
    if any(os.path.lexists(directory / name) for name in _OF_RUN):
        raise ConfigError(
            f"{option}={directory}: holds a run; resume={directory} continues it, or name "
            "another folder"
        )
    if jobs and any(name in _OF_SWEEP or name.isdecimal() for name in _names(directory)):
        raise ConfigError(f"{option}={directory}: holds a sweep, name another folder")


def claim(directory: Path, run: str) -> None:
    """Create the directory of a torchrun run, and write the run's ``--rdzv-id``, ``run``, into it.

    Processes that torchrun restarts thus find their run. The first process of each machine calls
    this; the machines may share the directory. ConfigError if it holds another run.
    """
    file = directory / TORCHRUN_FILE
    if _claimed_by(file) == run:
        return
    try:
        check_unused(directory)
    except ConfigError:
        # Another machine may have created the directory in the meantime.
        owner = _claimed_by(file)
        if owner == run:
            return
        if owner is None:
            raise
        raise ConfigError(
            f"output={directory}: holds the run of torchrun --rdzv-id={brief(owner)}, "
            f"got --rdzv-id={run}; name another folder, or pass that id"
        ) from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(file, run, shared=True)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None


def _claimed_by(file: Path) -> str | None:
    """Return the ``--rdzv-id`` in ``file``, which ``claim`` has written.

    None: there is no such file.
    """
    try:
        return read_regular(file, limit=_MAX_NAME).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None


def resume_command() -> str | None:
    """Return the command line that continues this process's run. None: there is no run."""
    if _in_use is None or not (_in_use / CONFIG_FILE).exists():
        return None
    return f"gnnscale train {shlex.quote(f'resume={_in_use}')}"


def check_run_directory(directory: Path) -> None:
    """Raise ConfigError if a run directory has links, which lead elsewhere, or special files."""
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


def read_run(directory: Path, names: Collection[str], *, option: str) -> dict[str, Any]:
    """Return the options in a run directory, whose content is not trusted.

    ConfigError, naming ``option``, if ``directory`` is not a run directory, or ``config.yaml``
    contains anything but values of options called ``names``. A ``${`` is text, which ``escaped``
    keeps from OmegaConf.
    """
    file = directory / CONFIG_FILE
    try:
        check_run_directory(directory)
        values = read_yaml(file)
    except FileNotFoundError:
        raise ConfigError(
            f"{option}={directory}: expected a run directory, it has no {CONFIG_FILE}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{option}={directory}: {error.strerror}") from None
    check_known(file, values, names)
    return values


def check_store_of_run(file: Path, store: str | None) -> None:
    """Raise ConfigError if ``store``, named in ``file``, is no graph store; None: none is named."""
    if store is None:
        return
    try:
        exists = (Path(store).expanduser() / "meta.json").is_file()
    except (RuntimeError, OSError):  # an unknown ~user, or a name that is too long
        exists = False
    if not exists:
        raise ConfigError(
            f"{file}: dataset.store={store}: no such graph store; gnnscale prepare makes "
            "it, or name it on the command line"
        )


def write_composed(directory: Path, options: DictConfig, hydra: DictConfig) -> None:
    """Write the composed options, Hydra's settings and the overrides to ``.hydra``.

    The folder is in ``directory``, its files as Hydra writes them.
    """
    from omegaconf import OmegaConf

    root = OmegaConf.create({"hydra": hydra})
    for node in (root.hydra, root.hydra.runtime):
        OmegaConf.set_readonly(node, False)
    root.hydra.run.dir = root.hydra.runtime.output_dir = str(directory)
    root.hydra.output_subdir = COMPOSED
    folder = directory / COMPOSED
    write_atomically(folder / "config.yaml", OmegaConf.to_yaml(options))
    write_atomically(folder / "hydra.yaml", OmegaConf.to_yaml(root))
    write_atomically(folder / "overrides.yaml", OmegaConf.to_yaml(root.hydra.overrides.task))


def _names(directory: Path) -> set[str]:
    """Return the names in a folder; empty if it does not exist."""
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
