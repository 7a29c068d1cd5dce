"""Devices computed by the host: CPU cores, and emulated accelerators.

An emulated accelerator takes the time and memory that its rates imply.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from gnnscale.backend import base
from gnnscale.core import Access, Array, Traffic
from gnnscale.features.cached import CachedAdjacency
from gnnscale.nn import Inputs
from gnnscale.planner import Accelerator, Device, Threads
from gnnscale.planner.cost_model import equations, stage_work, workload
from gnnscale.sampling import MiniBatch, TypedMiniBatch


class CpuBackend:
    """Backend that trains the host's own model on features in host memory."""

    def __init__(self, device: Device, host: base.BackendInputs) -> None:
        self.device = device
        self._host = host
        self._model = host.model
        self._loader = host.loader
        self._loss = 0.0

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Sample the mini-batch of vertices ``seeds`` at step number ``step``, and return it."""
        return self._host.sampler.sample(seeds, step)

    def load(self, batch: MiniBatch) -> Inputs:
        """Return the first layer's input, without vertex rows if the model learns a row per vertex.

        ``propagate`` reads learned rows, since each step changes them.
        """
        if self._model.vertex_rows is None:
            return self._loader.load(batch)
        return self._loader.with_list_reads(self._loader.without_rows(batch))

    def on_host(self, batch: MiniBatch) -> MiniBatch:
        """Return ``batch``, which is in host memory."""
        return batch

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> base.DeviceBatch:
        """Return the mini-batch and its inputs, which stay in host memory, without a copy."""
        return base.DeviceBatch(batch=batch, inputs=inputs, traffic=inputs.traffic)

    def propagate(self, batch: base.DeviceBatch, weight: float) -> None:
        """Run forward and backward propagation on the host with torch.

        The loss is the batch's mean loss times ``weight``; ``finish`` returns it. Gradients
        accumulate in the host's model.
        """
        inputs = batch.inputs
        if self._model.vertex_rows is not None:
            inputs = self._loader.with_learned(batch.batch, inputs)
        logits = self._model(batch.batch, inputs)
        loss = self._host.objective(logits, batch.batch) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        self._loss = loss.item()

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        """Copy the gradients of the parameters that all devices share to the tensors ``into``.

        A parameter without a gradient gives zeros.
        """
        for target, parameter in zip(into, self._model.shared_parameters, strict=True):
            if parameter.grad is None:
                target.zero_()
            elif parameter.grad is not target:
                target.copy_(parameter.grad)

    def finish(self, batch: base.DeviceBatch) -> base.BatchOutcome:
        """Return the loss, size and traffic of ``batch``, the last propagated batch."""
        return base.BatchOutcome(
            loss=self._loss, size=equations.BatchSize.of(batch.batch), traffic=batch.traffic
        )

    def load_state(self) -> None:
        """Do nothing: the device computes with the host's model."""

    def update_weights(self) -> None:
        """Do nothing: the optimizer has updated the device's model."""

    def copy_buffers(self) -> None:
        """Do nothing: the buffers are in the host's model."""

    def set_threads(self, threads: Threads) -> None:
        """Set the number of host threads of each stage."""
        self._host.set_threads(threads)

    def close(self) -> None:
        """Do nothing: the backend has no resources of its own."""


def passes(
    batch: MiniBatch, seeds: range, fits: Callable[[equations.BatchSize], bool]
) -> tuple[equations.BatchSize, ...] | None:
    """Halve ``seeds`` until the sub-batch of each part satisfies ``fits``; return all parts' sizes.

    ``seeds`` are positions of at least one seed in ``batch``; sizes are of sub-batches, in seed
    order. None: the sub-batch of a single seed does not fit.
    """
    if isinstance(batch, TypedMiniBatch):
        size = size_of_typed_part(batch, seeds)
    else:
        size = size_of_part(batch, seeds)
    if fits(size):
        return (size,)
    if len(seeds) == 1:
        return None
    half = len(seeds) // 2
    halves = [passes(batch, half_seeds, fits) for half_seeds in (seeds[:half], seeds[half:])]
    return None if halves[0] is None or halves[1] is None else halves[0] + halves[1]


def size_of_typed_part(batch: TypedMiniBatch, seeds: range) -> equations.BatchSize:
    """Return the size of the part of ``batch``, of a graph with types, that computes ``seeds``."""
    # Seeds of a type follow those of the type before.
    ends = np.cumsum([0, *batch.seed_sizes])
    read = [
        np.arange(max(seeds.start - first, 0), min(seeds.stop, end) - first)
        for first, end in pairwise(ends.tolist())
    ]
    vertices, edges = [len(seeds)], []
    for block in reversed(batch.blocks):
        masks = [np.zeros(size, np.bool_) for size in block.src_sizes]
        for mask, ids in zip(masks, read, strict=True):
            mask[ids] = True
        destinations = [mask.copy() for mask in masks]
        count = 0
        for number, relation in enumerate(block.relations):
            source, destination = batch.ends[number]
            is_read = destinations[destination][: relation.num_dst]
            sources = relation.indices[np.repeat(is_read, np.diff(relation.indptr))]
            masks[source][sources] = True
            count += len(sources)
        read = [np.flatnonzero(mask) for mask in masks]
        vertices.append(sum(map(len, read)))
        edges.append(count)
    return equations.BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))


