"""What an epoch has counted so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from gnnscale.runtime.telemetry.epoch_sums import EpochSums

__all__ = ["EpochCounters"]


@dataclass(kw_only=True)
class EpochCounters:
    """What passed through the pipeline in an epoch, and how long it took.

    Attributes:
        num_batches: mini-batches.
        num_seeds: vertices predicted.
        num_edges: edges traversed, over all layers.
        num_vertices: vertices traversed, over all layers.
        loss: summed over the seeds.
        start: when the epoch began, on the performance counter's clock.
        seconds: how long it took; 0 until it is done.
    """

    num_batches: int = 0
    num_seeds: int = 0
    num_edges: int = 0
    num_vertices: int = 0
    loss: float = 0.0
    start: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0

    @classmethod
    def going_on(cls, sums: EpochSums) -> EpochCounters:
        """Count on from ``sums``, as if the epoch had begun so many seconds ago."""
        return cls(
            num_batches=sums.num_batches,
            num_seeds=sums.num_seeds,
            num_edges=sums.num_edges,
            num_vertices=sums.num_vertices,
            loss=sums.loss,
            start=time.perf_counter() - sums.seconds,
        )

    def count(self, *, num_seeds: int, num_edges: int, num_vertices: int, loss: float) -> None:
        """Add a mini-batch; ``loss`` is the mean over its seeds."""
        self.num_batches += 1
        self.num_seeds += num_seeds
        self.num_edges += num_edges
        self.num_vertices += num_vertices
        self.loss += loss * num_seeds

    @property
    def mean_loss(self) -> float:
        """Mean loss over the seeds so far."""
        return self.loss / self.num_seeds

    def elapsed(self) -> float:
        """Return the seconds since the epoch began."""
        return time.perf_counter() - self.start

    def stop(self) -> None:
        """End the epoch."""
        self.seconds = self.elapsed()
