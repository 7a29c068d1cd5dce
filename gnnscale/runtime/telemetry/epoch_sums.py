"""What an epoch has added up so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from gnnscale.core.records import Count, Positive
from gnnscale.core.stages import StageTimes, Traffic

__all__ = ["DeviceSums", "EpochSums"]


@dataclass(frozen=True, kw_only=True)
class DeviceSums:
    """What one device has done in an epoch so far.

    Attributes:
        num_seeds: of its slices.
        stages: seconds in each stage.
        traffic: what its slices moved.
    """

    num_seeds: Count = 0
    stages: StageTimes = field(default_factory=StageTimes)
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(frozen=True, kw_only=True)
class EpochSums:
    """An epoch that is not done: with these its record becomes that of an undisturbed one.

    An epoch without steps has no sums, and no mean loss.

    Attributes:
        num_batches, num_seeds, num_edges, num_vertices: so far, over all devices.
        loss: summed over the seeds.
        seconds: since the epoch began, without those in which the run stood still.
        devices: each device's part; empty where others go on than those that began.
        counters: figures of this worker's own device; a checkpoint has them in ``workers``.
    """

    num_batches: Positive
    num_seeds: Positive
    num_edges: Positive
    num_vertices: Positive
    loss: float
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    devices: tuple[DeviceSums, ...] = ()
    counters: dict[str, float] = field(default_factory=dict)
