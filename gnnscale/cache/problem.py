"""Problem that a cache planner solves: a graph, devices with memory and links, and batches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache.hotness import expected as estimates
from gnnscale.cache.hotness.degree import Fanout, Inclusion, inclusion, out_degree, slices
from gnnscale.cache.hotness.presampled import Presampled, Reads, presample
from gnnscale.cache.plan import LookAhead
from gnnscale.cache.presampling import Presampler
from gnnscale.core import Array, Int32Array, Int64Array, track
from gnnscale.core.sorted_sets import distinct
from gnnscale.graph import Graph, TypedFeatures, vertex_dtype
from gnnscale.graph.schema import ONLY_VERTEX
from gnnscale.partition import Parts
from gnnscale.sampling import MiniBatch, seed_order

#: Bytes of an adjacency list in a cache in addition to its neighbors (Legion, eq. 3).
BYTES_PER_LIST = 8


@dataclass(frozen=True, kw_only=True)
class CacheDevice:
    """Device with a link, as cache planning models it."""

    position: int  #: position in the device plan
    name: str  #: name in reports
    budget_bytes: int  #: bytes of its cache
    #: whether the device reads adjacency lists over its link; otherwise the host samples
    samples: bool
    loads: bool  #: whether the device reads rows by its own requests; otherwise the host packs rows
    request_bytes: int  #: bytes of a request over the link, CLS of eq. 8
    #: link cost of a read beside its requests, in bytes (Legion, figure 4a: small payloads)
    overhead_bytes: int = 0
    may_aggregate: bool = False  #: whether the host can aggregate the first layer for the device

    def row_transactions(self, row_bytes: int) -> float:
        """Return the number of requests over the link for a row that no cache has (Legion, eq. 8).

        It is rounded up if the device reads each row by itself, and a fraction if the host packs
        rows, which then share requests.
        """
        requests = row_bytes / self.request_bytes
        return math.ceil(requests) if self.loads else requests

    def row_price(self, row_bytes: int) -> float:
        """Return the link cost in bytes of a row that no cache has: requests and overhead."""
        overhead = self.overhead_bytes if self.loads else 0
        return self.row_transactions(row_bytes) * self.request_bytes + overhead

    @property
    def list_price(self) -> float:
        """Link cost in bytes of a sampling transaction: one read of a list."""
        return self.request_bytes + self.overhead_bytes


@dataclass(frozen=True, kw_only=True)
class RowType:
    """Vertices whose feature rows have equal bytes: those of a vertex type, or of a graph."""

    name: str  #: name of the vertex type
    vertices: slice  #: their ids
    row_bytes: int  #: bytes of a stored feature row; 0: they have no features
    is_cached: bool  #: whether caches may have the rows; False: there are none, or they are learned

    @property
    def num_rows(self) -> int:
        """Number of vertices of this type."""
        return int(self.vertices.stop - self.vertices.start)

    def of(self, vertices: Array) -> Array:
        """Return those of ``vertices`` that are of this type."""
        is_of_type = (vertices >= self.vertices.start) & (vertices < self.vertices.stop)
        chosen: Array = vertices[is_of_type]
        return chosen


def row_types(graph: Graph) -> tuple[RowType, ...]:
    """Return the rows of each vertex type of ``graph``; without types, of all vertices."""
    features: object = graph.features
    if not isinstance(features, TypedFeatures):
        vertices, num_bytes = slice(0, graph.num_vertices), graph.row_bytes
        return (RowType(name=ONLY_VERTEX, vertices=vertices, row_bytes=num_bytes, is_cached=True),)
    types = []
    for number, matrix in enumerate(features.matrices):
        row_bytes = 0 if matrix is None else matrix.row_bytes
        types.append(
            RowType(
                name=graph.schema.vertex_types[number].name,
                vertices=graph.schema.vertices(number),
                row_bytes=row_bytes,
                is_cached=row_bytes > 0 and number not in features.learned,
            )
        )
    return tuple(types)


@dataclass(frozen=True, kw_only=True)
class CacheTask:
    """Input of a cache planner: graph, devices, parts, and a presampler of the run's batches."""

    graph: Graph  #: training graph
    devices: tuple[CacheDevice, ...]  #: devices that may have a cache, by position
    num_devices: int  #: devices of the plan, including devices without a cache
    #: positions of devices that read each other's memory; each of ``devices`` is in one clique
    cliques: tuple[tuple[int, ...], ...]
    parts: Parts | None  #: the devices' parts of the graph. None: the graph is not partitioned
    draws: Presampler  #: presampler of the run's batches
    num_epochs: int  #: epochs of the run
    batch_size: int  #: seeds of a step, over all devices
    #: neighbors per vertex, from the seeds outwards, with types for each edge type. None: the
    #: sampler has no fanouts
    fanouts: tuple[Fanout, ...] | None
    replace: bool = False  #: whether neighbors are sampled with replacement
    #: bytes of a row after host aggregation. None: the model does not allow host aggregation
    aggregated_row_bytes: int | None
    seed: int  #: the run's seed

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored feature row; with types, of the longest one."""
        return self.graph.row_bytes

    @cached_property
    def row_types(self) -> tuple[RowType, ...]:
        """Rows of each vertex type; one type if the graph has none."""
        return row_types(self.graph)

    @property
    def has_equal_rows(self) -> bool:
        """Whether caches may have all rows, and these are of ``row_bytes``."""
        return len(self.row_types) == 1 and self.row_types[0].is_cached

    @cached_property
    def row_sizes(self) -> dict[str, Any]:
        """Keyword arguments by which native operations count the bytes of rows."""
        if self.has_equal_rows:
            return {"bytes_per_vertex": self.row_bytes}
        sizes = self._by_vertex([t.row_bytes * t.is_cached for t in self.row_types])
        return _offset_sizes(np.concatenate([[0], np.cumsum(sizes)]))

    @cached_property
    def list_sizes(self) -> dict[str, Any]:
        """Keyword arguments by which native operations count the bytes of lists (Legion, eq. 3)."""
        schema, indptr, id_bytes = self.graph.types, self.graph.indptr, self.graph.indices.itemsize
        if schema is None:
            options = {"bytes_per_vertex": BYTES_PER_LIST, "bytes_per_entry": id_bytes}
            return options | {"offsets": indptr}
        first_lists = schema.vertex_offsets(np.arange(len(indptr)))
        first_entries = schema.vertex_offsets(indptr)
        return _offset_sizes(first_entries * id_bytes + first_lists * BYTES_PER_LIST)

    def row_prices(self, devices: Sequence[int]) -> Array:
        """Return the link bytes of a missed row of each type, in the mean over ``devices``."""
        members = [self.device_at[device] for device in devices]
        prices = [[m.row_price(t.row_bytes) * t.is_cached for t in self.row_types] for m in members]
        mean: Array = np.mean(prices, axis=0)
        return mean

    def price_reads(self, hotness: Array, devices: Sequence[int]) -> Array:
        """Return ``[num_vertices]`` link bytes of the reads ``hotness`` by ``devices``, float32."""
        priced: Array = (hotness * self._by_vertex(self.row_prices(devices))).astype(np.float32)
        return priced

    def order_rows(
        self, hotness: Array, devices: Sequence[int], capacities: Sequence[int]
    ) -> Array:
        """Return vertices whose rows fit into caches of ``capacities``, and one more at most.

        Those come first whose rows save the most link bytes for each byte of a cache: the hottest
        ones, if rows have equal bytes. Equals are ordered by descending out-degree.

        Args:
            hotness: ``[num_vertices]`` reads of each row that a cache saves, float32 or integers.
            devices: devices whose link is spared.
            capacities: bytes of each cache.
        """
        options = {"capacity": sum(capacities), "num_threads": self.num_threads, **self.row_sizes}
        if self.has_equal_rows:
            return ops.hottest(hotness, self.out_degrees, **options)
        sizes = np.array([max(t.row_bytes * t.is_cached, 1) for t in self.row_types])
        saved = hotness * self._by_vertex(self.row_prices(devices) / sizes)
        options["max_bytes"] = max(capacities, default=0)
        order = ops.hottest(saved.astype(np.float32), self.out_degrees, **options)
        is_cached = self._by_vertex([t.is_cached for t in self.row_types])
        cached: Array = order[is_cached[order]]
        return cached

    def _by_vertex(self, by_type: Sequence[Any] | Array) -> Array:
        """Return ``[num_vertices]`` the entry of ``by_type`` of each vertex's type."""
        return np.repeat(np.asarray(by_type), [t.num_rows for t in self.row_types])

    @property
    def num_threads(self) -> int:
        """Number of threads to use; the result does not depend on it."""
        return self.draws.num_threads

    def train_vertices(self, devices: Sequence[int]) -> Array:
        """Return the sorted training vertices of the parts of ``devices``.

        Without a partition, or if one of these parts has no training vertices (HitGNN, Algorithm
        3), return all training vertices.
        """
        train_idx = seed_order.labeled_vertices(self.graph, "train")
        if self.parts is None or self.parts.owner is None:
            return train_idx
        by_device = self.parts.train_vertices(train_idx)
        vertices = [by_device[device] for device in devices]
        return distinct(np.concatenate([ids if len(ids) else train_idx for ids in vertices]))

    def inclusion(self, devices: Sequence[int], batch_size: float) -> Inclusion:
        """Return the expected reads of each vertex's row and list by a batch of neighbor sampling.

        The batch has ``batch_size`` seeds of the training vertices of ``devices``.
        """
        assert self.fanouts is not None
        return inclusion(
            self.graph,
            self.train_vertices(devices),
            self.fanouts,
            batch_size=batch_size,
            replace=self.replace,
            num_threads=self.num_threads,
        )

    @property
    def device_at(self) -> Mapping[int, CacheDevice]:
        """Devices that may have a cache, by position."""
        return {device.position: device for device in self.devices}

    @cached_property
    def out_degrees(self) -> Int32Array:
        """``[num_vertices]`` out-degrees, by which planners order equally hot vertices."""
        return out_degree(self.graph)

    @cached_property
    def first_batches(self) -> dict[int, MiniBatch]:
        """Mini-batch of each device in the run's first step, by position, sampled on first use.

        A device without seeds in this step has none.
        """
        return {draw.device: draw.batch for draw in self.draws.first_step()}

    @property
    def max_batch_bytes(self) -> int:
        """Host bytes of the largest of ``first_batches``."""
        return max((batch.num_bytes for batch in self.first_batches.values()), default=0)

    @property
    def max_batch_rows(self) -> int:
        """Number of input rows of the largest of ``first_batches``."""
        sizes = (len(batch.input_vertices) for batch in self.first_batches.values())
        return max(sizes, default=0)

    @cached_property
    def presampled(self) -> Presampled:
        """Counted reads of the run's first epoch, sampled on first use.

        See GNNLab, and Legion, section 4.2.
        """
        return self._counted("pre-sampling", range(1))

    @cached_property
    def expected(self) -> Reads[estimates.ExpectedCounts]:
        """Expected reads of a mean epoch of the run.

        The first epoch is sampled on first use; later epochs are estimated.
        """
        is_whole = self.parts is None or self.parts.owner is None
        groups = (tuple(self.device_at),) if is_whole else self.cliques
        has_model = self.num_epochs > 1 and self.fanouts is not None
        return estimates.expect_reads(
            self.presampled, groups if has_model else (), self.inclusion, num_epochs=self.num_epochs
        )

    @cached_property
    def counted(self) -> Reads[estimates.AverageCounts]:
        """Mean reads per epoch of each vertex's row and list, by device, from presampled batches.

        Presampled on first use are the first epoch and, by ``later_steps``, a part of the later
        epochs, which stands for all of them in the mean.
        """
        first, later = self.presampled, None
        if self.num_epochs > 1:
            epochs, num_steps = estimates.later_steps(
                self.draws.steps_per_epoch, batch_size=self.batch_size, num_epochs=self.num_epochs
            )
            later = self._counted("drawing more of", epochs, num_steps)
        return estimates.average_reads(first, later, num_epochs=self.num_epochs)

    @property
    def is_exact(self) -> bool:
        """Whether each device will certainly train the batches that are presampled for it."""
        return self.num_devices == 1 or self.draws.exact

    @cached_property
    def run_reads(self) -> Presampled:
        """Counted reads of all batches of the run, sampled on first use."""
        return self._counted("drawing the run on", range(self.num_epochs))

    def _counted(self, activity: str, epochs: range, num_steps: int | None = None) -> Presampled:
        steps = (num_steps or self.draws.steps_per_epoch) * len(epochs)
        with track(
            f"{activity} {self.graph.name}", steps * len(self.devices), "batches"
        ) as advance:
            return presample(
                self.draws,
                epochs,
                devices=tuple(self.device_at),
                num_steps=num_steps,
                advance=advance,
            )


