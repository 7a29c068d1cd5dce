"""The newest checkpoint of several machines, and copies of it on the disks of all.

torchrun starts the processes of a run again after a machine is lost, which may be that of rank 0.
Where machines do not share the run directory, the first process of each keeps what rank 0 writes,
in the directory of the same name.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from gnnscale.core import ConfigError, explain, write_atomically
from gnnscale.core.config import untrusted as found
from gnnscale.core.config.run_directory import CONFIG_FILE
from gnnscale.core.locks import sole_writer
from gnnscale.distributed.process_group import Group, trade_values
from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.file import read_checkpoint
from gnnscale.run.checkpoint.reader import SavedRun

log = logging.getLogger(__name__)

#: By its content the other machines recognise the disk of rank 0.
_DISK_FILE = ".disk"
#: Seconds in which processes of before, whose torchrun was killed, end on a machine.
_LOCK_WAIT_S = 30.0
#: Bytes of a SHA-256.
_DIGEST_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """A checkpoint that a machine has, complete and whole."""

    step: int  #: the step after which it was written
    digest: str  #: SHA-256 of its bytes


def newest(machines: Sequence[CheckpointInfo | None]) -> int | None:
    """Return the position of the checkpoint after the most steps, None without any.

    Of several it is the first. When they were written is no matter: clocks of machines differ.
    """
    steps = {i: each.step for i, each in enumerate(machines) if each is not None}
    return max(steps, key=lambda i: (steps[i], -i), default=None)


def read_newest(group: Group, directory: Path, *, limit: int) -> bytes:
    """Return the newest checkpoint that any machine has; machines without it get it on their disk.

    Every process calls this.

    Args:
        group: the processes of the run.
        directory: the run directory; that of each machine's first process is looked at.
        limit: bytes that a checkpoint may have.

    Returns:
        Its bytes, the same in every process; none if there is no checkpoint.

    Raises:
        ConfigError: there are checkpoints, and each of them is damaged.
        PeerLostError: another process is gone.
    """
    content, own, damage = b"", None, None
    if group.local_rank == 0:
        try:
            content, own = _whole(directory / LAST, limit)
        except ConfigError as error:
            damage = str(error)
    answers = trade_values([None if own is None else asdict(own), damage], group)
    machines = [None if each is None else CheckpointInfo(**each) for each, _ in answers]
    damages = [each for _, each in answers if each is not None]
    chosen = newest(machines)
    if chosen is None:
        if damages:
            raise ConfigError(damages[0])
        return b""
    if damage is not None:
        log.warning(f"{damage}; this machine gets that of process {chosen}")
    content, wanted = _from(group, chosen, content), machines[chosen]
    assert wanted is not None
    if _digest(content) != wanted.digest:
        raise ConfigError(f"{LAST}: what process {chosen} has sent did not arrive whole")
    if group.local_rank == 0 and own != wanted:
        _keep(directory, content)
    return content


def _whole(file: Path, limit: int) -> tuple[bytes, CheckpointInfo | None]:
    """Return a checkpoint and what it is; no bytes and None if it is missing.

    Raises:
        ConfigError: it is damaged.
    """
    if not os.path.lexists(file):
        return b"", None
    content = read_checkpoint(file, limit=limit)
    saved = SavedRun.load(file, content)
    return content, CheckpointInfo(step=saved.step, digest=_digest(content))


def _from(group: Group, rank: int, content: bytes) -> bytes:
    """Return the ``content`` of process ``rank`` in all."""
    if rank == 0:
        return group.broadcast(content if group.is_rank0 else None)
    if group.rank == rank:
        group.finish([group.start_sending(_tensor(len(content).to_bytes(8, "little")), 0)])
        group.finish([group.start_sending(_tensor(content), 0)])
    elif group.is_rank0:
        length = torch.zeros(8, dtype=torch.uint8)
        group.finish([group.start_receiving(length, rank)])
        body = torch.zeros(int.from_bytes(length.numpy().tobytes(), "little"), dtype=torch.uint8)
        group.finish([group.start_receiving(body, rank)])
        content = body.numpy().tobytes()
    return group.broadcast(content if group.is_rank0 else None)


def _keep(directory: Path, content: bytes) -> None:
    """Write a checkpoint to this machine's disk; if that fails, the one before stays."""
    file = directory / LAST
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content, durable=True)
    except OSError as error:
        log.warning(f"{file}: {error.strerror}; this machine keeps the checkpoint before, if any")


