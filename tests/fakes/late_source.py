"""A source below a tier whose rows are known, and as late as those of a disk may be."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.features.tiered.buffer import SourceReads

NUM_ROWS, WIDTH = 12, 3
ROWS = np.random.default_rng(0).random((NUM_ROWS, WIDTH)).astype(np.float32)
#: The order of rows that are read equally soon.
PRIORITY = np.arange(NUM_ROWS, dtype=np.int32)


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
