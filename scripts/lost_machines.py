#!/usr/bin/env python
"""Trains on three machines, kills one of them at a random moment, and looks at what comes of it.

The machines are network namespaces that a bridge joins, and torchrun's store is in a fourth one.
The run has to continue with those that are left, and to end with the weights of a run that nothing
disturbs, on one machine. Needs root, and ip of iproute2.

    python scripts/lost_machines.py [--kills 20] [--seed 0] [--disk own] [--loss 5] [--what ...]
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from faults.processes import elapsed, look_at, shared_memory

from gnnscale.runtime.checkpoint.file import load_checkpoint

#: Machines that train, and their addresses; those of the bridge and the store come last.
MACHINES = ("a", "b", "c")
STORE_ADDRESS, STORE_PORT = "10.213.8.1", 29400
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
#: or a machine that comes back after it was killed; or nothing.
KINDS = ("machine", "torchrun", "worker", "network", "return", "nothing")
#: Those after which all three machines are there at the end.
STAYING = ("worker", "return", "nothing")
#: Largest difference of a weight that rounding in another order explains.
TOLERANCE = 1e-5
#: Seconds after which a run counts as stuck.
GIVE_UP_S = 240.0
STORE_PROGRAM = f"""
import time
from torch.distributed import TCPStore
store = TCPStore("{STORE_ADDRESS}", {STORE_PORT}, is_master=True, wait_for_workers=False)
time.sleep(100_000)
"""


#: A switch that loses frames: this kernel may lack what ``tc`` needs for that. It hands on the
#: header in which the system says what a network card would do with a frame.
SWITCH_PROGRAM = """
import random, select, socket, sys
lost, chance, ports, places = float(sys.argv[1]), random.Random(0), {}, {}
for name in sys.argv[2:]:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    port.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
    port.bind((name, 0))
    ports[port.fileno()] = port
while True:
    for number in select.select(list(ports), [], [])[0]:
        frame, (_, _, kind, *_) = ports[number].recvfrom(1 << 17)
        if kind == socket.PACKET_OUTGOING or chance.random() < lost:
            continue
        target, source = frame[10:16], frame[16:22]
        places[source] = number
        for other in [places[target]] if target in places else ports:
            if other != number:
                ports[other].send(frame)
"""


@dataclass
class Network:
    """Namespaces for the machines and the store, and what runs in them."""

    loss: float = 0.0  #: part of the frames that get lost
    names: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> "Network":
        for name in ("s", *MACHINES):
            self.names[name] = f"gnnscale-{os.getpid()}-{name}"
            ip("netns", "add", self.names[name])
            ip("-n", self.names[name], "link", "set", "lo", "up")
        store = self.names["s"]
        kind = ("veth", "peer", "name", "to-s") if self.loss else ("bridge",)
        ip("-n", store, "link", "add", "bridge", "type", *kind)
        ip("-n", store, "address", "add", f"{STORE_ADDRESS}/24", "dev", "bridge")
        ip("-n", store, "link", "set", "bridge", "up")
        for number, name in enumerate(MACHINES):
            there = f"to-{name}"
            peer = ("type", "veth", "peer", "name", "eth0", "netns", self.names[name])
            ip("-n", store, "link", "add", there, *peer)
            ip("-n", store, "link", "set", there, "up")
            if not self.loss:
                ip("-n", store, "link", "set", there, "master", "bridge")
            ip("-n", self.names[name], "address", "add", f"{address(number)}/24", "dev", "eth0")
            ip("-n", self.names[name], "link", "set", "eth0", "up")
        if self.loss:
            ip("-n", store, "link", "set", "to-s", "up")
            ports = ("to-s", *(f"to-{name}" for name in MACHINES))
            self.begin("s", "-c", SWITCH_PROGRAM, str(self.loss), *ports)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            self.kill(name)
            ip("netns", "delete", self.names[name])

    def pids(self, name: str) -> list[int]:
        """Return the processes of a machine that are alive."""
        command = ("ip", "netns", "pids", self.names[name])
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = {int(pid): look_at(int(pid)) for pid in output.split()}
        return [pid for pid, each in found.items() if each is not None and each[2] not in "ZX"]

    def kill(self, name: str) -> None:
        """Kill everything on a machine, as a failing power supply would."""
        for pid in self.pids(name):
            kill(pid)

    def worker(self, name: str) -> int | None:
        """Return the process of a machine that trains, None without one."""
        for pid in self.pids(name):
            with suppress_gone():
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if any(each.startswith(b"TORCHELASTIC_RUN_ID=") for each in variables):
                    return pid
        return None

    def begin(self, name: str, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start Python on a machine."""
        line = ["ip", "netns", "exec", self.names[name], sys.executable, *command]
        with open(variables.get("LOG", os.devnull), "ab") as log:
            return subprocess.Popen(line, env=os.environ | variables, stdout=log, stderr=log)

    def sockets(self) -> list[str]:
        """Return the listening sockets of all machines."""
        found = []
        for name in MACHINES:
            command = ("ip", "netns", "exec", self.names[name], "cat", "/proc/net/tcp")
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found += [line for line in lines.splitlines() if line.split()[3] == "0A"]
        return found


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)


