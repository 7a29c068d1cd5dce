"""What every partitioner offers: parts of a graph, and a forecast of what making them will take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import ConfigError, check_range, shown
from gnnscale.dataset.storage.identity import check_place
from gnnscale.graph import Graph
from gnnscale.options.found import names
from gnnscale.sampler.seed_order import labelled_vertices

#: Owner of a vertex that no part has.
NO_PART = -1
#: Hops to a vertex that a part does not have.
UNREACHED = 255


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A graph divided into parts. Vertices keep their ids, and neighbours their order."""

    num_parts: int  #: number of parts, K
    #: ``[num_vertices]`` int16, the part that each vertex belongs to, ``NO_PART`` if no part has
    #: it. A training vertex is trained by its owner. None if every part has the whole topology (P3)
    owner: NDArray[np.int16] | None
    #: ``[K, num_vertices]`` uint8, the hops that a vertex is away from the part's training
    #: vertices, ``UNREACHED`` if the part does not have it. A part has the in-neighbours of
    #: vertices that are fewer than ``num_hops`` away. None if parts have no halo of their own
    hops: NDArray[np.uint8] | None = None
    num_hops: int = 0  #: hops that ``hops`` counts; 0 without
    #: ``(first, last + 1)`` of the feature columns of each part (P3); None if rows are whole
    columns: tuple[tuple[int, int], ...] | None = None
    notes: tuple[str, ...] = ()  #: what a report says of how the parts were made, a line each

    def train_vertices(self, train_idx: NDArray[np.integer[Any]]) -> list[NDArray[Any]]:
        """Return the training vertices of each part, in the order of ``train_idx`` ``[n]``.

        Raises:
            ValueError: every part has the whole topology, so it owns no vertex.
        """
        if self.owner is None:
            raise ValueError("parts without vertices of their own have no training vertices")
        owners = self.owner[train_idx]
        return [train_idx[owners == part] for part in range(self.num_parts)]


#: Parts of a partition; owners are kept in 16 bits.
MAX_PARTS = 1024


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What making a partition will take."""

    #: the most that this process and a child of it will hold beside what it holds already, the
    #: mapped topology included
    memory_bytes: int
    seconds: float  #: roughly how long it takes


@dataclass(frozen=True, kw_only=True)
class PartitionerConfig(ABC):
    """Base of the configuration group ``partitioner``.

    Attributes:
        num_parts: number of parts; None for one for each device of the plan, and 4 if there is
            no plan (``gnnscale partition``).
        store: directory of the partition; None for a default in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/partitions``.
    """

    num_parts: int | None = None
    store: str | None = field(default=None, metadata=names("place"))

    #: What reports call the algorithm.
    algorithm: ClassVar[str]
    #: Whether ``num_hops`` plays a part; if it does not, one partition serves models of any
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
        """Raise ConfigError unless each of ``num_devices`` has one part."""
        if self.num_parts not in (None, num_devices):
            raise ConfigError(
                f"partitioner.num_parts={self.num_parts}: device_plan has {num_devices} devices, "
                "and each has one part; leave num_parts out, or name another plan"
            )

    @abstractmethod
    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph``, of which the topology is only read, into ``num_parts`` K.

        ``num_hops`` is L, the layers of the model. The result does not depend on ``num_threads``.

        Raises:
            ConfigError: the graph cannot be divided so.
        """

    @abstractmethod
    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take with the same arguments."""


def check_num_parts(graph: Graph, num_parts: int) -> None:
    """Raise ConfigError if there are more parts than training vertices that have a label."""
    num_train = len(labelled_vertices(graph, "train"))
    if num_parts > num_train:
        raise ConfigError(
            f"partitioner.num_parts={num_parts}: {graph.name} has {num_train} training vertices, "
            "which are fewer"
        )


@dataclass(frozen=True, kw_only=True)
class NoPartitioner(PartitionerConfig):
    """The graph stays whole: every part has all of it."""

    algorithm: ClassVar[str] = "none"
    divides: ClassVar[str] = "nothing"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Return ``num_parts`` parts without vertices or columns."""
        return Parts(num_parts=num_parts, owner=None)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take: nothing."""
        return Forecast(memory_bytes=0, seconds=0.0)
