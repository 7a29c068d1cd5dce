"""What the parts of the fuzzer hand to each other: cases, targets, outcomes, and their verdicts."""

import base64
import hashlib
import json
import os
import random
import traceback
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

#: Content by path, edited files with what was done to them, and places of the edits to make.
Files = Mapping[str, bytes]
Edited = tuple[dict[str, bytes], list[str]]
Keep = frozenset[int] | None
#: The two good ends; every other verdict is a finding.
OK, REFUSED = "ok", "refused"
#: Folder of what links lead to, beside the folder that is handed in.
ASIDE = "aside"
#: One case in so many has something odd in the place of one of its files.
_SELDOM = 16
_MAX_LINE = 2600


class Outcome(NamedTuple):
    """How a case ended: with a finding, its detail is what others of the same cause have, too."""

    verdict: str
    detail: str = ""
    message: str = ""

    @property
    def is_finding(self) -> bool:
        return self.verdict not in (OK, REFUSED)


@dataclass(frozen=True, kw_only=True)
class Input:
    """Files and options that a case gives to the program."""

    kind: str  #: which part of the target reads it, such as the name of a reader
    options: Mapping[str, Any] = field(default_factory=dict)  #: plain values that JSON can hold
    files: Files = field(default_factory=dict)  #: content by path below the case's folder
    edits: tuple[str, ...] = ()  #: what was changed, for the reader of a finding
    odd: Mapping[str, str] = field(default_factory=dict)  #: one of ``ODD`` in the place of a file

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
    batch: int  #: cases that one child process runs
    limit_s: float  #: seconds after which a case counts as hanging
    uses_files: bool  #: whether cases need a folder of their own

    def prepare(self) -> None:
        """Import and build what all cases share; called once, before children are forked."""

    def make(self, key: str, number: int, keep: Keep = None) -> Any:
        """Return case ``number``, a pure function of it and of the campaign's ``key``."""

    def run(self, made: Any, folder: Path) -> Outcome:
        """Run a case in this process, in an empty ``folder``, which is the working directory."""


def case_rng(key: str, number: int, part: object = "") -> random.Random:
    return random.Random(f"{key}/{number}/{part}")


# --- cases as text ----------------------------------------------------------------------------


def to_json(target: str, case: Input) -> str:
    files = {
        name: each.decode() if each.isascii() else {"base64": base64.b64encode(each).decode()}
        for name, each in case.files.items()
    }
    value = {"target": target, "kind": case.kind, "options": dict(case.options), "files": files}
    value |= {"edits": list(case.edits)} | ({"odd": dict(case.odd)} if case.odd else {})
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def from_json(text: str) -> tuple[str, Input]:
    value = json.loads(text)
    files = {
        name: each.encode() if isinstance(each, str) else base64.b64decode(each["base64"])
        for name, each in value["files"].items()
    }
    case = {"kind": value["kind"], "options": value["options"], "odd": value.get("odd", {})}
    return value["target"], Input(**case, files=files, edits=tuple(value["edits"]))


def digest(case: Input) -> str:
    return hashlib.blake2b(to_json("", case).encode(), digest_size=4).hexdigest()


# --- what lies in the place of a file: a pipe, a device, a link, a folder ---------------------


def odd_places(names: Collection[str], rng: random.Random) -> dict[str, str]:
    """Return the file of a case that is something else, and one of ``ODD``; mostly none."""
    if not names or rng.randrange(_SELDOM):
        return {}
    return {rng.choice(sorted(names)): rng.choice(sorted(ODD))}


def put_odd(path: Path, kind: str, content: bytes, aside: Path) -> None:
    """Put one of ``ODD`` where a file belongs; a link leads to a file in the folder ``aside``."""
    if kind == "link":
        aside.mkdir(parents=True, exist_ok=True)
        (aside / path.name).write_bytes(content)
        path.symlink_to(aside / path.name)
    else:
        ODD[kind](path)


def regular_files(folder: Path) -> dict[str, bytes | None]:
    """Return the content of all files below ``folder``; None of a link, a pipe or the like."""
    found: dict[str, bytes | None] = {}
    for place, folders, files in os.walk(folder):
        for name in (*files, *(each for each in folders if Path(place, each).is_symlink())):
            path = Path(place, name)
            regular = path.is_file() and not path.is_symlink()
            found[str(path.relative_to(folder))] = path.read_bytes() if regular else None
    return found


#: What lies there, by name.
ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "link": lambda path: None,  # put_odd makes it
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "folder": lambda path: (path / "folder").mkdir(parents=True),
}

# --- verdicts: a clear refusal is the right exception, one line, naming what is wrong ---------


class WrongResultError(Exception):
    """The program went on and came to something that cannot be right. Raised by the fuzzer."""


def guarded(
    body: Callable[[], None], refusals: tuple[type[Exception], ...], names: Sequence[str]
) -> Outcome:
    """Run ``body`` and judge how it ends: well, or with one of ``refusals`` that has a name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            body()
        except refusals as error:
            outcome = _refusal(error, names)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            outcome = failure(error)
        else:
            outcome = Outcome(OK)
    if not caught or outcome.is_finding:
        return outcome
    place = f"{Path(caught[0].filename).name}:{caught[0].lineno}"
    return Outcome("warning", f"{caught[0].category.__name__} at {place}", str(caught[0].message))


def failure(error: BaseException) -> Outcome:
    """Return the finding that an exception is which should not have come this far."""
    text = "".join(traceback.format_exception(error, limit=-12))[-3000:]
    if isinstance(error, WrongResultError):
        return Outcome("wrong result", str(error)[:200], text)
    verdict = "memory" if isinstance(error, MemoryError) else "traceback"
    return Outcome(verdict, f"{type(error).__name__} at {_place(error)}", text)


def line_fault(text: str) -> str:
    """Return what is wrong with a message as one line for a terminal, nothing if it is fine."""
    if len(text.splitlines()) != 1:
        return "several lines" if text.strip() else "empty message"
    if not text.isprintable():
        return "control characters"
    return "long line" if len(text) > _MAX_LINE else ""


def strange_files(folder: Path, expected: Collection[str]) -> Outcome | None:
    """Return the finding that a path below ``folder`` is which is not expected, or None."""
    for place, folders, files in os.walk(folder):
        inside = Path(os.path.relpath(place, folder))
        folders[:] = [name for name in folders if str(inside / name) not in expected]
        paths = [str(inside / name) for name in files]
        # A folder is judged by its content, and if it is empty by its being there.
        paths += [f"{inside / name}/" for name in folders if not any(Path(place, name).iterdir())]
        for path in paths:
            if Path(path).name.startswith("executed"):
                return Outcome("executed", "code in the input ran", path)
            if path.rstrip("/") not in expected:
                return Outcome("left files", Path(path).suffix or Path(path).name[:20], path)
    return None


def _refusal(error: Exception, names: Sequence[str]) -> Outcome:
    text = str(error)
    named = any(name in text for name in names)
    fault = line_fault(text) or ("" if named else "names nothing")
    fault = fault or ("disk" if "File too large" in text else "")
    if fault:
        return Outcome(fault, f"{type(error).__name__} at {_place(error)}", repr(text[:500]))
    return Outcome(REFUSED)


def _place(error: BaseException) -> str:
    """Return the innermost line of gnnscale that an exception passed, and what it called."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "nowhere"
    ours = [f for f in frames if "/gnnscale/" in f.filename and "/fuzz/" not in f.filename]
    frame = (ours or frames)[-1]
    return f"{frame.filename.rpartition('/gnnscale/')[2]}:{frame.lineno} {frame.name}"
