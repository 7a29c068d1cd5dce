"""Temporary folders that do not outlive a killed process for long."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["PREFIX", "scratch_folder"]

#: Names of the folders begin so.
PREFIX = "gnnscale-apart-"
#: For an instant a folder is not locked yet, so new ones are left alone.
_NEW_S = 60


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder in TMPDIR that only this user may enter, and remove it afterwards.

    The process holds a lock on it as long as it lives. Folders whose process was killed are removed
    by the next call.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's, or gone by now
            _remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as place, _locked(Path(place)):
        yield Path(place)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid == os.getuid() and time.time() - status.st_mtime > _NEW_S:
        with _locked(folder, wait=False):
            shutil.rmtree(folder)
