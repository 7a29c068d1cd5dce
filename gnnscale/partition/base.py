"""Base class of partitioners, and the record and checks of a partition's parts."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, ConfigError, brief, check_choice, check_range
from gnnscale.core.artifact.files import check_store_directory
from gnnscale.core.config.untrusted import names
from gnnscale.core.types import Int16Array, IntArray, UInt8Array
from gnnscale.graph import Graph
from gnnscale.sampling.seed_order import labeled_vertices

#: Owner of a vertex that is in no part.
NO_PART = -1
#: Hops to a vertex that is not in the part.
UNREACHED = 255
_SLICE_VERTICES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Division of a graph into parts. Vertices keep their ids, and neighbors their order.

    ``owner`` is the part of each vertex; ``hops`` are its hops from each part's training vertices,
    255 if the part does not have it. A path 0 - 1 - 2 - 3 with training vertices 0 and 3::

        hops = [[0, 1, 255, 255], [255, 255, 1, 0]]
        Parts(num_parts=2, num_hops=1, owner=[0, 0, 1, 1], hops=hops)
    """

    num_parts: int  #: number of parts, K
    #: ``[num_vertices]`` int16, the part that owns each vertex and trains it if it is a training
    #: vertex; ``NO_PART`` for none. None: every part has the full topology (P3)
    owner: Int16Array | None
    #: ``[K, num_vertices]`` uint8, hops from the part's training vertices to each vertex,
    #: ``UNREACHED`` if the part does not have the vertex. A part has the in-neighbors of vertices
    #: at fewer than ``num_hops`` hops. None: parts have no halo
    hops: UInt8Array | None = None
    num_hops: int = 0  #: largest number of hops in ``hops``; 0 without ``hops``
    #: ``(first, last + 1)`` of the feature columns of each part (P3). None: rows are not split
    columns: tuple[tuple[int, int], ...] | None = None
    notes: tuple[str, ...] = ()  #: lines of a report about the making of the parts

    def train_vertices(self, train_idx: IntArray) -> list[Array]:
        """Return each part's vertices of ``train_idx``, in the order of ``train_idx``.

        ValueError: no part owns vertices (``owner`` is None).
        """
        return self.divide(train_idx, train_idx)

    def divide(self, seeds: IntArray, vertices: IntArray) -> list[Array]:
        """Return each part's ``seeds`` ``[n]``, in their order, by the owners of ``vertices``.

        ``vertices`` ``[n]`` has the vertex of each seed. ValueError: as in ``train_vertices``.
        """
        if self.owner is None:
            raise ValueError("owner: expected an array, got None; parts own no training vertices")
        owners = self.owner[vertices]
        return [seeds[owners == part] for part in range(self.num_parts)]


