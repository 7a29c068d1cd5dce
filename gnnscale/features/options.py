"""Configuration group ``features``: the feature store that workers read. Imports no torch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnnscale.core import MAX_SEED, ConfigError, Float32Array, check_choice, check_range
from gnnscale.core.artifact.npy import row_slices
from gnnscale.graph import MAX_FEATURES, Graph

if TYPE_CHECKING:
    from gnnscale.features.base import FeatureStore

#: Neighborhoods of more hops cover most of a graph.
_MAX_HOPS = 64
#: Learned rows start uniform in [-_SCALE, _SCALE).
_SCALE = 0.1
#: Stream id of the random numbers of learned rows.
_ROWS_STREAM = 0x0E0B
#: Optimizers of learned rows, and the memory of each in tables of rows, weights included.
_ROW_TABLES = {"adagrad": 1, "adam": 3}
_ADAGRAD_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class FeatureStoreConfig(ABC):
    """Base of the configuration group ``features``: the feature store of a run."""

    #: Name on the command line; all user-defined classes share ``custom``.
    name: ClassVar[str] = "custom"
    #: Whether the first layer's aggregates are computed before training and read in its place.
    preaggregates: ClassVar[bool] = False
    #: Whether the rows, computed from the structure or learned, replace the graph's features.
    replaces: ClassVar[bool] = False
    #: Whether rows are weights that training updates.
    learns: ClassVar[bool] = False
    #: Whether host memory holds some of the rows, and the disk is read for all others.
    reads_disk: ClassVar[bool] = False
    divided: ClassVar[bool] = False  #: Whether the rows are sharded across machines.

    @abstractmethod
    def open(self, graph: Graph) -> FeatureStore:
        """Return the store of one worker, over the features of ``graph``."""


@dataclass(frozen=True, kw_only=True)
class HostFeaturesConfig(FeatureStoreConfig):
    """Features in host memory, read by every worker."""

    name: ClassVar[str] = "host"

    def open(self, graph: Graph) -> FeatureStore:
        """Return the store of the features of ``graph`` in host memory."""
        if graph.types is not None:
            from gnnscale.features.typed import TypedStore

            return TypedStore.of(graph)
        from gnnscale.features.host import HostFeatures

        return HostFeatures.of(graph)


#: Replacement policies of the rows that host memory holds.
DISK_POLICIES = ("look_ahead", "out_degree")
#: Largest look-ahead, in steps.
_MAX_WINDOW = 1 << 10


@dataclass(frozen=True, kw_only=True)
class DiskFeaturesConfig(HostFeaturesConfig):
    """Features on disk, read some steps ahead; host memory holds some rows.

    Attributes:
        memory_bytes: bytes for rows and for the replacement policy, over all workers of a machine.
            None: the machine's free memory.
        policy: one of ``DISK_POLICIES``. look_ahead holds the rows that the next steps read
            soonest; out_degree holds the rows with the most out-neighbors.
        window: steps to look ahead. None: as many as help and memory allows.
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
    """Features sharded across machines; remote rows are read over the network, some steps ahead.

    A machine whose local rows exceed its memory reads them from its disk.

    Attributes:
        memory_bytes: bytes for local and remote rows and for the replacement policy, over all
            workers of a machine. None: the machine's free memory.
        window: steps to look ahead. None: as many as help and memory allows.
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
        """Raise ConfigError: a single worker cannot read the rows of other machines."""
        raise self.refused()

    def refused(self) -> ConfigError:
        """Return the error for a run on one machine."""
        return ConfigError(
            "features=shared: expected a run on several machines, got one; torchrun starts its "
            "processes on several (docs/distributed.md)"
        )


@dataclass(frozen=True, kw_only=True)
class PreaggregatedFeaturesConfig(HostFeaturesConfig):
    """First-layer aggregates, computed before training; the first layer must use all neighbors."""

    name: ClassVar[str] = "preaggregated"
    preaggregates: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class LearnedFeaturesConfig(HostFeaturesConfig):
    """A row of weights for every vertex, learned with the model.

    A step updates the rows of its input vertices only, whatever ``optimizer`` is. The rows have no
    weight decay, unlike the learned rows of vertex types (``model.without_features``).

    Attributes:
        dim: length of a row.
        optimizer: adam for lazy Adam (``torch.optim.SparseAdam``), with two more rows of state per
            row; adagrad for row-wise Adagrad (Naumov et al., 2019), with one number of state per
            row.
        lr: learning rate of the first epoch; it follows the optimizer's schedule. None:
            ``optimizer.lr`` with adam, 0.1 with adagrad, whose steps shrink over time.
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
            raise ConfigError(
                f"features.lr={self.lr}: expected a number above 0, or null for the default"
            )

    @property
    def tables(self) -> int:
        """Number of tables of rows that training has in memory, optimizer state included."""
        return _ROW_TABLES[self.optimizer]

    def rate_factor(self, lr: float) -> float:
        """Return the ratio of the rows' learning rate to ``lr``, the model's rate."""
        if self.lr is not None:
            return self.lr / lr
        return _ADAGRAD_RATE / lr if self.optimizer == "adagrad" else 1.0

    def draw(self, num_vertices: int, *, seed: int) -> Float32Array:
        """Return the initial rows ``[num_vertices, dim]`` float32: a pure function of ``seed``.

        The rows of a larger graph begin with the rows of a smaller graph.
        """
        # The stream differs from those of synthetic features and labels (data/structure_only.py).
        generator = np.random.Generator(np.random.Philox([seed, _ROWS_STREAM]))
        rows = np.empty((num_vertices, self.dim), np.float32)
        for part in row_slices(num_vertices, 4 * self.dim):
            generator.random(out=rows[part], dtype=np.float32)
            rows[part] -= np.float32(0.5)
            rows[part] *= np.float32(2 * _SCALE)
        return rows


@dataclass(frozen=True, kw_only=True)
class StructuralFeaturesConfig(HostFeaturesConfig):
    """Base of rows computed from the structure, in place of the graph's features.

    Each process computes them when it opens a graph, be it the training graph or another.
    """

    replaces: ClassVar[bool] = True

    @property
    @abstractmethod
    def width(self) -> int:
        """Length of a row."""

    @abstractmethod
    def make(self, graph: Graph, *, num_threads: int) -> Float32Array:
        """Return the rows ``[num_vertices, width]`` float32, independent of ``num_threads``."""


@dataclass(frozen=True, kw_only=True)
class DegreeFeaturesConfig(StructuralFeaturesConfig):
    """Two features of every vertex: log(1 + in-degree) and log(1 + out-degree)."""

    name: ClassVar[str] = "degrees"

    @property
    def width(self) -> int:
        """Length of a row: two."""
        return 2

    def make(self, graph: Graph, *, num_threads: int) -> Float32Array:
        """Return ``[num_vertices, 2]``: log(1 + in-degree) and log(1 + out-degree)."""
        from gnnscale.features.structural import degree_rows

        return degree_rows(graph)


@dataclass(frozen=True, kw_only=True)
class ProjectionFeaturesConfig(StructuralFeaturesConfig):
    """Random projections of every vertex's neighborhood (FastRP), in place of features.

    The rows of two graphs are comparable if equal ids stand for equal vertices, as in a later state
    of a graph.

    Attributes:
        dim: length of a row.
        hops: number of hops.
        seed: seed of the projection, independent of the run's seed.
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
        """Return ``[num_vertices, dim]`` projections of neighborhoods."""
        from gnnscale.features.structural import projected_rows

        return projected_rows(
            graph, dim=self.dim, hops=self.hops, seed=self.seed, num_threads=num_threads
        )
