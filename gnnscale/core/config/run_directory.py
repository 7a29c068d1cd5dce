"""Run directories: made once options are accepted, and checked when somebody hands one in."""

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

from gnnscale.core import ConfigError, shown, write_atomically
from gnnscale.core.config.yaml_file import check_known, check_references, read_regular, read_yaml
from gnnscale.core.locks import LOCK_FILE, sole_writer
from gnnscale.core.shared_setting import SharedSetting

if TYPE_CHECKING:
    from omegaconf import DictConfig


#: The options of a run, in its directory.
CONFIG_FILE = "config.yaml"
#: A line for each of its epochs.
METRICS_FILE = "metrics.jsonl"
#: A line for each of its steps.
STEPS_FILE = "steps.jsonl"
#: What came of it.
SUMMARY_FILE = "summary.json"
#: The name of torchrun's run, if torchrun starts its processes again.
TORCHRUN_FILE = "rdzv-id"
#: Bytes of such a name.
_MAX_NAME = 1000
_LOG_FILE = "train.log"
#: What Hydra composed for a run.
COMPOSED = ".hydra"
#: What a run directory has as soon as there is a run in it.
_OF_RUN = (CONFIG_FILE, METRICS_FILE, SUMMARY_FILE, "checkpoints", COMPOSED)
#: What a run writes at the top of its directory beside that, and what its loggers do.
_WRITTEN_BY_RUN = (
    *(STEPS_FILE, "trace.json", "report.html", _LOG_FILE, "evaluation.json"),
    *("metrics.csv", "tensorboard"),
)
#: What a sweep writes beside the folders of its jobs, whose names are numbers.
_OF_SWEEP = ("multirun.yaml", "results.json", "results.csv", "results.svg", "report.html")

#: The run directory that this process wrote into last.
_in_use: Path | None = None


@contextmanager
def made_directory(
    folder: str | Path,
    options: DictConfig,
    hydra: DictConfig,
    *,
    fresh: bool = True,
    option: str = "output",
    wait_s: float = 0.0,
) -> Iterator[Path]:
    """Make a run directory, with ``.hydra`` and the log file in it, and yield its absolute path.

    No other command writes there during the ``with`` block. If the block raises before anything
    else is in there, all that is removed again.

    Args:
        folder: the run directory.
        options: what Hydra composed.
        hydra: Hydra's own options, as ``compose`` returns them.
        fresh: refuse a directory that holds a run, or a file of a run's name.
        option: names the folder in errors.
        wait_s: seconds to wait for another command that writes there.

    Raises:
        ConfigError: another command writes there; or the directory holds a run, which ``fresh``
            refuses, or a link, which could lead out of it; or it cannot be made.
    """
    directory = Path(os.path.abspath(folder))
    if not fresh:
        check_run_directory(directory)
    with taken_back(directory) as mine, sole_writer(directory, option=option, wait_s=wait_s):
        if fresh:
            check_unused(directory, option=option)
            check_output(directory, _WRITTEN_BY_RUN, option=option)
        (directory / COMPOSED).mkdir(exist_ok=True)
        mine.update((COMPOSED, _LOG_FILE))
        write_composed(directory, options, hydra)
        with logged(directory):
            yield directory


@contextmanager
def made_output(
    folder: str | Path, names: Collection[str], *, option: str = "output", force: bool | None = None
) -> Iterator[Path]:
    """Make a folder for files with these ``names``, and yield its absolute path.

    If the ``with`` block raises, all that it has made is removed again. ``option`` names the folder
    in errors; ``force`` first removes files of these names that are there. No other command writes
    there during the block.

    Raises:
        ConfigError: as ``check_output``; or another command writes there, or the folder cannot be
            made.
    """
    directory = Path(os.path.abspath(folder))
    with taken_back(directory) as mine, sole_writer(directory, option=option):
        check_output(directory, names, option=option, force=force)
        if force:
            for name in names:
                _remove(directory / name)
        mine.update(names)
        yield directory


def check_output(
    directory: Path, names: Collection[str], *, option: str = "output", force: bool | None = None
) -> None:
    """Check that writing files with these ``names`` replaces nothing, and follows no link.

    Args:
        directory: it may be missing.
        option: names it in errors.
        force: whether files of these names may be replaced if nothing else is in there; None if
            the command has no such option.

    Raises:
        ConfigError: the directory holds one of the names; or with ``force`` anything else beside
            them, or a link.
    """
    held = [name for name in names if os.path.lexists(directory / name)]
    if not held:
        return
    other = "name another folder" + (", or add force=true" if force is False else "")
    if not force:
        raise ConfigError(
            f"{option}={directory}: holds {held[0]}, which would be overwritten; {other}"
        )
    others = sorted(_names(directory) - {*names, LOCK_FILE})
    if others:
        raise ConfigError(
            f"{option}={directory}: holds {shown(others[0])}, which is not of this command, so "
            "that the folder is not replaced; name another folder, or move that away"
        )
    for folder, folders, files in os.walk(directory):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise ConfigError(f"{path}: neither a file nor a folder; force=true replaces those")


@contextmanager
def taken_back(directory: Path) -> Iterator[set[str]]:
    """Make a folder; if the ``with`` block raises, remove what was made, new parents included.

    Yields the names of what may be removed unless it existed, for the caller to add to; if more
    was made, all of it stays. A folder that cannot be made is a ConfigError.
    """
    around = (directory, *directory.parents)
    missing = list(takewhile(lambda each: not os.path.lexists(each), around))
    before, mine = _names(directory), set[str]()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from None
    try:
        yield mine
    except BaseException:
        made = _names(directory) - before
        if made <= mine:
            for name in made:
                _remove(directory / name)
            with suppress(OSError):  # another command has something in it
                for folder in missing:
                    folder.rmdir()
        raise


