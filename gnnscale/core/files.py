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
def whole_file(file: Path, *, durable: bool = False, shared: bool = False) -> Iterator[IO[bytes]]:
    """Open a temporary sibling of ``file``, whose folder exists; rename it to ``file`` at the end.

    A killed process leaves the sibling, and ``file`` as it was. The next call overwrites the
    sibling. An exception removes it; an OSError gets the name of ``file``. ``durable`` waits until
    the disk has it. ``shared`` makes the sibling's name unique, since other processes may write the
    same file at the same time.
    """
    unfinished = _unfinished(file)
    try:
        if shared:
            handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
            unfinished = Path(name)
        else:
            unfinished.unlink(missing_ok=True)
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(unfinished, file)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from None
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


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
