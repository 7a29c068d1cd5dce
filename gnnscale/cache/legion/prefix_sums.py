"""Sums of the first of very many numbers, of which few are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PrefixSums"]


@dataclass(frozen=True, kw_only=True)
class PrefixSums:
    """The sums of the first 0, 1, ... of a sequence of numbers, none of them negative.

    One in ``every`` sums is kept. Those between are added up when they are asked for: to write all
    of them for a hundred million vertices takes longer than the search that reads them.

    Attributes:
        kept: ``[⌈num_numbers / every⌉ + 1]`` int64, float64 for others than integers, the sums of
            the first 0, ``every``, 2 · ``every``, ... numbers, and last the sum of all.
        every: numbers from one kept sum to the next.
        num_numbers: how many numbers there are.
        numbers: returns those of a slice.
    """

    kept: NDArray[Any]
    every: int
    num_numbers: int
    numbers: Callable[[slice], NDArray[Any]] = field(repr=False)

    @classmethod
    def of(cls, numbers: Sequence[int], *, every: int) -> PrefixSums:
        """Return the sums of a few numbers, those of a model that is written by hand."""
        values = np.array(numbers, np.int64)
        sums = np.concatenate([[0], np.cumsum(values)])
        kept = sums[[*range(0, len(values), every), len(values)]]
        return cls(kept=kept, every=every, num_numbers=len(values), numbers=values.__getitem__)

    def between(self, first: int, last: int) -> NDArray[Any]:
        """Return ``[last - first + 1]`` sums: those of the first ``first`` to ``last`` numbers."""
        block = first // self.every
        start = block * self.every
        sums = np.empty(last - start + 1, self.kept.dtype)
        sums[0] = 0
        np.cumsum(self.numbers(slice(start, last)), out=sums[1:])
        sums += self.kept[block]
        return sums[first - start :]

    def at(self, num: int) -> Any:
        """Return the sum of the first ``num`` numbers."""
        return self.between(num, num)[0]

    def num_within(self, limit: int) -> int:
        """Return how many of the first numbers add up to ``limit`` at most."""
        block = int(np.searchsorted(self.kept, limit, side="right")) - 1
        first = min(block * self.every, self.num_numbers)
        sums = self.between(first, min(first + self.every, self.num_numbers))
        return first + int(np.searchsorted(sums, limit, side="right")) - 1

    def at_least(self, num: NDArray[np.int64]) -> NDArray[Any]:
        """Return a kept sum for each of ``num`` that is not above the sum of so many numbers."""
        return self.kept[num // self.every]

    def at_most(self, num: NDArray[np.int64]) -> NDArray[Any]:
        """Return a kept sum for each of ``num`` that is not below the sum of so many numbers."""
        return self.kept[-(-num // self.every)]
