"""The faults: what is done to a run of a plan, and what is to come of it."""

import os
import random
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fault_injection.plan import Plan
from fault_injection.processes import Process
from fault_injection.training import Training

#: Stages in which a worker is killed: those that every device has, and those of the first one.
EVERYWHERE = ("sample", "load", "transfer", "propagate", "sync")
STAGES = (*EVERYWHERE, "validate", "checkpoint")
#: Seconds in which a run has to end, and after which a run gives a stopped worker up.
LIMIT_S, STALL_LIMIT_S = 5.0, 10.0


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


def faults(plan: Plan, kills: int, chance: random.Random) -> Iterator[Callable[[], Outcome]]:
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
        yield partial(stop, plan, rank)
    yield partial(send, plan, "kill -9 of the command", signal.SIGKILL, chance)


def kill(plan: Plan, chance: random.Random, number: int) -> Outcome:
    """Kill -9 a random worker at a random time; one in five while it starts, which takes longer."""
    for attempt in range(5):
        outcome = try_to_kill(plan, chance, f"kill-{number}-{attempt}", starts=number % 5 == 0)
        if outcome is not None:
            return outcome
    raise RuntimeError(f"{plan.name}: five runs ended before a worker could be killed")


def try_to_kill(plan: Plan, chance: random.Random, name: str, *, starts: bool) -> Outcome | None:
    """As ``kill``; None if the run was over before."""
    run = plan.start(name)
    rank = chance.randrange(len(plan.devices))
    run.wait_for(run.has_all_workers)
    if starts:
        time.sleep(chance.random() * plan.starting)
    else:
        run.wait_for((run.directory / "metrics.jsonl").exists)
        time.sleep(chance.random() * 0.9 * plan.training)  # it may be quicker than that one
    run.watch()
    outcome = Outcome(plan=plan.name, fault="kill -9 of a worker", directory=run.directory)
    try:
        if not run.has_all_workers():
            raise ProcessLookupError
        worker = run.workers()[rank]
        outcome.doing = plan.watched.doing(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
    except (IndexError, ProcessLookupError):
        run.wait_until_gone()
        run.end()
        return None
    check_end(run, outcome, cause=killed(plan, rank, worker), status=1)
    return outcome if run.process.returncode else None


def begin(plan: Plan, name: str, fault: str, *options: str) -> tuple[Training, Outcome]:
    """Start a run, and wait until it has a checkpoint."""
    run = plan.start(name, *options)
    run.wait_for((run.directory / "checkpoints" / "last.safetensors").exists)
    run.watch()
    return run, Outcome(plan=plan.name, fault=fault, directory=run.directory)


def kill_in(plan: Plan, stage: str, rank: int) -> Outcome:
    """Kill -9 a worker as soon as one of its threads is in a stage of training."""
    run, outcome = begin(plan, f"kill-in-{stage}-{rank}", "kill -9 in each stage")
    worker, outcome.doing = run.workers()[rank], stage
    plan.watched.kill_in(worker.pid, stage)
    run.wait_for(lambda: not worker.alive)
    check_end(run, outcome, cause=killed(plan, rank, worker), status=1)
    return outcome


def killed(plan: Plan, rank: int, worker: Process) -> str:
    return f"^worker {plan.devices[rank]}: process {worker.pid} killed by SIGKILL"


def send(plan: Plan, name: str, number: signal.Signals, chance: random.Random) -> Outcome:
    """Send a signal to the process that the user started."""
    run, outcome = begin(plan, name.replace(" ", "-"), name)
    time.sleep(chance.random())
    run.watch()
    os.kill(run.process.pid, number)
    if number == signal.SIGKILL:
        check_end(run, outcome, cause="", status=-signal.SIGKILL)
        outcome.cause = "nothing: nobody is left to"
    else:
        check_end(run, outcome, cause="^gnnscale train resume=", status=130)
    return outcome


def stop(plan: Plan, rank: int) -> Outcome:
    """Stop a worker, as SIGSTOP or a debugger does, and leave it so."""
    option = f"runtime.stall_limit_s={STALL_LIMIT_S}"
    run, outcome = begin(plan, f"stopped-{rank}", "SIGSTOP of a worker", option)
    worker = run.workers()[rank]
    os.kill(worker.pid, signal.SIGSTOP)
    cause = rf"^worker {plan.devices[rank]} \(process {worker.pid}, stopped\) has given no sign"
    check_end(run, outcome, cause=cause, status=1, limit_s=LIMIT_S + STALL_LIMIT_S)
    return outcome


def exhaust(plan: Plan, rank: int) -> Outcome:
    """Let a worker have no more memory than it has when it begins to train."""
    run = plan.start(f"memory-{rank}")
    take_memory_as_it_begins(run, rank)
    outcome = Outcome(plan=plan.name, fault="out of memory in a worker", directory=run.directory)
    check_end(run, outcome, cause=f"^worker {plan.devices[rank]}: out of memory", status=1)
    return outcome


def take_memory_as_it_begins(run: Training, rank: int) -> None:
    """Let a worker have no more memory than it has once it has opened the graph."""

    def has_opened_the_graph() -> bool:
        if not run.has_all_workers():
            return False
        return "/features.npy" in Path(f"/proc/{run.workers()[rank].pid}/maps").read_text()

    run.wait_for(has_opened_the_graph)
    run.watch()
    take_memory(run.workers()[rank])


def take_memory(process: Process) -> None:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize()
    resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, limit))


def check_end(
    run: Training, outcome: Outcome, *, cause: str, status: int, limit_s: float = LIMIT_S
) -> None:
    """Wait for the end of a run that a fault has met, and look at what is left."""
    outcome.seconds, outcome.cause = run.wait_until_gone(), run.last_line()
    wrong = [f"left: {each}" for each in run.left_behind()]
    if outcome.seconds > limit_s:
        wrong.append(f"ended after {outcome.seconds:.1f} s")
    if run.process.poll() != status:
        wrong.append(f"exit status {run.process.poll()}, not {status}")
    if not re.search(cause, outcome.cause):
        wrong.append(f"its last line is {outcome.cause!r}")
    if "Traceback" in run.errors.read_text():
        wrong.append("a traceback on stderr")
    outcome.wrong += wrong
    run.end()


def check_resumed(plan: Plan, outcome: Outcome) -> Outcome:
    """Resume a run, and compare its weights with those of the one that nobody disturbed."""
    plan.finish(outcome.directory)
    outcome.difference = difference(plan.whole, outcome.directory)
    if outcome.difference != 0:
        outcome.wrong.append(f"weights differ by {outcome.difference:.1e}")
    return outcome


def difference(left: Path, right: Path) -> float:
    """Return the largest absolute difference between the last weights of two runs."""
    from gnnscale.run.checkpoint import LAST
    from gnnscale.run.checkpoint.file import load_checkpoint

    first, second = (load_checkpoint(run / LAST)["model"] for run in (left, right))
    return max(float((first[key] - other).abs().max()) for key, other in second.items())
