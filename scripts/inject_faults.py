"""Break training runs in every way a machine can, and check what is left of them.

    python scripts/inject_faults.py [--kills 20] [--seed 0]

Runs of ``gnnscale train`` on several devices get kill -9 of a random worker at a random time,
kill -9 in each stage of training, SIGINT, SIGTERM, a worker whose memory runs out, and kill -9 of
the process that started them. Each has to end within 5 s, to tell the cause in its last line, and
to leave no process, shared memory or listening port. Then it is resumed, and has to end with the
weights of a run that nobody disturbed, bit for bit.

Prints a Markdown table; the exit status is 1 where a check failed. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path

BEGAN = time.monotonic()
#: Seconds in which a run has to end, and after which nobody waits any longer.
LIMIT_S = 5.0
GIVE_UP_S = 120.0
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
    *("runtime.drm=false", "runtime.prefetch=two_stage", "epochs=24"),
)
#: Stages in which a worker is killed: those that every device has, and those of the first one.
EVERYWHERE = ("sample", "load", "transfer", "propagate", "sync")
STAGES = (*EVERYWHERE, "validate", "checkpoint")
#: Run in every process of a run: a thread that tells what the others are doing when it is asked to,
#: or has the process killed as soon as one of them is where it is to be killed.
WATCHER = """\
import os, signal, sys, threading, time

def watch():
    name = os.path.join(os.environ["GNNSCALE_WATCHED"], str(os.getpid()))
    while True:
        time.sleep(0.0005)
        if os.path.exists(name + ".ask"):
            with open(name + ".tell", "w") as file:
                file.write("\\n".join(" ".join(each) for each in stacks()))
            os.remove(name + ".ask")
        if os.path.exists(name + ".kill"):
            where = set(open(name + ".kill").read().split())
            while not any(where & set(each) for each in stacks()):
                time.sleep(0.0002)
            os.kill(os.getpid(), signal.SIGKILL)

def stacks():
    for frame in sys._current_frames().values():
        names = []
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith(("gnnscale.runtime", "gnnscale.b")):
                names.append(frame.f_code.co_name)
            frame = frame.f_back
        yield names

def start():
    threading.Thread(target=watch, daemon=True).start()

