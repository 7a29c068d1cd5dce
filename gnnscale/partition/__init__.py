"""Partitions: how a graph is divided among the devices of a run."""

from __future__ import annotations

from gnnscale.partition.partitioner import Forecast, PartitionerConfig
from gnnscale.partition.parts import NO_PART, UNREACHED, Parts

__all__ = ["NO_PART", "UNREACHED", "Forecast", "PartitionerConfig", "Parts"]
