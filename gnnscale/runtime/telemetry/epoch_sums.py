"""What an epoch has added up so far, as plain values that a checkpoint keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from gnnscale.core.stages import StageTimes, Traffic
from gnnscale.plain_records import fields_from

__all__ = ["DeviceSums", "EpochSums"]


@dataclass(frozen=True, kw_only=True)
class DeviceSums:
    """What one device has done in an epoch so far.

    Attributes:
        num_seeds: of its slices.
        stages: seconds in each stage.
        traffic: what its slices moved.
    """

    num_seeds: int = 0
    stages: StageTimes = field(default_factory=StageTimes)
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(frozen=True, kw_only=True)
class EpochSums:
    """An epoch that is not done: with these its record becomes that of an undisturbed one.

    Attributes:
        num_batches, num_seeds, num_edges, num_vertices: so far, over all devices.
        loss: summed over the seeds.
        seconds: since the epoch began, without those in which the run stood still.
        devices: each device's part; empty where others go on than those that began.
        counters: figures of this worker's own device; they are not among the plain values.
    """

    num_batches: int
    num_seeds: int
    num_edges: int
    num_vertices: int
    loss: float
    seconds: float
    devices: tuple[DeviceSums, ...] = ()
    counters: dict[str, float] = field(default_factory=dict)

    def to_values(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        values = asdict(self)
        del values["counters"]
        return values

    @classmethod
    def from_values(cls, values: Any) -> EpochSums:
        """Rebuild the sums from ``to_values``.

        Raises:
            ValueError: the values are those of something else.
        """
        found = cls(**fields_from(cls, values, where="sums", without=("counters",)))
        counts = [found.num_batches, found.num_seeds, found.num_edges, found.num_vertices]
        traffic = [count for each in found.devices for count in each.traffic.counts()]
        seeds = [each.num_seeds for each in found.devices]
        # An epoch without steps has no sums, and no mean loss.
        if min(counts) < 1 or min([*seeds, *traffic], default=0) < 0 or found.seconds <= 0:
            raise ValueError("sums: no sums of an epoch")
        return found