start()
# A thread does not survive a fork.
os.register_at_fork(after_in_child=start)
"""
#: What a worker is doing, by the innermost of these functions on a thread's stack.
DOING = {
    **{stage: stage for stage in ("sample", "load", "transfer", "propagate")},
    **dict.fromkeys(("synchronize", "update", "account"), "sync"),
    **dict.fromkeys(("_validate", "test"), "validate"),
    **dict.fromkeys(("_save", "save_checkpoint"), "checkpoint"),
    **dict.fromkeys(("_start", "_make_plan", "open", "profile_plan"), "set up"),
    "join": "meet the others",
    "end_epoch": "end an epoch",
    "_next": "wait for a mini-batch",
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


def elapsed() -> Iterator[float]:
    """Yield the seconds since the first one; while a virtual machine is paused, none pass."""
    seconds, last = 0.0, time.monotonic()
    while True:
        yield seconds
        time.sleep(0.005)
        now = time.monotonic()
        seconds, last = seconds + min(now - last, 0.5), now


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

    def server(self) -> Process | None:
        """The process that forks its workers."""
        below = descendants(self.process.pid)
        return next((process for process in below if "fork_server" in process.command), None)

    def workers(self) -> list[Process]:
        """Its worker processes that are there by now, in the order of ranks."""
        server = self.server()
        return [] if server is None else descendants(server.pid)

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
        shared_memory=shared_memory(),
    )


def prepare_home(home: Path) -> None:
    """Put figures of a machine into ``GNNSCALE_HOME``, so that no run measures this one."""
    published = resources.files("gnnscale.configs") / "platform" / "epyc7763_a5000_x4.yaml"
    lines = published.read_text().splitlines(keepends=True)
    (home / "platform.yaml").write_text("".join(x for x in lines if not x.startswith("_target_")))


def difference(left: Path, right: Path) -> float:
    """Return the largest absolute difference between the last weights of two runs."""
    from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint

    weights = [load_checkpoint(run / LAST)["model"] for run in (left, right)]
    return max(float((weights[0][key] - other).abs().max()) for key, other in weights[1].items())


# --- faults -----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Outcome:
    """What a fault led to; ``wrong`` names every check that failed."""

    plan: str
    fault: str
    directory: Path
    doing: str = ""
    seconds: float = 0.0
    cause: str = ""
    difference: float | None = None
    wrong: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Plan:
    """A plan under test: its options, and its undisturbed run.

    Attributes:
        starting: seconds from that run's first worker to its first step.
        training: seconds from there to its end.
    """

    name: str
    options: tuple[str, ...]
    devices: tuple[str, ...]
    folder: Path
    environment: dict[str, str]
    whole: Path = Path()
    starting: float = 0.0
    training: float = 0.0

    def start(self, name: str) -> Training:
        return start(self.folder / name, *self.options, environment=self.environment)

    def finish(self, directory: Path, *options: str) -> None:
        """Let a run come to its end."""
        run = start(directory, *options, environment=self.environment)
        run.wait_until_gone()
        run.end()
        if run.process.returncode:
            raise RuntimeError(f"{directory}: did not finish: {run.errors.read_text()}")

    def measure(self) -> None:
        """Do the undisturbed run."""
        self.whole = self.folder / "whole"
        run = self.start("whole")
        run.wait_for(run.workers)
        began = time.monotonic()
        run.wait_for((self.whole / "config.yaml").exists)
        self.starting = time.monotonic() - began
        self.training = run.wait_until_gone()
        run.end()
        if run.process.returncode:
            raise RuntimeError(f"{self.name}: {run.errors.read_text()}")


def doing(worker: Process, watched: Path) -> str:
    """Have a worker tell what its threads are doing."""
    ask, told = (watched / f"{worker.pid}.{what}" for what in ("ask", "tell"))
    ask.touch()
    deadline = time.monotonic() + 0.05
    while ask.exists() and time.monotonic() < deadline:
        time.sleep(0.0005)
    if ask.exists():
        return "start"
    found = []
    for thread in told.read_text().splitlines():
        found += [DOING[name] for name in thread.split() if name in DOING][:1]
    return " + ".join(dict.fromkeys(sorted(found))) or "start"


def check_end(run: Training, outcome: Outcome, *, cause: str, status: int) -> None:
    """Wait for the end of a run that a fault has met, and look at what is left."""
    outcome.seconds = run.wait_until_gone()
    outcome.cause = run.last_line()
    errors = run.errors.read_text()
    wrong = [f"left behind: {each}" for each in run.left_behind()]
    if outcome.seconds > LIMIT_S:
        wrong.append(f"ended after {outcome.seconds:.1f} s")
    if run.process.poll() != status:
        wrong.append(f"exit status {run.process.poll()}, not {status}")
    if not re.search(cause, outcome.cause):
        wrong.append(f"its last line is {outcome.cause!r}")
    if "Traceback" in errors:
        wrong.append("a traceback on stderr")
    outcome.wrong += wrong
    run.end()


def check_resumed(plan: Plan, outcome: Outcome) -> Outcome:
    """Resume a run, and compare its weights with those of the one that nobody disturbed."""
    if not (outcome.directory / "config.yaml").exists():
        plan.finish(outcome.directory, *plan.options)  # it had not begun: nothing to resume
    else:
        plan.finish(outcome.directory, "resume")
    outcome.difference = difference(plan.whole, outcome.directory)
    if outcome.difference != 0:
        outcome.wrong.append(f"weights differ by {outcome.difference:.1e}")
    return outcome


def kill(plan: Plan, chance: random.Random, number: int) -> Outcome:
    """Kill -9 a random worker at a random time; one in five while it starts.

    Starting takes longer than these short runs, most of it the import of torch: times drawn from
    all of a run would hardly ever meet its stages.
    """
    for attempt in range(5):
        outcome = try_to_kill(plan, chance, f"kill-{number}-{attempt}", starts=number % 5 == 0)
        if outcome is not None:
            return outcome
    raise RuntimeError(f"{plan.name}: five runs ended before a worker could be killed")


def try_to_kill(plan: Plan, chance: random.Random, name: str, *, starts: bool) -> Outcome | None:
    """As ``kill``; None where the run was over before."""
    run = plan.start(name)
    rank = chance.randrange(len(plan.devices))
    run.wait_for(lambda: len(run.workers()) == len(plan.devices))
    if starts:
        time.sleep(chance.random() * plan.starting)
    else:
        run.wait_for((run.directory / "config.yaml").exists)
        time.sleep(chance.random() * 0.9 * plan.training)  # it may be quicker than that one
    run.watch()
    workers = run.workers()
    if len(workers) < len(plan.devices):
        run.wait_until_gone()
        run.end()
        return None
    worker = workers[rank]
    outcome = Outcome(plan=plan.name, fault="kill -9 of a worker", directory=run.directory)
    outcome.doing = doing(worker, plan.folder / "watched")
    try:
        os.kill(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        run.wait_until_gone()
        return None
    cause = f"^worker {plan.devices[rank]}: process {worker.pid} killed by SIGKILL"
    check_end(run, outcome, cause=cause, status=1)
    if run.process.returncode == 0:
        return None
    return outcome


def kill_in(plan: Plan, stage: str, rank: int) -> Outcome:
    """Kill -9 a worker as soon as one of its threads is in a stage of training."""
    run = plan.start(f"kill-in-{stage}-{rank}")
    run.wait_for((run.directory / "checkpoints" / "last.safetensors").exists)
    run.watch()
    worker = run.workers()[rank]
    functions = " ".join(name for name, what in DOING.items() if what == stage)
    staged = plan.folder / "watched" / f"{worker.pid}.to-kill"
    staged.write_text(functions)
    staged.rename(staged.with_suffix(".kill"))
    run.wait_for(lambda: not worker.alive)
    outcome = Outcome(plan=plan.name, fault="kill -9 in each stage", directory=run.directory)
    outcome.doing = stage
    cause = f"^worker {plan.devices[rank]}: process {worker.pid} killed by SIGKILL"
    check_end(run, outcome, cause=cause, status=1)
    return outcome


def send(plan: Plan, name: str, number: signal.Signals, chance: random.Random) -> Outcome:
    """Send a signal to the process that the user started."""
    run = plan.start(name.replace(" ", "-"))
    run.wait_for((run.directory / "checkpoints" / "last.safetensors").exists)
    time.sleep(chance.random())
    run.watch()
    outcome = Outcome(plan=plan.name, fault=name, directory=run.directory)
    os.kill(run.process.pid, number)
    if number == signal.SIGKILL:
        check_end(run, outcome, cause="", status=-signal.SIGKILL)
        outcome.cause = "nothing: nobody is left to"
    else:
        check_end(run, outcome, cause="^interrupted$", status=130)
    return outcome


def exhaust(plan: Plan, rank: int) -> Outcome:
    """Let a worker have no more memory than it has when it begins to train."""
    run = plan.start(f"memory-{rank}")

    def has_opened_the_graph() -> bool:
        workers = run.workers()
        if len(workers) < len(plan.devices):
            return False
        return "/features.npy" in Path(f"/proc/{workers[rank].pid}/maps").read_text()

    run.wait_for(has_opened_the_graph)
    run.watch()
    worker = run.workers()[rank]
    pages = int(Path(f"/proc/{worker.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize()
    resource.prlimit(worker.pid, resource.RLIMIT_AS, (limit, limit))
    outcome = Outcome(plan=plan.name, fault="out of memory in a worker", directory=run.directory)
    cause = f"^worker {plan.devices[rank]}: out of memory"
    check_end(run, outcome, cause=cause, status=1)
    return outcome


def faults(plan: Plan, kills: int, chance: random.Random) -> Iterator[Callable[[], Outcome]]:
    """Yield what is to be done to a plan."""
    for number in range(kills):
        yield partial(kill, plan, chance, number)
    for stage in STAGES:
        rank = len(plan.devices) - 1 if stage in EVERYWHERE else 0
        if stage != "transfer" or plan.devices[rank].startswith("emulated"):
            yield partial(kill_in, plan, stage, rank)
    yield partial(send, plan, "SIGINT", signal.SIGINT, chance)
    yield partial(send, plan, "SIGTERM", signal.SIGTERM, chance)
    for rank in range(len(plan.devices)):
        yield partial(exhaust, plan, rank)
    yield partial(send, plan, "kill -9 of the command", signal.SIGKILL, chance)


# --- results ----------------------------------------------------------------------------------


def table(outcomes: list[Outcome]) -> str:
    """Return the results, a row for each fault of each plan."""
    lines = [
        "| device plan | fault | runs | ended after, median and longest | what it tells "
        "| largest difference of resumed weights | passed |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = dict.fromkeys((outcome.plan, outcome.fault) for outcome in outcomes)
    for plan, fault in rows:
        group = [each for each in outcomes if (each.plan, each.fault) == (plan, fault)]
        seconds = [each.seconds for each in group]
        differences = [each.difference for each in group if each.difference is not None]
        cause = re.sub(r"process \d+", "process N", group[0].cause)
        cause = re.split(r"[;(]", cause)[0].strip()
        lines.append(
            f"| {plan} | {fault} | {len(group)} "
            f"| {statistics.median(seconds):.2f} s, {max(seconds):.2f} s | {cause} "
            f"| {max(differences, default=float('nan')):g} "
            f"| {sum(not each.wrong for each in group)} of {len(group)} |"
        )
    met = Counter(each.doing for each in outcomes if each.doing)
    lines.append("")
    lines.append("Killed workers were at: " + ", ".join(f"{k} ({n})" for k, n in met.most_common()))
    return "\n".join(lines)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--kills", type=int, default=20, help="kill -9 of workers, in all")
    arguments.add_argument("--seed", type=int, default=0, help="of workers and times")
    options = arguments.parse_args()
    chance = random.Random(options.seed)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="gnnscale-faults-") as temporary:
        for position, (name, (devices, names)) in enumerate(PLANS.items()):
            plan = set_up(Path(temporary) / name, name, devices, names)
            kills = (options.kills + position) // len(PLANS)
            outcomes += disturb_and_resume(plan, faults(plan, kills, chance))
    print(table(outcomes))
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def disturb_and_resume(plan: Plan, disturb: Iterator[Callable[[], Outcome]]) -> list[Outcome]:
    """Do one run after the other to a plan, and resume them two at a time."""
    outcomes = []
    for inject in disturb:
        outcome = inject()
        outcomes.append(outcome)
        at = f" at {outcome.doing}" if outcome.doing else ""
        tell(plan, outcome, f"{outcome.fault}{at}: ended after {outcome.seconds:.2f} s")
    with ThreadPoolExecutor(max_workers=2) as pool:
        for outcome in pool.map(lambda outcome: check_resumed(plan, outcome), outcomes):
            tell(plan, outcome, f"{outcome.fault}: resumed")
    return outcomes


def tell(plan: Plan, outcome: Outcome, what: str) -> None:
    """Print a line of progress."""
    wrong = "; ".join(outcome.wrong) or "as it should"
    now = time.monotonic() - BEGAN
    print(f"{now:4.0f} s  {plan.name}: {what}: {wrong}", file=sys.stderr, flush=True)


def set_up(folder: Path, name: str, devices: str, names: tuple[str, ...]) -> Plan:
    """Prepare folders, and do the undisturbed run."""
    home, hooks, watched = folder / "home", folder / "hooks", folder / "watched"
    for each in (home, hooks, watched):
        each.mkdir(parents=True)
    prepare_home(home)
    (hooks / "sitecustomize.py").write_text(WATCHER)
    plan = Plan(
        name=name,
        options=(*OPTIONS, devices),
        devices=names,
        folder=folder,
        environment=os.environ
        | {
            "GNNSCALE_HOME": str(home),
            "GNNSCALE_WATCHED": str(watched),
            "PYTHONPATH": os.pathsep.join([str(hooks), *os.environ.get("PYTHONPATH", "").split()]),
        },
    )
    prepared = [option for option in OPTIONS if option.startswith("dataset.")]
    subprocess.run(
        [sys.executable, "-m", "gnnscale", "prepare", *prepared],
        env=plan.environment,
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    plan.measure()
    return plan


if __name__ == "__main__":
    sys.exit(main())
