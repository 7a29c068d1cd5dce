"""Exclusive locks on files and folders (flock), which end with the process at the latest."""

import errno
import fcntl
import logging
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnscale.core.errors import ConfigError

_LOG = logging.getLogger(__name__)

#: Lock file of a folder; it names the process that holds the lock.
LOCK_FILE = ".lock"
#: Content of the lock file: process id and host name.
_WRITER = re.compile(r"(\d{1,10}) ([\w.-]{1,253})\n", re.ASCII)
_MAX_WRITER_BYTES = 300
#: Seconds to wait until the process that has just locked a folder writes its process id.
_WRITER_TIMEOUT_S = 0.5
#: Seconds between two attempts to lock a folder.
_RETRY_S = 0.05
#: Seconds after which the lock of a lost machine has expired on a shared disk: twice NFS's lease.
RESTART_WAIT_S = 180.0
#: Errors of file systems without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
#: Descriptors of files and folders that this process has locked.
_locked: set[int] = set()


def lock(descriptor: int, path: Path, *, wait: bool = True) -> bool:
    """Lock an open file or folder exclusively; return whether ``descriptor`` holds the lock now.

    A lock belongs to the descriptor: a second descriptor of this process waits, too, or gets False
    without ``wait``. On a file system without locks ``path`` is warned of, and the result True.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _LOG.warning(
            f"{path}: its file system has no locks ({error.strerror}), so that nothing prevents a "
            "second command from writing there now"
        )
    _locked.add(descriptor)
    return True


def release(descriptor: int) -> None:
    """Unlock and close a descriptor that this process, and not its parent, has locked."""
    if descriptor in _locked:
        _locked.discard(descriptor)
        # Unlock explicitly: a process forked by a library may hold the descriptor, too.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether the file or folder at ``path`` is still the one that ``descriptor`` has open."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


class KnownFolder:
    """Folder that this command writes, to be recognized by the process and host in its lock file.

    The folder may be moved, and another command may then write a folder of this name. Inode numbers
    do not identify the folder, since some file systems reuse them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = self._read()  # None: no process has locked it

    def check(self) -> None:
        """Raise ConfigError if the lock file of the first state is gone or of another process."""
        if self._writer is None:
            return
        with suppress(OSError):  # the next write reports a failing disk
            if self._read() != self._writer:
                raise ConfigError(
                    f"{self._path}: was moved, or lost its {LOCK_FILE}, while this command wrote "
                    "to it; another command may write there by now, and nothing more is written"
                )

    def _read(self) -> bytes | None:
        try:
            return _content(self._path / LOCK_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return None


def create_locked(file: Path, *, wait: bool) -> int | None:
    """Create and lock an empty ``file``, and return its descriptor, for ``release``.

    A file that a killed process left is replaced; links are not followed. If another process holds
    the lock, the call waits for it, or returns None without ``wait``.
    """
    while True:
        with suppress(FileExistsError):
            new = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # Another process may have locked and removed the new file first.
            if lock(new, file, wait=wait) and is_at(file, new):
                return new
            (release if new in _locked else os.close)(new)
            continue
        existing = _open_regular(file)
        if existing is None:
            continue
        if not lock(existing, file, wait=wait):
            os.close(existing)
            return None
        if is_at(file, existing):
            file.unlink()
        release(existing)


def _open_regular(file: Path) -> int | None:
    """Return a descriptor of a regular file; None: it is missing, or was another, and removed."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:  # a link, a socket, a folder, another user's
        file.unlink(missing_ok=True)
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    file.unlink(missing_ok=True)
    return None


@contextmanager
def sole_writer(folder: Path, *, option: str, wait_s: float = 0.0) -> Iterator[None]:
    """Lock an existing ``folder`` during the ``with`` block, so that no other process writes to it.

    ConfigError, naming ``option``: another process still writes to it after ``wait_s`` seconds.
    """
    file = folder / LOCK_FILE
    descriptor = _locked_within(file, option, wait_s)
    try:
        # On a full disk only the writer's name is missing.
        with suppress(OSError):
            os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        yield
    finally:
        if is_at(file, descriptor):
            with suppress(OSError):
                file.unlink()
        release(descriptor)


def _locked_within(file: Path, option: str, wait_s: float) -> int:
    deadline, logged = time.monotonic() + wait_s, False
    while True:
        try:
            descriptor = create_locked(file, wait=False)
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
        if descriptor is not None:
            return descriptor
        conflict = f"{option}={file.parent}: is being written by {_writer(file)}"
        if time.monotonic() >= deadline:
            raise ConfigError(f"{conflict}; wait until it ends, or end it")
        if not logged:
            _LOG.warning(f"{conflict}; waiting up to {wait_s:.0f} s for its end")
        logged = True
        time.sleep(_RETRY_S)


@contextmanager
def sole_maker(folder: Path) -> Iterator[None]:
    """Let only this process create or replace ``folder`` during the ``with`` block; others wait."""
    file = folder.with_name(f".{folder.name}{LOCK_FILE}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = create_locked(file, wait=True)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield  # unlocked: without permission the block cannot create the folder either
        return
    assert descriptor is not None
    try:
        yield
    finally:
        if is_at(file, descriptor):
            file.unlink()
        release(descriptor)


def _writer(file: Path) -> str:
    """Return a phrase for the process that a lock file names; ``another process`` if none."""
    deadline = time.monotonic() + _WRITER_TIMEOUT_S
    while True:
        with suppress(OSError):
            writer = _WRITER.fullmatch(_content(file).decode(errors="replace"))
            if writer is not None:
                return f"process {writer[1]} on {writer[2]}"
        if time.monotonic() >= deadline:
            return "another process"
        time.sleep(_RETRY_S)


def _content(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MAX_WRITER_BYTES)
    finally:
        os.close(descriptor)


def _forget_locks() -> None:
    """Close, in a forked child process, the locked descriptors that remain its parent's."""
    for descriptor in tuple(_locked):
        with suppress(OSError):
            os.close(descriptor)
    _locked.clear()


os.register_at_fork(after_in_child=_forget_locks)
