"""Checks of room on the disk and in memory before it is filled."""

from __future__ import annotations

import shutil
from pathlib import Path

from gnnscale.core import errors, hardware

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
        found.append(f"{size(disk)} of disk, and {size(free)} are free")
    if found:
        raise NoSpaceError(f"{what}: needs {'; '.join(found)}")


def size(num_bytes: int) -> str:
    """Return a number of bytes for a message."""
    unit, name = (1 << 30, "GiB") if num_bytes >= 1 << 30 else (1 << 20, "MiB")
    return f"{num_bytes / unit:,.1f} {name}"
