"""Regular files: their sizes, their bytes as a whole, and what libraries raise about them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path

from gnnscale.core.errors import GraphError

__all__ = ["file_bytes", "open_regular", "read_file", "readable", "total_bytes"]

_MAX_BYTES = 2 << 30


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
    """Open a regular file to read bytes, unbuffered. Nothing else is waited for.

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
