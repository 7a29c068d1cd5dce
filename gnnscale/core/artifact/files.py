"""Regular files, directories that appear atomically, and checks of room before it is filled."""

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path

from gnnscale.core import (
    ConfigError,
    GraphError,
    errors,
    hardware,
    home,
    locks,
    shown,
    unfinished_folder,
)
from gnnscale.core.files import expanded

_MAX_BYTES = 2 << 30
#: Longer than the two renames take by which a directory takes the place of another.
_PUBLISHING_S = 0.05


def file_bytes(path: Path) -> int:
    """Return the size of a regular file.

    Raises:
        GraphError: it is missing, or a folder, a pipe or a device, which might never end.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise GraphError(f"{path}: missing") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise GraphError(f"{path}: cannot be read ({_reason(error)})") from None
    if not stat.S_ISREG(found.st_mode):
        raise GraphError(f"{path}: not a regular file")
    return found.st_size


def open_regular(path: Path) -> FileIO:
    """Open a regular file to read bytes, unbuffered, without waiting.

    Raises:
        GraphError: it is missing, cannot be read, or is a folder, a pipe or a device.
    """
    file_bytes(path)
    try:
        # It may have become a pipe since: opening one waits for who writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({_reason(error)})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GraphError(f"{path}: not a regular file")
    return FileIO(descriptor)


def total_bytes(paths: list[Path]) -> int:
    """Return the sum of the sizes of regular files."""
    return sum(map(file_bytes, paths))


def read_file(path: Path) -> bytes:
    """Return the content of a file that has to fit in memory as a whole.

    Raises:
        GraphError: it cannot be read, or has more than 2 GiB.
    """
    size = file_bytes(path)
    if size > _MAX_BYTES:
        raise GraphError(f"{path}: {size} bytes, allowed are {_MAX_BYTES}")
    try:
        with open_regular(path) as stream, BufferedReader(stream) as whole:
            return whole.read(size)  # not read(): the file may grow for ever
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({_reason(error)})") from None


@contextmanager
def readable(source: object) -> Iterator[None]:
    """Turn whatever zipfile, gzip and zlib raise on damaged input into one line."""
    try:
        yield
    except GraphError:
        raise
    except Exception as error:
        raise GraphError(
            f"{source}: cannot be read ({str(error) or type(error).__name__})"
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def new_folder(path: Path, *, replace: Callable[[], bool] | None = None) -> Iterator[Path | None]:
    """Fill a temporary sibling of ``path`` in the ``with`` block, then rename it to ``path``.

    The sibling is locked while it is filled. A second process waits for the first, and what a
    killed process left is cleared. If the block is left by an exception, Ctrl-C included,
    nothing is left. An empty directory counts as none.

    ``replace`` decides whether a directory that exists is filled again. It is called once more
    after the sibling is locked, since another process may just have done so. Yields the temporary
    directory; None if ``path`` exists and stays.

    Raises:
        GraphError: the directory cannot be written, for instance because the disk is full.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _stays_unlocked(path, replace):
            yield None
            return
        lock = _lock(partial)
        try:
            with unfinished_folder(partial):
                if _stays(path, replace):
                    shutil.rmtree(partial, ignore_errors=True)
                    yield None
                    return
                yield partial
                _publish(partial, path)
        finally:
            # Once it is published, a sibling of this name is another process's.
            locks.release(lock)
    except OSError as error:
        if error.errno in _FULL:
            free = shutil.disk_usage(path.parent).free
            raise GraphError(
                f"{path}: cannot be written, {os.strerror(error.errno)} ({free >> 20} MiB free)"
            ) from None
        raise GraphError(f"{error.filename or path}: {error.strerror or error}") from None


def check_no_link(folder: Path) -> None:
    """Raise GraphError for a link in place of a folder that is written into."""
    if folder.is_symlink():
        raise GraphError(f"{folder}: a link, and nothing is written through it; remove it")


def check_place(store: str, *, option: str = "dataset.store") -> None:
    """Raise ConfigError for a directory that cannot be the place of a store or another artefact.

    Such are the file system's root, the home directory, and the folders of all artefacts of a kind.
    """
    path = store_place(store, option=option)
    taken = {
        "the file system's root": Path("/"),
        "the home directory": Path("~").expanduser(),
        "GNNSCALE_HOME": home(),
        "where all stores go": home() / "graphs",
        "where all partitions go": home() / "partitions",
        "where all cache plans go": home() / "cache_plans",
        "where downloads go": home() / "raw",
    }
    for what, place in taken.items():
        if path == Path(os.path.realpath(place)):
            raise ConfigError(f"{option}={store}: is {what}, name a directory of its own")


def store_place(store: str, *, option: str = "dataset.store") -> Path:
    """Return the directory that ``option`` means, links followed."""
    try:
        return Path(os.path.realpath(expanded(store)))
    except (RuntimeError, OSError, ValueError) as error:  # an unknown ~user, a zero byte
        raise ConfigError(f"{option}={shown(store)}: not a path ({error})") from None


def _stays(path: Path, replace: Callable[[], bool] | None) -> bool:
    """Whether ``path`` exists and is to be left as it is."""
    try:  # one call: between two of them another process may put a new directory there
        empty = not os.listdir(path)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise GraphError(f"{path}: is no directory") from None
    return not empty and (replace is None or not replace())


def _stays_unlocked(path: Path, replace: Callable[[], bool] | None) -> bool:
    """Whether ``path`` stays as it is, which needs no lock, and no right to write beside it."""
    try:
        return _stays(path, replace)
    except GraphError:
        # Another process may have put a new directory there while this one looked.
        time.sleep(_PUBLISHING_S)
        return _stays(path, replace)


def _lock(partial: Path) -> int:
    """Make ``partial`` an empty directory that this process holds."""
    while True:
        # Not exist_ok: it raises if another process renames the directory at this moment.
        with suppress(FileExistsError):
            partial.mkdir()
        try:
            # Not through a link, which somebody else may have laid: the directory is emptied.
            lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # another process has just renamed or removed it
            continue
        locks.lock(lock, partial)
        # The process that held it before has renamed or removed it, or was killed and left it here.
        if locks.is_at(partial, lock):
            _empty(partial)
            return lock
        locks.release(lock)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _publish(partial: Path, path: Path) -> None:
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    try:
        partial.rename(path)
    except OSError:
        if old.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


#: Less than this is not worth a look.
_SMALL = 64 << 20


class NoSpaceError(errors.GraphError):
    """The work needs more memory or disk than there is; the files are not to blame."""


def check_space(what: object, folder: Path, *, memory: int = 0, disk: int = 0) -> None:
    """Raise NoSpaceError if ``what`` needs more memory, or disk in ``folder``, than there is."""
    found = []
    if memory > _SMALL and memory > (available := hardware.find_machine().memory.available):
        found.append(f"{size(memory)} of memory, and {size(available)} are available")
    if disk > (free := shutil.disk_usage(folder).free):
        # The folder itself may be hidden, until it is whole.
        place = folder.parent if folder.name.startswith(".") else folder
        found.append(f"{size(disk)} of disk, and {size(free)} are free in {place}")
    if found:
        raise NoSpaceError(f"{what}: needs {'; '.join(found)}")


def size(num_bytes: int) -> str:
    """Return a number of bytes for a message."""
    unit, name = (1 << 30, "GiB") if num_bytes >= 1 << 30 else (1 << 20, "MiB")
    return f"{num_bytes / unit:,.1f} {name}"
