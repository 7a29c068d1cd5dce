"""Stores of a hidden layer's rows, in memory or in a file, filled by worker threads.

Rows in a file are aggregated in one pass over the file for many destinations together.
"""

import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.feature_loading import LoadedChunk
from gnnscale.core import Array, Float32Array, Traffic
from gnnscale.features import Aggregation, FeatureStore, HostFeatures
from gnnscale.features import base as store
from gnnscale.inference.chunks import Workers
from gnnscale.sampling import Block

#: Bytes of an edge during ``aggregate_all``: row, weight, destination, sort order, and block.
EDGE_BYTES = 40


@dataclass(frozen=True, kw_only=True)
class AggregationRequest:
    """Block whose sources' stored rows are to be aggregated for its destinations."""

    block: Block  #: edges from all neighbors
    vertices: Array  #: ``[num_src]`` stored rows of the block's sources, destinations first
    aggregation: Aggregation  #: the layer's coefficients

    @property
    def edge_rows(self) -> Array:
        """``[num_edges]`` row number, in the store, of each edge's source."""
        rows = self.block.edge_vertices
        return self.vertices[self.block.indices] if rows is None else rows


class RangeSums:
    """Sums of neighbor rows for one ``AggregationRequest``, accumulated over ranges of stored rows.

    Each destination adds its rows in ascending order, which is the order of its sorted list.
    """

    def __init__(
        self, request: AggregationRequest, *, num_rows: int, range_rows: int, columns: int
    ) -> None:
        """Sort the edges by the range of their source, and set the sums to 0.

        The store's ``num_rows`` rows are divided into ranges of ``range_rows``; a row has
        ``columns`` padded columns, a multiple of 16.
        """
        self.block = request.block
        num_dst = request.block.num_dst
        #: ``[num_dst, columns]`` float32, complete after all ranges
        self.out = ops.empty((num_dst, columns), torch.float32).zero_()
        self.destinations = request.vertices[:num_dst].copy()  #: ``[num_dst]`` stored rows
        self.aggregation = request.aggregation  #: its edge weights are included in the sums
        rows, weights = request.edge_rows, request.aggregation.weights
        dst = np.repeat(np.arange(num_dst, dtype=np.int32), np.diff(request.block.indptr))
        num_ranges = -(-num_rows // range_rows)
        ends = np.array([len(rows)])
        if num_ranges > 1:
            number = (rows // range_rows).astype(np.uint16 if num_ranges < 1 << 16 else np.int64)
            order = np.argsort(number, kind="stable")
            rows, dst = rows[order] - number[order] * rows.dtype.type(range_rows), dst[order]
            weights = None if weights is None else weights[order]
            ends = np.cumsum(np.bincount(number, minlength=num_ranges))
        self._rows, self._weights = rows, weights
        #: offsets of the ranges' edges
        self._ends = [0, *ends.tolist()]
        # Consecutive edges of one destination and one range form a run.
        begins = np.diff(dst, prepend=-1) != 0
        begins[ends[ends < len(rows)]] = True
        starts = np.flatnonzero(begins)
        self._starts = np.append(starts, len(rows))
        self._dst = dst[starts]

    def add(self, *, number: int, rows: Float32Array, num_threads: int) -> None:
        """Add ``rows``, all stored rows of range ``number``, to the sums of their destinations."""
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
    """Store of a layer's output rows in memory."""

    def __init__(self, num_rows: int, width: int, *, num_parts: int = 1) -> None:
        """Allocate ``num_rows`` rows of ``width`` features.

        ``num_parts`` of 2: a vertex has a row that its neighbors aggregate, and one that only the
        vertex itself adds.
        """
        # ops.empty uses huge pages, which speed up random access.
        self._parts = [
            ops.empty((num_rows, width), torch.float32).numpy() for _ in range(num_parts)
        ]
        self.rows = self._parts[0]  #: ``[num_rows, width]`` rows that neighbors aggregate
        #: ``[num_rows, width]`` rows that destinations add for themselves; None: ``rows``
        self.self_rows = self._parts[1] if num_parts == 2 else None
        super().__init__(self.rows, "float32")

    def write(self, first: int, h: torch.Tensor) -> None:
        """Store ``h`` ``[n, num_parts * width]``, parts side by side, from row ``first`` on."""
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
        """Return aggregated rows, ``aggregation.width(width)`` wide, and no traffic."""
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        self_rows = None if self.self_rows is None else (self.self_rows, "float32")
        store.write_aggregated(
            self.stored,
            block,
            aggregation,
            out=out,
            ids=vertices,
            num_threads=num_threads,
            own_rows=self_rows,
        )
        return out, Traffic()


#: Rows of a file are padded to a multiple of 16 columns, as ``ops.add_rows`` requires.
_COLUMNS = 16

#: Gathered bytes after which mapped pages are released.
_MAPPED_BYTES = 1 << 30


def file_bytes(num_rows: int, width: int) -> int:
    """Return the bytes of a file of ``num_rows`` float32 rows, padded from ``width`` features."""
    return num_rows * _padded(width) * np.dtype(np.float32).itemsize


def _padded(width: int) -> int:
    """Return ``width`` rounded up to a multiple of ``_COLUMNS``."""
    return -(-width // _COLUMNS) * _COLUMNS


class FileRows(FeatureStore):
    """Store of a layer's output rows in an unnamed temporary file, which ends with the process.

    The file is written and read sequentially. ``aggregate_all`` maps one range of rows after the
    other and adds its rows to sums in memory, for as many destinations as fit: in the order of the
    edges, each read from a file larger than memory would wait for the disk. With two parts, the
    rows that destinations add for themselves follow the rows that neighbors aggregate.

    Example: 1,000,000 rows of width 100 take 448 MB (112 padded columns). With ``range_bytes`` of
    64 MB, ``aggregate_all`` reads about 7 ranges. OSError: the disk is full, or fails.
    """

    def __init__(self, num_rows: int, width: int, *, num_parts: int = 1, range_bytes: int) -> None:
        """Allocate a file for ``num_rows`` rows of ``width``, read in ranges of ``range_bytes``.

        ``num_parts`` of 2: a vertex has a row that neighbors aggregate, and one for itself.
        """
        self._num_rows = num_rows
        self._width = width
        self._num_parts = num_parts
        self._row_bytes = file_bytes(1, width)
        page_rows = mmap.ALLOCATIONGRANULARITY // file_bytes(1, 1)  # whole pages for any width
        self._range_rows = max(range_bytes // self._row_bytes // page_rows, 1) * page_rows
        self.range_bytes = range_bytes
        self._gathered_bytes = 0
        self._file = tempfile.TemporaryFile(prefix="gnnscale-inference-")  # noqa: SIM115
        self._mapping: mmap.mmap | None = None
        try:
            # Allocate the disk space now, not after hours of computation.
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
        """Number of features of a row."""
        return self._width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the file."""
        return self._row_bytes

    def write(self, first: int, h: torch.Tensor) -> None:
        """Store ``h`` ``[n, num_parts * width]``, parts side by side, from row ``first`` on."""
        for part in range(self._num_parts):
            self.write_part(part, first, h[:, part * self._width : (part + 1) * self._width])

    def write_part(self, part: int, first: int, rows: torch.Tensor) -> None:
        """Store ``rows``, ``[n, width]`` or narrower, in part ``part`` from row ``first`` on."""
        missing = _padded(self._width) - rows.shape[1]
        rows = torch.nn.functional.pad(rows, (0, missing)) if missing else rows.contiguous()
        remaining = rows.numpy().data.cast("B") if len(rows) else memoryview(b"")
        offset = (part * self._num_rows + first) * self._row_bytes
        while remaining:
            done = os.pwrite(self._file.fileno(), remaining, offset)
            remaining, offset = remaining[done:], offset + done

    def read(self, first: int, count: int) -> torch.Tensor:
        """Return ``count`` rows from row ``first`` on, ``[count, num_parts * width]``."""
        out = ops.empty((self._num_parts, count, _padded(self._width)), torch.float32)
        for part, rows in enumerate(out.numpy()):
            remaining = rows.data.cast("B") if count else memoryview(b"")
            offset = (part * self._num_rows + first) * self._row_bytes
            while remaining:
                done = os.preadv(self._file.fileno(), [remaining], offset)
                if done == 0:
                    raise OSError(f"{self._file.name}: a temporary file has become shorter")
                remaining, offset = remaining[done:], offset + done
        return out[:, :, : self._width].transpose(0, 1).flatten(1)

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return ``vertices``' rows that neighbors aggregate, ``[n, width]``, and no traffic."""
        rows = ops.empty((len(vertices), self._width), dtype)
        self._gather(0, vertices, rows, num_threads)
        return rows, Traffic()

    def _gather(self, part: int, vertices: Array, out: torch.Tensor, num_threads: int) -> None:
        """Copy rows ``vertices`` of a part to ``out``; release mapped pages every 1 GiB."""
        stored = self._rows(part)[:, : self._width]
        ops.gather((stored, "float32"), vertices, out=out, num_threads=num_threads)
        # A row is on one page or two. Lost updates of concurrent threads do not matter.
        self._gathered_bytes += len(vertices) * (self._row_bytes + mmap.PAGESIZE)
        if self._gathered_bytes > _MAPPED_BYTES:
            self._release_pages()
            self._gathered_bytes = 0

    def aggregate_all(
        self, requests: Sequence[Callable[[], AggregationRequest]], workers: Workers
    ) -> list[Callable[[], LoadedChunk]]:
        """Aggregate the rows of all requests in one pass over the file.

        Worker threads call ``requests``. Each result is a function, to be called in any thread,
        that returns a request's block and its aggregated rows.
        """
        columns, range_rows = _padded(self._width), self._range_rows

        def start_sums(make_request: Callable[[], AggregationRequest]) -> RangeSums:
            request = make_request()
            return RangeSums(
                request, num_rows=self._num_rows, range_rows=range_rows, columns=columns
            )

        all_sums = list(workers.map(start_sums, requests))
        threads = workers.threads_per_chunk
        rows, mapping = self._rows(0), self._mapping
        assert mapping is not None
        for number in range(-(-self._num_rows // range_rows)):
            part = rows[number * range_rows : (number + 1) * range_rows]
            # The system reads the rows ahead of random accesses.
            offset = number * range_rows * self._row_bytes
            mapping.madvise(mmap.MADV_WILLNEED, offset, len(part) * self._row_bytes)
            add = partial(RangeSums.add, number=number, rows=part, num_threads=threads)
            for _ in workers.map(add, all_sums):
                pass
            self._release_pages()
        return [partial(self._finish, sums, threads) for sums in all_sums]

    def _finish(self, sums: RangeSums, num_threads: int) -> LoadedChunk:
        """Return the block, and its scaled sums, added to or joined with destinations' rows."""
        aggregation, width = sums.aggregation, self._width
        part = sums.out[:, :width]
        if aggregation.dst_scale is not None:
            part *= torch.from_numpy(aggregation.dst_scale)[:, None]
        out = ops.empty((len(part), aggregation.width(width)), torch.float32)
        self_rows = out[:, :width]
        self._gather(self._num_parts - 1, sums.destinations, self_rows, num_threads)
        if aggregation.self_term == "concat":
            out[:, width:] = part
        else:
            if aggregation.self_scale is not None:
                self_rows *= torch.from_numpy(aggregation.self_scale)[:, None]
            torch.add(part, self_rows, out=out)
        return sums.block, out

    def _rows(self, part: int) -> Float32Array:
        """Return all padded rows of a part, mapped from the file."""
        assert self._mapping is not None
        width, num_rows = _padded(self._width), self._num_rows
        offset = part * num_rows * self._row_bytes
        stored = np.frombuffer(self._mapping, np.float32, num_rows * width, offset)
        return stored.reshape(num_rows, width)

    def _release_pages(self) -> None:
        """Release mapped pages, which count as memory of this process; the file keeps the rows."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Close the file; its disk space is freed once no array maps it."""
        self._mapping = None
        self._file.close()
