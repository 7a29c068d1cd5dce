"""What a process's memory is, where pages are shared with others."""

from __future__ import annotations

from pathlib import Path

__all__ = ["pss_bytes"]


def pss_bytes(pid: int | str = "self") -> int | None:
    """Return the proportional set size of a process: shared pages count in parts.

    The sum over all workers of a run is what they take together; the graph store, which all of them
    map, counts once in it.

    Returns:
        Bytes, or None where the system does not tell (Linux does).
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None
