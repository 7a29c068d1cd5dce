"""One of several processes, each of which takes itself for the only one of its machine."""

import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from surroundings import logged

from gnnscale.core.errors import ConfigError
from gnnscale.core.locks import sole_writer
from gnnscale.distributed.process_group import Group, join
from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint import replicas as copies_module
from gnnscale.run.checkpoint.file import load_checkpoint, save_checkpoint
from gnnscale.run.checkpoint.replicas import CheckpointReplicas, read_newest

LIMIT = 1 << 24


def put(directory: Path, checkpoint: Path, step: int, modified: int) -> None:
    """Write a checkpoint after ``step``, with ``modified`` as its time."""
    content = load_checkpoint(checkpoint)
    save_checkpoint(directory / LAST, {**content, "step": step})
    os.utime(directory / LAST, (modified, modified))


def check_newest(group: Group, directory: Path, checkpoint: Path) -> None:
    group.barrier()
    assert read_newest(group, directory, limit=LIMIT) == b""
    # The newest one has the oldest time, and the first machine lacks one.
    if group.rank == 1:
        put(directory, checkpoint, step=9, modified=1)
    if group.rank == 2:
        put(directory, checkpoint, step=7, modified=2_000_000_000)
    content = read_newest(group, directory, limit=LIMIT)
    assert load_checkpoint(directory / LAST, content)["step"] == 9
    assert (directory / LAST).read_bytes() == content
    # What is damaged is replaced; unless there is nothing to replace it.
    changed = bytearray(content)
    changed[len(content) // 2] ^= 1
    for rank, damaged in ((0, content[:-1]), (2, changed)):
        if group.rank == rank:
            (directory / LAST).write_bytes(damaged)
        assert read_newest(group, directory, limit=LIMIT) == content
        assert (directory / LAST).read_bytes() == content
    (directory / LAST).write_bytes(content[:-1])
    with pytest.raises(ConfigError, match=r"machine-\d/checkpoints/last.safetensors: not a"):
        read_newest(group, directory, limit=LIMIT)


def check_copies(group: Group, directory: Path) -> None:
    shutil.rmtree(directory / "checkpoints")
    copies = CheckpointReplicas.open(directory, group, {"seed": 0})
    assert copies is not None
    assert copies.keepers == (1, 2)
    assert not list(directory.glob(".disk"))
    contents = [bytes([number]) * (1 << 20) for number in range(3)]
    if group.is_rank0:
        for content in contents:
            copies.send(content)
    copies.end()
    assert (directory / ".lock").exists() == (not group.is_rank0)
    copies.close()
    assert not (directory / ".lock").exists()
    if group.is_rank0:
        assert not (directory / LAST).exists()
        return
    assert (directory / LAST).read_bytes() == contents[-1]
    assert (directory / "config.yaml").read_text() == "seed: 0\n"


def check_full_disk(group: Group, directory: Path, logged: list[str]) -> None:
    """A machine that cannot write keeps what it had, and the others continue."""
    group.barrier()
    if group.rank == 1:
        shutil.rmtree(directory / "checkpoints")
        (directory / "checkpoints").touch()  # in the way
    copies = CheckpointReplicas.open(directory, group, {})
    assert copies is not None
    if group.is_rank0:
        copies.send(b"first")
        copies.send(b"second")
    copies.end()
    copies.close()
    if group.rank == 1:
        assert len(logged) == 2
        assert "this machine keeps the checkpoint before" in logged[0]
    if group.rank == 2:
        assert (directory / LAST).read_bytes() == b"second"


def check_second_writer(group: Group, directory: Path) -> None:
    """A command that writes into the run directory of one machine ends the run on all."""
    locks = ExitStack()
    if group.rank == 2:
        locks.enter_context(sole_writer(directory, option="run"))
    with locks, pytest.raises(ConfigError, match=r"machine-2: is being written by process \d+ on "):
        CheckpointReplicas.open(directory, group, {})
    group.barrier()


def check_shared_disk(group: Group, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    assert CheckpointReplicas.open(directory, group, {}) is None
    alone = replace(group, local_size=group.size)
    assert CheckpointReplicas.open(directory / "missing", alone, {}) is None
    assert (
        CheckpointReplicas.open(directory / "missing", replace(group, restarts=False), {}) is None
    )


def run(rank: int, size: int, meeting: Path, checkpoint: str) -> None:
    lines = logged()
    with join(rank, size, meeting, backend="gloo") as joined:
        group = replace(joined, local_rank=0, local_size=1, restarts=True)
        directory = meeting.parent / f"machine-{rank}"
        directory.mkdir()
        check_newest(group, directory, Path(checkpoint))
        check_copies(group, directory)
        lines.clear()
        check_full_disk(group, directory, lines)
        copies_module._LOCK_WAIT_S = 0.0
        check_second_writer(group, directory)
        check_shared_disk(group, meeting.parent / "shared")
        group.barrier()
