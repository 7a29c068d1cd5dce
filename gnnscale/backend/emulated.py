"""An accelerator, or a processor, that computes on the host and takes its metadata's time."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnscale.backend import base, cpu
from gnnscale.core import Access, Array, Traffic
from gnnscale.features.cached import CachedAdjacency
from gnnscale.nn import Inputs
from gnnscale.planner import Accelerator
from gnnscale.planner.cost_model import equations, workload
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.sampling import MiniBatch


def passes(
    batch: MiniBatch, seeds: range, fits: Callable[[equations.BatchSize], bool]
) -> tuple[equations.BatchSize, ...] | None:
    """Halve ``seeds`` until what leads to each part fits; None if one seed alone does not.

    Args:
        seeds: positions of seeds in it, one at least.
    """
    size = size_of_part(batch, seeds)
    if fits(size):
        return (size,)
    if len(seeds) == 1:
        return None
    half = len(seeds) // 2
    halves = [passes(batch, each, fits) for each in (seeds[:half], seeds[half:])]
    return None if halves[0] is None or halves[1] is None else halves[0] + halves[1]


def size_of_part(batch: MiniBatch, seeds: range) -> equations.BatchSize:
    """Return the size of the mini-batch that leads to some seeds of ``batch``."""
    needed = np.arange(seeds.start, seeds.stop, dtype=np.int64)
    vertices, edges = [len(needed)], []
    for block in reversed(batch.blocks):
        read = np.zeros(block.num_src, np.bool_)
        read[needed] = True
        # Destinations are the first of the sources, so that a mask over these finds their edges.
        wanted = np.repeat(read[: block.num_dst], np.diff(block.indptr))
        sources = block.indices[wanted]
        read[sources] = True
        needed = np.flatnonzero(read)
        vertices.append(len(needed))
        edges.append(len(sources))
    return equations.BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Resident(base.DeviceBatch):
    """A mini-batch on the device."""

    #: of the parts in which it is trained, one after the other; one if it fits
    sizes: tuple[equations.BatchSize, ...]


class EmulatedBackend(cpu.CpuBackend):
    """Every stage ends no sooner than the performance model predicts for the mini-batch at hand.

    The answers are the host's own, exact; only time and memory are the emulated device's. If the
    host is slower than that, the stage takes the host's time, and ``late_s`` and ``late_stages``
    among the counters report this.

    A mini-batch that is larger than what the device has beside its model and its cache is trained
    in parts of its seeds, each with its own transfer and launch. Gradients are those of the
    whole.
    """

    def __init__(self, device: Accelerator, host: base.BackendInputs) -> None:
        """Open ``device`` over the parts of the host."""
        super().__init__(device, host)
        self._accelerator = device
        self._workload = workload.unmeasured_workload(host.graph, host.model).on(device)
        self._memory = base.DeviceMemory(device)
        self._counters = host.cache.counters
        self._lists = host.cache.lists or CachedAdjacency.none(device.link_request_bytes)
        #: What sampling read of each step that is on its way.
        self._sampled: dict[int, Access] = {}
        self._late_s, self._late_stages = 0.0, 0
        self._told_of_parts = False
        #: Whether the first half of the synchronisation under way was late.
        self._sync_late = False
        # load, transfer and propagate may run in separate threads.
        self._lock = threading.Lock()
        self._memory.keep(self._workload.num_weights * equations.BYTES_PER_PARAMETER, "the model")
        self._memory.keep(host.cache.num_bytes, "the cache")

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Sample on the host; a device that samples by itself takes its own time and its link's."""
        start = time.perf_counter()
        batch = super().sample(seeds, step)
        device = self._accelerator
        if device.sampled_edges_per_s is not None:
            lists = self._lists.read(batch)
            self._sampled[step] = lists
            reads = device.read_seconds(lists.link_requests, device.link_request_bytes)
            self._wait(start, batch.num_edges / device.sampled_edges_per_s + reads)
        return batch

    def sample_on_host(self, seeds: Array, step: int) -> MiniBatch:
        """Sample in the host's own time."""
        return super().sample(seeds, step)

    def take_sample(self, batch: MiniBatch, seeds: Array) -> MiniBatch:
        """Take what the host has sampled, which crosses the link in ``transfer``."""
        return batch

    def load(self, batch: MiniBatch) -> Inputs:
        """Read from feature storage: at the emulated host's bandwidth (eq. 7), or over the link."""
        start = time.perf_counter()
        inputs = super().load(batch)
        device, rows = self._accelerator, inputs.traffic.rows
        row_bytes = self._loader.store.row_bytes
        # Without a cache every row is read at the host.
        missed = len(batch.input_vertices) if rows.hit_rate is None else rows.misses
        seconds = device.cache_seconds(rows.hits * row_bytes, rows.peer_bytes)
        num_edges = batch.num_edges if inputs.edge_attr else 0
        edge_bytes = inputs.edge_bytes // max(num_edges, 1)
        if device.loads:
            seconds += device.link_latency_s + device.read_seconds(missed, row_bytes)
            seconds += device.read_seconds(num_edges, edge_bytes)
            requests = missed * device.read_requests(row_bytes)
            requests += num_edges * device.read_requests(edge_bytes)
            num_bytes = missed * row_bytes + inputs.edge_bytes
            crossed = replace(rows, link_bytes=num_bytes, link_requests=requests)
            inputs = replace(inputs, traffic=replace(inputs.traffic, rows=crossed))
        elif device.host_bandwidth is not None:
            num_bytes = missed * row_bytes + inputs.edge_bytes
            seconds += equations.load_seconds(num_bytes, device.host_bandwidth)
        self._wait(start, seconds)
        return inputs

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> base.DeviceBatch:
        """Take the link's time for the mini-batch (eq. 8), and device memory."""
        start = time.perf_counter()
        device = self._accelerator
        row_bytes, list_bytes = link_bytes(batch, inputs)
        activations = int(work.activation_bytes(self._workload, equations.BatchSize.of(batch)))
        num_bytes = inputs.num_bytes + list_bytes + activations
        sizes: tuple[equations.BatchSize, ...] = (equations.BatchSize.of(batch),)
        if num_bytes > self._memory.room:
            sizes, whole = self._parts(batch, num_bytes), sizes[0]
            num_bytes = int(max(work.batch_bytes(self._workload, each) for each in sizes))
            list_bytes = int(sum(work.transfer_bytes(self._workload, each)[1] for each in sizes))
            again = sum(self._num_rows(each) for each in sizes) / self._num_rows(whole)
            row_bytes = int(row_bytes * again)
        self._memory.reserve(num_bytes, f"a mini-batch of {batch.num_seeds} seeds")
        by_device = self._sampled.pop(batch.step, None)
        traffic = inputs.traffic + Traffic(lists=by_device or Access())
        arrived = _Resident(
            batch=batch, inputs=inputs, traffic=traffic, num_bytes=num_bytes, sizes=sizes
        )
        if device.link_bandwidth is None:
            return arrived
        # What the device has read by itself is there already.
        sent = (0 if device.loads else row_bytes, list_bytes if by_device is None else 0)
        latency_s = len(sizes) * device.link_latency_s
        self._wait(start, equations.transfer_seconds(sum(sent), device.link_bandwidth, latency_s))
        return replace(
            arrived,
            traffic=traffic.with_link(
                row_bytes=sent[0], list_bytes=sent[1], request_bytes=device.link_request_bytes
            ),
        )

    def propagate(self, batch: base.DeviceBatch, weight: float) -> None:
        """Compute on the host; take the device's time (eq. 10 to 12)."""
        assert isinstance(batch, _Resident)
        device = self._accelerator
        seconds = sum(
            device.launch_s
            + equations.trainer_seconds(
                work.propagation_work(self._workload, each),
                memory_bandwidth=device.memory_bandwidth,
                macs_per_s=device.macs_per_s,
                pipelined=device.pipelined,
            )
            for each in batch.sizes
        )
        start = time.perf_counter()
        super().propagate(batch, weight)
        self._wait(start, seconds)

    def finish(self, batch: base.DeviceBatch) -> base.BatchOutcome:
        """Free the batch's memory, and report how late the host was since the last time."""
        self._memory.free(batch.num_bytes)
        with self._lock:
            counters = {
                "late_s": self._late_s,
                "late_stages": float(self._late_stages),
                "late_steps": float(self._late_stages > 0),
            }
            counters |= self._counters()
            self._late_s, self._late_stages = 0.0, 0
        return replace(super().finish(batch), counters=counters)

    def gradients_out(self, into: list[torch.Tensor]) -> None:
        """Half of the traffic of eq. 13."""
        start = time.perf_counter()
        super().gradients_out(into)
        self._sync_late = self._wait(start, self._sync_seconds())

    def update_weights(self) -> None:
        """The other half of eq. 13."""
        start = time.perf_counter()
        super().update_weights()
        late = self._wait(start, self._sync_seconds())
        if late and self._sync_late:  # one stage
            with self._lock:
                self._late_stages -= 1
        self._sync_late = False

    def _parts(self, batch: MiniBatch, num_bytes: int) -> tuple[equations.BatchSize, ...]:
        """Cut a mini-batch that takes ``num_bytes`` into parts that fit into the memory."""
        room, label = self._memory.room, self._accelerator.label
        found = passes(
            batch,
            range(batch.num_seeds),
            lambda size: work.batch_bytes(self._workload, size) <= room,
        )
        if found is None:
            raise base.DeviceMemoryError(
                f"{label}: out of device memory: a seed of a mini-batch needs more than the "
                f"{room / 1e6:,.1f} MB that the model and the cache leave of memory_bytes="
                f"{self._accelerator.memory_bytes}; fewer neighbours or a smaller cache take less"
            )
        if not self._told_of_parts:
            self._told_of_parts = True
            log.warning(
                f"{label}: a mini-batch of {batch.num_seeds} seeds takes {num_bytes / 1e6:,.1f} "
                f"MB, and the model and the cache leave {room / 1e6:,.1f} MB: it is trained in "
                f"{len(found)} parts, and so are others as large"
            )
        return found

    def _num_rows(self, size: equations.BatchSize) -> float:
        """Rows of the first layer's input that cross the link."""
        return size.vertices[1 if self._workload.aggregates_on_load else 0]

    def _sync_seconds(self) -> float:
        link = self._accelerator
        if link.link_bandwidth is None:
            return 0.0
        weights = self._workload.weight_bytes
        return equations.sync_seconds(weights, link.link_bandwidth, link.link_latency_s) / 2

    def _wait(self, start: float, seconds: float) -> bool:
        """Wait until ``seconds`` after ``start``; count and return whether it is later already."""
        left = start + seconds - time.perf_counter()
        late = left < 0 < seconds
        if late:
            with self._lock:
                self._late_s -= left
                self._late_stages += 1
        elif left > 0:
            time.sleep(left)
        return late


def link_bytes(batch: MiniBatch, inputs: Inputs) -> tuple[int, int]:
    """Return the bytes of rows and of topology that cross the link for a mini-batch.

    If the host has aggregated the input, the first layer's block stays there. Of rows that a
    cache was asked for, those that it lacks cross, as they are stored. Features of edges all cross.
    """
    blocks = batch.blocks[1:] if inputs.aggregated else batch.blocks
    topology = sum(block.indptr.nbytes + block.indices.nbytes for block in blocks)
    rows = inputs.traffic.rows
    cached = rows.hit_rate is not None
    return (rows.host_bytes + inputs.edge_bytes if cached else inputs.num_bytes), topology
