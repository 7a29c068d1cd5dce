"""Replicas of checkpoints on the disks of all machines, and the newest one after a restart.

After the loss of a machine, torchrun may restart rank 0 on another one. Without a shared file
system, local rank 0 of each machine stores the checkpoints of rank 0 in its own run directory.
"""

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

from gnnscale.core import ConfigError, explain, sole_writer, write_atomically
from gnnscale.core.config import CONFIG_FILE, untrusted
from gnnscale.distributed.process_group import Group, all_gather_object
from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.file import read_checkpoint
from gnnscale.run.checkpoint.reader import SavedRun

log = logging.getLogger(__name__)

#: File by which machines recognize the file system of rank 0.
_DISK_FILE = ".disk"
#: Seconds to wait for processes of the previous launch, whose torchrun was killed, to exit.
_LOCK_WAIT_S = 30.0
#: Bytes of a SHA-256.
_DIGEST_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """Step and hash of an intact checkpoint on a machine."""

    step: int  #: step after which it was written
    digest: str  #: SHA-256 of its bytes


def newest(machines: Sequence[CheckpointInfo | None]) -> int | None:
    """Return the index of the first entry with the most steps; None: no intact checkpoint."""
    steps = {i: info.step for i, info in enumerate(machines) if info is not None}
    return max(steps, key=lambda i: (steps[i], -i), default=None)


def read_newest(group: Group, directory: Path, *, limit: int) -> bytes:
    """Return in every process the newest checkpoint, and store it on machines that lack it.

    Every process calls this. Local rank 0 of each machine reads at most ``limit`` bytes of its run
    directory. The result is empty without a checkpoint; ConfigError if all are damaged.
    """
    content, local, damage = b"", None, None
    if group.local_rank == 0:
        try:
            content, local = _read_intact(directory / LAST, limit)
        except ConfigError as error:
            damage = str(error)
    answers = all_gather_object([None if local is None else asdict(local), damage], group)
    machines = [None if info is None else CheckpointInfo(**info) for info, _ in answers]
    damages = [text for _, text in answers if text is not None]
    rank = newest(machines)
    if rank is None:
        if damages:
            raise ConfigError(damages[0])
        return b""
    if damage is not None:
        log.warning(f"{damage}; this machine gets that of process {rank}")
    content, info = _broadcast_from(group, rank, content), machines[rank]
    assert info is not None
    if _digest(content) != info.digest:
        raise ConfigError(f"{LAST}: damaged during the transfer from process {rank}")
    if group.local_rank == 0 and local != info:
        _store(directory, content)
    return content


def _read_intact(file: Path, limit: int) -> tuple[bytes, CheckpointInfo | None]:
    """Return bytes and description of a checkpoint; no bytes and None without a file."""
    if not os.path.lexists(file):
        return b"", None
    content = read_checkpoint(file, limit=limit)
    saved = SavedRun.load(file, content)
    return content, CheckpointInfo(step=saved.step, digest=_digest(content))


def _broadcast_from(group: Group, rank: int, content: bytes) -> bytes:
    """Return in all processes the ``content`` of process ``rank``, sent by way of rank 0."""
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


def _store(directory: Path, content: bytes) -> None:
    """Write a checkpoint to this machine's disk; on failure, warn and keep the previous one."""
    file = directory / LAST
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content, durable=True)
    except OSError as error:
        log.warning(f"{file}: {error.strerror}; this machine keeps the checkpoint before, if any")


