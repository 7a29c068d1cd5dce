"""No partition: every device has the whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnscale.graph import Graph
from gnnscale.partition.partitioner import Forecast, PartitionerConfig
from gnnscale.partition.parts import Parts

__all__ = ["NoPartitioner"]


@dataclass(frozen=True, kw_only=True)
class NoPartitioner(PartitionerConfig):
    """The graph stays whole: every part has all of it."""

    algorithm: ClassVar[str] = "none"
    divides: ClassVar[str] = "nothing"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Return ``num_parts`` parts that have no vertices or columns of their own."""
        return Parts(num_parts=num_parts, owner=None)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take: nothing."""
        return Forecast(memory_bytes=0, seconds=0.0)
