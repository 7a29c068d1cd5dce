"""What a cache is planned for: a graph, devices with memory and a link, and their batches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnscale.cache.hotness.degree import out_degree, slices
from gnnscale.cache.hotness.expected import AverageReads, ExpectedReads, expect_reads, later_steps
from gnnscale.cache.hotness.inclusion import Inclusion, inclusion
from gnnscale.cache.hotness.presampled import Presampled, presample
from gnnscale.cache.presampling import Presampler
from gnnscale.core import Array, Int32Array, Int64Array, track
from gnnscale.graph import Graph
from gnnscale.graph.store_format import vertex_dtype
from gnnscale.partition import Parts
from gnnscale.sampling import MiniBatch, seed_order

#: Bytes of an adjacency list in a cache beside its neighbours (Legion, eq. 3).
BYTES_PER_LIST = 8


@dataclass(frozen=True, kw_only=True)
class CacheDevice:
    """A device with a link, as cache planning sees it."""

    position: int  #: its position in the device plan
    name: str  #: what reports call it
    budget_bytes: int  #: memory that its cache may take
    samples: bool  #: whether it reads adjacency lists over its link; the host samples otherwise
    #: whether it reads rows in the host's memory, each by requests of its own; the host packs them
    #: otherwise
    loads: bool
    request_bytes: int  #: bytes of a request over the link, CLS of eq. 8
    #: what each separate read costs on the link beside its requests, as bytes (Legion, figure 4a:
    #: small payloads reach a part of the bandwidth)
    overhead_bytes: int = 0
    may_aggregate: bool = False  #: whether the host could aggregate the first layer for it

    def row_transactions(self, row_bytes: int) -> float:
        """Return the requests of one row that the cache lacks, the factor of eq. 8."""
        requests = row_bytes / self.request_bytes
        return math.ceil(requests) if self.loads else requests

    def row_price(self, row_bytes: int) -> float:
        """Return what one row that the cache lacks costs on the link, in bytes."""
        overhead = self.overhead_bytes if self.loads else 0
        return self.row_transactions(row_bytes) * self.request_bytes + overhead

    @property
    def list_price(self) -> float:
        """What one transaction of sampling costs on the link, in bytes."""
        return self.request_bytes + self.overhead_bytes


@dataclass(frozen=True, kw_only=True)
class CacheTask:
    """The input of a cache planner."""

    graph: Graph  #: the graph that is trained on
    devices: tuple[CacheDevice, ...]  #: those that may have a cache, in the order of positions
    num_devices: int  #: devices of the plan, those without a cache included
    #: positions of those of ``devices`` that can read each other's memory; each of them is in one
    #: clique
    cliques: tuple[tuple[int, ...], ...]
    parts: Parts | None  #: the devices' parts of the graph; None if it is whole
    draws: Presampler  #: the batches of the run
    num_epochs: int  #: epochs of the run
    batch_size: int  #: seeds of a mini-batch, over all devices
    #: neighbours a vertex, from the seeds outwards; None for another kind of sampling
    fanouts: tuple[int, ...] | None
    replace: bool = False  #: whether neighbours are drawn with replacement
    #: bytes of a row that the host aggregated; None if the model does not allow it
    aggregated_row_bytes: int | None
    seed: int  #: the run's seed

    @property
    def row_bytes(self) -> int:
        """Bytes of a feature row as it is stored."""
        return row_bytes(self.graph)

    @property
    def num_threads(self) -> int:
        """Threads to use; the result does not depend on it."""
        return self.draws.num_threads

    def train_vertices(self, devices: Sequence[int]) -> Array:
        """Return the training vertices of ``devices``; those of all if they may train any of them.

        A device whose part has none helps the others (HitGNN, Algorithm 3).
        """
        train_idx = seed_order.labelled_vertices(self.graph, "train")
        if self.parts is None or self.parts.owner is None:
            return train_idx
        own = [self.parts.train_vertices(train_idx)[each] for each in devices]
        return np.unique(np.concatenate([each if len(each) else train_idx for each in own]))

    def inclusion(self, devices: Sequence[int], batch_size: float) -> Inclusion:
        """Return what a batch of so many seeds of ``devices`` is expected to read.

        It takes ``fanouts``.
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
        """The devices by their positions."""
        return {device.position: device for device in self.devices}

    @cached_property
    def out_degrees(self) -> Int32Array:
        """``[num_vertices]`` the lists that each vertex is in; the order of equally hot ones."""
        return out_degree(self.graph)

    @cached_property
    def first_batches(self) -> dict[int, MiniBatch]:
        """Each device's first mini-batch, of those that have one."""
        return {draw.device: draw.batch for draw in self.draws.first_step()}

    @property
    def max_batch_bytes(self) -> int:
        """Bytes of the largest of the first mini-batches, on the host."""
        return max((batch.num_bytes for batch in self.first_batches.values()), default=0)

    @property
    def max_batch_rows(self) -> int:
        """Rows of the largest of the first mini-batches."""
        sizes = (len(batch.input_vertices) for batch in self.first_batches.values())
        return max(sizes, default=0)

    @cached_property
    def presampled(self) -> Presampled:
        """What the run's first epoch reads (GNNLab; Legion, section 4.2), drawn on first use."""
        return self._counted("pre-sampling", range(1))

    @cached_property
    def expected(self) -> ExpectedReads:
        """What an epoch of the run is expected to read, estimated on first use."""
        whole = self.parts is None or self.parts.owner is None
        groups = (tuple(self.device_at),) if whole else self.cliques
        known = self.num_epochs > 1 and self.fanouts is not None
        return expect_reads(
            self.presampled, groups if known else (), self.inclusion, num_epochs=self.num_epochs
        )

    @cached_property
    def counted(self) -> AverageReads:
        """What an epoch reads on average, counted in more epochs than chose the caches."""
        first, later = self.presampled, None
        if self.num_epochs > 1:
            epochs, num_steps = later_steps(
                self.draws.steps_per_epoch, batch_size=self.batch_size, num_epochs=self.num_epochs
            )
            later = self._counted("drawing more of", epochs, num_steps)
        return AverageReads(first=first, later=later, num_epochs=self.num_epochs)

    @property
    def draws_are_exact(self) -> bool:
        """Whether each device is sure to train the very batches that are drawn for it."""
        return self.num_devices == 1 or self.draws.exact

    @cached_property
    def counted_run(self) -> Presampled:
        """What the batches of the whole run will read, drawn on first use."""
        return self._counted("drawing the run on", range(self.num_epochs))

    def _counted(self, what: str, epochs: range, num_steps: int | None = None) -> Presampled:
        steps = (num_steps or self.draws.steps_per_epoch) * len(epochs)
        with track(f"{what} {self.graph.name}", steps * len(self.devices), "batches") as advance:
            return presample(
                self.draws,
                epochs,
                devices=tuple(self.device_at),
                num_steps=num_steps,
                drawn=advance,
            )


def row_bytes(graph: Graph) -> int:
    """Return the bytes of a feature row as it is stored."""
    return graph.row_bytes


def list_bytes(graph: Graph, vertices: Array) -> int:
    """Return the memory that the adjacency lists of ``vertices`` take (Legion, eq. 3)."""
    parts = slices(len(vertices))
    return sum(int(sizes_of_lists(graph, vertices[part]).sum()) for part in parts)


def sizes_of_lists(graph: Graph, vertices: Array) -> Int64Array:
    """Return ``[n]`` bytes that the adjacency list of each of ``vertices`` takes in a cache."""
    num_neighbors: Int64Array = graph.indptr[vertices + 1] - graph.indptr[vertices]
    return num_neighbors * graph.indices.itemsize + BYTES_PER_LIST


def no_vertices(graph: Graph) -> Array:
    """Return the vertices of an empty cache."""
    return np.empty(0, vertex_dtype(graph.num_vertices))
