"""What an epoch has counted so far."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gnnscale.core.stages import StageTimes, Traffic
from gnnscale.runtime.telemetry.epoch_sums import DeviceSums, EpochSums

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
        seeds_of, stages_of, traffic_of: each device's seeds, seconds and traffic, by its rank.
    """

    num_batches: int = 0
    num_seeds: int = 0
    num_edges: int = 0
    num_vertices: int = 0
    loss: float = 0.0
    start: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0
    seeds_of: list[int] = field(default_factory=list)
    stages_of: list[StageTimes] = field(default_factory=list)
    traffic_of: list[Traffic] = field(default_factory=list)

    @classmethod
    def begin(cls, num_devices: int, sums: EpochSums | None = None) -> EpochCounters:
        """Begin to count, or count on from ``sums`` as if the epoch had begun so long ago."""
        devices = sums.devices if sums is not None else ()
        known = devices or [DeviceSums() for _ in range(num_devices)]
        counters = cls(
            seeds_of=[each.num_seeds for each in known],
            stages_of=[replace(each.stages) for each in known],
            traffic_of=[each.traffic for each in known],
        )
        if sums is None:
            return counters
        return replace(
            counters,
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

    def count_slice(
        self, rank: int, *, num_seeds: int, stages: StageTimes, traffic: Traffic
    ) -> None:
        """Add a device's slice of a mini-batch."""
        self.seeds_of[rank] += num_seeds
        self.stages_of[rank].add(stages)
        self.traffic_of[rank] += traffic

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

    def sums(self, own: Mapping[str, float]) -> EpochSums:
        """Return what a checkpoint keeps; ``own`` are the figures of this worker's device."""
        parts = zip(self.seeds_of, self.stages_of, self.traffic_of, strict=True)
        return EpochSums(
            num_batches=self.num_batches,
            num_seeds=self.num_seeds,
            num_edges=self.num_edges,
            num_vertices=self.num_vertices,
            loss=self.loss,
            seconds=self.elapsed(),
            devices=tuple(
                DeviceSums(num_seeds=seeds, stages=replace(stages), traffic=traffic)
                for seeds, stages, traffic in parts
            ),
            counters=dict(own),
        )
