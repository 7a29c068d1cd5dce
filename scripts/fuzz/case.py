"""What the parts of the fuzzer hand to each other: cases, outcomes, targets."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from .odd import ASIDE, put_odd

__all__ = ["OK", "REFUSED", "Input", "Outcome", "Target", "case_rng", "from_json", "to_json"]

#: The two good ends; every other verdict is a finding.
OK, REFUSED = "ok", "refused"


class Outcome(NamedTuple):
    """How a case ended.

    Attributes:
        verdict: ``OK``, ``REFUSED``, or the kind of a finding.
        detail: of a finding: what findings of the same cause have in common.
        message: of a finding: more, for the reader.
    """

    verdict: str
    detail: str = ""
    message: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether somebody has to look at it."""
        return self.verdict not in (OK, REFUSED)


@dataclass(frozen=True, kw_only=True)
class Input:
    """Files and options that a case gives to the program.

    Attributes:
        kind: which part of the target reads it, such as the name of a reader.
        options: plain values that JSON can hold.
        files: content by path below the case's folder.
        edits: what was changed in a valid input, for the reader of a finding.
        odd: what lies in the place of some of the files, by path: of ``odd.ODD``.
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    edits: tuple[str, ...] = ()
    odd: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the files below ``folder``, and what is odd in the place of one."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name in self.odd:
                put_odd(path, self.odd[name], content, folder.parent / ASIDE)
            else:
                path.write_bytes(content)


class Target(Protocol):
    """A part of the program that is fuzzed."""

    name: str
    #: Cases that one child process runs.
    batch: int
    #: Seconds after which a case counts as hanging.
    limit_s: float
    #: Whether cases need a folder of their own.
    uses_files: bool

    def prepare(self) -> None:
        """Import and build what all cases share; called once, before children are forked."""
        ...

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Any:
        """Return case ``number``, a pure function of ``key`` and ``number``.

        Args:
            key: tells campaigns apart; random numbers come from it.
            number: of the case.
            keep: places of the edits to make, None for all.
        """
        ...

    def run(self, made: Any, folder: Path) -> Outcome:
        """Run a case in this process, in an empty ``folder``, which is the working directory."""
        ...


def case_rng(key: str, number: int, part: object = "") -> random.Random:
    """Return random numbers of their own for every case and part of it."""
    return random.Random(f"{key}/{number}/{part}")


def to_json(target: str, case: Input) -> str:
    """Return a case as text to keep."""
    files = {name: _encoded(content) for name, content in case.files.items()}
    value = {
        "target": target,
        "kind": case.kind,
        "options": dict(case.options),
        "edits": list(case.edits),
        "files": files,
        **({"odd": dict(case.odd)} if case.odd else {}),
    }
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def from_json(text: str) -> tuple[str, Input]:
    """Return the target's name and the case that ``to_json`` wrote."""
    value = json.loads(text)
    files = {name: _decoded(content) for name, content in value["files"].items()}
    case = Input(
        kind=value["kind"],
        options=value["options"],
        files=files,
        edits=tuple(value["edits"]),
        odd=value.get("odd", {}),
    )
    return value["target"], case


def digest(case: Input) -> str:
    """Return a short name of what a case holds."""
    return hashlib.blake2b(to_json("", case).encode(), digest_size=4).hexdigest()


def _encoded(content: bytes) -> str | dict[str, str]:
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    return text


def _decoded(content: str | dict[str, str]) -> bytes:
    return content.encode() if isinstance(content, str) else base64.b64decode(content["base64"])