@dataclass(kw_only=True)
class CheckpointReplicas:
    """Gives what rank 0 writes to those machines that do not share its disk.

    Rank 0 sends from the thread that writes, and a thread of each of the others receives.
    """

    directory: Path  #: the run directory
    links: Group  #: the processes, over connections that nothing else uses
    keepers: tuple[int, ...]  #: the first process of each machine with another disk
    options: Mapping[str, Any]  #: the run's options as plain values
    _thread: threading.Thread = field(init=False, repr=False)
    _lock: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    @classmethod
    def open(
        cls, directory: Path, group: Group, options: Mapping[str, Any]
    ) -> CheckpointReplicas | None:
        """Find out who needs copies; None if nobody does. Every process calls this.

        Raises:
            ConfigError: another command writes into the run directory of a machine.
            OSError: the run directory of rank 0 is not writable.
            PeerLostError: another process is gone.
        """
        if not group.restarts or group.local_size == group.size:
            return None
        keepers = _with_other_disks(directory, group)
        if not keepers:
            return None
        links = group.with_own_connections()
        copies = cls(directory=directory, links=links, keepers=keepers, options=options)
        copies._lock_directory(group)
        if group.rank in keepers:
            copies._thread = threading.Thread(target=copies._follow, name="copies", daemon=True)
            copies._thread.start()
        return copies

    def _lock_directory(self, group: Group) -> None:
        """Lock the run directory of each machine that keeps copies; all raise if one does.

        Rank 0 holds its own from the start.
        """
        problem = None
        if group.rank in self.keepers:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                held = sole_writer(self.directory, option="output", wait_s=_LOCK_WAIT_S)
                self._lock.enter_context(held)
            except (ConfigError, OSError) as error:
                problem = explain(error)
        problems = [each for each in trade_values(problem, group) if each is not None]
        if problems:
            raise ConfigError(problems[0])

    def close(self) -> None:
        """Release the run directory of this machine; nothing is written there any more."""
        self._lock.close()

    def send(self, content: bytes) -> None:
        """Send a checkpoint, or nothing as the end, to each of the others; on rank 0.

        Raises:
            PeerLostError: one of them is gone.
        """
        head = len(content).to_bytes(8, "little") + hashlib.sha256(content).digest()
        for part in filter(None, (head, content)):
            values = _tensor(part)
            self.links.finish([self.links.start_sending(values, each) for each in self.keepers])

    def end(self) -> None:
        """Let the others know that nothing follows, or wait until everything is on the disk."""
        if self.links.is_rank0:
            self.send(b"")
        elif self.links.rank in self.keepers:
            self._thread.join()

    def _follow(self) -> None:
        # If the connection is lost, so is that of the thread that trains, which says so.
        with suppress(RuntimeError):
            while content := self._received():
                if not (self.directory / CONFIG_FILE).exists():
                    self._write_options()
                _keep(self.directory, content)

    def _received(self) -> bytes:
        """Return the next checkpoint that arrives whole; nothing at the end."""
        while True:
            head = self._receive(8 + _DIGEST_BYTES)
            length, digest = int.from_bytes(head[:8], "little"), head[8:]
            content = self._receive(length) if length else b""
            if hashlib.sha256(content).digest() == digest:
                return content
            log.warning(f"{LAST}: a copy did not arrive whole, and the one before stays")

    def _receive(self, length: int) -> bytes:
        into = torch.zeros(length, dtype=torch.uint8)
        # Not by ``finish``: this process does not count as one that waits for others.
        self.links.start_receiving(into, 0).wait()
        return into.numpy().tobytes()

    def _write_options(self) -> None:
        """Make the directory one that ``resume`` and ``evaluate`` read."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            found.write_own(self.directory, self.options)
        except OSError as error:
            log.warning(f"{self.directory / CONFIG_FILE}: {error.strerror}")


def _with_other_disks(directory: Path, group: Group) -> tuple[int, ...]:
    """Return the first process of each machine that does not see the run directory of rank 0."""
    file, token = directory / _DISK_FILE, secrets.token_hex(16)
    if group.is_rank0:
        write_atomically(file, token)
    token = group.broadcast_json(token)
    seen = True
    if group.local_rank == 0:
        try:
            seen = file.read_text() == token
        except (OSError, UnicodeDecodeError):
            seen = False
    every = group.gather(b"seen" if seen else b"other")
    ranks = [rank for rank, each in enumerate(every) if each == b"other"]
    if group.is_rank0:
        file.unlink(missing_ok=True)
    return tuple(group.broadcast_json(ranks))


def _tensor(content: bytes) -> torch.Tensor:
    """Return bytes as a tensor, which has its own memory."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
