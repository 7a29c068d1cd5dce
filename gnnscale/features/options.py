"""Group ``features``: where workers read features from. Read without torch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnnscale.core import MAX_SEED, ConfigError, Float32Array, check_choice, check_range
from gnnscale.core.artifact.npy import row_slices
from gnnscale.graph import Graph
from gnnscale.graph.store_format import MAX_FEATURES

if TYPE_CHECKING:
    from gnnscale.features.base import FeatureStore

#: Neighbourhoods of more hops are most of a graph.
_MAX_HOPS = 64
#: First elements of learned rows are uniform between minus and plus this; and the tag of their
#: random numbers.
_SCALE = 0.1
_ROWS_STREAM = 0x0E0B
#: Optimizers of learned rows, and the tables that each needs memory for.
_ROW_TABLES = {"adagrad": 1, "adam": 3}
_ADAGRAD_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class FeatureStoreConfig(ABC):
    """Base of the configuration group ``features``."""

    #: Its name on the command line; classes of the user's share one.
    name: ClassVar[str] = "custom"
    #: Whether the first layer's aggregation is computed before training, and its rows are read.
    preaggregates: ClassVar[bool] = False
    #: Whether rows take the place of the graph's features: they are made of the structure, or
    #: learned.
    replaces: ClassVar[bool] = False
    #: Whether rows are weights that training updates.
    learns: ClassVar[bool] = False
    #: Whether host memory holds some of the rows, and others are read from the disk.
    reads_disk: ClassVar[bool] = False
    #: Whether machines divide the rows among them.
    divided: ClassVar[bool] = False

    @abstractmethod
    def open(self, graph: Graph) -> FeatureStore:
        """Return the store of one worker, over the features of ``graph``."""


@dataclass(frozen=True, kw_only=True)
class HostFeaturesConfig(FeatureStoreConfig):
    """Every worker reads the graph's features from host memory."""

    name: ClassVar[str] = "host"

    def open(self, graph: Graph) -> FeatureStore:
        """Return the store."""
        from gnnscale.features.host import HostFeatures

        return HostFeatures.of(graph)


#: Which rows host memory holds of a disk.
DISK_POLICIES = ("look_ahead", "out_degree")
#: Steps that may be looked ahead.
_MAX_WINDOW = 1 << 10


@dataclass(frozen=True, kw_only=True)
class DiskFeaturesConfig(HostFeaturesConfig):
    """Host memory holds some rows, and the others are read from the disk, some steps ahead.

    Attributes:
        memory_bytes: memory for rows and for what decides which of them stay, over all workers of
            a machine; None for what the machine has left.
        policy: one of ``DISK_POLICIES``: the rows that the next steps read soonest, or those with
            most out-neighbours.
        window: steps that are looked ahead; None for as many as help, if memory allows it.
    """

    name: ClassVar[str] = "disk"
    reads_disk: ClassVar[bool] = True

    memory_bytes: int | None = None
    policy: str = "look_ahead"
    window: int | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes is not None:
            check_range("features.memory_bytes", self.memory_bytes, 1, 1 << 60)
        check_choice("features.policy", self.policy, DISK_POLICIES)
        if self.window is not None:
            check_range("features.window", self.window, 1, _MAX_WINDOW)


@dataclass(frozen=True, kw_only=True)
class SharedFeaturesConfig(FeatureStoreConfig):
    """Machines divide the rows; each reads those of others over the network, some steps ahead.

    A machine whose own rows exceed its memory reads these from its disk.

    Attributes:
        memory_bytes: memory for rows, own ones and those of other machines, and for what decides
            which of them stay, over all workers of a machine; None for what the machine has left.
        window: steps that are looked ahead; None for as many as help, if memory allows it.
    """

    name: ClassVar[str] = "shared"
    divided: ClassVar[bool] = True

    memory_bytes: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes is not None:
            check_range("features.memory_bytes", self.memory_bytes, 1, 1 << 60)
        if self.window is not None:
            check_range("features.window", self.window, 1, _MAX_WINDOW)

    def open(self, graph: Graph) -> FeatureStore:
        """Refuse to read rows without the other machines.

        Raises:
            ConfigError: in any case.
        """
        raise self.refused()

    def refused(self) -> ConfigError:
        """Return the error for a run on one machine."""
        return ConfigError(
            "features=shared: machines divide the rows, and this run has one; torchrun starts its "
            "processes on several (docs/several-machines.md)"
        )


