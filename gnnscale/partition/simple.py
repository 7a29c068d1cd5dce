"""Partitioners that read no edges: by hash, by range, at random, from a file, and P3."""

from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnscale.core import MAX_SEED, ConfigError, GraphError, brief, check_range
from gnnscale.core.artifact.npy import map_npy
from gnnscale.core.config.untrusted import names
from gnnscale.core.types import Int16Array, UInt64Array
from gnnscale.graph import Graph, vertex_dtype
from gnnscale.partition.base import Forecast, PartitionerConfig, Parts, check_num_parts
from gnnscale.sampling.seed_order import labeled_vertices

_SLICE_VERTICES = 1 << 20

#: Bytes per vertex of a slice: ids and their hashes.
_SLICE_BYTES = 48

#: Stream id of this module's random numbers.
_STREAM = 0x70617274


@dataclass(frozen=True, kw_only=True)
class _ById(PartitionerConfig):
    """Base of partitioners that assign vertices by their ids and read no edges."""

    depends_on_hops: ClassVar[bool] = False

    _vertex_bytes: ClassVar[int]  #: Bytes of memory per vertex.
    _vertex_ns: ClassVar[float]  #: Nanoseconds per vertex.

    @abstractmethod
    def _owners(self, graph: Graph, num_parts: int) -> Int16Array:
        """Return the part of each vertex, which subclasses define."""

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts`` by ``_owners``; hops and threads have no effect."""
        check_num_parts(graph, num_parts)
        return Parts(num_parts=num_parts, owner=self._owners(graph, num_parts))

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign``, which reads no topology."""
        return Forecast(
            memory_bytes=self._vertex_bytes * graph.num_vertices
            + _SLICE_BYTES * min(graph.num_vertices, _SLICE_VERTICES),
            seconds=1e-9 * self._vertex_ns * graph.num_vertices,
        )


@dataclass(frozen=True, kw_only=True)
class Hash(_ById):
    """Hash partitioning: the part of a vertex is the hash of its id, modulo the parts."""

    algorithm: ClassVar[str] = "hash"
    _vertex_bytes: ClassVar[int] = 2
    _vertex_ns: ClassVar[float] = 16.0

    def _owners(self, graph: Graph, num_parts: int) -> Int16Array:
        owner = np.empty(graph.num_vertices, np.int16)
        for first in range(0, len(owner), _SLICE_VERTICES):
            part = owner[first : first + _SLICE_VERTICES]
            ids = np.arange(first, first + len(part), dtype=np.uint64)
            part[:] = splitmix64(ids) % np.uint64(num_parts)
        return owner


@dataclass(frozen=True, kw_only=True)
class Range(_ById):
    """Equal ranges of the ids of each vertex type, suited to ids that follow communities."""

    algorithm: ClassVar[str] = "range"
    reads_types: ClassVar[bool] = True
    _vertex_bytes: ClassVar[int] = 2
    _vertex_ns: ClassVar[float] = 1.5

    def _owners(self, graph: Graph, num_parts: int) -> Int16Array:
        parts = np.arange(num_parts + 1)
        sizes = [
            np.diff(vertices.num_vertices * parts // num_parts)
            for vertices in graph.schema.vertex_types
        ]
        return np.repeat(np.tile(parts[:-1].astype(np.int16), len(sizes)), np.concatenate(sizes))


@dataclass(frozen=True, kw_only=True)
class Random(_ById):
    """Random permutation dealt to parts; sizes and training vertices differ by at most one.

    Attributes:
        seed: seed of the permutation.
    """

    seed: int = 0

    algorithm: ClassVar[str] = "random"
    _vertex_bytes: ClassVar[int] = 17
    _vertex_ns: ClassVar[float] = 130.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("partitioner.seed", self.seed, 0, MAX_SEED)

    def _owners(self, graph: Graph, num_parts: int) -> Int16Array:
        generator = np.random.Generator(np.random.Philox(key=[self.seed, _STREAM]))
        dtype = vertex_dtype(graph.num_vertices)
        train = labeled_vertices(graph, "train").astype(dtype)
        is_other = np.ones(graph.num_vertices, np.bool_)
        is_other[train] = False
        other_vertices = np.flatnonzero(is_other).astype(dtype)
        # Training vertices are dealt first, so that each part has some.
        generator.shuffle(train)
        generator.shuffle(other_vertices)
        owner = np.empty(graph.num_vertices, np.int16)
        dealt = np.resize(np.arange(num_parts, dtype=np.int16), len(owner))
        owner[train] = dealt[: len(train)]
        owner[other_vertices] = dealt[len(train) :]
        return owner


def splitmix64(ids: UInt64Array) -> UInt64Array:
    """Return a hash of each id ``[n]``: SplitMix64's finalizer (Steele et al., 2014)."""
    z: UInt64Array = ids + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


@dataclass(frozen=True, kw_only=True)
class FromFile(PartitionerConfig):
    """Partition read from a file.

    Attributes:
        owners: ``.npy`` file of ``[num_vertices]`` integers; its content identifies the partition.
    """

    owners: str = field(metadata=names("place"))

    algorithm: ClassVar[str] = "given"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Return the parts that the file assigns to vertices; hops and threads have no effect."""
        check_num_parts(graph, num_parts)
        source = f"partitioner.owners={brief(self.owners)}"
        try:
            owners = map_npy(Path(self.owners))
        except GraphError as error:
            raise ConfigError(f"partitioner.owners={error}") from None
        owner = check_owners(owners, graph, num_parts, source=source)
        return Parts(num_parts=num_parts, owner=owner)

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign``, which copies the file."""
        return Forecast(memory_bytes=10 * graph.num_vertices, seconds=graph.num_vertices * 1e-8)


def check_owners(owners: Any, graph: Graph, num_parts: int, *, source: str) -> Int16Array:
    """Return ``[num_vertices]`` ``owners``, each a part below ``num_parts``, as int16.

    ConfigError, which begins with ``source``: another type, shape or part.
    """
    values = np.asarray(owners)
    if values.shape != (graph.num_vertices,) or values.dtype.kind not in "iu":
        raise ConfigError(
            f"{source}: expected an integer for each of {graph.num_vertices} vertices, got "
            f"{values.dtype} of shape {list(values.shape)}"
        )
    if len(values) and not 0 <= values.min() <= values.max() < num_parts:
        raise ConfigError(
            f"{source}: expected owners from 0 to {num_parts - 1}, a part for each device, got "
            f"{values.min()} to {values.max()}"
        )
    return values.astype(np.int16)


@dataclass(frozen=True, kw_only=True)
class P3(PartitionerConfig):
    """Feature columns divided evenly; every part has the full topology.

    With types of vertices, the columns of the widest type are divided.

    Gandhi and Iyer, "P3: Distributed Deep Graph Learning at Scale" (OSDI 2021), section 3.1.
    """

    algorithm: ClassVar[str] = "p3"
    divides: ClassVar[str] = "columns"
    reads_types: ClassVar[bool] = True
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide the feature columns into ``num_parts`` ranges; hops and threads have no effect."""
        width = graph.num_features
        if num_parts > width:
            raise ConfigError(
                f"partitioner.num_parts={num_parts}: expected at most {width}, a part for each "
                f"feature column of {graph.name}"
            )
        bounds = [width * part // num_parts for part in range(num_parts + 1)]
        return Parts(num_parts=num_parts, owner=None, columns=tuple(pairwise(bounds)))

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return a forecast of no memory and no time: ``assign`` reads no vertex."""
        return Forecast(memory_bytes=0, seconds=0.0)