def address(number: int) -> str:
    return f"10.213.8.{11 + number}"


def kill(pid: int) -> None:
    with suppress_gone():
        os.kill(pid, signal.SIGKILL)


def suppress_gone() -> suppress:
    """Return what ignores that a process has ended meanwhile."""
    return suppress(ProcessLookupError, FileNotFoundError, PermissionError)


@dataclass(kw_only=True)
class Trial:
    """A run that loses a machine."""

    number: int
    what: str  #: one of ``KINDS``
    lost: str  #: the machine
    at: float  #: seconds after its first checkpoint
    folder: Path
    disk: str
    was_first: bool = False  #: whether rank 0 was there
    continued: str = ""  #: how the run continued
    seconds: float = 0.0  #: from the loss until the run resumes from a checkpoint
    difference: float = float("nan")  #: largest, of a weight
    left: list[str] = field(default_factory=list)  #: what remained
    wrong: list[str] = field(default_factory=list)

    def directory(self, machine: str) -> Path:
        """Return the run directory of a machine."""
        return self.folder / (machine if self.disk == "own" else "shared") / "run"

    def times_resumed(self) -> int:
        """Return how often the run has resumed from a checkpoint."""
        logs = {self.directory(each) / "train.log" for each in MACHINES}
        return sum(log.read_text().count(": resuming ") for log in logs if log.exists())


