"""Many cases in child processes, of which any may crash, hang or eat memory; or one alone."""

import contextlib
import faulthandler
import json
import mmap
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .case import OK, REFUSED, Input, Outcome, Target, digest, from_json, to_json
from .targets import target_named

#: A case may take 2 GB of memory; the limit of the process is above, so that taking more shows.
PEAK_BYTES = 2_000_000_000
DATA_BYTES = 3_000_000_000
#: Text of a few MB that unpacks within its limits makes hundreds of MB of edges.
FILE_BYTES = 1 << 30
CPU_S = 3600
_SANITIZER = re.compile(r"^.*(?:ERROR: AddressSanitizer: |runtime error: )(.*)$", re.MULTILINE)
_NATIVE_FRAME = re.compile(r"^\s+#\d+ \S+ in (.*(?:gnnscale|pybind11).*)$", re.MULTILINE)
_PYTHON_FRAME = re.compile(r'^  File ".*?((?:gnnscale|scipy|numpy|torch|pyarrow)/.*)$', re.M)
_ADDRESS = re.compile(r"0x[0-9a-f]+|(?:pc|bp|sp|T\d+) \S+|-?\d{4,}")


class Progress:
    """Numbers that a child shares with its parent, which outlive the child."""

    def __init__(self) -> None:
        self._memory = memoryview(mmap.mmap(-1, 24)).cast("q")

    def reset(self, first: int) -> None:
        self._memory[0], self._memory[1], self._memory[2] = first, 0, 0

    @property
    def current(self) -> int:
        """The case that is running, one more than the last if none is."""
        return self._memory[0]

    def count(self, verdict: str) -> None:
        """Note the end of the current case."""
        self._memory[1] += verdict == OK
        self._memory[2] += verdict == REFUSED
        self._memory[0] += 1

    @property
    def counts(self) -> dict[str, int]:
        return {OK: self._memory[1], REFUSED: self._memory[2]}


def fork_child(
    target: Target, key: str, numbers: range, folder: Path, progress: Progress, limits: bool
) -> tuple[int, int]:
    """Start a child that runs cases of a prepared target; return its id and a pipe of findings."""
    progress.reset(numbers.start)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        os.set_blocking(read_end, False)
        return pid, read_end
    os.close(read_end)
    os.setpgid(0, 0)  # what a case starts ends with it
    status = 1
    try:
        _redirect(folder / "output", traces=limits)
        _limit(limits)
        case_folder = folder / "case"
        for number in numbers:
            outcome = _one(target, key, number, case_folder, limits)
            if outcome.is_finding:
                line = json.dumps({"case": number, **outcome._asdict()})
                os.write(write_end, line.encode() + b"\n")
            progress.count(outcome.verdict)
            if outcome.verdict == "memory":
                break  # its peak would be blamed on the next case; the parent goes on after it
        status = 0
    except BaseException:  # of the fuzzer itself; the parent shows the output
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _one(target: Target, key: str, number: int, folder: Path, limits: bool) -> Outcome:
    made = target.make(key, number)
    if not target.uses_files:
        return target.run(made, folder)
    folder.mkdir()
    os.chdir(folder)
    try:
        before = _peak_bytes()
        outcome = target.run(made, folder)
        taken = _peak_bytes() - before
        if limits and taken > PEAK_BYTES:
            outcome = Outcome("memory", f"took more than 2 GB, then: {outcome.verdict}")
        elif not outcome.is_finding:
            strange = [name for name in os.listdir(folder.parent) if name not in ("case", "output")]
            if strange:
                outcome = Outcome("wrote outside", "beside the case's folder", str(strange))
        return outcome
    finally:
        os.chdir(folder.parent)
        shutil.rmtree(folder, ignore_errors=True)


def _redirect(path: Path, *, traces: bool) -> None:
    """Send what is printed to a file, which also has the last words of a child that crashes."""
    sys.stdout.flush()
    sys.stderr.flush()
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Whoever forked may have put others in their place.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    if traces:  # a sanitizer writes its own
        faulthandler.enable(file=2)


