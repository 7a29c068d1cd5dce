"""A child process: runs some cases within limits; and why it ended, by its last words."""

import faulthandler
import json
import mmap
import os
import re
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path

from .case import OK, REFUSED, Outcome, Target

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
    """Start a child that runs the cases ``numbers`` of a prepared target, in its own folder.

    Returns its process id, and a descriptor from which findings can be read, a JSON line each.
    Without ``limits`` of memory a sanitizer has the address space that it needs.
    """
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
