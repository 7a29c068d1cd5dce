"""P3: features are divided along their dimension, and topology is everywhere."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from gnnscale.core import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.partitioner import Forecast, PartitionerConfig, Parts


@dataclass(frozen=True, kw_only=True)
class P3(PartitionerConfig):
    """Feature columns divided as evenly as can be; every part has the whole topology.

    Gandhi and Iyer, "P3: Distributed Deep Graph Learning at Scale" (OSDI 2021), section 3.1.
    """

    algorithm: ClassVar[str] = "p3"
    divides: ClassVar[str] = "columns"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide the feature columns into ``num_parts``, whatever the hops and threads.

        Raises:
            ConfigError: there are more parts than columns.
        """
        width = graph.num_features
        if num_parts > width:
            raise ConfigError(
                f"partitioner.num_parts={num_parts}: {graph.name} has {width} feature columns, "
                "and p3 gives each part one at least"
            )
        bounds = [width * part // num_parts for part in range(num_parts + 1)]
        return Parts(num_parts=num_parts, owner=None, columns=tuple(pairwise(bounds)))

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take: nothing, as it reads no vertex."""
        return Forecast(memory_bytes=0, seconds=0.0)
