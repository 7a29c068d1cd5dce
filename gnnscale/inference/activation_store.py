"""Rows of a layer's output: in memory or in a file, filled by several threads.

Sums over the edges of some destinations, of rows that come one stretch after the other.
"""

import mmap
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from gnnscale import ops
from gnnscale.backend.feature_loading import LoadedChunk
from gnnscale.core import Array, Float32Array, Traffic
from gnnscale.features import Aggregation, FeatureStore, HostFeatures
from gnnscale.features import base as store
from gnnscale.sampling import Block

#: Bytes of an edge that waits for its row: this, its weight, destination and place in order, and
#: the block's.
EDGE_BYTES = 40


@dataclass(frozen=True, kw_only=True)
class AggregationRequest:
    """Destinations whose neighbours' rows are to be aggregated."""

    block: Block  #: all their neighbours
    vertices: Array  #: ``[num_src]`` rows of the block's sources, destinations first
    aggregation: Aggregation  #: the layer's coefficients

    @property
    def edge_rows(self) -> Array:
        """``[num_edges]`` the row that each edge reads."""
        known = self.block.edge_vertices
        return self.vertices[self.block.indices] if known is None else known


class RangeSums:
    """Sums of the rows that edges read, in the order of the edges.

    That is the order of the rows, since lists are sorted.
    """

    def __init__(
        self, wanted: AggregationRequest, *, num_rows: int, stretch: int, columns: int
    ) -> None:
        """Order the edges by the stretch that they read.

        Args:
            columns: of a row, a multiple of 16.
        """
        self.block = wanted.block  #: the edges
        num_dst = wanted.block.num_dst
        #: ``[num_dst, columns]`` float32, complete once each stretch was added
        self.out = ops.empty((num_dst, columns), torch.float32).zero_()
        self.destinations = wanted.vertices[:num_dst].copy()  #: ``[num_dst]`` their rows
        self.aggregation = wanted.aggregation  #: coefficients, of which weights are in the sums
        rows, weights = wanted.edge_rows, wanted.aggregation.weights
        dst = np.repeat(np.arange(num_dst, dtype=np.int32), np.diff(wanted.block.indptr))
        num_stretches = -(-num_rows // stretch)
        ends = np.array([len(rows)])
        if num_stretches > 1:
            number = (rows // stretch).astype(np.uint16 if num_stretches < 1 << 16 else np.int64)
            order = np.argsort(number, kind="stable")
            rows, dst = rows[order] - number[order] * rows.dtype.type(stretch), dst[order]
            weights = None if weights is None else weights[order]
            ends = np.cumsum(np.bincount(number, minlength=num_stretches))
        self._rows, self._weights = rows, weights
        #: Where each stretch's edges end.
        self._ends = [0, *ends.tolist()]
        # A run of edges has one destination and one stretch.
        begins = np.diff(dst, prepend=-1) != 0
        begins[ends[ends < len(rows)]] = True
        starts = np.flatnonzero(begins)
        self._starts = np.append(starts, len(rows))
        self._dst = dst[starts]

    def add(self, *, number: int, rows: Float32Array, num_threads: int) -> None:
        """Add what edges read of ``rows``, those of stretch ``number``."""
        begin, end = self._ends[number : number + 2]
        if begin == end:
            return
        first, last = np.searchsorted(self._starts, [begin, end])
        ops.add_rows(
            (rows, "float32"),
            self._rows[begin:end],
            self._starts[first : last + 1] - begin,
            weights=None if self._weights is None else self._weights[begin:end],
            out_ids=self._dst[first:last],
            out=self.out,
            num_threads=num_threads,
        )


class MemoryRows(HostFeatures):
    """A layer's output in memory."""

    def __init__(self, num_rows: int, width: int, *, num_parts: int = 1) -> None:
        """Make room for rows of ``width`` features, and own rows if there are two parts."""
        # On large pages, on which rows that are read in any order are found sooner.
        self._parts = [
            ops.empty((num_rows, width), torch.float32).numpy() for _ in range(num_parts)
        ]
        self.rows = self._parts[0]  #: ``[num_rows, width]`` those that are aggregated
        #: ``[num_rows, width]`` what a destination adds in place of its row; None for its row
        self.own = self._parts[1] if num_parts == 2 else None
        super().__init__(self.rows, "float32")

    def write(self, first: int, h: torch.Tensor) -> None:
        """Set rows from ``first`` on to ``h`` ``[n, num_parts * width]``."""
        for number, rows in enumerate(self._parts):
            begin = number * self.width
            rows[first : first + len(h)] = h[:, begin : begin + self.width].numpy()

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated while they are read."""
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        own = None if self.own is None else (self.own, "float32")
        store.write_aggregated(
            self.stored,
            block,
            aggregation,
            out=out,
            ids=vertices,
            num_threads=num_threads,
            own_rows=own,
        )
        return out, Traffic()


#: Chunks that are computed at once, at most: each holds its rows in memory.
_MAX_WORKERS = 4

A = TypeVar("A")

B = TypeVar("B")


class Workers:
    """Computes chunks at once, so that one is multiplied while another one's rows are read.

    No thread then waits for the slowest part of each step, as all do when they share one chunk.
    """

    def __init__(self, num_threads: int) -> None:
        """Divide ``num_threads`` among chunks."""
        self._count = min(num_threads, _MAX_WORKERS)
        #: threads that one chunk may use, of native kernels and of torch
        self.each = num_threads // self._count
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the threads, for ``map``, while the block runs."""
        before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            self._count,
            thread_name_prefix="inference",
            initializer=torch.set_num_threads,
            initargs=(self.each,),
        )
        try:
            yield
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            # A thread sets its own number, and that of threads to come.
            torch.set_num_threads(before)

    def map(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Yield ``function(item)``, without gradient, in the order of ``items``.

        These are taken only a few ahead of what was yielded.
        """
        assert self._pool is not None
        running: deque[Future[B]] = deque()
        function = torch.no_grad()(function)  # torch keeps this for each thread
        try:
            for item in items:
                running.append(self._pool.submit(function, item))
                if len(running) > self._count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            # After an error, no thread may still write to what the caller releases now.
            for each in running:
                each.cancel()
            wait(running)


#: Rows of a file are filled up to so many columns, which ``ops.add_rows`` adds in.
_COLUMNS = 16

#: Bytes of rows that are mapped at once for layers that ask for single rows.
_MAPPED_BYTES = 1 << 30


def file_bytes(num_rows: int, width: int) -> int:
    """Return the size of a file of rows of ``width`` features."""
    return num_rows * _padded(width) * np.dtype(np.float32).itemsize


def _padded(width: int) -> int:
    return -(-width // _COLUMNS) * _COLUMNS


class FileRows(FeatureStore):
    """A layer's output in a temporary file, which disappears when the process ends in any way.

    It is written once from its beginning to its end, and read so too: for ever so many destinations
    at a time, one stretch of rows after the other is mapped, and what their edges read of it is
    added to sums in memory. Rows in a file larger than memory that were read in the order of the
    edges would each wait for the disk.

    If a vertex has a separate row besides the aggregated one, all own rows come after
    all others.
    """

    def __init__(
        self, num_rows: int, width: int, *, num_parts: int = 1, stretch_bytes: int
    ) -> None:
        """Make a file for ``num_rows`` rows of ``width`` features.

        Args:
            num_parts: 2 if there are own rows, as many and as wide.

        Raises:
            OSError: the disk has no room for them.
        """
        self._num_rows = num_rows
        self._width = width
        self._num_parts = num_parts
        self._row_bytes = file_bytes(1, width)
        whole_pages = mmap.ALLOCATIONGRANULARITY // file_bytes(1, 1)  # rows, whatever their width
        self._stretch = max(stretch_bytes // self._row_bytes // whole_pages, 1) * whole_pages
        self.stretch_bytes = stretch_bytes  #: that are mapped at once, about
        self._gathered_bytes = 0
        self._file = tempfile.TemporaryFile(prefix="gnnscale-inference-")  # noqa: SIM115
        self._mapping: mmap.mmap | None = None
        try:
            # Room is taken now: better an error here than after hours.
            num_bytes = max(num_parts * num_rows * self._row_bytes, 1)
            os.posix_fallocate(self._file.fileno(), 0, num_bytes)
            self._mapping = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
        except OSError:
            self.close()
            raise

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the file."""
        return self._row_bytes

    def write(self, first: int, h: torch.Tensor) -> None:
        """Set rows from ``first`` on to ``h`` ``[n, num_parts * width]``.

        Raises:
            OSError: they could not be written.
        """
        for part in range(self._num_parts):
            self.write_part(part, first, h[:, part * self._width : (part + 1) * self._width])

    def write_part(self, part: int, first: int, rows: torch.Tensor) -> None:
        """Set rows of one part from ``first`` on to ``rows`` ``[n, width]``, or of fewer columns.

        Raises:
            OSError: they could not be written.
        """
        missing = _padded(self._width) - rows.shape[1]
        rows = torch.nn.functional.pad(rows, (0, missing)) if missing else rows.contiguous()
        left = rows.numpy().data.cast("B") if len(rows) else memoryview(b"")
        place = (part * self._num_rows + first) * self._row_bytes
        while left:
            done = os.pwrite(self._file.fileno(), left, place)
            left, place = left[done:], place + done

    def read(self, first: int, count: int) -> torch.Tensor:
        """Return ``count`` rows from ``first`` on, ``[count, num_parts * width]``.

        Raises:
            OSError: they could not be read.
        """
        out = ops.empty((self._num_parts, count, _padded(self._width)), torch.float32)
        for part, rows in enumerate(out.numpy()):
            left = rows.data.cast("B") if count else memoryview(b"")
            place = (part * self._num_rows + first) * self._row_bytes
            while left:
                done = os.preadv(self._file.fileno(), [left], place)
                if done == 0:
                    raise OSError(f"{self._file.name}: a temporary file has become shorter")
                left, place = left[done:], place + done
        return out[:, :, : self._width].transpose(0, 1).flatten(1)

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        rows = ops.empty((len(vertices), self._width), dtype)
        self._gather(0, vertices, rows, num_threads)
        return rows, Traffic()

    def _gather(self, part: int, vertices: Array, out: torch.Tensor, num_threads: int) -> None:
        stored = self._rows(part)[:, : self._width]
        ops.gather((stored, "float32"), vertices, out=out, num_threads=num_threads)
        # A page or two for each row. What threads that count at once miss is little.
        self._gathered_bytes += len(vertices) * (self._row_bytes + mmap.PAGESIZE)
        if self._gathered_bytes > _MAPPED_BYTES:
            self._forget()
            self._gathered_bytes = 0

    def aggregate_all(
        self, wanted: Sequence[Callable[[], AggregationRequest]], workers: Workers
    ) -> list[Callable[[], LoadedChunk]]:
        """Aggregate in one pass over the file.

        Returns:
            For each of ``wanted`` what returns its block and aggregated rows, in any thread.
        """
        columns, stretch = _padded(self._width), self._stretch

        def sums_of(make: Callable[[], AggregationRequest]) -> RangeSums:
            return RangeSums(make(), num_rows=self._num_rows, stretch=stretch, columns=columns)

        every = list(workers.map(sums_of, wanted))
        rows = self._rows(0)
        for number in range(-(-self._num_rows // stretch)):
            part = rows[number * stretch : (number + 1) * stretch]
            self._fetch(number * stretch, len(part))
            add = partial(RangeSums.add, number=number, rows=part, num_threads=workers.each)
            for _ in workers.map(add, every):
                pass
            self._forget()
        return [partial(self._finish, each, workers.each) for each in every]

    def _finish(self, sums: RangeSums, num_threads: int) -> LoadedChunk:
        """Bring sums of rows, their coefficients and destinations' own rows together."""
        aggregation, width = sums.aggregation, self._width
        part = sums.out[:, :width]
        if aggregation.dst_scale is not None:
            part *= torch.from_numpy(aggregation.dst_scale)[:, None]
        out = ops.empty((len(part), aggregation.width(width)), torch.float32)
        own = out[:, :width]
        self._gather(self._num_parts - 1, sums.destinations, own, num_threads)
        if aggregation.self_term == "concat":
            out[:, width:] = part
        else:
            if aggregation.self_scale is not None:
                own *= torch.from_numpy(aggregation.self_scale)[:, None]
            torch.add(part, own, out=out)
        return sums.block, out

    def _rows(self, part: int) -> Float32Array:
        """Return all rows, filled up, or all own ones."""
        assert self._mapping is not None
        width, num_rows = _padded(self._width), self._num_rows
        offset = part * num_rows * self._row_bytes
        stored = np.frombuffer(self._mapping, np.float32, num_rows * width, offset)
        return stored.reshape(num_rows, width)

    def _fetch(self, first: int, count: int) -> None:
        """Let the disk bring a stretch of rows in order, ahead of reads in any order."""
        assert self._mapping is not None
        begin, length = first * self._row_bytes, count * self._row_bytes
        self._mapping.madvise(mmap.MADV_WILLNEED, begin, length)

    def _forget(self) -> None:
        """Give up what is mapped, which would all count as this process's memory."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Give up the file; room on the disk is free once no array lies in it."""
        self._mapping = None
        self._file.close()


class EncodedRows(FeatureStore):
    """What an encoder makes of the rows of another store, each time that they are read."""

    def __init__(self, store: FeatureStore, encoder: nn.Module, *, width: int) -> None:
        """Wrap ``store``, of which ``encoder`` makes rows of ``width`` features."""
        self._store = store
        self._encoder = encoder
        self._width = width

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._store.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self._store.row_bytes

    @torch.no_grad()
    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return what the encoder makes of the rows of ``vertices``, ``[n, width]``."""
        rows, traffic = self._store.gather(vertices, dtype=dtype, num_threads=num_threads)
        return self._encoder(rows), traffic
