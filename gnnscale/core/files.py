"""Atomic writes of files, and temporary folders that are removed unless completed."""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from gnnscale.core import locks
from gnnscale.core.errors import ConfigError, brief

#: Folders that this process is filling.
_unfinished_folders: set[Path] = set()


def write_atomically(
    file: Path,
    content: str | bytes | Iterator[bytes | memoryview],
    *,
    durable: bool = False,
    shared: bool = False,
) -> None:
    """Write ``content``, a str as UTF-8, to ``file`` as ``whole_file`` does."""
    data = content.encode() if isinstance(content, str) else content
    with whole_file(file, durable=durable, shared=shared) as stream:
        stream.writelines([data] if isinstance(data, bytes) else data)


@contextmanager
def whole_file(
    file: Path, *, durable: bool = False, shared: bool = False, wait: bool = True
) -> Iterator[IO[bytes]]:
    """Open a temporary file for a ``with`` block, and rename it to ``file`` at the block's end.

    An exception in the block removes the temporary file. A killed process leaves it, and the next
    call replaces it; in both cases ``file`` is unchanged. The temporary file is locked: a second
    writer waits, or gets a ConfigError if ``wait`` is false. With ``shared`` its name is unique:
    writers do not wait, and the last rename wins. ``durable`` calls fsync before the rename.
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
                raise ConfigError(
                    f"{file}: is being written by another process; wait until it ends"
                )
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


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file to read, without blocking on a pipe; ConfigError: it is no such file."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise ConfigError(f"{file}: not a regular file")


def expanded(path: str) -> Path:
    """Return ``path`` with ``~`` and ``~user`` replaced by home directories.

    If there is no user ``x``, ``~x`` is kept as the name of an existing file or folder;
    RuntimeError if that does not exist either.
    """
    literal = Path(path)
    try:
        return literal.expanduser()
    except RuntimeError:
        if os.path.lexists(literal.parts[0]):
            return literal
        raise


#: Beginning of an address, in which ``Path`` leaves a single slash.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def refuse_address(path: str | Path, option: str) -> None:
    """Raise ConfigError if a path of this machine is an address, such as ``s3://bucket/run``."""
    if _ADDRESS.match(str(path)):
        raise ConfigError(
            f"{option}={brief(path)}: expected a path of this machine, got an address; write to a "
            "folder, and copy it afterwards. Only dataset.raw of tables takes addresses"
        )


def remove_unfinished(file: Path) -> None:
    """Remove the temporary file, if any, that a killed writer of ``file`` left beside it."""
    _unfinished(file).unlink(missing_ok=True)


def check_private(path: Path) -> None:
    """Raise PermissionError if another user than root and this one owns or may write ``path``."""
    status = path.stat()
    if status.st_uid not in (os.getuid(), 0):
        why = f"it belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "others may write to it (chmod go-w)"
    else:
        return
    raise PermissionError(errno.EACCES, why, str(path))


@contextmanager
def unfinished_folder(folder: Path) -> Iterator[None]:
    """Remove ``folder``, which the block fills, if that raises or the process is interrupted."""
    _unfinished_folders.add(folder)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        _unfinished_folders.discard(folder)


def remove_unfinished_folders() -> None:
    """Remove the folders of all open ``unfinished_folder`` blocks; for an exit by any thread."""
    for folder in tuple(_unfinished_folders):
        shutil.rmtree(folder, ignore_errors=True)


def _unfinished(file: Path) -> Path:
    return file.with_name(f".{file.name}.tmp")
