"""Request and byte rates of the disk that has a file, measured with the reader of feature rows."""

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
#: Smallest file to measure: a smaller one takes a few requests on any disk.
_MIN_RATED_BYTES = 1 << 24
#: Reads of a submission; with ``_SUBMISSIONS``, more reads than ``depth`` are always queued.
_READS = 512
_SUBMISSIONS = 2


@dataclass(frozen=True, kw_only=True)
class DiskRates:
    """Rates of random reads from a disk."""

    requests_per_s: float  #: random reads of 4 KiB
    bytes_per_s: float  #: bytes of random reads of 64 KiB

    @property
    def max_gap_bytes(self) -> int:
        """Bytes read in the time of a request: a smaller gap is read, not skipped."""
        return max(round(self.bytes_per_s / self.requests_per_s) - _SMALL_BYTES, 0)

    def seconds(self, num_requests: float, num_bytes: float) -> float:
        """Return the time of ``num_requests`` requests that read ``num_bytes`` bytes in total.

        The time is linear in both: a latency per request and a time per byte.
        """
        request_s = 1 / self.requests_per_s - _SMALL_BYTES / self.bytes_per_s
        return num_requests * max(request_s, 0.0) + num_bytes / self.bytes_per_s


def cached_disk_rates(file: Path) -> DiskRates | None:
    """Return the rates of the disk of ``file``, measured once in a process; None for a small file.

    Raises:
        OSError: the file cannot be read.
    """
    return _cached_rates(file) if file.stat().st_size >= _MIN_RATED_BYTES else None


def max_read_gap(file: Path) -> int:
    """Return the largest gap in bytes between two reads of ``file`` that one request should read.

    Raises:
        OSError: the file cannot be read.
    """
    rates = cached_disk_rates(file)
    return file.stat().st_size if rates is None else rates.max_gap_bytes


@cache
def _cached_rates(file: Path) -> DiskRates:
    return measure_disk(file)


def measure_disk(path: str | Path, *, depth: int = DEPTH, seconds: float = 0.5) -> DiskRates:
    """Measure the disk of a file by reading random parts of it.

    On a file system without direct reads, cached parts make the rates higher.

    Args:
        path: file of at least 64 KiB. A file larger than the disk's internal cache gives rates that
            hold for large files.
        depth: reads in flight.
        seconds: minimum duration of each of the two measurements.

    Raises:
        ConfigError: the file is smaller than 64 KiB.
        OSError: the file cannot be read.
    """
    file = os.fspath(path)
    size = os.stat(file).st_size
    if size < _LARGE_BYTES:
        raise ConfigError(f"{file}: expected at least {_LARGE_BYTES} bytes, got {size}")
    small = _reads_per_s(file, size, _SMALL_BYTES, depth=depth, seconds=seconds)
    large = _reads_per_s(file, size, _LARGE_BYTES, depth=depth, seconds=seconds)
    return DiskRates(requests_per_s=small, bytes_per_s=large * _LARGE_BYTES)


def _reads_per_s(file: str, size: int, num_bytes: int, *, depth: int, seconds: float) -> float:
    """Return the random reads of ``num_bytes`` that finish per second."""
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
    # The content is not used: all reads go to one slot.
    buffer = (np.zeros((1, num_bytes), np.uint8), "uint8")
    slots = np.zeros(_READS, np.int32)
    generator = np.random.default_rng(_SEED)
    tickets: deque[int] = deque()
    try:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            tickets.append(reader.submit(generator.integers(0, num_parts, _READS), buffer, slots))
            if len(tickets) == _SUBMISSIONS:
                reader.wait(tickets.popleft())
        while tickets:
            reader.wait(tickets.popleft())
        counters = reader.take_counters()
        return counters["requests"] / counters["busy_s"]
    finally:
        reader.close()
