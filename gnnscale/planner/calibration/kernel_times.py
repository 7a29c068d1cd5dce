"""Times of single kernels: random row reads, and products as in training."""

import mmap
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Float32Array
from gnnscale.ops.products import multiply, weight_gradient
from gnnscale.planner.cost_model.workload import other_data

_SEED = 0


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use ``threads`` threads inside the ``with`` block."""
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def median_seconds(work: Callable[[int], object], repeats: int) -> float:
    """Return the median seconds of ``work(1)`` to ``work(repeats)``, after a first ``work(0)``."""
    times = []
    for number in range(repeats + 1):
        start = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def rows_seconds(
    table: Float32Array, num_rows: int, *, threads: int, repeats: int, cold: bool
) -> float:
    """Return the seconds of aggregating ``num_rows`` random rows of ``table``, ten per result.

    The median of ``repeats`` counts; ``cold``: the table is evicted from caches before each.
    """
    generator = np.random.default_rng(_SEED)
    ids = [generator.integers(0, len(table), num_rows).astype(np.int32) for _ in range(repeats + 1)]
    indptr = np.arange(0, num_rows + 1, 10, dtype=np.int64)
    indices = np.zeros(num_rows, np.int32)
    out = torch.empty(len(indptr) - 1, table.shape[1])
    times = []
    for row_ids in ids:
        if cold and not ops.flush_cache_lines(table.reshape(-1).view(np.uint8)):
            other_data().sum()
        start = time.perf_counter()
        ops.aggregate(
            (table, "float32"),
            indptr,
            indices,
            ids=row_ids,
            ids_per_edge=True,
            out=out,
            num_threads=threads,
        )
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def mapped(num_values: int) -> Float32Array:
    """Return ``num_values`` ones in small pages, like the pages of a mapped file."""
    pages = mmap.mmap(-1, 4 * num_values)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    values: Float32Array = np.frombuffer(pages, np.float32)
    values.fill(1)
    return values


def time_products(
    width: int, num_rows: int, *, threads: int, repeats: int, dtype: torch.dtype = torch.float32
) -> float:
    """Return the mean seconds of a layer's two products with a square matrix of ``width``.

    The products are the forward product of ``num_rows`` rows and the product for the weights'
    gradient, which libraries compute at different rates.
    """
    rows, weight = (torch.rand(count, width).to(dtype) for count in (num_rows, width))
    out = rows @ weight
    with torch_threads(threads):
        forward = median_seconds(lambda _: multiply(rows, weight.t()), repeats)
        return (forward + median_seconds(lambda _: weight_gradient(rows, out), repeats)) / 2


def time_operands(
    num_rows: int, width: int, num_outputs: int, *, threads: int, repeats: int
) -> float:
    """Return the median seconds of the product for gradients of ``[num_outputs, width]`` weights.

    With few outputs, reading ``num_rows`` rows of ``width`` features takes most of the time.
    """
    rows, grad = (torch.ones(num_rows, count) for count in (width, num_outputs))
    with torch_threads(threads):
        return median_seconds(lambda _: weight_gradient(rows, grad), repeats)
