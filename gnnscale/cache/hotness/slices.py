"""Work on arrays of all vertices or edges a slice at a time, so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["slices"]

_SLICE_ENTRIES = 1 << 20


def slices(num_entries: int) -> Iterator[slice]:
    """Yield slices that cover ``num_entries``."""
    for first in range(0, num_entries, _SLICE_ENTRIES):
        yield slice(first, min(first + _SLICE_ENTRIES, num_entries))
