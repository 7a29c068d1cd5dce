"""Rows of a hidden layer, in memory or in a temporary file that has no name."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.feature import Aggregation, FeatureStore, HostFeatures
from gnnscale.sampler import Block
from gnnscale.stages import Traffic

__all__ = ["FileRows", "MemoryRows", "Wanted", "file_bytes"]

#: Rows of a file are filled up to so many columns, which ``ops.add_rows`` adds in.
_COLUMNS = 16
#: Bytes of rows that are mapped at once for layers that ask for single rows.
_MAPPED_BYTES = 1 << 30


def file_bytes(num_rows: int, width: int) -> int:
    """Return the size of a file of rows of ``width`` features."""
    return num_rows * _padded(width) * np.dtype(np.float32).itemsize


def _padded(width: int) -> int:
    return -(-width // _COLUMNS) * _COLUMNS


class MemoryRows(HostFeatures):
    """A layer's output in memory."""

    def __init__(self, num_rows: int, width: int) -> None:
        """Make room for ``num_rows`` rows of ``width`` features."""
        # On large pages, where rows that are read in any order are found sooner.
        self.rows = ops.empty((num_rows, width), torch.float32).numpy()
        self._done = 0
        super().__init__(self.rows, "float32")

    def append(self, h: torch.Tensor) -> None:
        """Add rows ``h``, in order."""
        self.rows[self._done : self._done + len(h)] = h.numpy()
        self._done += len(h)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Destinations whose neighbours' rows are to be aggregated.

    Attributes:
        block: all their neighbours.
        vertices: ``[num_src]`` rows of the block's sources, destinations first.
        aggregation: the layer's coefficients.
    """

    block: Block
    vertices: NDArray[Any]
    aggregation: Aggregation

    @property
    def edge_rows(self) -> NDArray[Any]:
        """``[num_edges]`` the row that each edge reads."""
        known = self.block.edge_vertices
        return self.vertices[self.block.indices] if known is None else known


class FileRows(FeatureStore):
    """A layer's output in a temporary file, which is gone with the process whatever its end.

    It is written once from its beginning to its end, and read so too: for ever so many destinations
    at a time, one stretch of rows after the other is mapped, and what their edges read of it is
    added to sums in memory. Rows in a file larger than memory that were read in the order of the
    edges would each wait for the disk.
    """

    def __init__(self, num_rows: int, width: int, *, stretch_bytes: int) -> None:
        """Make a file for ``num_rows`` rows of ``width`` features.

        Args:
            num_rows: number of rows.
            width: features of a row.
            stretch_bytes: bytes that are mapped at once.

        Raises:
            OSError: the disk has no room for them.
        """
        self._num_rows = num_rows
        self._width = width
        self._row_bytes = file_bytes(1, width)
        whole_pages = mmap.ALLOCATIONGRANULARITY // file_bytes(1, 1)  # rows, whatever their width
        self._stretch = max(stretch_bytes // self._row_bytes // whole_pages, 1) * whole_pages
        self._gathered_bytes = 0
        self._file = tempfile.TemporaryFile(prefix="gnnscale-inference-")  # noqa: SIM115
        self._mapping: mmap.mmap | None = None
        try:
            # Room is taken now: better an error here than after hours.
            os.posix_fallocate(self._file.fileno(), 0, max(num_rows * self._row_bytes, 1))
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

    def append(self, h: torch.Tensor) -> None:
        """Add rows ``h``, in order."""
        missing = _padded(self._width) - self._width
        rows = torch.nn.functional.pad(h, (0, missing)) if missing else h.contiguous()
        self._file.write(rows.numpy().data)

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        rows = ops.empty((len(vertices), self._width), dtype)
        self._gather(vertices, rows, num_threads)
        return rows, Traffic()

    def _gather(self, vertices: NDArray[Any], out: torch.Tensor, num_threads: int) -> None:
        stored = self._rows()[:, : self._width]
        ops.gather((stored, "float32"), vertices, out=out, num_threads=num_threads)
        # A page or two for each row.
        self._gathered_bytes += len(vertices) * (self._row_bytes + mmap.PAGESIZE)
        if self._gathered_bytes > _MAPPED_BYTES:
            self._forget()
            self._gathered_bytes = 0

    def aggregate_all(
        self, wanted: Sequence[Wanted], *, num_threads: int
    ) -> Iterator[torch.Tensor]:
        """Yield for each of ``wanted`` what ``aggregate`` returns, in one pass over the file."""
        sizes = [each.block.num_dst for each in wanted]
        sums = ops.empty((sum(sizes), _padded(self._width)), torch.float32).zero_()
        self._add_all(wanted, sums, num_threads)
        parts = torch.split(sums[:, : self._width], sizes)
        for each, part in zip(wanted, parts, strict=True):
            aggregation, width = each.aggregation, self._width
            if aggregation.dst_scale is not None:
                part *= torch.from_numpy(aggregation.dst_scale)[:, None]
            out = ops.empty((len(part), aggregation.width(width)), torch.float32)
            own = out[:, :width]
            self._gather(each.vertices[: len(part)], own, num_threads)
            if aggregation.self_term == "concat":
                out[:, width:] = part
            else:
                if aggregation.self_scale is not None:
                    own *= torch.from_numpy(aggregation.self_scale)[:, None]
                torch.add(part, own, out=out)
            yield out

    def _add_all(self, wanted: Sequence[Wanted], sums: torch.Tensor, num_threads: int) -> None:
        """Add every edge's row to the sums of its destination, in the order of the edges.

        That is the order of the rows, since lists are sorted.
        """
        rows = np.concatenate([each.edge_rows for each in wanted])
        counts = np.concatenate([np.diff(each.block.indptr) for each in wanted])
        dst = np.repeat(np.arange(len(sums), dtype=np.int32), counts)
        factors = [each.aggregation.weights for each in wanted]
        given = [each for each in factors if each is not None]
        weights: NDArray[np.float32] | None = np.concatenate(given) if given else None
        num_stretches = -(-self._num_rows // self._stretch)
        if num_stretches > 1:
            stretch = (rows // self._stretch).astype(np.uint16 if num_stretches < 1 << 16 else int)
            order = np.argsort(stretch, kind="stable")
            rows, dst = rows[order], dst[order]
            weights = None if weights is None else weights[order]
            ends = np.cumsum(np.bincount(stretch, minlength=num_stretches))
        else:
            ends = np.array([len(rows)])
        every = self._rows()
        for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if begin == end:
                continue
            first = number * self._stretch
            starts = np.flatnonzero(np.diff(dst[begin:end], prepend=-1))
            self._fetch(first)
            ops.add_rows(
                (every[first : first + self._stretch], "float32"),
                rows[begin:end] - first,
                np.append(starts, end - begin),
                weights=None if weights is None else weights[begin:end],
                out_ids=dst[begin:end][starts],
                out=sums,
                num_threads=num_threads,
            )
            self._forget()

    def _rows(self) -> NDArray[np.float32]:
        """Return the whole file as rows, filled up."""
        if self._mapping is None:
            self._file.flush()
            self._mapping = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
        width = _padded(self._width)
        count = self._num_rows * width
        return np.frombuffer(self._mapping, np.float32, count).reshape(self._num_rows, width)

    def _fetch(self, first: int) -> None:
        """Let the disk bring a stretch of rows in order, ahead of reads in any order."""
        rows = min(self._stretch, self._num_rows - first)
        assert self._mapping is not None
        self._mapping.madvise(mmap.MADV_WILLNEED, first * self._row_bytes, rows * self._row_bytes)

    def _forget(self) -> None:
        """Give up what is mapped, which would all count as this process's memory."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Give up the file; room on the disk is free once no array lies in it."""
        self._mapping = None
        self._file.close()
