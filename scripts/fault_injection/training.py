"""A run of ``gnnscale train``: starting it, finding its processes, and seeing what it leaves."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fault_injection import processes
from fault_injection.processes import Process, descendants, elapsed, listening, look_at
from fault_injection.watched import Watched

#: Seconds after which nobody waits any longer.
GIVE_UP_S = 120.0


@dataclass(kw_only=True)
class Training:
    """A run as its user sees it, and what belongs to it."""

    process: subprocess.Popen[bytes]
    directory: Path
    errors: Path
    devices: Sequence[str]  #: names of its workers, in the order of ranks
    watched: Watched
    temporary: Path  #: where it and its workers put temporary files
    shared_memory: set[str]
    seen: set[Process] = field(default_factory=set)  #: processes that it started
    sockets: set[str] = field(default_factory=set)  #: listening ones of any of them

    def watch(self) -> None:
        """Take note of its processes and sockets."""
        below = descendants(self.process.pid)
        self.seen |= set(below)
        pids = [self.process.pid, *(process.pid for process in below)]
        self.sockets |= set[str]().union(*map(processes.sockets, pids)) & listening().keys()

    def workers(self) -> list[Process]:
        """Its worker processes that are there by now, in the order of ranks."""
        below = descendants(self.process.pid)
        found = {self.watched.name(process.pid): process for process in below}
        return [found[name] for name in self.devices if name in found]

    def server(self) -> Process:
        """The process that forked its workers."""
        _, parent, _ = look_at(self.workers()[0].pid)
        return look_at(parent)[0]

    def has_all_workers(self) -> bool:
        return len(self.workers()) == len(self.devices)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something has happened; the run must go on until then."""
        for seconds in elapsed():
            if condition():
                return
            if self.process.poll() is not None or seconds > GIVE_UP_S:
                self.end()
                errors = self.errors.read_text()
                raise RuntimeError(f"{self.directory}: stopped after {seconds:.1f} s: {errors}")

    def alive(self) -> list[Process]:
        return [process for process in self.seen if process.alive]

    def wait_until_gone(self) -> float:
        """Wait until no process is left, and return the seconds that took."""
        for seconds in elapsed():
            if seconds > GIVE_UP_S or not (self.process.poll() is None or self.alive()):
                return seconds
        raise AssertionError

    def end(self) -> None:
        """Leave nothing to whoever comes next."""
        for process in self.alive():
            os.kill(process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def left_behind(self) -> list[str]:
        """Name what should be gone; of a command that is killed, nobody removes files."""
        left = [f"process {process.pid}" for process in self.alive()]
        left += [f"port {listening()[each]}" for each in self.sockets & listening().keys()]
        left += [f"/dev/shm/{name}" for name in processes.shared_memory() - self.shared_memory]
        if self.process.returncode != -signal.SIGKILL:
            files = (*self.directory.glob("checkpoints/.*"), *self.temporary.glob("*"))
            left += [str(file) for file in files]
        return left

    def last_line(self) -> str:
        lines = self.errors.read_text().splitlines()
        return lines[-1] if lines else ""


def start(
    directory: Path,
    *options: str,
    devices: Sequence[str],
    watched: Watched,
    program: Sequence[str] = ("-m", "gnnscale"),
) -> Training:
    """Start a run in ``directory``, or ``resume`` the one there; it ends with this process."""
    what = f"resume={directory}" if "resume" in options else f"hydra.run.dir={directory}"
    rest = [option for option in options if option != "resume"]
    errors = directory.with_name(f"{directory.name}.{time.monotonic_ns()}.err")
    # A short name: addresses of sockets are below it, and may have 107 characters.
    temporary = Path(tempfile.mkdtemp(prefix="faults-"))
    before, command = processes.shared_memory(), [sys.executable, *program, "train", what, *rest]
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=directory.parent,
            env=watched.environment | {"TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=stream,
            start_new_session=True,
            preexec_fn=processes.end_with_parent,
        )
    of_run = {"process": process, "directory": directory, "errors": errors, "devices": devices}
    return Training(**of_run, watched=watched, temporary=temporary, shared_memory=before)