@contextmanager
def logged(directory: Path) -> Iterator[None]:
    """Log into a file of a run directory as well, and keep in mind that it is in use.

    A program that does not ask for what is logged gets no more of it than before.
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
    """Let the package log lines of the level INFO, and return what undoes it.

    If a program asks for them, they reach the root logger as they are.
    """
    package = logging.getLogger("gnnscale")
    if package.isEnabledFor(logging.INFO):
        return lambda: None
    level, propagate, onwards = package.level, package.propagate, _ForwardingHandler()
    package.setLevel(logging.INFO)
    package.propagate = False
    package.addHandler(onwards)

    def restore() -> None:
        package.removeHandler(onwards)
        package.setLevel(level)
        package.propagate = propagate

    return restore


_LOGS = SharedSetting(_begin_to_log)
#: Threads that wait for a run each, which has its log file.
_threads_of_runs: list[int] = []


@contextmanager
def _written_to(file: logging.Handler) -> Iterator[None]:
    """Log to ``file`` in a ``with`` block, but not what the thread of another run logs."""
    thread = threading.get_ident()
    file.addFilter(lambda record: record.thread == thread or record.thread not in _threads_of_runs)
    with _LOGS.held():
        # Above it, a program's own lines are in the file as well, if it asks for ours.
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
    """Hands to the program's own handlers what they ask for."""

    def emit(self, record: logging.LogRecord) -> None:
        root = logging.getLogger()
        if root.isEnabledFor(record.levelno):
            root.handle(record)


@contextmanager
def writing_into_run(run: Path, file: Path | None = None) -> Iterator[None]:
    """Lock a run directory while a command writes ``file`` into it.

    A file that lies elsewhere needs no lock. A folder without a run is not locked: its reader
    refuses it.

    Args:
        run: the run directory.
        file: the file to write; None: one in the run directory.

    Raises:
        ConfigError: another command writes there, as one that trains the run.
    """
    inside = file is None or Path(os.path.realpath(file)).is_relative_to(os.path.realpath(run))
    is_run = os.path.lexists(run / CONFIG_FILE)
    with sole_writer(run, option="run") if inside and is_run else nullcontext():
        yield


def check_unused(directory: Path, *, option: str = "output", jobs: bool = False) -> None:
    """Raise ConfigError if ``directory``, which may be missing, holds a run.

    ``option`` names it in errors; ``jobs`` means that it is for a sweep, whose jobs
    have a folder each in there.
    """
    if any(os.path.lexists(directory / name) for name in _OF_RUN):
        raise ConfigError(
            f"{option}={directory}: holds a run; resume={directory} goes on with it, or name "
            "another folder"
        )
    if jobs and any(name in _OF_SWEEP or name.isdecimal() for name in _names(directory)):
        raise ConfigError(f"{option}={directory}: holds a sweep, name another folder")


def claim(directory: Path, run: str) -> None:
    """Make a directory that of torchrun's ``run``, whose processes may be started again.

    Every machine's first process calls this; they may share the directory.

    Raises:
        ConfigError: it holds another run, or cannot be made.
    """
    file = directory / TORCHRUN_FILE
    if _claimed_by(file) == run:
        return
    try:
        check_unused(directory)
    except ConfigError:
        # Another machine may have made it meanwhile.
        owner = _claimed_by(file)
        if owner == run:
            return
        if owner is None:
            raise
        raise ConfigError(
            f"output={directory}: holds the run that torchrun --rdzv-id={shown(owner)} has begun, "
            f"and this is --rdzv-id={run}; name another folder, or give that name"
        ) from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(file, run, shared=True)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None


def _claimed_by(file: Path) -> str | None:
    """Return whose directory it is; None if it is nobody's."""
    try:
        return read_regular(file, limit=_MAX_NAME).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None


def resume_command() -> str | None:
    """Return what to type to go on with the run of this process; None if nothing can be."""
    if _in_use is None or not (_in_use / CONFIG_FILE).exists():
        return None
    return f"gnnscale train {shlex.quote(f'resume={_in_use}')}"


def check_run_directory(directory: Path) -> None:
    """Raise ConfigError for a run directory in which writing could follow a link to elsewhere."""
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

    ``known`` are the names of options, ``option`` names the directory in errors.

    Raises:
        ConfigError: it is no run directory, or ``config.yaml`` holds other than values of options.
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
    """Raise ConfigError if the store that ``file`` names does not exist: a run makes none."""
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


def write_composed(directory: Path, options: DictConfig, hydra: DictConfig) -> None:
    """Write what Hydra composed as it does itself: the options, its own, and those typed."""
    from omegaconf import OmegaConf

    own = OmegaConf.create({"hydra": hydra})
    for node in (own.hydra, own.hydra.runtime):
        OmegaConf.set_readonly(node, False)
    own.hydra.run.dir = own.hydra.runtime.output_dir = str(directory)
    own.hydra.output_subdir = COMPOSED
    folder = directory / COMPOSED
    write_atomically(folder / "config.yaml", OmegaConf.to_yaml(options))
    write_atomically(folder / "hydra.yaml", OmegaConf.to_yaml(own))
    write_atomically(folder / "overrides.yaml", OmegaConf.to_yaml(own.hydra.overrides.task))


def _names(directory: Path) -> set[str]:
    """Return the names in a folder, none if there is none."""
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def _remove(path: Path) -> None:
    """Remove a file or a folder that this process has made."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
