"""Locks on files and folders: one process holds each, until it releases it or ends.

The system releases the locks of a process that ends, however it does. Such a process leaves the
locked file or folder, and the next process that locks it takes its place.
"""

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

#: The file of a folder that names its writer, who holds a lock on it.
LOCK_FILE = ".lock"
#: Content of that file: process number and machine.
_WRITER = re.compile(r"(\d{1,10}) ([\w.-]{1,253})\n", re.ASCII)
_MAX_WRITER_BYTES = 300
#: Seconds in which a process that has just locked a folder writes its number.
_NAMED_WITHIN_S = 0.5
#: Seconds between two attempts to lock a folder.
_AGAIN_S = 0.05
#: Seconds in which the lock of a machine that is lost expires on a shared disk: twice NFS's lease.
RESTART_WAIT_S = 180.0
#: Errors of file systems without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
#: Descriptors of the files and folders that this process has locked.
_locked: set[int] = set()


def lock(descriptor: int, path: Path, *, wait: bool = True) -> bool:
    """Lock an open file or folder, and return whether this process holds it now.

    A lock belongs to the descriptor: another one of the same process waits, too. A file system
    without locks is a warning, and counts as locked.

    Args:
        path: its name, for the warning.
        wait: wait for the process that holds it; else return False.
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
    """Release a lock, and close the descriptor."""
    if descriptor in _locked:
        _locked.discard(descriptor)
        # A process that was forked otherwise, as by a library, may have the descriptor, too.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file or folder is what ``path`` names."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


class KnownFolder:
    """A folder that this command writes, by the writer that its lock names.

    The folder may be moved, or the lock removed, and another command begin to write by that name.
    The number of a file would show this as well, but some file systems number their files again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = self._read()  # None: nobody has locked it

    def check(self) -> None:
        """Raise ConfigError if the lock file is missing or names another writer than at first."""
        if self._writer is None:
            return
        with suppress(OSError):  # a disk that fails now fails what is written, too
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
    """Make an empty file, locked, in place of the one that a killed process has left.

    No link is followed, and nothing is written into a file that was there before.

    Args:
        wait: wait for the process that holds the file; else return None.

    Returns:
        The descriptor, to read and to write, for ``release``; None if another process holds it.

    Raises:
        OSError: the file cannot be made.
    """
    while True:
        with suppress(FileExistsError):
            own = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # Another process may have found it before it was locked, and removed it.
            if lock(own, file, wait=wait) and is_at(file, own):
                return own
            _close(own)
            continue
        found = _open_regular(file)
        if found is None:
            continue
        if not lock(found, file, wait=wait):
            os.close(found)
            return None
        if is_at(file, found):
            file.unlink()
        release(found)


def _open_regular(file: Path) -> int | None:
    """Open a file that is there; remove anything else, and what this user cannot open: None."""
    try:
        found = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:  # a link, a socket, a folder, another user's
        file.unlink(missing_ok=True)
        return None
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    file.unlink(missing_ok=True)
    return None


def _close(descriptor: int) -> None:
    if descriptor in _locked:
        release(descriptor)
    else:
        os.close(descriptor)


@contextmanager
def sole_writer(folder: Path, *, option: str, wait_s: float = 0.0) -> Iterator[None]:
    """Let this process alone write into ``folder``, which exists, during the ``with`` block.

    Args:
        option: names the folder in errors.
        wait_s: seconds to wait for the process that writes now.

    Raises:
        ConfigError: another process writes, whose number and machine it names; or nothing can be
            written there.
    """
    file = folder / LOCK_FILE
    descriptor = _locked_within(file, option, wait_s)
    try:
        # A full disk takes away no more than the name of the writer.
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
        found = f"{option}={file.parent}: is being written by {_writer(file)}"
        if time.monotonic() >= deadline:
            raise ConfigError(f"{found}; wait until it ends, or end it")
        if not logged:
            _LOG.warning(f"{found}; waiting up to {wait_s:.0f} s for its end")
        logged = True
        time.sleep(_AGAIN_S)


@contextmanager
def sole_maker(folder: Path) -> Iterator[None]:
    """Let this process alone make or replace ``folder`` during the ``with`` block; others wait.

    The lock is a file next to the folder. If nothing can be written there, nothing is made,
    and there is no lock.

    Raises:
        OSError: the lock cannot be made for another reason.
    """
    file = folder.with_name(f".{folder.name}{LOCK_FILE}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = create_locked(file, wait=True)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield
        return
    assert descriptor is not None
    try:
        yield
    finally:
        if is_at(file, descriptor):
            file.unlink()
        release(descriptor)


def _writer(file: Path) -> str:
    """Return which process holds a folder, by the file in it, which may say anything."""
    deadline = time.monotonic() + _NAMED_WITHIN_S
    while True:
        found = _WRITER.fullmatch(_text(file))
        if found is not None:
            return f"process {found[1]} on {found[2]}"
        if time.monotonic() >= deadline:
            return "another process"
        time.sleep(_AGAIN_S)


def _text(file: Path) -> str:
    try:
        return _content(file).decode(errors="replace")
    except OSError:
        return ""


def _content(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MAX_WRITER_BYTES)
    finally:
        os.close(descriptor)


def _forget_locks() -> None:
    """Close the locks of the process that this one was forked from: it alone holds them."""
    for descriptor in tuple(_locked):
        with suppress(OSError):
            os.close(descriptor)
    _locked.clear()


os.register_at_fork(after_in_child=_forget_locks)
