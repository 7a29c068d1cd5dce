"""What every partitioner offers: parts of a graph, and beforehand what making them will take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from gnnscale.artifact.folder import check_place
from gnnscale.config import ConfigError, check_range
from gnnscale.errors import shown
from gnnscale.found import names
from gnnscale.graph import Graph
from gnnscale.partition.parts import Parts
from gnnscale.sampler.seed_order import labelled_vertices

__all__ = ["MAX_PARTS", "Forecast", "PartitionerConfig", "check_num_parts"]

#: Parts of a partition; owners are kept in 16 bits.
MAX_PARTS = 1024


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What making a partition will take, told before it starts.

    Attributes:
        memory_bytes: the most that this process and a child of it will hold beside what it holds
            already, the mapped topology included.
        seconds: roughly how long it takes.
    """

    memory_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PartitionerConfig(ABC):
    """Base of the configuration group ``partitioner``.

    Attributes:
        num_parts: number of parts; None for one for each device of the plan, and 4 where there is
            none (``gnnscale partition``).
        store: directory of the partition; None for a name of its own in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/partitions``.
    """

    num_parts: int | None = None
    store: str | None = field(default=None, metadata=names("place"))

    #: What reports call the algorithm.
    algorithm: ClassVar[str]
    #: Whether ``num_hops`` plays a part; where it does not, one partition serves models of any
    #: depth.
    depends_on_hops: ClassVar[bool] = True
    #: What is divided: ``vertices``, ``columns`` of the features (P3), or ``nothing``.
    divides: ClassVar[str] = "vertices"

    def __post_init__(self) -> None:
        if self.num_parts is not None:
            check_range("partitioner.num_parts", self.num_parts, 1, MAX_PARTS)
        if self.store is not None:
            if not self.store or "\0" in self.store:
                raise ConfigError(f"partitioner.store={shown(self.store)}: not a path")
            check_place(self.store, option="partitioner.store")

    def check_run(self, *, num_devices: int, num_hops: int) -> None:
        """Refuse a run that the parts do not fit.

        Args:
            num_devices: devices of the plan, each of which has a part.
            num_hops: layers of the model that is trained.

        Raises:
            ConfigError: there is not one part for each device.
        """
        if self.num_parts not in (None, num_devices):
            raise ConfigError(
                f"partitioner.num_parts={self.num_parts}: device_plan has {num_devices} devices, "
                "and each has one part; leave num_parts out, or name another plan"
            )

    @abstractmethod
    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts``.

        Args:
            graph: the graph; its topology is only read.
            num_parts: K.
            num_hops: layers of the model that is trained, L.
            num_threads: threads to use; the result does not depend on it.

        Raises:
            ConfigError: the graph cannot be divided so.
        """

    @abstractmethod
    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take with the same arguments."""


def check_num_parts(graph: Graph, num_parts: int) -> None:
    """Refuse more parts than training vertices that have a label.

    Raises:
        ConfigError: there are not so many.
    """
    num_train = len(labelled_vertices(graph, "train"))
    if num_parts > num_train:
        raise ConfigError(
            f"partitioner.num_parts={num_parts}: {graph.name} has {num_train} training vertices, "
            "which are fewer"
        )
