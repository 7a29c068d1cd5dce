"""Partitions that look at no edge: by a hash of ids, by ranges, at random, or as a file says."""

from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnscale.core import MAX_SEED, ConfigError, GraphError, check_range, shown
from gnnscale.core.artifact.npy import map_npy
from gnnscale.core.config.untrusted import names
from gnnscale.core.types import Int16Array, UInt64Array
from gnnscale.graph import Graph
from gnnscale.graph.store_format import vertex_dtype
from gnnscale.partition.base import Forecast, PartitionerConfig, Parts, check_num_parts
from gnnscale.sampling.seed_order import labelled_vertices

_SLICE_VERTICES = 1 << 20

#: Of a slice, for each of its vertices: ids and their hashes.
_SLICE_BYTES = 48

#: Tells the stream of this module from others of the same seed.
_STREAM = 0x70617274


@dataclass(frozen=True, kw_only=True)
class _ById(PartitionerConfig):
    """Base of the partitioners that need no edge."""

    depends_on_hops: ClassVar[bool] = False

    #: Bytes of memory and nanoseconds of time that a vertex takes.
    _vertex_bytes: ClassVar[int]
    _vertex_ns: ClassVar[float]

    @abstractmethod
    def _owners(self, graph: Graph, num_parts: int) -> Int16Array:
        """Return the part of each vertex."""

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts``, whatever the hops and threads.

        Raises:
            ConfigError: there are more parts than training vertices.
        """
        check_num_parts(graph, num_parts)
        return Parts(num_parts=num_parts, owner=self._owners(graph, num_parts))

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take; it reads no topology."""
        return Forecast(
            memory_bytes=self._vertex_bytes * graph.num_vertices
            + _SLICE_BYTES * min(graph.num_vertices, _SLICE_VERTICES),
            seconds=1e-9 * self._vertex_ns * graph.num_vertices,
        )


@dataclass(frozen=True, kw_only=True)
class Hash(_ById):
    """Each vertex goes to the part of its id's hash, whatever its neighbours."""

    algorithm: ClassVar[str] = "hash"
    _vertex_bytes: ClassVar[int] = 2
    _vertex_ns: ClassVar[float] = 16.0

    def _owners(self, graph: Graph, num_parts: int) -> Int16Array:
        owner = np.empty(graph.num_vertices, np.int16)
        for first in range(0, len(owner), _SLICE_VERTICES):
            part = owner[first : first + _SLICE_VERTICES]
            ids = np.arange(first, first + len(part), dtype=np.uint64)
            part[:] = mixed(ids) % np.uint64(num_parts)
        return owner


@dataclass(frozen=True, kw_only=True)
class Range(_ById):
    """Equal ranges of vertex ids: good if the publisher's ids follow communities."""

    algorithm: ClassVar[str] = "range"
    _vertex_bytes: ClassVar[int] = 2
    _vertex_ns: ClassVar[float] = 1.5

    def _owners(self, graph: Graph, num_parts: int) -> Int16Array:
        bounds = [graph.num_vertices * part // num_parts for part in range(num_parts + 1)]
        return np.repeat(np.arange(num_parts, dtype=np.int16), np.diff(bounds))


@dataclass(frozen=True, kw_only=True)
class Random(_ById):
    """A random permutation, dealt out: parts differ by one vertex and one training vertex at most.

    Attributes:
        seed: fixes the permutation.
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
        ids = vertex_dtype(graph.num_vertices)
        train = labelled_vertices(graph, "train").astype(ids)
        others = np.ones(graph.num_vertices, np.bool_)
        others[train] = False
        rest = np.flatnonzero(others).astype(ids)
        # Training vertices are dealt first, so that no part goes without.
        generator.shuffle(train)
        generator.shuffle(rest)
        owner = np.empty(graph.num_vertices, np.int16)
        dealt = np.resize(np.arange(num_parts, dtype=np.int16), len(owner))
        owner[train] = dealt[: len(train)]
        owner[rest] = dealt[len(train) :]
        return owner


def mixed(ids: UInt64Array) -> UInt64Array:
    """Return a hash of each id ``[n]``, all of whose bits depend on all of the id's.

    SplitMix64's finaliser (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014), a bijection.
    """
    z: UInt64Array = ids + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


@dataclass(frozen=True, kw_only=True)
class FromFile(PartitionerConfig):
    """A file assigns each vertex to a part.

    Attributes:
        owners: ``.npy`` file of ``[num_vertices]`` integers. Its name follows from its content, and
            distinguishes partitions.
    """

    owners: str = field(metadata=names("place"))

    algorithm: ClassVar[str] = "given"
    depends_on_hops: ClassVar[bool] = False

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Read the owners, whatever the hops and threads.

        Raises:
            ConfigError: they are not one part for each vertex.
        """
        check_num_parts(graph, num_parts)
        source = f"partitioner.owners={shown(self.owners)}"
        try:
            found = map_npy(Path(self.owners))
        except GraphError as error:
            raise ConfigError(f"partitioner.owners={error}") from None
        return Parts(
            num_parts=num_parts, owner=check_owners(found, graph, num_parts, source=source)
        )

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return what ``assign`` will take: the file's content, and its copy."""
        return Forecast(memory_bytes=10 * graph.num_vertices, seconds=graph.num_vertices * 1e-8)


def check_owners(owners: Any, graph: Graph, num_parts: int, *, source: str) -> Int16Array:
    """Return ``owners`` as ``Parts`` keeps them; ``source`` names them in errors.

    Raises:
        ConfigError: they are not ``[num_vertices]`` integers from 0 to ``num_parts - 1``.
    """
    found = np.asarray(owners)
    if found.shape != (graph.num_vertices,) or found.dtype.kind not in "iu":
        raise ConfigError(
            f"{source}: {found.dtype} of shape {list(found.shape)}, must be an integer for each of "
            f"{graph.num_vertices} vertices"
        )
    if len(found) and not 0 <= found.min() <= found.max() < num_parts:
        raise ConfigError(
            f"{source}: owners from {found.min()} to {found.max()}, allowed are 0 to "
            f"{num_parts - 1}, a part for each device"
        )
    return found.astype(np.int16)


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
