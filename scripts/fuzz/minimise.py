"""Making a finding smaller: fewer edits, files as they were, fewer bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .case import Input, Outcome, Target, digest, to_json
from .single import run_alone

__all__ = ["keep_smallest", "shrink", "shrink_bytes"]

#: Runs that shrinking one file may take.
_MAX_RUNS = 300


def keep_smallest(target: Target, key: str, number: int, outcome: Outcome, folder: Path) -> Path:
    """Write the smallest case found that ends as case ``number`` does, and return its file."""

    def same(case: Input) -> bool:
        found = run_alone(target, case)
        return (found.verdict, found.detail) == (outcome.verdict, outcome.detail)

    case = shrink(target, key, number, same)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{target.name}-{digest(case)}.json"
    file.write_text(to_json(target.name, case))
    return file


def shrink(target: Target, key: str, number: int, same: Callable[[Input], bool]) -> Input:
    """Return a smaller case for which ``same`` holds as well."""
    case: Input = target.make(key, number)
    places = {int(edit.partition(":")[0]) for edit in case.edits}
    for place in sorted(places):
        fewer: Input = target.make(key, number, frozenset(places - {place}))
        if same(fewer):
            places, case = places - {place}, fewer
    untouched: Input = target.make(key, number, frozenset())
    for name in list(case.files):
        if case.files[name] != untouched.files.get(name):
            case = _with_fewer_bytes(case, name, same)
    return case


def _with_fewer_bytes(case: Input, name: str, same: Callable[[Input], bool]) -> Input:
    def filled(content: bytes) -> Input:
        return replace(case, files={**case.files, name: content})

    return filled(shrink_bytes(case.files[name], lambda content: same(filled(content))))


def shrink_bytes(data: bytes, same: Callable[[bytes], bool], max_runs: int = _MAX_RUNS) -> bytes:
    """Leave out pieces of ``data``, half of it at first, for as long as ``same`` holds."""
    runs = 0
    size = len(data) // 2
    while size and runs < max_runs:
        begin = 0
        while begin < len(data) and runs < max_runs:
            fewer = data[:begin] + data[begin + size :]
            runs += 1
            if same(fewer):
                data = fewer
            else:
                begin += size
        size //= 2
    return data