def _limit(memory: bool) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        data = DATA_BYTES + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (data, data))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def end_of_child(status: int, output: Path, hanging: bool) -> Outcome | None:
    """Return the finding that a child's end is, by its status and output; None if it ended well."""
    if status == 0:
        return None
    words = _last_words(output)
    if hanging:
        return Outcome("timeout", _place(words), words[-2000:])
    report = _SANITIZER.search(words)
    if report:
        frame = _NATIVE_FRAME.search(words, report.end())
        where = _ADDRESS.sub("N", frame[1]) if frame else _place(words)
        detail = f"{_ADDRESS.sub('N', report[1])} in {where}"[:300]
        return Outcome("sanitizer", detail, words[report.start() :][:3000])
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Outcome(f"signal {name}", _place(words), words[-2000:])
    return Outcome(f"exit {os.WEXITSTATUS(status)}", _place(words), words[-2000:])


def _last_words(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 200_000))
        return file.read().decode(errors="replace")


def _place(words: str) -> str:
    """Return the innermost line of Python that faulthandler or a traceback names."""
    found = _PYTHON_FRAME.findall(words)
    return found[0] if found else ""


#: Cases that are kept of findings that look alike.
_EXAMPLES = 5
_POLL_S = 0.05
#: Seconds in which a child that hangs may write its place.
_LAST_WORDS_S = 1.0
#: Runs that shrinking one file may take.
_MAX_RUNS = 300


@dataclass
class Group:
    """Findings that look alike."""

    count: int = 0
    cases: list[int] = field(default_factory=list)
    message: str = ""


@dataclass
class _Slot:
    """A place for one child at a time."""

    folder: Path
    progress: Progress
    pid: int = 0
    pipe: int = -1
    numbers: range = range(0)
    seen: int = -1
    since: float = 0.0
    text: bytes = b""


class Campaign:
    """Runs cases of a target and writes what comes of them into a folder, to be gone on with.

    Without ``limits`` of memory a sanitizer has the address space that it needs.
    """

    def __init__(
        self, target: Target, *, seed: int, out: Path, jobs: int = 1, limits: bool = True
    ) -> None:
        """Read what an earlier start of the same campaign has left in ``out``."""
        self.target, self.key = target, f"{seed}/{target.name}"
        self.verdicts: Counter[str] = Counter()  #: how many cases ended how
        self.groups: dict[tuple[str, str], Group] = {}  #: findings by verdict and detail
        self._limits, self._jobs, self._out = limits, jobs, out
        self._done: list[range] = []
        out.mkdir(parents=True, exist_ok=True)
        self._file = out / "results.jsonl"
        self._read()

    def run(self, num_cases: int, report: Callable[[Any], None] = lambda _: None) -> None:
        """Run the cases below ``num_cases`` that have not been run, and ``report`` now and then."""
        batches = self._batches(num_cases)
        folders = [(self._out / "work" / str(index)).absolute() for index in range(self._jobs)]
        slots = [_Slot(folder, Progress()) for folder in folders]
        try:
            while True:
                for slot in slots:
                    if not slot.pid and (numbers := next(batches, None)):
                        self._start(slot, numbers)
                running = [slot for slot in slots if slot.pid]
                if not running:
                    return
                select.select([slot.pipe for slot in running], [], [], _POLL_S)
                for slot in running:
                    self._attend(slot)
                report(self)
        finally:
            for slot in slots:
                if slot.pid:
                    _end(slot.pid, signal.SIGKILL)
                    os.waitpid(slot.pid, 0)
            shutil.rmtree(self._out / "work", ignore_errors=True)

    @property
    def num_findings(self) -> int:
        return sum(group.count for group in self.groups.values())

    def _batches(self, num_cases: int) -> Iterator[range]:
        """Yield what is not done of the cases, in pieces of the target's size."""
        first = 0
        for done in [*sorted(self._done, key=lambda part: part.start), range(num_cases, num_cases)]:
            last = min(done.start, num_cases)
            while first < last:
                yield range(first, min(first + self.target.batch, last))
                first = min(first + self.target.batch, last)
            first = max(first, done.stop)

    def _start(self, slot: _Slot, numbers: range) -> None:
        shutil.rmtree(slot.folder, ignore_errors=True)
        slot.folder.mkdir(parents=True)
        slot.numbers, slot.text, slot.seen = numbers, b"", -1
        slot.pid, slot.pipe = fork_child(
            self.target, self.key, numbers, slot.folder, slot.progress, self._limits
        )

    def _attend(self, slot: _Slot) -> None:
        """Read what a child has to say; end it if it hangs; go on after a case that killed it."""
        ended, status = os.waitpid(slot.pid, os.WNOHANG)
        slot.text += _read_all(slot.pipe)
        now = time.monotonic()
        if slot.seen != slot.progress.current:
            slot.seen, slot.since = slot.progress.current, now
        hanging = not ended and now - slot.since > self.target.limit_s
        if hanging:
            status = _kill(slot.pid)
        if not (ended or hanging):
            return
        os.close(slot.pipe)
        _end(slot.pid, signal.SIGKILL)
        slot.pid = 0
        at = slot.progress.current
        findings = [json.loads(line) for line in slot.text.splitlines()]
        end = end_of_child(status, slot.folder / "output", hanging)
        if end and at < slot.numbers.stop:
            findings.append({"case": at, **end._asdict()})
            at += 1
        self._write(range(slot.numbers.start, at), slot.progress.counts, findings)
        if at < slot.numbers.stop:
            self._start(slot, range(at, slot.numbers.stop))

    def _write(self, cases: range, counts: dict[str, int], findings: list[Any]) -> None:
        line = {"first": cases.start, "last": cases.stop, "counts": counts, "findings": findings}
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        self._done.append(range(line["first"], line["last"]))
        self.verdicts.update(line["counts"])
        for finding in line["findings"]:
            outcome = Outcome(finding["verdict"], finding["detail"], finding["message"])
            self.verdicts[outcome.verdict] += 1
            group = self.groups.setdefault((outcome.verdict, outcome.detail), Group())
            group.count += 1
            group.message = group.message or outcome.message
            if len(group.cases) < _EXAMPLES:
                group.cases.append(finding["case"])

    def _read(self) -> None:
        if not self._file.exists():
            self._file.write_text(json.dumps({"campaign": self.key}) + "\n")
        head, *lines = self._file.read_text().splitlines(keepends=True)
        if json.loads(head) != {"campaign": self.key}:
            raise ValueError(f"{self._file}: is of {head.strip()}, not of {self.key}")
        whole = [line for line in lines if line.endswith("\n")]  # the last may be cut short
        if len(whole) < len(lines):
            self._file.write_text(head + "".join(whole))
        for line in whole:
            self._take(json.loads(line))


