#!/usr/bin/env python
"""Trains on three machines, kills one of them at a random moment, and looks at what comes of it.

The machines are network namespaces. The run has to continue with those that are left, and to end
with the weights of a run that nothing disturbs. Needs root, ip of iproute2, and unshare.

With ``--rows divided`` each machine has a part of the rows. The run continues once all parts are
there again; otherwise, and with ``--restarts 0``, every process that is left names the lost one.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from fault_injection.machines import (
    MACHINES,
    STORE_ADDRESS,
    STORE_PORT,
    STORE_PROGRAM,
    Network,
    address,
    ip,
    kill,
    suppress_gone,
)
from fault_injection.processes import elapsed, shared_memory
from gnnscale.run.checkpoint.file import load_checkpoint

#: Options of the run; ``cpu_each`` has a device for each machine that is there.
OPTIONS = (
    *("dataset.num_vertices=20000", "dataset.num_edges=200000", "dataset.num_features=128"),
    *("model.hidden=256", "model.dropout=0", "sampler.fanouts=[15,10]", "batch_size=1000"),
    *("epochs=60", "num_threads=1", "device_plan=cpu_each", "runtime.drm=false"),
    *("runtime.checkpoint_every_s=0.5", "runtime.eval_every=20"),
    # Adam divides by what gradients are, and makes much of the rounding of small ones.
    *("optimizer=sgd", "optimizer.lr=0.001"),
)
#: A machine counts as lost after three seconds without a sign of life.
RENDEZVOUS = "is_host=false,last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"
#: What can be lost: all processes of a machine, torchrun's alone, the worker alone, the network;
#: or the worker stops, or a machine comes back after it was killed; or nothing is lost.
KINDS = ("machine", "torchrun", "worker", "network", "stopped", "return", "nothing")
#: Those after which all three machines are there at the end.
STAYING = ("worker", "stopped", "return", "nothing")
#: Seconds after which a worker that stopped is given up.
STALL_LIMIT_S = 10
#: Largest difference of a weight that rounding in another order explains.
TOLERANCE = 1e-5
#: Seconds after which a run counts as stuck.
GIVE_UP_S = 240.0


@dataclass(kw_only=True)
class Trial:
    """A run that loses a machine."""

    number: int
    what: str  #: one of ``KINDS``
    lost: str  #: the machine
    at: float  #: steps, of which there is a checkpoint by then
    folder: Path
    disk: str
    stores: Path | None  #: has those of the parts; None if each machine has all rows
    restarts: int  #: how often torchrun starts the processes again
    was_first: bool = False  #: whether rank 0 was there
    continued: str = ""  #: how the run continued
    seconds: float = 0.0  #: from the loss until the run resumes from a checkpoint
    difference: float = float("nan")  #: largest, of a weight
    left: list[str] = field(default_factory=list)  #: what remained
    wrong: list[str] = field(default_factory=list)

    @property
    def has_to_end(self) -> bool:
        """Whether the run cannot continue without what is lost."""
        if self.restarts == 0:
            return self.what != "nothing"
        return self.stores is not None and self.what not in STAYING

    @property
    def numbers(self) -> str:
        """How many machines torchrun may begin with again."""
        return "3" if self.restarts == 0 or (self.stores and self.what in STAYING) else "2:3"

    @property
    def cause(self) -> str:
        """What each process that is left has to say, as a regular expression."""
        worker = rf"worker cpu:\d on {self.lost}"
        found = rf"lost {worker} \("
        if self.what == "stopped":
            return rf"{worker} \(process \d+, stopped\) has given no sign of life"
        if self.what == "torchrun":
            found += rf"|{worker} has ended \(interrupted\)"
        if self.lost == "a" and self.restarts == 0:
            # Its torchrun, which ends with the worker, has the store in which processes meet.
            found += f"|lost torchrun's store at {address(0)}:"
        return found

    def log(self, machine: str) -> Path:
        """Return the file that has what the processes of a machine have printed."""
        return self.folder / f"{machine}.log"

    def directory(self, machine: str) -> Path:
        """Return the run directory of a machine."""
        return self.folder / (machine if self.disk == "own" else "shared") / "run"

    def has_resumed(self) -> bool:
        """Return whether the run has resumed from a checkpoint."""
        logs = {self.directory(each) / "train.log" for each in MACHINES}
        return any(": resuming " in log.read_text() for log in logs if log.exists())

    def is_reached(self) -> bool:
        """Whether the run is at the step at which it loses a machine, and has a checkpoint."""
        folders = {self.directory(each) for each in MACHINES}
        steps = [each / "steps.jsonl" for each in folders]
        done = max((each.read_bytes().count(b"\n") for each in steps if each.exists()), default=0)
        saved = any((each / "checkpoints" / "last.safetensors").exists() for each in folders)
        return saved and done >= self.at


def start(network: Network, trial: Trial, name: str) -> subprocess.Popen[bytes]:
    """Start torchrun on a machine."""
    temporary = trial.folder / f"tmp-{name}"
    temporary.mkdir(parents=True, exist_ok=True)
    number = MACHINES.index(name)
    torchrun = ["-m", "torch.distributed.run", f"--nnodes={trial.numbers}", "--nproc-per-node=1"]
    torchrun.append(f"--max-restarts={trial.restarts}")
    if trial.restarts:
        torchrun += ["--rdzv-backend=c10d", f"--rdzv-endpoint={STORE_ADDRESS}:{STORE_PORT}"]
        torchrun += [f"--rdzv-id=trial-{trial.number}", f"--rdzv-conf={RENDEZVOUS}"]
        torchrun.append(f"--local-addr={address(number)}")
    else:
        torchrun += [f"--node-rank={number}", f"--master-addr={address(0)}", "--master-port=29500"]
    options = [*OPTIONS, f"output={trial.directory(name)}"]
    if trial.stores is not None:
        options = [each for each in options if not each.startswith("dataset.")]
        options += ["dataset=store", f"dataset.store={trial.stores / str(number)}"]
        options.append("features=shared")
    if trial.what == "stopped":
        options.append(f"runtime.stall_limit_s={STALL_LIMIT_S}")
    train = ("-m", "gnnscale", "train", *options)
    variables = {"GLOO_SOCKET_IFNAME": "eth0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    variables |= {"TMPDIR": str(temporary), "LOG": str(trial.log(name))}
    return network.begin(name, *torchrun, *train, **variables)


def run(network: Network, trial: Trial, expected: dict[str, torch.Tensor]) -> None:
    """Train, take a machine away, and compare."""
    trial.folder.mkdir()
    before = shared_memory()
    agents = {name: start(network, trial, name) for name in MACHINES}
    try:
        _until(trial.is_reached, agents, "no checkpoint")
        time.sleep(trial.at % 1 * 0.1)  # anywhere in a step
        first = trial.directory(trial.lost) / "steps.jsonl"
        trial.was_first = trial.disk == "own" and first.exists()
        _lose(network, trial)
        if trial.has_to_end:
            _end(network, trial, agents)
        else:
            _continue(network, trial, agents)
            _compare(trial, expected)
    except TimeoutError as error:
        trial.wrong.append(str(error))
    if trial.what == "network":
        # Its torchrun gives up some time later, which nobody waits for.
        network.kill(trial.lost)
        ip("-n", network.names[trial.lost], "link", "set", "eth0", "up")
    _look_for_rests(network, trial, before)
    for name, agent in agents.items():
        network.kill(name)
        agent.wait()


def _continue(network: Network, trial: Trial, agents: dict[str, subprocess.Popen[bytes]]) -> None:
    """Wait until the run has resumed and ended; a machine that returns may have to do so before."""
    began = time.monotonic()
    if trial.what == "return" and trial.stores is not None:
        agents[trial.lost] = start(network, trial, trial.lost)
    if trial.what != "nothing":
        _until(trial.has_resumed, agents, "not resumed")
    trial.seconds = time.monotonic() - began
    if trial.what == "return" and trial.stores is None:
        agents[trial.lost] = start(network, trial, trial.lost)
    gone = () if trial.what in STAYING else (trial.lost,)
    _until_ended([each for name, each in agents.items() if name not in gone])


def _end(network: Network, trial: Trial, agents: dict[str, subprocess.Popen[bytes]]) -> None:
    """Wait until all that is left has ended, and look for what it says."""
    began = time.monotonic()
    left = {name: each for name, each in agents.items() if name != trial.lost}
    _until_ended([*left.values()])
    trial.seconds = time.monotonic() - began
    silent = []
    for name in left:
        lines = trial.log(name).read_text().splitlines()
        if not any(re.match(trial.cause, line) for line in lines):
            silent.append(name)
        if trial.restarts and not any("got none for part " in line for line in lines):
            trial.wrong.append(f"{name} does not name the part")
    # Once one has ended, torchrun interrupts the others to start them again.
    if len(silent) > (1 if trial.restarts else 0):
        trial.wrong.append(f"{' and '.join(silent)} do not name {trial.lost}")
    if trial.what == "stopped":
        # A stopped process does nothing. Once it continues, its connections are closed.
        for pid in network.pids(trial.lost):
            with suppress_gone():
                os.kill(pid, signal.SIGCONT)
    trial.continued = "ended"


def _lose(network: Network, trial: Trial) -> None:
    if trial.what == "network":
        ip("-n", network.names[trial.lost], "link", "set", "eth0", "down")
    elif trial.what in ("machine", "return"):
        network.kill(trial.lost)
    elif trial.what != "nothing":
        worker = network.worker(trial.lost)
        others = [pid for pid in network.pids(trial.lost) if pid != worker]
        if trial.what == "stopped" and worker is not None:
            os.kill(worker, signal.SIGSTOP)
            return
        for pid in others if trial.what == "torchrun" else [worker]:
            if pid is not None:
                kill(pid)


def _until(
    condition: Callable[[], object], agents: dict[str, subprocess.Popen[bytes]], what: str
) -> None:
    for seconds in elapsed():
        if condition():
            return
        if seconds > GIVE_UP_S or all(each.poll() is not None for each in agents.values()):
            raise TimeoutError(f"{what} ({seconds:.0f} s)")


def _until_ended(agents: Sequence[subprocess.Popen[bytes]]) -> None:
    for seconds in elapsed():
        if all(each.poll() is not None for each in agents):
            return
        if seconds > GIVE_UP_S:
            raise TimeoutError(f"did not end ({seconds:.0f} s)")


def _compare(trial: Trial, expected: dict[str, torch.Tensor]) -> None:
    """Compare the weights on each disk that is left with those of the undisturbed run."""
    for machine in MACHINES:
        if machine == trial.lost and trial.what not in STAYING:
            continue
        directory = trial.directory(machine)
        found = weights(directory)
        pairs = [(found[name], expected[name]) for name in expected]
        largest = max(float((left - right).abs().max()) for left, right in pairs)
        trial.difference = max(largest, 0.0 if trial.difference != trial.difference else largest)
        file = directory / "summary.json"
        summary = json.loads(file.read_text()) if file.exists() else {}
        if summary.get("status") == "completed":
            trial.continued = f"with {len(summary['devices'])}"
    if not trial.continued:
        trial.wrong.append("no run is completed")
    if not trial.difference <= TOLERANCE:
        trial.wrong.append("other weights")


def _look_for_rests(network: Network, trial: Trial, before: set[str]) -> None:
    # torchrun kills a worker that does not end by itself after 30 s.
    deadline = time.monotonic() + (60 if trial.what == "stopped" else 10)
    while any(network.pids(name) for name in MACHINES) and time.monotonic() < deadline:
        time.sleep(0.2)
    pids = [pid for name in MACHINES for pid in network.pids(name)]
    trial.left += [f"process {pid}" for pid in pids]
    trial.left += [f"socket {each}" for each in network.sockets()]
    trial.left += [f"/dev/shm/{each}" for each in shared_memory() - before]
    for name in MACHINES:
        if name != trial.lost or (trial.what in STAYING and not trial.has_to_end):
            files = [*trial.directory(name).glob("checkpoints/.*")]
            files += (trial.folder / f"tmp-{name}").glob("gnn*")
            trial.left += map(str, files)
    if trial.left:
        trial.wrong.append("something remained")


def weights(directory: Path) -> dict[str, torch.Tensor]:
    """Return the last weights of a run."""
    return dict(load_checkpoint(directory / "checkpoints" / "last.safetensors")["model"])


def reference(folder: Path) -> tuple[dict[str, torch.Tensor], int]:
    """Train without losses on one machine; return the weights, and the number of steps."""
    _gnnscale("train", *OPTIONS, f"output={folder}")
    return weights(folder), (folder / "steps.jsonl").read_bytes().count(b"\n")


def divide(folder: Path) -> Path:
    """Write a store for each machine, which has its part of the rows, and return their folder."""
    dataset = [each for each in OPTIONS if each.startswith("dataset.")]
    options = ["partitioner=hash", f"partitioner.num_parts={len(MACHINES)}", "part_stores=rows"]
    _gnnscale("partition", *dataset, *options, f"partitioner.store={folder}")
    return folder / "rows"


def _gnnscale(*arguments: str) -> None:
    command = (sys.executable, "-m", "gnnscale", *arguments)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _take_own_shared_memory() -> None:
    """Begin again with a /dev/shm that other programs do not use, unless this has happened."""
    if os.environ.get("OWN_SHARED_MEMORY") == "yes":
        return
    os.environ["OWN_SHARED_MEMORY"] = "yes"
    program = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", program, "sh", sys.executable, *sys.argv)
    os.execvp(command[0], command)


def table(trials: Sequence[Trial]) -> str:
    """Return the results, a line for each trial."""
    columns = "kill | lost | rank 0 was there | continued | after s | largest difference | left |"
    lines = [f"| {columns} |", "|---" * 8 + "|"]
    for each in trials:
        cells = [str(each.number), f"{each.what} {each.lost}", "yes" if each.was_first else "no"]
        cells += [each.continued or "no", f"{each.seconds:.1f}", f"{each.difference:.1e}"]
        cells += [", ".join(each.left) or "nothing", "; ".join(each.wrong) or "passed"]
        lines.append(f"| {' | '.join(cells)} |")
    passed = sum(not each.wrong for each in trials)
    return "\n".join([*lines, "", f"{passed} of {len(trials)} passed"])


def main(arguments: Sequence[str]) -> int:
    """Print a Markdown table; the exit status is 1 if a check failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="runs that lose a machine")
    parser.add_argument("--seed", type=int, default=0, help="of machines and times")
    parser.add_argument("--loss", type=float, default=0.0, help="percent of frames that get lost")
    parser.add_argument("--disk", choices=("own", "shared"), default="own")
    parser.add_argument("--rows", choices=("everywhere", "divided"), default="everywhere")
    parser.add_argument("--restarts", type=int, default=5, help="torchrun's --max-restarts")
    kinds = f"any of {','.join(KINDS)}"
    parser.add_argument("--what", default="machine,torchrun,worker", help=kinds)
    parser.add_argument("--keep", type=Path, help="a new folder for runs and logs")
    options = parser.parse_args(arguments)
    chance, kinds = random.Random(options.seed), options.what.split(",")
    _take_own_shared_memory()
    os.environ |= {"OMP_NUM_THREADS": "1"}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of what cleans up
    trials: list[Trial] = []
    network = Network(loss=options.loss / 100)
    with tempfile.TemporaryDirectory(prefix="lost-machines-") as temporary, network:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        expected, num_steps = reference(folder / "alone")
        stores = divide(folder / "parts") if options.rows == "divided" else None
        store = network.begin("s", "-c", STORE_PROGRAM)
        for number in range(options.kills):
            what, lost = kinds[number % len(kinds)], chance.choice(MACHINES)
            at = chance.uniform(0, 0.5 * num_steps)
            place = {"folder": folder / f"trial-{number}", "disk": options.disk}
            place |= {"stores": stores, "restarts": options.restarts}
            trial = Trial(number=number, what=what, lost=lost, at=at, **place)
            run(network, trial, expected)
            trials.append(trial)
            print(table([trial]).splitlines()[2], file=sys.stderr, flush=True)
        network.kill("s")
        store.wait()
    print(table(trials))
    return 1 if any(each.wrong for each in trials) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
