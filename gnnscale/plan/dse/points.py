"""Points of a design space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Point:
    """A design of a card: the same n and m on every die that has a compute unit."""

    n: int  #: scatter-gather PEs of a die
    m: int  #: multiply-accumulate units of a die
    dies: tuple[str, ...]  #: those that have a compute unit
    nvtps: float  #: vertices per second of the card, the mean over the goal's mini-batches (eq. 3)
    bottleneck: str  #: what limits its step for the longest time
    #: of each resource, the largest part that is taken of a die
    shares: dict[str, float]
    limit: str  #: the resource that is fullest, and its die
    row_words: int | None = None  #: of a compute unit's memory of rows; None if there is no such

    @property
    def card(self) -> tuple[int, int]:
        """N and m of all dies together, as the papers give them."""
        return self.n * len(self.dies), self.m * len(self.dies)

    @property
    def fullest(self) -> float:
        """The largest part of a resource that is taken."""
        return max(self.shares.values())


def best_of(points: Sequence[Point]) -> Point:
    """Return the fastest point; of equally fast ones that which takes less."""
    return max(points, key=lambda point: (point.nvtps, -point.fullest))


def pareto(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other one beats in both throughput and fullest resource."""
    found: list[Point] = []
    for point in sorted(points, key=lambda each: (each.fullest, -each.nvtps)):
        if not found or point.nvtps > found[-1].nvtps:
            found.append(point)
    return tuple(found)
