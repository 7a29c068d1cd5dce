"""Damage of some of the files of a valid input."""

from __future__ import annotations

from collections.abc import Mapping

from ..case import case_rng
from ..structured import edit_file

__all__ = ["damaged"]


def damaged(
    files: Mapping[str, bytes], key: str, number: int, num_edits: int, keep: frozenset[int] | None
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files with some of them edited, and which edits these were.

    Every edit has random numbers of its own, so that one can be left out and the others stay.
    """
    changed, edits = dict(files), []
    for place in range(num_edits):
        rng = case_rng(key, number, place)
        name = rng.choice(sorted(files))
        if keep is None or place in keep:
            if rng.random() < 0.01:
                changed.pop(name, None)
            elif name in changed:
                changed[name] = edit_file(name, changed[name], rng)
            edits.append(f"{place}: {name}")
    return changed, edits
