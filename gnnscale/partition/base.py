"""What every partitioner offers: parts of a graph, and a forecast of what making them will take."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np

from gnnscale.core import Array, ConfigError, check_choice, check_range, shown
from gnnscale.core.artifact.files import check_place
from gnnscale.core.config.untrusted import names
from gnnscale.core.types import Int16Array, IntArray, UInt8Array
from gnnscale.graph import Graph
from gnnscale.sampling.seed_order import labelled_vertices

#: Owner of a vertex that no part has.
NO_PART = -1
#: Hops to a vertex that a part does not have.
UNREACHED = 255
_SLICE_VERTICES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A graph divided into parts. Vertices keep their ids, and neighbours their order."""

    num_parts: int  #: number of parts, K
    #: ``[num_vertices]`` int16, the part that each vertex belongs to, ``NO_PART`` if no part has
    #: it. A training vertex is trained by its owner. None if every part has the whole topology (P3)
    owner: Int16Array | None
    #: ``[K, num_vertices]`` uint8, the hops that a vertex is away from the part's training
    #: vertices, ``UNREACHED`` if the part does not have it. A part has the in-neighbours of
    #: vertices that are fewer than ``num_hops`` away. None if parts have no halo of their own
    hops: UInt8Array | None = None
    num_hops: int = 0  #: hops that ``hops`` counts; 0 without
    #: ``(first, last + 1)`` of the feature columns of each part (P3); None if rows are whole
    columns: tuple[tuple[int, int], ...] | None = None
    notes: tuple[str, ...] = ()  #: what a report says of how the parts were made, a line each

    def train_vertices(self, train_idx: IntArray) -> list[Array]:
        """Return the training vertices of each part, in the order of ``train_idx`` ``[n]``.

        Raises:
            ValueError: every part has the whole topology, so it owns no vertex.
        """
        if self.owner is None:
            raise ValueError("parts without vertices of their own have no training vertices")
        owners = self.owner[train_idx]
        return [train_idx[owners == part] for part in range(self.num_parts)]


#: Folders are called after algorithms.
_ALGORITHM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,62}")
#: What a partitioner may divide.
_DIVIDES = ("vertices", "columns", "nothing")
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
        name = type(self).__name__
        if not _ALGORITHM.fullmatch(self.algorithm):
            raise ConfigError(
                f"{name}.algorithm={shown(self.algorithm)}: must be a word of at most 63 letters, "
                "digits and the signs _ + -"
            )
        check_choice(f"{name}.divides", self.divides, _DIVIDES)
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


def problem_of(parts: Parts, graph: Graph) -> str | None:
    """Return the first thing that is wrong with ``parts`` of ``graph``, None if nothing is.

    Which vertices a part reaches is not counted anew; only that its training vertices are where
    they must be.
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
    rising = all(first < last for first, last in parts.columns)
    joined = all(left[1] == right[0] for left, right in pairwise(parts.columns))
    ends = parts.columns[:1] and (parts.columns[0][0], parts.columns[-1][1])
    if len(parts.columns) != parts.num_parts or not (rising and joined and ends):
        return f"columns are not {parts.num_parts} ranges, one after the other"
    if ends != (0, num_features):
        return f"columns go from {ends[0]} to {ends[1]}, the graph has {num_features}"
    return None


def _owner_problem(owner: Array, num_parts: int, graph: Graph) -> str | None:
    if owner.dtype != np.int16 or owner.shape != (graph.num_vertices,):
        return f"owner is {owner.dtype}{list(owner.shape)}, needed is int16[{graph.num_vertices}]"
    low, high = int(owner.min()), int(owner.max())
    if low < NO_PART or high >= num_parts:
        bad = low if low < NO_PART else high
        return f"owner {bad} is out of range, allowed are {NO_PART} to {num_parts - 1}"
    train = labelled_vertices(graph, "train")
    owners = owner[train]
    if (owners < 0).any():
        return f"training vertex {train[(owners < 0).argmax()]} belongs to no part"
    return None


def _hops_problem(hops: Array, parts: Parts, graph: Graph) -> str | None:
    form = (parts.num_parts, graph.num_vertices)
    if hops.dtype != np.uint8 or hops.shape != form:
        return f"hops is {hops.dtype}{list(hops.shape)}, needed is uint8{list(form)}"
    if not 1 <= parts.num_hops < UNREACHED:
        return f"num_hops is {parts.num_hops}, allowed are 1 to {UNREACHED - 1}"
    for first in range(0, graph.num_vertices, _SLICE_VERTICES):
        for part, row in enumerate(hops[:, first : first + _SLICE_VERTICES]):
            wrong = (row > parts.num_hops) & (row != UNREACHED)
            if wrong.any():
                vertex = int(wrong.argmax())
                return (
                    f"part {part} has vertex {first + vertex} at {row[vertex]} hops, allowed are "
                    f"0 to {parts.num_hops} and {UNREACHED}"
                )
    train = labelled_vertices(graph, "train")
    assert parts.owner is not None
    far = hops[parts.owner[train], train]
    if far.any():
        vertex = train[(far != 0).argmax()]
        return f"training vertex {vertex} is not at 0 hops in the part that it belongs to"
    return None
