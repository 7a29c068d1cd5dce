"""Small random arrays, cheap enough to make millions of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["STORED", "Draw"]

STORED = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)


class Draw:
    """Valid arguments from random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def size(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``."""
        return self.rng.randint(low, high)

    def ids(self, size: int, bound: int, dtype: Any = None) -> NDArray[Any]:
        """Return ``size`` ids below ``bound``, int32 or int64."""
        dtype = dtype or (np.int64 if self.rng.random() < 0.5 else np.int32)
        numbers = np.frombuffer(self.rng.randbytes(size * 4), np.uint32)
        return (numbers % max(bound, 1)).astype(dtype)

    def floats(self, size: int) -> NDArray[np.float32]:
        """Return ``size`` float32 between -8 and 8, which all types can hold."""
        values = np.frombuffer(self.rng.randbytes(size), np.int8).astype(np.float32)
        values /= 16
        return values

    def tensor(self, rows: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return a matrix, sometimes a slice of the columns of a wider one."""
        more = self.rng.choice((0, 0, 1, 3))
        values = torch.from_numpy(self.floats(rows * (width + more)).reshape(rows, width + more))
        if dtype == torch.uint8:
            values = values.abs() * 4
        return values.to(dtype)[:, :width] if more else values.to(dtype)

    def flat(self, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return a contiguous tensor in one or two axes."""
        values = torch.from_numpy(self.floats(size)).to(dtype)
        return values if self.rng.random() < 0.5 or size % 2 else values.view(size // 2, 2)

    def block(self) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
        """Return ``indptr, indices, num_src`` of a block, or of a part of one."""
        num_dst = self.size(0, 6)
        num_src = num_dst + self.size(1, 6)
        degrees = self.ids(num_dst, self.rng.choice((1, 3, 9)), np.int64)
        indptr = np.zeros(num_dst + 1, np.int64)
        np.cumsum(degrees, out=indptr[1:])
        return indptr, self.ids(int(indptr[-1]), num_src, np.int32), num_src

    def csc(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the topology of a whole graph."""
        n = self.size(1, 12)
        indptr = np.zeros(n + 1, np.int64)
        np.cumsum(self.ids(n, self.rng.choice((1, 4, 12)), np.int64), out=indptr[1:])
        return indptr, self.ids(int(indptr[-1]), n)

    def slots(self, num_vertices: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the slots of vertices in up to three caches, and where each cache's begin."""
        sizes = [self.size(0, 4) for _ in range(self.size(1, 3))]
        slots = self.ids(num_vertices, sum(sizes) + 1, np.int32) - np.int32(1)
        return slots, np.cumsum([0, *sizes])

    def maybe(self, value: Any) -> Any:
        """Return ``value`` or None."""
        return value if self.rng.random() < 0.5 else None

    def threads(self) -> int:
        """Return a number of threads; starting them takes time."""
        return self.rng.choice((1, 1, 1, 1, 1, 1, 2, 3))
