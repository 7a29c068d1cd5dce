"""The one way to write a file, whole or not at all; and folders that go unless finished."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gnnscale.core import locks
from gnnscale.core.errors import ConfigError

#: Folders that this process fills at the moment.
_unfinished_folders: set[Path] = set()


def write_atomically(
    file: Path,
    content: str | bytes | Iterator[bytes | memoryview],
    *,
    durable: bool = False,
    shared: bool = False,
) -> None:
    """Write a text (as UTF-8), bytes, or an iterator's parts to ``file`` as ``whole_file`` does."""
    whole = content.encode() if isinstance(content, str) else content
    parts = iter([whole]) if isinstance(whole, bytes) else whole
    with whole_file(file, durable=durable, shared=shared) as stream:
        stream.writelines(parts)


@contextmanager
def whole_file(
    file: Path, *, durable: bool = False, shared: bool = False, wait: bool = True
) -> Iterator[IO[bytes]]:
    """Open a temporary sibling of ``file``, whose folder exists; rename it to ``file`` at the end.

    A killed process leaves the sibling, and ``file`` as it was. The next call replaces the
    sibling. An exception removes it; an OSError gets the name of ``file``. The sibling is locked: a
    second process that writes ``file`` waits for the first.

    Args:
        durable: wait until the disk has the file.
        shared: make the sibling's name unique, so that nobody waits and the last rename counts.
        wait: wait for another process that writes the file.

    Raises:
        ConfigError: another process writes it, and ``wait`` is false.
        OSError: it cannot be written.
    """
    unfinished = _unfinished(file)
    lock: int | None = None
    try:
        if shared:
            handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
            unfinished = Path(name)
        else:
            lock = locks.create_locked(unfinished, wait=wait)
            if lock is None:
                raise ConfigError(f"{file}: is being written by another process")
            handle = os.dup(lock)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
            os.replace(unfinished, file)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    finally:
        if lock is not None:
            locks.release(lock)


def expanded(path: str) -> Path:
    """Return a path that was typed, with ``~`` and ``~user`` replaced by home directories.

    A file or folder that is called ``~x`` itself is meant if there is no user ``x``.

    Raises:
        RuntimeError: there is neither.
    """
    typed = Path(path)
    try:
        return typed.expanduser()
    except RuntimeError:
        if os.path.lexists(typed.parts[0]):
            return typed
        raise


def remove_unfinished(file: Path) -> None:
    """Remove the sibling that a killed process left of ``file``."""
    _unfinished(file).unlink(missing_ok=True)


def check_private(path: Path) -> None:
    """Check that only this user and root can have written a file, or what is in a folder.

    Links are followed.

    Raises:
        PermissionError: it belongs to another user, or a group or everybody may write to it.
        OSError: its status cannot be read.
    """
    found = path.stat()
    if found.st_uid not in (os.getuid(), 0):
        why = f"it belongs to user {found.st_uid}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "others may write to it (chmod go-w)"
    else:
        return
    raise PermissionError(errno.EACCES, why, str(path))


@contextmanager
def unfinished_folder(folder: Path) -> Iterator[None]:
    """Remove ``folder`` if the block raises; ``remove_unfinished_folders`` if it never ends."""
    _unfinished_folders.add(folder)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        _unfinished_folders.discard(folder)


def remove_unfinished_folders() -> None:
    """Remove what this process has not finished, just before it ends; any thread may call it."""
    for folder in tuple(_unfinished_folders):
        shutil.rmtree(folder, ignore_errors=True)


def _unfinished(file: Path) -> Path:
    return file.with_name(f".{file.name}.tmp")
