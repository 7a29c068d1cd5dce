"""One case in a child process of its own."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .campaign import Campaign
from .case import OK, REFUSED, Outcome, Target, from_json
from .targets import target_named

__all__ = ["run_alone", "run_kept"]


@dataclass
class _Fixed:
    """A target whose only case is given."""

    target: Target
    made: Any
    batch: int = 1

    def __post_init__(self) -> None:
        self.name = self.target.name
        self.limit_s = self.target.limit_s
        self.uses_files = self.target.uses_files

    def prepare(self) -> None:
        """Nothing: the target is prepared."""

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Any:
        """Return the case."""
        return self.made

    def run(self, made: Any, folder: Path) -> Outcome:
        """Run it as its target does."""
        return self.target.run(made, folder)


def run_alone(target: Target, made: Any, *, limits: bool = True) -> Outcome:
    """Run a case in a child process and return how it ended."""
    with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
        campaign = Campaign(_Fixed(target, made), seed=0, out=Path(folder), limits=limits)
        campaign.run(1)
    for (verdict, detail), group in campaign.groups.items():
        return Outcome(verdict, detail, group.message)
    return Outcome(OK if campaign.verdicts[OK] else REFUSED)


def run_kept(text: str) -> Outcome:
    """Run the case that ``to_json`` wrote, and return how it ended."""
    name, case = from_json(text)
    return run_alone(_prepared(name), case)


@cache
def _prepared(name: str) -> Target:
    target = target_named(name)
    target.prepare()
    return target