def size_of_part(batch: MiniBatch, seeds: range) -> equations.BatchSize:
    """Return the size of the part of ``batch`` that computes the seeds at positions ``seeds``."""
    needed = np.arange(seeds.start, seeds.stop, dtype=np.int64)
    vertices, edges = [len(needed)], []
    for block in reversed(batch.blocks):
        read = np.zeros(block.num_src, np.bool_)
        read[needed] = True
        # Destinations are the first sources, so that the mask of sources selects their edges.
        is_read = np.repeat(read[: block.num_dst], np.diff(block.indptr))
        sources = block.indices[is_read]
        read[sources] = True
        needed = np.flatnonzero(read)
        vertices.append(len(needed))
        edges.append(len(sources))
    return equations.BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Resident(base.DeviceBatch):
    """Mini-batch on the emulated device, to be trained whole or in parts."""

    #: size of each part trained separately; one part if the mini-batch fits into memory
    sizes: tuple[equations.BatchSize, ...]


class EmulatedBackend(CpuBackend):
    """Backend whose stages take at least the time predicted by the performance model.

    Results are exact, since the host computes them. A stage on a host slower than the prediction
    takes the host's time, and the counters ``late_s`` and ``late_stages`` report the excess.

    A mini-batch larger than the memory that model and cache leave is trained in parts of its seeds,
    each with its own transfer and launch. Gradients are those of the full mini-batch.
    """

    def __init__(self, device: Accelerator, host: base.BackendInputs) -> None:
        super().__init__(device, host)
        self._accelerator = device
        self._workload = workload.unmeasured_workload(host.graph, host.model).on(device)
        self._memory = base.DeviceMemory(device)
        self._counters = host.cache.counters
        self._lists = host.cache.lists or CachedAdjacency.none(device.link_request_bytes)
        self._sampled: dict[int, Access] = {}  #: adjacency lists read by each step in flight
        self._late_s, self._late_stages = 0.0, 0
        self._told_of_parts = False
        #: whether ``copy_gradients``, the first half of the synchronization, was late
        self._sync_late = False
        # load, transfer and propagate may run in separate threads.
        self._lock = threading.Lock()
        self._memory.keep(self._workload.num_weights * equations.BYTES_PER_PARAMETER, "the model")
        self._memory.keep(host.cache.num_bytes, "the cache")

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` at ``step``.

        If the emulated device samples, wait until its sampling and its reads of adjacency lists
        over the link would have ended.
        """
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
        """Return the mini-batch of ``seeds`` at ``step``, sampled without emulated time."""
        return super().sample(seeds, step)

    def receive_sample(self, batch: MiniBatch, seeds: Array) -> MiniBatch:
        """Return ``batch``, sampled by the host, unchanged.

        ``transfer`` takes the link's time for it.
        """
        return batch

    def load(self, batch: MiniBatch) -> Inputs:
        """Return the first layer's input, and wait until the emulated reads would have ended.

        The device reads cached rows. It also reads missed rows and edge features over the link; if
        it does not load by itself, the host reads these in the time of eq. 7.
        """
        start = time.perf_counter()
        inputs = super().load(batch)
        device, rows = self._accelerator, inputs.traffic.rows
        # A mean, as the rows of vertex types differ.
        row_bytes = self._loader.bytes_read(batch) // max(len(batch.input_vertices), 1)
        # Without a cache every row is read from the host.
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
        """Reserve device memory, wait for the link's time (eq. 8), and return the batch so placed.

        A mini-batch that exceeds the device's memory is divided into parts, each with its own
        transfer; memory is reserved for the largest part. DeviceMemoryError: too little memory is
        free.
        """
        start = time.perf_counter()
        device = self._accelerator
        row_bytes, list_bytes = link_bytes(batch, inputs)
        full_size = equations.BatchSize.of(batch)
        activations = int(stage_work.activation_bytes(self._workload, full_size))
        num_bytes = inputs.num_bytes + list_bytes + activations
        sizes: tuple[equations.BatchSize, ...] = (full_size,)
        if num_bytes > self._memory.room:
            sizes = self._parts(batch, num_bytes)
            num_bytes = int(max(stage_work.batch_bytes(self._workload, size) for size in sizes))
            topology = (stage_work.transfer_bytes(self._workload, size)[1] for size in sizes)
            list_bytes = int(sum(topology))
            growth = sum(self._num_rows(size) for size in sizes) / self._num_rows(full_size)
            row_bytes = int(row_bytes * growth)
        self._memory.reserve(num_bytes, f"a mini-batch of {batch.num_seeds} seeds")
        by_device = self._sampled.pop(batch.step, None)
        traffic = inputs.traffic + Traffic(lists=by_device or Access())
        if device.link_bandwidth is not None:
            # Rows and lists that the device has read are in its memory already.
            sent = (0 if device.loads else row_bytes, list_bytes if by_device is None else 0)
            latency_s = len(sizes) * device.link_latency_s
            seconds = equations.transfer_seconds(sum(sent), device.link_bandwidth, latency_s)
            self._wait(start, seconds)
            traffic = traffic.with_link(
                row_bytes=sent[0], list_bytes=sent[1], request_bytes=device.link_request_bytes
            )
        return _Resident(
            batch=batch, inputs=inputs, traffic=traffic, num_bytes=num_bytes, sizes=sizes
        )

    def propagate(self, batch: base.DeviceBatch, weight: float) -> None:
        """Run forward and backward propagation on the host; wait for the rest of the device's time.

        The device's time (eq. 10 to 12) counts from the call; a host slower than the device waits
        for nothing. ``weight`` multiplies the loss.
        """
        assert isinstance(batch, _Resident)
        device = self._accelerator
        seconds = sum(
            device.launch_s
            + equations.trainer_seconds(
                stage_work.propagation_work(self._workload, size),
                memory_bandwidth=device.memory_bandwidth,
                macs_per_s=device.macs_per_s,
                pipelined=device.pipelined,
            )
            for size in batch.sizes
        )
        start = time.perf_counter()
        super().propagate(batch, weight)
        self._wait(start, seconds)

    def finish(self, batch: base.DeviceBatch) -> base.BatchOutcome:
        """Free the batch's emulated device memory; return its loss, size, traffic and counters.

        Counters are those of the cache, and the lateness of stages since the previous call.
        """
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

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        """Copy gradients to ``into``, and wait for half of the link's time for weights (eq. 13).

        The time counts from the call.
        """
        start = time.perf_counter()
        super().copy_gradients(into)
        self._sync_late = self._wait(start, self._sync_seconds())

    def update_weights(self) -> None:
        """Wait for the second half of the link's time of eq. 13, which the updated weights take."""
        start = time.perf_counter()
        super().update_weights()
        late = self._wait(start, self._sync_seconds())
        if late and self._sync_late:  # both halves are one stage
            with self._lock:
                self._late_stages -= 1
        self._sync_late = False

    def _parts(self, batch: MiniBatch, num_bytes: int) -> tuple[equations.BatchSize, ...]:
        """Return the sizes of the parts into which a mini-batch of ``num_bytes`` is divided.

        Each part fits into memory. The first call logs a warning. DeviceMemoryError: a single seed
        does not fit.
        """
        capacity, label = self._memory.room, self._accelerator.label
        sizes = passes(
            batch,
            range(batch.num_seeds),
            lambda size: stage_work.batch_bytes(self._workload, size) <= capacity,
        )
        if sizes is None:
            raise base.DeviceMemoryError(
                f"{label}: out of device memory: a seed of a mini-batch needs more than the "
                f"{capacity / 1e6:,.1f} MB that the model and the cache leave of memory_bytes="
                f"{self._accelerator.memory_bytes}; fewer neighbors or a smaller cache take less"
            )
        if not self._told_of_parts:
            self._told_of_parts = True
            log.warning(
                f"{label}: a mini-batch of {batch.num_seeds} seeds takes {num_bytes / 1e6:,.1f} "
                f"MB, and the model and the cache leave {capacity / 1e6:,.1f} MB: mini-batches of "
                f"this size are trained in {len(sizes)} parts"
            )
        return sizes

    def _num_rows(self, size: equations.BatchSize) -> float:
        """Return the number of input rows that a batch of ``size`` sends without a cache.

        These are the first layer's output rows if the host aggregates them.
        """
        return size.vertices[1 if self._workload.aggregates_on_load else 0]

    def _sync_seconds(self) -> float:
        link = self._accelerator
        if link.link_bandwidth is None:
            return 0.0
        weights = self._workload.weight_bytes
        return equations.sync_seconds(weights, link.link_bandwidth, link.link_latency_s) / 2

    def _wait(self, start: float, seconds: float) -> bool:
        """Wait until ``seconds`` after ``start``, a time of ``perf_counter``.

        If that time has passed already, count the stage as late with its excess, and return True.
        Otherwise, and for 0 ``seconds``, return False.
        """
        remaining_s = start + seconds - time.perf_counter()
        late = remaining_s < 0 < seconds
        if late:
            with self._lock:
                self._late_s -= remaining_s
                self._late_stages += 1
        elif remaining_s > 0:
            time.sleep(remaining_s)
        return late


def link_bytes(batch: MiniBatch, inputs: Inputs) -> tuple[int, int]:
    """Return the bytes of input features, and of topology, that a mini-batch sends over the link.

    The first block stays on the host if the host has aggregated the input. With a cache only the
    rows that it lacks cross, in their stored type. Edge features always cross, as input features.
    """
    blocks = batch.blocks[1:] if inputs.aggregated else batch.blocks
    topology = sum(block.topology_bytes for block in blocks)
    rows = inputs.traffic.rows
    cached = rows.hit_rate is not None
    return (rows.host_bytes + inputs.edge_bytes if cached else inputs.num_bytes), topology