def _read_all(pipe: int) -> bytes:
    read = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(pipe, 1 << 16):
            read += part
    return read


def _kill(pid: int) -> int:
    """End a child that hangs, after it had time to write its place, and return its status."""
    os.kill(pid, signal.SIGABRT)  # alone, so that its traceback is the only one
    deadline = time.monotonic() + _LAST_WORDS_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(_POLL_S)
    _end(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _end(pid: int, number: int) -> None:
    """Send a signal to a child and to what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)  # it may not have its group yet


# --- one case: alone, kept, made smaller ------------------------------------------------------


def run_alone(target: Target, made: Any, *, limits: bool = True) -> Outcome:
    names = ("name", "limit_s", "uses_files", "run")
    fixed: Any = SimpleNamespace(**{name: getattr(target, name) for name in names}, batch=1)
    fixed.make = lambda key, number: made
    with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
        campaign = Campaign(fixed, seed=0, out=Path(folder), limits=limits)
        campaign.run(1)
    for kind, group in campaign.groups.items():
        return Outcome(*kind, group.message)
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
    """Return a smaller case for which ``same`` holds, too: fewer edits, then fewer bytes."""
    case: Input = target.make(key, number)
    places = {int(edit.partition(":")[0]) for edit in case.edits}
    for place in sorted(places):
        fewer: Input = target.make(key, number, frozenset(places - {place}))
        if same(fewer):
            places, case = places - {place}, fewer
    untouched: Input = target.make(key, number, frozenset())
    for name in list(case.files):
        if case.files[name] != untouched.files.get(name):

            def filled(data: bytes, case: Input = case, name: str = name) -> Input:
                return replace(case, files={**case.files, name: data})

            case = filled(shrink_bytes(case.files[name], lambda data, f=filled: same(f(data))))
    return case


def shrink_bytes(data: bytes, same: Callable[[bytes], bool], max_runs: int = _MAX_RUNS) -> bytes:
    """Leave out pieces of ``data``, half of it at first, for as long as ``same`` holds."""
    runs, size = 0, len(data) // 2
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