@dataclass(kw_only=True)
class CheckpointReplicas:
    """Replication of checkpoints from rank 0 to machines that do not see its run directory."""

    directory: Path  #: the run directory
    links: Group  #: process group with connections for replication only
    keepers: tuple[int, ...]  #: local rank 0 of each receiving machine
    options: Mapping[str, Any]  #: the run's options as plain values
    _thread: threading.Thread = field(init=False, repr=False)
    _lock: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    @classmethod
    def open(
        cls, directory: Path, group: Group, options: Mapping[str, Any]
    ) -> "CheckpointReplicas | None":
        """Start the replication of a run, in every process; None if no machine needs replicas.

        Receiving machines lock their run directory, and a thread receives checkpoints. ConfigError
        if another command writes into it, OSError if that of rank 0 is not writable.
        """
        if not group.restarts or group.local_size == group.size:
            return None
        keepers = _ranks_with_other_disks(directory, group)
        if not keepers:
            return None
        links = group.new_group()
        copies = cls(directory=directory, links=links, keepers=keepers, options=options)
        copies._lock_directory(group)
        if group.rank in keepers:
            copies._thread = threading.Thread(
                target=copies._receive_all, name="copies", daemon=True
            )
            copies._thread.start()
        return copies

    def _lock_directory(self, group: Group) -> None:
        """Lock all receiving machines' run directories, or raise ConfigError in every process."""
        problem = None
        if group.rank in self.keepers:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                lock = sole_writer(self.directory, option="output", wait_s=_LOCK_WAIT_S)
                self._lock.enter_context(lock)
            except (ConfigError, OSError) as error:
                problem = explain(error)
        problems = [text for text in all_gather_object(problem, group) if text is not None]
        if problems:
            raise ConfigError(problems[0])

    def close(self) -> None:
        """Release the lock on this machine's run directory; nothing more is written to it."""
        self._lock.close()

    def send(self, content: bytes) -> None:
        """Send a checkpoint from rank 0 to all receiving machines; no bytes mean the end."""
        head = len(content).to_bytes(8, "little") + hashlib.sha256(content).digest()
        for part in filter(None, (head, content)):
            values = _tensor(part)
            self.links.finish([self.links.start_sending(values, rank) for rank in self.keepers])

    def end(self) -> None:
        """Announce the end on rank 0; on receiving machines, wait until all is on the disk."""
        if self.links.is_rank0:
            self.send(b"")
        elif self.links.rank in self.keepers:
            self._thread.join()

    def _receive_all(self) -> None:
        # The training thread reports a lost connection, as it loses its own too.
        with suppress(RuntimeError):
            while content := self._receive_checkpoint():
                if not (self.directory / CONFIG_FILE).exists():
                    self._write_options()
                _store(self.directory, content)

    def _receive_checkpoint(self) -> bytes:
        """Return the next intact checkpoint; no bytes at the end."""
        while True:
            head = self._receive(8 + _DIGEST_BYTES)
            length, digest = int.from_bytes(head[:8], "little"), head[8:]
            content = self._receive(length) if length else b""
            if hashlib.sha256(content).digest() == digest:
                return content
            log.warning(f"{LAST}: a replica was damaged in the transfer; the previous one remains")

    def _receive(self, length: int) -> bytes:
        """Return the next ``length`` bytes from rank 0."""
        buffer = torch.zeros(length, dtype=torch.uint8)
        # ``finish`` would count this process as waiting for other processes.
        self.links.start_receiving(buffer, 0).wait()
        return buffer.numpy().tobytes()

    def _write_options(self) -> None:
        """Write the run's options to this machine's run directory, where ``resume`` reads them."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            untrusted.write_own(self.directory, self.options)
        except OSError as error:
            log.warning(f"{self.directory / CONFIG_FILE}: {error.strerror}")


def _ranks_with_other_disks(directory: Path, group: Group) -> tuple[int, ...]:
    """Return the rank of local rank 0 of each machine that does not see rank 0's run directory."""
    file, token = directory / _DISK_FILE, secrets.token_hex(16)
    if group.is_rank0:
        write_atomically(file, token)
    token = group.broadcast_object(token)
    same_disk = True
    if group.local_rank == 0:
        try:
            same_disk = file.read_text() == token
        except (OSError, UnicodeDecodeError):
            same_disk = False
    answers = group.gather(b"seen" if same_disk else b"other")
    ranks = [rank for rank, answer in enumerate(answers) if answer == b"other"]
    if group.is_rank0:
        file.unlink(missing_ok=True)
    return tuple(group.broadcast_object(ranks))


def _tensor(content: bytes) -> torch.Tensor:
    """Return bytes as a tensor with its own memory."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