#: Algorithm names, which are also names of folders.
_ALGORITHM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,62}")
#: Objects that a partitioner divides.
_DIVIDES = ("vertices", "columns", "nothing")
#: Largest number of parts; owners have 16 bits.
MAX_PARTS = 1024


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Predicted memory and duration of dividing a graph into parts."""

    #: largest additional memory of this process and a child process, mapped topology included
    memory_bytes: int
    seconds: float  #: approximate duration


@dataclass(frozen=True, kw_only=True)
class PartitionerConfig(ABC):
    """Base of the configuration group ``partitioner``.

    Attributes:
        num_parts: number of parts. None: one per device of the plan, and 4 without a plan
            (``gnnscale partition``).
        store: directory of the partition. None: a default in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/partitions``.
    """

    num_parts: int | None = None
    store: str | None = field(default=None, metadata=names("place"))

    #: Name of the algorithm in reports.
    algorithm: ClassVar[str]
    #: Whether the parts depend on ``num_hops``; otherwise one partition serves models of any depth.
    depends_on_hops: ClassVar[bool] = True
    #: Whether ``assign`` and ``forecast`` read the types of vertices; otherwise ``make_partition``
    #: calls them with ``graph.without_types()``.
    reads_types: ClassVar[bool] = False
    #: Divided object: ``vertices``, ``columns`` of the features (P3), or ``nothing``.
    divides: ClassVar[str] = "vertices"

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not _ALGORITHM.fullmatch(self.algorithm):
            raise ConfigError(
                f"{name}.algorithm={brief(self.algorithm)}: expected a word of at most 63 letters, "
                "digits and the signs _ + -"
            )
        check_choice(f"{name}.divides", self.divides, _DIVIDES)
        if self.num_parts is not None:
            check_range("partitioner.num_parts", self.num_parts, 1, MAX_PARTS)
        if self.store is not None:
            if not self.store or "\0" in self.store:
                raise ConfigError(f"partitioner.store={brief(self.store)}: expected a path")
            check_store_directory(self.store, option="partitioner.store")

    def check_run(self, *, num_devices: int, num_hops: int) -> None:
        """Raise ConfigError unless the configured number of parts is None or ``num_devices``."""
        if self.num_parts not in (None, num_devices):
            raise ConfigError(
                f"partitioner.num_parts={self.num_parts}: expected {num_devices}, a part for each "
                "device of device_plan; leave num_parts out, or name another plan"
            )

    @abstractmethod
    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts`` parts; no feature rows are read.

        Args:
            num_parts: K.
            num_hops: L, the layers of the model.
            num_threads: threads to use; the result does not depend on it.

        Raises:
            ConfigError: the graph cannot be divided in this way.
        """

    @abstractmethod
    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign`` with equal arguments."""


def check_num_parts(graph: Graph, num_parts: int) -> None:
    """Raise ConfigError if there are more parts than labeled training vertices."""
    num_train = len(labeled_vertices(graph, "train"))
    if num_parts > num_train:
        raise ConfigError(
            f"partitioner.num_parts={num_parts}: expected at most the {num_train} training "
            f"vertices of {graph.name}"
        )


@dataclass(frozen=True, kw_only=True)
class NoPartitioner(PartitionerConfig):
    """No partitioning: every part has the full graph."""

    algorithm: ClassVar[str] = "none"
    divides: ClassVar[str] = "nothing"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Return ``num_parts`` parts without owners: each part has the full graph."""
        return Parts(num_parts=num_parts, owner=None)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return a forecast of no memory and no time."""
        return Forecast(memory_bytes=0, seconds=0.0)


def problem_of(parts: Parts, graph: Graph) -> str | None:
    """Return the first contradiction within ``parts``, or to ``graph``. None: none was found.

    Hops are not compared with the edges: only their range, and 0 at training vertices.
    """
    if parts.owner is None:
        if parts.hops is not None:
            return "hops are given, and no owners"
        return _column_problem(parts, graph.num_features)
    if parts.columns is not None:
        return "both owners and feature columns are given"
    problem = _owner_problem(parts.owner, parts.num_parts, graph)
    if problem is None and parts.hops is not None:
        problem = _hops_problem(parts.hops, parts, graph)
    return problem


def _column_problem(parts: Parts, num_features: int) -> str | None:
    if parts.columns is None:
        return None
    ascends = all(first < last for first, last in parts.columns)
    joins = all(a[1] == b[0] for a, b in pairwise(parts.columns))
    ends = parts.columns[:1] and (parts.columns[0][0], parts.columns[-1][1])
    if len(parts.columns) != parts.num_parts or not (ascends and joins and ends):
        return f"columns: expected {parts.num_parts} ranges, one after the other"
    if ends != (0, num_features):
        return f"columns: expected 0 to {num_features}, got {ends[0]} to {ends[1]}"
    return None


def _owner_problem(owner: Array, num_parts: int, graph: Graph) -> str | None:
    if owner.dtype != np.int16 or owner.shape != (graph.num_vertices,):
        form = f"{owner.dtype}{list(owner.shape)}"
        return f"owner: expected int16[{graph.num_vertices}], got {form}"
    low, high = int(owner.min()), int(owner.max())
    if low < NO_PART or high >= num_parts:
        bad = low if low < NO_PART else high
        return f"owner: expected {NO_PART} to {num_parts - 1}, got {bad}"
    train = labeled_vertices(graph, "train")
    owners = owner[train]
    if (owners < 0).any():
        return f"training vertex {train[(owners < 0).argmax()]} belongs to no part"
    return None


def _hops_problem(hops: Array, parts: Parts, graph: Graph) -> str | None:
    form = (parts.num_parts, graph.num_vertices)
    if hops.dtype != np.uint8 or hops.shape != form:
        return f"hops: expected uint8{list(form)}, got {hops.dtype}{list(hops.shape)}"
    if not 1 <= parts.num_hops < UNREACHED:
        return f"num_hops: expected 1 to {UNREACHED - 1}, got {parts.num_hops}"
    for first in range(0, graph.num_vertices, _SLICE_VERTICES):
        for part, row in enumerate(hops[:, first : first + _SLICE_VERTICES]):
            wrong = (row > parts.num_hops) & (row != UNREACHED)
            if wrong.any():
                vertex = int(wrong.argmax())
                return (
                    f"hops: expected 0 to {parts.num_hops} or {UNREACHED}, got {row[vertex]} for "
                    f"vertex {first + vertex} in part {part}"
                )
    train = labeled_vertices(graph, "train")
    assert parts.owner is not None
    train_hops = hops[parts.owner[train], train]
    if train_hops.any():
        vertex = train[(train_hops != 0).argmax()]
        return f"hops: expected 0 for training vertex {vertex} in the part that owns it"
    return None
