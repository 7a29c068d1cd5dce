"""Room on the disk and in memory, looked at before it is filled."""

from __future__ import annotations

import shutil
from pathlib import Path

from gnnscale.core.errors import GraphError
from gnnscale.core.hardware import find_machine

__all__ = ["NoSpaceError", "check_space", "size"]

#: Less than this is not worth a look.
_SMALL = 64 << 20


class NoSpaceError(GraphError):
    """What is to be done needs more memory or disk than there is; the files are not to blame."""


def check_space(what: object, folder: Path, *, memory: int = 0, disk: int = 0) -> None:
    """Refuse what does not fit.

    Args:
        what: named in the error.
        folder: where the disk is needed.
        memory: bytes of main memory needed.
        disk: bytes of disk needed.

    Raises:
        NoSpaceError: tells what is needed and what there is.
    """
    found = []
    if memory > _SMALL and memory > (available := find_machine().memory.available):
        found.append(f"{size(memory)} of memory, and {size(available)} are available")
    if disk > (free := shutil.disk_usage(folder).free):
        found.append(f"{size(disk)} of disk, and {size(free)} are free")
    if found:
        raise NoSpaceError(f"{what}: needs {'; '.join(found)}")


def size(num_bytes: int) -> str:
    """Return a number of bytes as a message shows it."""
    unit, name = (1 << 30, "GiB") if num_bytes >= 1 << 30 else (1 << 20, "MiB")
    return f"{num_bytes / unit:,.1f} {name}"
