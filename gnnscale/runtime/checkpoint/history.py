"""The epochs of a run in ``metrics.jsonl``: what a checkpoint has not to hold again."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from gnnscale.core import STAGES, ConfigError, decode
from gnnscale.options.run_directory import METRICS_FILE
from gnnscale.runtime.telemetry.records import EpochRecord

#: Bytes of a line that could be one of a run.
_MAX_LINE = 1 << 20
_STAGES = set(STAGES)
_THREADS = {"sample", "load", "propagate"}


def read_history(directory: Path) -> Iterator[EpochRecord]:
    """Yield the epochs of a run from the first on, as far as one follows the other.

    A line that a crash cut off ends them, and so does one of something else.

    Raises:
        ConfigError: the file is no regular file, or cannot be read.
    """
    lines = _open(directory)
    if lines is None:
        return
    expected = 1
    with lines:
        while line := lines.readline(_MAX_LINE):
            record = _parsed(line)
            if record is None or record.epoch != expected:
                return
            yield record
            expected += 1


def num_recorded(directory: Path, history: Sequence[EpochRecord]) -> int:
    """Return how many epochs of ``history`` are in ``metrics.jsonl``, on the disk.

    Whoever writes that file may be behind, or not have begun: it then ends with an epoch of before
    the run was resumed, or of another run. Or it is ahead, where this is asked in the background.

    Args:
        directory: of the run.
        history: its epochs from the first on.

    Raises:
        ConfigError: the file is no regular file, or cannot be read.
    """
    lines = _open(directory)
    if lines is None:
        return 0
    with lines:
        size = lines.seek(0, os.SEEK_END)
        lines.seek(max(size - 2 * _MAX_LINE, 0))
        whole = lines.read().rpartition(b"\n")[0]
        record = _last_of(whole, len(history))
        if record is None or record != history[record.epoch - 1]:
            return 0
        os.fsync(lines.fileno())
        return record.epoch


def is_validation_of(trained: EpochRecord, record: EpochRecord) -> bool:
    """Whether ``record`` is ``trained`` and what its validation has found."""
    return replace(record, valid_metric=None, valid_metrics={}, eval_time_s=None) == trained


def check_record(record: EpochRecord, number: int) -> None:
    """Refuse an epoch of which a report could not be made.

    Raises:
        ValueError: naming it.
    """
    devices = record.devices
    if (
        record.epoch != number
        or record.epoch_time_s <= 0
        or min(record.num_edges, record.num_vertices) < 0
        or not record.stage_times_s.keys() >= _STAGES
        or not all(each.stage_times_s.keys() >= _STAGES for each in devices)
        or not all(each.threads.keys() == _THREADS for each in devices)
    ):
        raise ValueError(f"record of epoch {number}")


def _open(directory: Path) -> BinaryIO | None:
    """Open ``metrics.jsonl``, None where there is none; a pipe is not waited for."""
    file = directory / METRICS_FILE
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise ConfigError(f"{file}: not a regular file")


def _last_of(lines: bytes, num_epochs: int) -> EpochRecord | None:
    """Return the last epoch among the first ``num_epochs``; None where the lines do not tell."""
    while lines:
        lines, _, line = lines.rpartition(b"\n")
        record = _parsed(line + b"\n")
        if record is None or record.epoch < 1:
            return None
        if record.epoch <= num_epochs:
            return record
    return None


def _parsed(line: bytes) -> EpochRecord | None:
    """Return the epoch of a whole line, None for anything else."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = decode(EpochRecord, line, source="history")
        check_record(record, record.epoch)
    except ValueError:
        return None
    return record