def _offset_sizes(offsets: Array) -> dict[str, Any]:
    """Return keyword arguments by which native operations take bytes from ``offsets``."""
    return {"bytes_per_vertex": 0, "bytes_per_entry": 1, "offsets": offsets.astype(np.int64)}


def feature_bytes(graph: Graph, vertices: Array) -> int:
    """Return the bytes that the feature rows of ``vertices`` take in a cache."""
    types = row_types(graph)
    numbers = [len(vertices)] if len(types) == 1 else [len(t.of(vertices)) for t in types]
    pairs = zip(numbers, types, strict=True)
    return sum(number * t.row_bytes for number, t in pairs if t.is_cached)


def look_ahead_bytes(graph: Graph, look_ahead: LookAhead) -> int:
    """Return the bytes of the feature rows that a dynamic cache holds at most."""
    pairs = zip(look_ahead.rows_by_type, row_types(graph), strict=True)
    return sum(number * t.row_bytes for number, t in pairs)


def list_bytes(graph: Graph, vertices: Array) -> int:
    """Return the bytes that the adjacency lists of ``vertices`` take in a cache (Legion, eq. 3)."""
    parts = slices(len(vertices))
    return sum(int(sizes_of_lists(graph, vertices[part]).sum()) for part in parts)


def sizes_of_lists(graph: Graph, vertices: Array) -> Int64Array:
    """Return ``[n]`` bytes that the adjacency list of each of ``vertices`` takes in a cache.

    With types these are all lists of the vertex.
    """
    first: Array = vertices
    num_lists: Any = 1
    if graph.types is not None:
        first, num_lists = graph.types.lists_of(vertices)
    num_neighbors = graph.indptr[first + num_lists] - graph.indptr[first]
    sizes: Int64Array = num_neighbors * graph.indices.itemsize + num_lists * BYTES_PER_LIST
    return sizes


def no_vertices(graph: Graph) -> Array:
    """Return an empty array of vertex ids, in the type of ``graph``."""
    return np.empty(0, vertex_dtype(graph.num_vertices))
