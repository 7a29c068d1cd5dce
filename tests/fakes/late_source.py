"""A source below a tier whose rows are known, and as late as those of a disk may be."""

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.cache.belady import Belady
from gnnscale.features.tiered.buffer import SourceReads

NUM_ROWS, WIDTH = 12, 3
ROWS = np.random.default_rng(0).random((NUM_ROWS, WIDTH)).astype(np.float32)
#: The order of rows that are read equally soon.
PRIORITY = np.arange(NUM_ROWS, dtype=np.int32)


def ids(*vertices: int) -> NDArray[np.int32]:
    return np.array(vertices, np.int32)


def belady(num_kept: int, window: int, **options: Any) -> Belady:
    options = {"priority": PRIORITY, "num_threads": 1} | options
    return Belady(NUM_ROWS, num_kept, window=window, **options)


def gather_while_another_thread_expects(rows: Any, store: Any, lead: int) -> None:
    """Steps are told to ``rows`` by a thread, and gathered from ``store`` by this one."""
    generator = np.random.default_rng(1)
    steps = [generator.permutation(NUM_ROWS)[:5].astype(np.int32) for _ in range(200)]
    told = threading.Semaphore(0)

    def expect() -> None:
        for each in steps:
            rows.expect(each)
            told.release()
        told.release(lead)

    thread = threading.Thread(target=expect)
    thread.start()
    for _ in range(lead):
        told.acquire()
    for each in steps:
        told.acquire()
        found, _ = store.gather(each, dtype=torch.float32, num_threads=1)
        assert np.array_equal(found.numpy(), ROWS[each])
    thread.join()


class LateSource:
    """Rows that arrive only when they are waited for."""

    num_rows, width, num_features = NUM_ROWS, WIDTH, WIDTH
    dtype, dtype_name = ROWS.dtype, "float32"

    def __init__(self) -> None:
        self.begun: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
        #: of the steps: what each reads, None for one that reads nothing
        self.order: list[list[int] | None] = []
        self.read = 0
        self.closed = False

    @property
    def asked(self) -> list[list[int]]:
        """The rows of each call."""
        return [vertices.tolist() for vertices, _, _ in self.begun]

    def start(self, vertices: NDArray[Any], pool: NDArray[Any], slots: NDArray[Any]) -> int:
        self.begun.append((vertices, pool, slots))
        self.order.append(vertices.tolist())
        return len(self.begun) - 1

    def skip(self) -> None:
        self.order.append(None)

    def profile_rows(self, vertices: NDArray[Any]) -> NDArray[Any]:
        rows: NDArray[Any] = ROWS[vertices]
        return rows

    def finish(self, ticket: int) -> None:
        vertices, pool, slots = self.begun[ticket]
        pool[slots] = ROWS[vertices]
        self.read += len(vertices)

    def take_reads(self) -> SourceReads:
        read, self.read = self.read, 0
        return SourceReads(num_bytes=read * 4 * WIDTH, num_requests=read)

    def close(self) -> None:
        self.closed = True
