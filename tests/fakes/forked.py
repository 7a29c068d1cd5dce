"""Processes that others have forked, as the system knows them."""

import os
from pathlib import Path


def children(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for file in files for each in file.read_text().split()]


def workers() -> list[int]:
    """The processes that the server of this process has forked, in the order of ranks."""
    return sorted(each for child in children(os.getpid()) for each in children(child))


def state(stat: Path) -> str:
    """The state of a process or thread, by its file ``stat``; ``X`` if it is gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
