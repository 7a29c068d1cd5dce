"""Feature rows and adjacency lists in files, read past the page cache, and rates of their disk."""

import os
import time
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Access, Array, ConfigError, Float32Array, Int32Array, IntArray
from gnnscale.features.tiered.buffer import SourceReads
from gnnscale.graph import Graph

#: Largest gap between two rows or lists that one request reads. Every disk reads a larger gap more
#: slowly than it starts another request.
MAX_GAP_BYTES = 1 << 20
#: Requests in flight. The reading thread may wait a millisecond or more for a core while other
#: threads compute; a deep queue keeps the disk busy.
DEPTH = 256
#: Largest request, in bytes.
MAX_REQUEST_BYTES = 1 << 16


class DiskRows:
    """Asynchronous reader of the rows of a feature file; OSError: the file cannot be read.

    The reads of a call are sorted by file offset; reads with a small gap become one request.
    """

    def __init__(
        self, rows: np.memmap[Any, Any], *, dtype_name: str, num_features: int, max_gap_bytes: int
    ) -> None:
        """Open the file of ``rows`` ``[num_rows, width]``, contiguous; the mapping is never read.

        An int8 or int4 row has ``width`` bytes, but ``num_features`` features. A request reads
        several rows with gaps of at most ``max_gap_bytes``.
        """
        self.num_rows, self.width = len(rows), int(rows.shape[1])
        self.num_features = num_features
        self.dtype: np.dtype[Any] = rows.dtype  #: type of stored elements; bfloat16 is uint16
        self.dtype_name = dtype_name
        self._reader = ops.RowReader(
            str(rows.filename),
            offset=rows.offset,
            num_rows=self.num_rows,
            row_bytes=self.width * self.dtype.itemsize,
            depth=DEPTH,
            max_gap_bytes=min(max_gap_bytes, MAX_GAP_BYTES),
            max_request_bytes=MAX_REQUEST_BYTES,
        )

    @classmethod
    def of(cls, graph: Graph, *, max_gap_bytes: int, vertex_type: int = 0) -> "DiskRows":
        """Open the feature file of a vertex type; ConfigError: the features are in memory.

        ``vertex_type`` is a position in the schema of ``graph``.
        """
        rows, matrix = mapped_features(graph, vertex_type), graph.matrices[vertex_type]
        assert matrix is not None
        return cls(
            rows, dtype_name=matrix.dtype, num_features=matrix.width, max_gap_bytes=max_gap_bytes
        )

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Start reading row ``vertices[i]`` into ``buffer[slots[i]]``, and return a ticket."""
        return self._reader.submit(vertices, (buffer.view(np.uint8), "uint8"), slots)

    def skip(self) -> None:
        """Do nothing in a step without rows: no other process takes part in the reads."""

    def profile_rows(self, vertices: Array) -> Array:
        """Read and return the rows of ``vertices``, ``[n, width]``, as stored."""
        rows: Array = np.empty((len(vertices), self.width), self.dtype)
        self.finish(self.start(vertices, rows, np.arange(len(vertices), dtype=np.int32)))
        return rows

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived."""
        self._reader.wait(ticket)

    def take_reads(self) -> SourceReads:
        """Return the bytes (gaps included) and requests that were read since the last call."""
        counters = self._reader.take_counters()
        return SourceReads(
            num_bytes=round(counters["bytes_read"]), num_requests=round(counters["requests"])
        )

    def close(self) -> None:
        """Wait for pending reads, and close the file."""
        self._reader.close()


def features_file(graph: Graph, vertex_type: int = 0) -> Path:
    """Return the path of the file with the features of a vertex type.

    ``vertex_type`` is a position in the schema. ConfigError: the features are in memory.
    """
    return Path(str(mapped_features(graph, vertex_type).filename))


def mapped_features(graph: Graph, vertex_type: int = 0) -> np.memmap[Any, Any]:
    """Return the mapped features of a vertex type; ConfigError: they are in memory, or none."""
    matrix = graph.matrices[vertex_type]
    rows: Any = None if matrix is None else matrix.rows
    if not isinstance(rows, np.memmap) or not rows.flags.c_contiguous:
        raise ConfigError(
            f"features=disk: expected features in a file, got those of {graph.path or graph.name} "
            "in memory; a graph store on disk has them in a file"
        )
    return rows


def types_in_files(graph: Graph) -> list[int]:
    """Return the positions in the schema of the vertex types whose features are in files.

    Without such a type it is the first type, which ``mapped_features`` refuses.
    """
    numbers = [
        number
        for number, matrix in enumerate(graph.matrices)
        if matrix is not None and isinstance(matrix.rows, np.memmap) and len(matrix.rows)
    ]
    return numbers or [0]


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

    requests_per_s: float  #: random reads of 4 KiB per second
    bytes_per_s: float  #: bytes per second of random reads of 64 KiB

    @property
    def max_gap_bytes(self) -> int:
        """Largest gap in bytes between two rows that one request reads faster than two requests."""
        return max(round(self.bytes_per_s / self.requests_per_s) - _SMALL_BYTES, 0)

    def seconds(self, num_requests: float, num_bytes: float) -> float:
        """Return the seconds of ``num_requests`` requests that read ``num_bytes`` in total."""
        request_s = 1 / self.requests_per_s - _SMALL_BYTES / self.bytes_per_s
        return num_requests * max(request_s, 0.0) + num_bytes / self.bytes_per_s