def start(network: Network, trial: Trial, name: str) -> subprocess.Popen[bytes]:
    """Start torchrun on a machine."""
    temporary = trial.folder / f"tmp-{name}"
    temporary.mkdir(parents=True, exist_ok=True)
    torchrun = (
        *("-m", "torch.distributed.run", "--nnodes=2:3", "--nproc-per-node=1", "--max-restarts=5"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint={STORE_ADDRESS}:{STORE_PORT}"),
        *(f"--rdzv-id=trial-{trial.number}", f"--rdzv-conf={RENDEZVOUS}"),
        f"--local-addr={address(MACHINES.index(name))}",
    )
    train = ("-m", "gnnscale", "train", *OPTIONS, f"output={trial.directory(name)}")
    variables = {"GLOO_SOCKET_IFNAME": "eth0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    variables |= {"TMPDIR": str(temporary), "LOG": str(trial.folder / f"{name}.log")}
    return network.begin(name, *torchrun, *train, **variables)


def run(network: Network, trial: Trial, expected: dict[str, torch.Tensor]) -> None:
    """Train, take a machine away, and compare."""
    trial.folder.mkdir()
    before = shared_memory()
    agents = {name: start(network, trial, name) for name in MACHINES}
    try:
        _until(lambda: any(_checkpoints(trial)), agents, "no checkpoint")
        time.sleep(trial.at)
        first = trial.directory(trial.lost) / "steps.jsonl"
        trial.was_first = trial.disk == "own" and first.exists()
        _lose(network, trial)
        began = time.monotonic()
        if trial.what != "nothing":
            _until(lambda: trial.times_resumed() > 0, agents, "not resumed")
        trial.seconds = time.monotonic() - began
        if trial.what == "return":
            agents[trial.lost] = start(network, trial, trial.lost)
        _until(lambda: _over(agents, trial), agents, "did not end")
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


def _lose(network: Network, trial: Trial) -> None:
    if trial.what == "network":
        ip("-n", network.names[trial.lost], "link", "set", "eth0", "down")
    elif trial.what in ("machine", "return"):
        network.kill(trial.lost)
    elif trial.what != "nothing":
        worker = network.worker(trial.lost)
        others = [pid for pid in network.pids(trial.lost) if pid != worker]
        for pid in others if trial.what == "torchrun" else [worker]:
            if pid is not None:
                kill(pid)


def _checkpoints(trial: Trial) -> list[Path]:
    files = {trial.directory(each) / "checkpoints" / "last.safetensors" for each in MACHINES}
    return [file for file in files if file.exists()]


def _over(agents: dict[str, subprocess.Popen[bytes]], trial: Trial) -> bool:
    gone = () if trial.what in STAYING else (trial.lost,)
    return all(agent.poll() is not None for name, agent in agents.items() if name not in gone)


def _until(
    condition: Callable[[], object], agents: dict[str, subprocess.Popen[bytes]], what: str
) -> None:
    for seconds in elapsed():
        if condition():
            return
        if seconds > GIVE_UP_S or all(each.poll() is not None for each in agents.values()):
            raise TimeoutError(f"{what} ({seconds:.0f} s)")


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
    deadline = time.monotonic() + 10
    while any(network.pids(name) for name in MACHINES) and time.monotonic() < deadline:
        time.sleep(0.2)
    pids = [pid for name in MACHINES for pid in network.pids(name)]
    trial.left += [f"process {pid}" for pid in pids]
    trial.left += [f"socket {each}" for each in network.sockets()]
    trial.left += [f"/dev/shm/{each}" for each in shared_memory() - before]
    for name in MACHINES:
        if name != trial.lost or trial.what in STAYING:
            files = trial.directory(name).glob("checkpoints/.*")
            trial.left += [
                str(each) for each in (*files, *(trial.folder / f"tmp-{name}").glob("gnn*"))
            ]
    if trial.left:
        trial.wrong.append("something remained")


def weights(directory: Path) -> dict[str, torch.Tensor]:
    """Return the last weights of a run."""
    return dict(load_checkpoint(directory / "checkpoints" / "last.safetensors")["model"])


def reference(folder: Path) -> tuple[dict[str, torch.Tensor], float]:
    """Train without losses on one machine; return the weights, and the seconds of all epochs."""
    command = (sys.executable, "-m", "gnnscale", "train", *OPTIONS, f"output={folder}")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    summary = json.loads((folder / "summary.json").read_text())
    return weights(folder), summary["epochs"] * summary["epoch_time_s"]["mean"]


def table(trials: Sequence[Trial]) -> str:
    """Return the results, a line for each trial."""
    columns = (
        "| kill | lost | rank 0 was there | continued | after s | largest difference | left | |"
    )
    lines = [columns, "|---" * 8 + "|"]
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
    parser.add_argument(
        "--what", default="machine,torchrun,worker", help="any of " + ",".join(KINDS)
    )
    parser.add_argument("--keep", type=Path, help="a new folder for runs and logs")
    options = parser.parse_args(arguments)
    chance, kinds = random.Random(options.seed), options.what.split(",")
    os.environ |= {"OMP_NUM_THREADS": "1"}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of what cleans up
    trials: list[Trial] = []
    network = Network(loss=options.loss / 100)
    with tempfile.TemporaryDirectory(prefix="lost-machines-") as temporary, network:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        expected, seconds = reference(folder / "alone")
        store = network.begin("s", "-c", STORE_PROGRAM)
        for number in range(options.kills):
            what, lost = kinds[number % len(kinds)], chance.choice(MACHINES)
            at = chance.uniform(0, 0.5 * seconds)
            place = {"folder": folder / f"trial-{number}", "disk": options.disk}
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