@dataclass(frozen=True, kw_only=True)
class PreaggregatedFeaturesConfig(HostFeaturesConfig):
    """The first layer's aggregation is computed before training, if it takes all neighbours."""

    name: ClassVar[str] = "preaggregated"
    preaggregates: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class LearnedFeaturesConfig(HostFeaturesConfig):
    """Every vertex has a row of weights, which is learned with the model.

    The rows of a step's input vertices, and no others, are updated, whatever ``optimizer`` is. They
    do not decay.

    Attributes:
        dim: length of a row.
        optimizer: adam for lazy Adam (``torch.optim.SparseAdam``), which keeps two rows for each
            row; adagrad for row-wise Adagrad (Naumov et al., 2019), which keeps a number.
        lr: learning rate of the first epoch; None for ``optimizer.lr`` with adam, and for 0.1 with
            adagrad, whose steps become shorter. It follows the optimizer's schedule.
    """

    name: ClassVar[str] = "learned"
    replaces: ClassVar[bool] = True
    learns: ClassVar[bool] = True

    dim: int = 128
    optimizer: str = "adagrad"
    lr: float | None = None

    def __post_init__(self) -> None:
        check_range("features.dim", self.dim, 1, MAX_FEATURES)
        check_choice("features.optimizer", self.optimizer, _ROW_TABLES)
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ConfigError(f"features.lr={self.lr}: must be above 0, or null for the default")

    @property
    def tables(self) -> int:
        """Tables of rows that training needs memory for, with what the optimizer keeps."""
        return _ROW_TABLES[self.optimizer]

    def rate_factor(self, lr: float) -> float:
        """Return the learning rate of rows by ``lr``, that of the other weights."""
        if self.lr is not None:
            return self.lr / lr
        return _ADAGRAD_RATE / lr if self.optimizer == "adagrad" else 1.0

    def draw(self, num_vertices: int, *, seed: int) -> Float32Array:
        """Return the first rows ``[num_vertices, dim]`` float32: a pure function of ``seed``.

        Those of a larger graph begin with those of a smaller one.
        """
        # Another stream than those of made features and labels (data/structure_only.py).
        generator = np.random.Generator(np.random.Philox([seed, _ROWS_STREAM]))
        rows = np.empty((num_vertices, self.dim), np.float32)
        for part in row_slices(num_vertices, 4 * self.dim):
            generator.random(out=rows[part], dtype=np.float32)
            rows[part] -= np.float32(0.5)
            rows[part] *= np.float32(2 * _SCALE)
        return rows


@dataclass(frozen=True, kw_only=True)
class StructuralFeaturesConfig(HostFeaturesConfig):
    """Base of rows that follow from the structure, in place of the graph's features.

    Each process makes them when it opens a graph, also another than the run was trained on.
    """

    replaces: ClassVar[bool] = True

    @property
    @abstractmethod
    def width(self) -> int:
        """Length of a row."""

    @abstractmethod
    def make(self, graph: Graph, *, num_threads: int) -> Float32Array:
        """Return the rows ``[num_vertices, width]`` float32; threads do not change them."""


@dataclass(frozen=True, kw_only=True)
class DegreeFeaturesConfig(StructuralFeaturesConfig):
    """Two features of every vertex: log(1 + in-degree) and log(1 + out-degree)."""

    name: ClassVar[str] = "degrees"

    @property
    def width(self) -> int:
        """Two."""
        return 2

    def make(self, graph: Graph, *, num_threads: int) -> Float32Array:
        """Return the rows."""
        from gnnscale.features.structural import degree_rows

        return degree_rows(graph)


@dataclass(frozen=True, kw_only=True)
class ProjectionFeaturesConfig(StructuralFeaturesConfig):
    """Random projections of every vertex's neighbourhood (FastRP), in place of features.

    Rows of another graph can be compared if it numbers the same vertices alike, as a later state of
    the graph does.

    Attributes:
        dim: length of a row.
        hops: neighbourhoods that count, from the nearest on.
        seed: fixes the projection; it is not the run's seed.
    """

    name: ClassVar[str] = "projections"

    dim: int = 128
    hops: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("features.dim", self.dim, 1, MAX_FEATURES)
        check_range("features.hops", self.hops, 1, _MAX_HOPS)
        check_range("features.seed", self.seed, 0, MAX_SEED)

    @property
    def width(self) -> int:
        """Length of a row."""
        return self.dim

    def make(self, graph: Graph, *, num_threads: int) -> Float32Array:
        """Return the rows."""
        from gnnscale.features.structural import projected_rows

        return projected_rows(
            graph, dim=self.dim, hops=self.hops, seed=self.seed, num_threads=num_threads
        )