def cached_disk_rates(file: Path) -> DiskRates | None:
    """Return rates of the disk of ``file``, measured once per process. None: file below 16 MiB."""
    return _cached_rates(file) if file.stat().st_size >= _MIN_RATED_BYTES else None


def max_read_gap(file: Path) -> int:
    """Return the largest gap in bytes that one request of ``file`` should read over.

    The rates of the disk give the gap; a file below 16 MiB gives its size, without a measurement.
    """
    rates = cached_disk_rates(file)
    return file.stat().st_size if rates is None else rates.max_gap_bytes


@cache
def _cached_rates(file: Path) -> DiskRates:
    return measure_disk(file)


def measure_disk(path: str | Path, *, depth: int = DEPTH, seconds: float = 0.5) -> DiskRates:
    """Return a disk's rates by random reads of 4 and 64 KiB of a file, each for ``seconds``.

    The file should exceed the disk's internal cache. On a file system without direct reads, cached
    parts make the rates higher. ConfigError: the file is smaller than 64 KiB.
    """
    file = os.fspath(path)
    size = os.stat(file).st_size
    if size < _LARGE_BYTES:
        raise ConfigError(f"{file}: expected at least {_LARGE_BYTES} bytes, got {size}")
    small = _reads_per_s(file, size, _SMALL_BYTES, depth=depth, seconds=seconds)
    large = _reads_per_s(file, size, _LARGE_BYTES, depth=depth, seconds=seconds)
    return DiskRates(requests_per_s=small, bytes_per_s=large * _LARGE_BYTES)


def _reads_per_s(file: str, size: int, num_bytes: int, *, depth: int, seconds: float) -> float:
    """Return random reads of ``num_bytes`` per second of a ``file``, measured for ``seconds``."""
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


#: Bytes of the offset of a resident list.
_OFFSET_BYTES = 8
#: Bytes of a bitmap block, which says which of 64 lists are resident.
_BLOCK_BYTES, _BLOCK_LISTS = 16, 64


@dataclass(frozen=True, kw_only=True)
class ResidentAdjacency:
    """Choice of the adjacency lists that host memory holds, with the expected hits."""

    rows: IntArray  #: ``[k]`` numbers of the lists, ascending, of the type of ``indices``
    part: float  #: share of the graph's edges in the lists, 0 to 1
    expected_hits: float  #: expected share of list reads that memory serves, 0 to 1


def choose_resident_lists(
    graph: Graph, reads: Float32Array, *, memory_bytes: int
) -> ResidentAdjacency:
    """Return the adjacency lists with the most reads per byte that fit into ``memory_bytes``.

    Legion (Sun et al. 2023, section 4.2.1) ranks lists by hotness. Here hotness is divided by the
    bytes of a list, since sampling reads few entries of a long list. ``reads`` (``[num_lists]``)
    are expected reads of each list, in any unit; memory includes offsets and bitmap.
    """
    degrees = np.diff(graph.indptr)
    num_bytes = degrees * graph.indices.itemsize + _OFFSET_BYTES
    read = np.flatnonzero((degrees > 0) & (reads > 0))
    order = read[np.argsort(-reads[read] / num_bytes[read], kind="stable")]
    bitmap = (len(degrees) // _BLOCK_LISTS + 1) * _BLOCK_BYTES
    fitting = np.cumsum(num_bytes[order]) <= memory_bytes - bitmap
    rows = np.sort(order[fitting]).astype(graph.indices.dtype)
    total = float(reads[read].sum(dtype=np.float64))
    return ResidentAdjacency(
        rows=rows,
        part=float(degrees[rows].sum()) / max(graph.num_edges, 1),
        expected_hits=float(reads[rows].sum(dtype=np.float64)) / total if total else 0.0,
    )


def open_lists(graph: Graph, rows: IntArray, *, max_gap_bytes: int) -> ops.DiskLists:
    """Return a reader of ``graph.indices`` in a file, with the lists ``rows`` in memory.

    ``rows`` ascend: they are vertices, or with types rows of the schema. ``max_gap_bytes`` is the
    largest gap between two neighbors that one request reads. ConfigError: there is no file.
    GraphError: the topology is damaged. OSError: the file cannot be read.
    """
    indices = mapped_indices(graph)
    with ops.naming_graph(graph.path or graph.name):
        return ops.DiskLists(
            str(indices.filename),
            graph.indptr,
            indices,
            rows,
            offset=indices.offset,
            max_gap_bytes=min(max_gap_bytes, MAX_GAP_BYTES),
        )


def indices_file(graph: Graph) -> Path:
    """Return the path of the file of ``graph.indices``; ConfigError: it is in memory."""
    return Path(str(mapped_indices(graph).filename))


def mapped_indices(graph: Graph) -> np.memmap[Any, Any]:
    """Return the mapped ``graph.indices``; ConfigError: they are in memory, without a file."""
    indices: Any = graph.indices
    if not isinstance(indices, np.memmap):
        raise ConfigError(
            "sampler.memory_bytes: expected adjacency lists in a file, got those of "
            f"{graph.path or graph.name} in memory; a graph store on disk has them in a file"
        )
    return indices


def take_reads(lists: ops.DiskLists) -> Access:
    """Return hits, misses, bytes and waits of the reads of ``lists`` since the last call."""
    counters = lists.take_counters()
    return Access(
        hits=round(counters["hits"]),
        misses=round(counters["misses"]),
        link_bytes=round(counters["bytes_read"]),
        link_requests=round(counters["requests"]),
        waited_us=round(1e6 * counters["waited_s"]),
    )
