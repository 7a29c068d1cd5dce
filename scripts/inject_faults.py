"""Break training runs in every way a machine can, and check what is left of them.

    python scripts/inject_faults.py [--kills 20] [--seed 0]

Runs of ``gnnscale train`` on several devices get kill -9 in a random worker at a random time, Ctrl-C,
SIGTERM, a worker whose memory runs out, and kill -9 of the process that started them. Each has to end
within 5 s, to tell the cause in its last line, and to leave no process, shared memory or listening
port. Then it is resumed, and has to end with the weights of a run that nobody disturbed, bit for bit.

Prints a Markdown table; the exit status is 1 where a check failed. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

#: Seconds in which a run has to end, and after which nobody waits any longer.
LIMIT_S = 5.0
GIVE_UP_S = 60.0
ACCELERATOR = (
    "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,"
    "link_bandwidth:1e9,launch_s:4e-3}"
)
#: Devices of a plan, their names, and a split that is kept, so that weights can be compared.
PLANS = {
    "hybrid_emulated": (f"device_plan.devices=[cpu,{ACCELERATOR}]", ("cpu:0", "emulated:1")),
    "cpu_x2": ("device_plan.devices=[cpu,cpu]", ("cpu:0", "cpu:1")),
}
OPTIONS = (
    *("dataset.num_vertices=20000", "dataset.num_edges=200000", "model.hidden=32"),
    *("sampler.fanouts=[10,5]", "batch_size=256", "device_plan.split=[156,100]", "num_threads=2"),
    *("runtime.drm=false", "runtime.prefetch=two_stage", "epochs=20"),
)
#: Told to every process of a run, so that SIGUSR1 makes it write down what its threads are doing.
STACKS = """\
import faulthandler, os, signal
file = open(os.path.join(os.environ["GNNSCALE_STACKS"], str(os.getpid())), "w")
faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
"""
#: What a worker is doing, by the innermost of these functions on a thread's stack.
DOING = {
    **{stage: stage for stage in ("sample", "load", "transfer", "propagate")},
    **dict.fromkeys(("synchronize", "update", "account"), "sync"),
    **dict.fromkeys(("_validate", "test"), "validate"),
    **dict.fromkeys(("_save", "save_checkpoint"), "checkpoint"),
    **dict.fromkeys(("_start", "_make_plan", "open"), "set up"),
    "join": "meet the others",
    "end_epoch": "end an epoch",
}


# --- processes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one with the same number."""

    pid: int
    start: int
    command: str

    @property
    def alive(self) -> bool:
        found = look_at(self.pid)
        return found is not None and found[0].start == self.start and found[2] not in "ZX"


def look_at(pid: int) -> tuple[Process, int, str] | None:
    """Return a process, its parent and its state; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (OSError, ValueError):
        return None
    process = Process(pid=pid, start=int(fields[19]), command=command)
    return process, int(fields[1]), fields[0]


def descendants(pid: int) -> list[Process]:
    """Return the processes below ``pid``, the oldest first."""
    numbers = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    found = [each for number in numbers if (each := look_at(number)) is not None]
    family, before = {pid}, 0
    while len(family) > before:
        before = len(family)
        family |= {process.pid for process, parent, _ in found if parent in family}
    below = [process for process, _, _ in found if process.pid in family - {pid}]
    return sorted(below, key=lambda process: (process.start, process.pid))


def listening() -> dict[str, int]:
    """Return the ports on which this machine listens, by the number of their socket."""
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A":
                ports[parts[9]] = int(parts[1].rpartition(":")[2], 16)
    return ports


def sockets(pid: int) -> set[str]:
    """Return the numbers of a process's sockets."""
    found = set()
    try:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(each))
            if match:
                found.add(match[1])
    except OSError:
        pass
    return found


def shared_memory() -> set[str]:
    return {each.name for each in Path("/dev/shm").iterdir()}


# --- runs -------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Training:
    """A run of ``gnnscale train`` as its user sees it, and what belongs to it.

    Attributes:
        seen: processes that it started.
        sockets: listening sockets of any of them.
    """

    process: subprocess.Popen[bytes]
    directory: Path
    errors: Path
    began: float
    shared_memory: set[str]
    seen: set[Process] = field(default_factory=set)
    sockets: set[str] = field(default_factory=set)

    def watch(self) -> None:
        """Take note of its processes and sockets."""
        below = descendants(self.process.pid)
        self.seen |= set(below)
        mine = set[str]().union(*(sockets(pid) for pid in (self.process.pid, *self.pids(below))))
        self.sockets |= mine & listening().keys()

    @staticmethod
    def pids(processes: list[Process]) -> list[int]:
        return [process.pid for process in processes]

    def workers(self) -> list[Process]:
        """Its worker processes that are there by now, in the order of ranks."""
        below = descendants(self.process.pid)
        return [process for process in below if "spawn_main" in process.command]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something has happened; the run must go on until then."""
        deadline = time.monotonic() + GIVE_UP_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise RuntimeError(f"ended too early:\n{self.errors.read_text()}")
            time.sleep(0.005)

    def alive(self) -> list[Process]:
        return [process for process in self.seen if process.alive]

    def wait_until_gone(self) -> float:
        """Wait until no process is left, and return the clock's time."""
        deadline = time.monotonic() + GIVE_UP_S
        while (self.process.poll() is None or self.alive()) and time.monotonic() < deadline:
            time.sleep(0.005)
        return time.monotonic()

    def end(self) -> None:
        """Leave nothing to whoever comes next."""
        for process in self.alive():
            os.kill(process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def left_behind(self) -> list[str]:
        """Name what should be gone."""
        left = [f"process {process.pid}" for process in self.alive()]
        left += [f"port {listening()[each]}" for each in self.sockets & listening().keys()]
        left += [f"/dev/shm/{name}" for name in shared_memory() - self.shared_memory]
        return left + [str(file) for file in self.directory.glob("checkpoints/.*")]

    def last_line(self) -> str:
        lines = self.errors.read_text().splitlines()
        return lines[-1] if lines else ""


def start(directory: Path, *options: str, environment: dict[str, str]) -> Training:
    """Start a run in ``directory``, or resume the one that is there."""
    what = f"resume={directory}" if "resume" in options else f"hydra.run.dir={directory}"
    rest = [option for option in options if option != "resume"]
    errors = directory.with_name(f"{directory.name}.{time.monotonic_ns()}.err")
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "gnnscale", "train", what, *rest],
            cwd=directory.parent,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            start_new_session=True,
        )
    return Training(
        process=process,
        directory=directory,
        errors=errors,
        began=time.monotonic(),
        shared_memory=shared_memory(),
    )


def prepare_home(home: Path) -> None:
    """Put figures of a machine into ``GNNSCALE_HOME``, so that no run measures this one."""
    published = resources.files("gnnscale.configs") / "platform" / "epyc7763_a5000_x4.yaml"
    lines = published.read_text().splitlines(keepends=True)
    (home / "platform.yaml").write_text("".join(x for x in lines if not x.startswith("_target_")))


def difference(left: Path, right: Path) -> float:
    """Return the largest absolute difference between the last weights of two runs."""
    import torch

    weights = [
        torch.load(run / "checkpoints" / "last.pt", weights_only=True)["model"]
        for run in (left, right)
    ]
    return max(float((weights[0][key] - weights[1][key]).abs().max()) for key in weights[0])
