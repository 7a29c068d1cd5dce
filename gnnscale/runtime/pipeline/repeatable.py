"""Operations of torch that add in the same order every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import deterministic

__all__ = ["repeatable_operations"]


@contextmanager
def repeatable_operations(wanted: bool) -> Iterator[None]:
    """Let torch repeat the bits of what it computes on so many threads, where that is ``wanted``.

    Several threads add up the gradient of an indexing otherwise, in whatever order they come. An
    operation that has no fixed order raises a RuntimeError that says so.
    """
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    # Filling is for programs that read what they have not written, and takes time.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
