"""Machines of one network: namespaces that a bridge joins, one of them for torchrun's store.

Needs root, and ip of iproute2.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fault_injection.processes import look_at

#: Machines that train, and their addresses; those of the bridge and the store come last.
MACHINES = ("a", "b", "c")
STORE_ADDRESS, STORE_PORT = "10.213.8.1", 29400
STORE_PROGRAM = f"""
import time
from torch.distributed import TCPStore
store = TCPStore("{STORE_ADDRESS}", {STORE_PORT}, is_master=True, wait_for_workers=False)
time.sleep(100_000)
"""
#: What a shell does on the machine ``$0`` before a command.
_AS_HOST = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
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
    machines: Sequence[str] = MACHINES
    gbit: float | None = None  #: what each machine may send and receive a second
    names: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> "Network":
        for name in ("s", *self.machines):
            self.names[name] = f"gnnscale-{os.getpid()}-{name}"
            ip("netns", "add", self.names[name])
            ip("-n", self.names[name], "link", "set", "lo", "up")
        store = self.names["s"]
        kind = ("veth", "peer", "name", "to-s") if self.loss else ("bridge",)
        ip("-n", store, "link", "add", "bridge", "type", *kind)
        ip("-n", store, "address", "add", f"{STORE_ADDRESS}/24", "dev", "bridge")
        ip("-n", store, "link", "set", "bridge", "up")
        for number, name in enumerate(self.machines):
            there = f"to-{name}"
            peer = ("type", "veth", "peer", "name", "eth0", "netns", self.names[name])
            ip("-n", store, "link", "add", there, *peer)
            ip("-n", store, "link", "set", there, "up")
            if not self.loss:
                ip("-n", store, "link", "set", there, "master", "bridge")
            ip("-n", self.names[name], "address", "add", f"{address(number)}/24", "dev", "eth0")
            ip("-n", self.names[name], "link", "set", "eth0", "up")
            if self.gbit is not None:
                limit = ["rate", f"{self.gbit:g}gbit", "burst", "1mb", "latency", "50ms"]
                for place, device in ((self.names[name], "eth0"), (store, there)):
                    words = ["tc", "-n", place, "qdisc", "add", "dev", device, "root", "tbf"]
                    subprocess.run([*words, *limit], check=True)
        if self.loss:
            ip("-n", store, "link", "set", "to-s", "up")
            ports = ("to-s", *(f"to-{name}" for name in self.machines))
            self.begin("s", "-c", SWITCH_PROGRAM, str(self.loss), *ports)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            self.kill(name)
            ip("netns", "delete", self.names[name])

    def pids(self, name: str) -> list[int]:
        """Return the processes of a machine that are alive."""
        pids = ip("netns", "pids", self.names[name]).split()
        found = {int(pid): look_at(int(pid)) for pid in pids}
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
        """Start Python on a machine, which has its own name as host."""
        line = ["ip", "netns", "exec", self.names[name], "unshare", "--uts", "sh", "-c"]
        line += [_AS_HOST, name, sys.executable, *command]
        with open(variables.get("LOG", os.devnull), "ab") as log:
            return subprocess.Popen(line, env=os.environ | variables, stdout=log, stderr=log)

    def sockets(self) -> list[str]:
        """Return the listening sockets of all machines."""
        found = []
        for name in self.machines:
            lines = ip("netns", "exec", self.names[name], "cat", "/proc/net/tcp")
            found += [line for line in lines.splitlines() if line.split()[3] == "0A"]
        return found

    def received(self) -> int:
        """Return the bytes that all machines have received."""
        total = 0
        for name in self.machines:
            shown = ip("-n", self.names[name], "-s", "-j", "link", "show", "dev", "eth0")
            total += json.loads(shown)[0]["stats64"]["rx"]["bytes"]
        return total


def ip(*arguments: str) -> str:
    command = ("ip", *arguments)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def address(number: int) -> str:
    return f"10.213.8.{11 + number}"


def kill(pid: int) -> None:
    with suppress_gone():
        os.kill(pid, signal.SIGKILL)


def suppress_gone() -> suppress:
    """Return what ignores that a process has ended meanwhile."""
    return suppress(ProcessLookupError, FileNotFoundError, PermissionError)
