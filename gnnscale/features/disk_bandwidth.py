"""Rates of the disk that a file is on, measured with the reader of feature rows."""

import os
import time
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gnnscale import ops
from gnnscale.core import ConfigError
from gnnscale.features.disk import DEPTH, MAX_REQUEST_BYTES

_SEED = 0
_SMALL_BYTES = 4096
_LARGE_BYTES = MAX_REQUEST_BYTES
#: Files of fewer bytes are read by a few requests, whatever the disk does.
_MIN_RATED_BYTES = 1 << 24
#: Reads of a submission, and submissions under way: always more reads than are in flight.
_READS = 512
_SUBMISSIONS = 2


@dataclass(frozen=True, kw_only=True)
class DiskRates:
    """What a disk does when a run reads rows from it."""

    requests_per_s: float  #: random reads of 4 KiB
    bytes_per_s: float  #: of random reads of 64 KiB

    @property
    def max_gap_bytes(self) -> int:
        """Bytes read in a request's time beside its own: a gap is read if it is no larger."""
        return max(round(self.bytes_per_s / self.requests_per_s) - _SMALL_BYTES, 0)

    def seconds(self, num_requests: float, num_bytes: float) -> float:
        """Return how long so many requests of so many bytes in all take.

        A request takes a time, beside that of its bytes.
        """
        each = 1 / self.requests_per_s - _SMALL_BYTES / self.bytes_per_s
        return num_requests * max(each, 0.0) + num_bytes / self.bytes_per_s


def rates_of(file: Path) -> DiskRates | None:
    """Return what the disk of ``file`` does, measured once in a process; None if it is small.

    Raises:
        OSError: the file cannot be read.
    """
    return _measured(file) if file.stat().st_size >= _MIN_RATED_BYTES else None


def gap_of(file: Path) -> int:
    """Return the bytes between two reads of ``file`` up to which they should be one request.

    Raises:
        OSError: the file cannot be read.
    """
    rates = rates_of(file)
    return file.stat().st_size if rates is None else rates.max_gap_bytes


@cache
def _measured(file: Path) -> DiskRates:
    return disk_rates(file)


def disk_rates(path: str | Path, *, depth: int = DEPTH, seconds: float = 0.5) -> DiskRates:
    """Measure the disk of a file by reading random parts of it.

    If the file system has no direct reads, parts that are in memory make the rates higher.

    Args:
        path: a file of at least 64 KiB; one that is larger than the disk's own memory gives rates
            that hold for large files.
        depth: reads in flight.
        seconds: of each of the two measurements, at least.

    Raises:
        ConfigError: the file is smaller.
        OSError: the file cannot be read.
    """
    file = os.fspath(path)
    size = os.stat(file).st_size
    if size < _LARGE_BYTES:
        raise ConfigError(f"{file}: {size} bytes, a file of {_LARGE_BYTES} or more is needed")
    small = _reads_per_s(file, size, _SMALL_BYTES, depth=depth, seconds=seconds)
    large = _reads_per_s(file, size, _LARGE_BYTES, depth=depth, seconds=seconds)
    return DiskRates(requests_per_s=small, bytes_per_s=large * _LARGE_BYTES)


def _reads_per_s(file: str, size: int, num_bytes: int, *, depth: int, seconds: float) -> float:
    """Return how many random parts of ``num_bytes`` are read in a second."""
    num_parts = size // num_bytes
    reader = ops.RowReader(
        file,
        offset=0,
        num_rows=num_parts,
        row_bytes=num_bytes,
        depth=depth,
        max_gap_bytes=0,
        max_request_bytes=num_bytes,
    )
    # Nobody looks at what is read: all of it may go to one place.
    pool = (np.zeros((1, num_bytes), np.uint8), "uint8")
    slots = np.zeros(_READS, np.int32)
    generator = np.random.default_rng(_SEED)
    tickets: deque[int] = deque()
    try:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            tickets.append(reader.submit(generator.integers(0, num_parts, _READS), pool, slots))
            if len(tickets) == _SUBMISSIONS:
                reader.wait(tickets.popleft())
        while tickets:
            reader.wait(tickets.popleft())
        counters = reader.take_counters()
        return counters["requests"] / counters["busy_s"]
    finally:
        reader.close()
