"""A GPU as a training device: it samples, reads host memory and trains by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

import torch

from gnnscale.backend.base import BackendInputs, BatchOutcome, DeviceBatch
from gnnscale.backend.cuda import probes
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.backend.cuda.capacity import SampleSizes, Sampling, needs_sizes
from gnnscale.backend.cuda.device_cache import ResidentCache
from gnnscale.backend.cuda.device_model import DeviceModel
from gnnscale.backend.cuda.device_step import DeviceStepHandle, ReadCounts
from gnnscale.backend.cuda.engine import CudaEngine, Engine
from gnnscale.backend.cuda.errors import CudaErrorContext
from gnnscale.backend.cuda.graph_reader import GraphPipeline
from gnnscale.backend.cuda.host_driven import HostDrivenSteps
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.backend.cuda.inference import CudaInference
from gnnscale.backend.cuda.placement import place
from gnnscale.backend.cuda.step_queue import StepQueue
from gnnscale.backend.cuda.streams import DeviceStreams
from gnnscale.backend.feature_loading import Vertices
from gnnscale.cache.plan import HOST, ROWS_FROM
from gnnscale.core import Access, Array, ConfigError, Traffic
from gnnscale.core.artifact.files import size
from gnnscale.core.stages import NO_TRAFFIC
from gnnscale.graph.dtypes import MAX_QUANTIZED
from gnnscale.nn import GNN, Inputs, TrainableModel
from gnnscale.planner import Cuda, Device, Threads
from gnnscale.planner.cost_model.equations import BYTES_PER_PARAMETER, BatchSize
from gnnscale.planner.cuda_spec import find_gpu
from gnnscale.planner.gpu_rates import CardRates, kept_rates
from gnnscale.sampling import LayerSampling, MiniBatch
from gnnscale.sampling.edge_batches import LinkSampling

_LOG = logging.getLogger(__name__)
#: Part of the memory above which mini-batches that differ may not fit.
_MUCH = 0.9
#: What errors call a step.
_STEP = "in step %d, of %d seeds"


def open_cuda(device: Device, host: BackendInputs) -> CudaBackend:
    """Open a GPU, or the host that stands for it.

    Raises:
        ConfigError: it is not there, or what it takes is missing.
        DeviceMemoryError: data that must lie in its memory do not fit.
    """
    assert isinstance(device, Cuda)
    engine: Engine = HostEngine(device) if device.host_driven else CudaEngine(device)
    return CudaBackend(device, host, engine)


class CudaBackend:
    """Does whole steps without the host waiting, or what the host asks beside other devices.

    Two streams share the work: one samples and reads the next mini-batch while the other trains.
    """

    def __init__(self, device: Cuda, host: BackendInputs, engine: Engine) -> None:
        """Bring model and graph to the device."""
        dtype = host.graph.feature_dtype
        if dtype in MAX_QUANTIZED:  # torch's int8 is another type
            raise ConfigError(f"{device.label}: no kernels for features of {dtype}")
        self.device = device
        self._host = host
        self._engine = engine
        self._streams = DeviceStreams(training=engine.stream(), reading=engine.stream())
        #: Whether code of a user's computes the step, which may wait for the device.
        self._own_code = needs_sizes(host.model) is not None
        self._inference: CudaInference | None = None
        self._cache: ResidentCache | None = None
        with self._naming("while it was opened"):
            if host.cache.kept is not None:
                self._cache = ResidentCache(host.cache.kept, host.graph, engine)
            if self._cache is None or self._cache.is_alone:
                self._open()

    def _open(self) -> None:
        """Bring model and graph to the device, once the caches of peers are known."""
        host, engine = self._host, self._engine
        weights = sum(each.numel() for each in host.model.parameters()) * BYTES_PER_PARAMETER
        self._placed = place(host.graph, self.device, engine, kept_bytes=weights, cache=self._cache)
        self._queue = None if host.own_steps is None else self._new_queue()
        if self._queue is None:
            self._learner = DeviceModel(host, engine)
        else:
            self._learner = self._queue.learner
        engine.synchronize()  # buffers were cleared outside of the streams that use them

    @property
    def cache_address(self) -> str | None:
        """What peers open the device's cache by."""
        return None if self._cache is None else self._cache.address

    def unused_bytes(self) -> int:
        """Return what the allocator has left at its peak."""
        return max(self._engine.memory_bytes - self._engine.peak_bytes(), 0)

    def open_peers(self, addresses: Sequence[str]) -> None:
        """Read the caches of peers; see ``CacheHolder.open_peers``."""
        assert self._cache is not None
        if not self._cache.is_alone:
            with self._naming("while it was opened"):
                self._cache.open_peers(addresses)
                self._open()

    def _new_queue(self) -> StepQueue:
        return StepQueue(
            self._host,
            self._placed,
            self._engine,
            self._streams,
            exact=self._own_code or not _is_bounded(self._host),
            captures=self.device.captures,
            own_code=self._own_code,
        )

    @cached_property
    def _asked(self) -> HostDrivenSteps:
        """What the host asks for if it sums gradients and updates the weights."""
        reader = GraphPipeline(self._host, self._placed, self._engine, num_slots=1, bounded=False)
        self._engine.synchronize()
        return HostDrivenSteps(
            self._host, reader, self._learner, self._streams, self._engine, waits=self._own_code
        )

    def train(
        self, seeds: Array, step: int, *, num_seeds: int, rate: float, updates: bool
    ) -> DeviceStepHandle:
        """Start the step of ``seeds``; see ``StepOwner.train``."""
        with self._naming(_STEP, step, len(seeds)):
            return self._own_steps.start(
                seeds, step, num_seeds=num_seeds, rate=rate, updates=updates, outcomes=self
            )

    def outcome(self, step: DeviceStepHandle) -> BatchOutcome:
        """Wait for a step, and return its outcome."""
        with self._naming(_STEP + ", or just before it", step.number, step.seeds.count):
            reported, sizes, found = self._own_steps.reported(step)
        size = _batch_size(sizes)
        return BatchOutcome(
            loss=reported.loss,
            size=size,
            traffic=self._traffic(size, found),
            seconds=reported.seconds(),
            counters=self._counters(found.rows),
        )

    @property
    def _own_steps(self) -> StepQueue:
        assert self._queue is not None, "opened with own_steps"
        return self._queue

    def sample(self, seeds: Array, step: int) -> CudaBatch:
        """Return the mini-batch of ``seeds`` at ``step``, and wait for it."""
        with self._naming(_STEP, step, len(seeds)):
            return self._asked.sample(seeds, step)

    def sample_on_host(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` at ``step``, sampled by the host."""
        return self._host.sampler.sample(seeds, step)

    def take_sample(self, batch: MiniBatch, seeds: Array) -> CudaBatch:
        """Copy what the host has sampled to the device."""
        with self._naming(_STEP, batch.step, len(seeds)):
            return self._asked.take_sample(batch, seeds)

    def on_host(self, batch: CudaBatch) -> MiniBatch:
        """Return the host's form, which is drawn again."""
        return self._host.sampler.sample(batch.slice_seeds, batch.step)

    def load(self, batch: CudaBatch) -> Inputs:
        """Read the first layer's input, and wait for it."""
        with self._naming(_STEP, batch.step, batch.num_seeds):
            inputs, found = self._asked.load(batch)
        return replace(inputs, traffic=self._traffic(BatchSize.of(batch), found, batch.sent_bytes))

    def transfer(self, batch: CudaBatch, inputs: Inputs) -> DeviceBatch:
        """Hand the mini-batch over: it is on the device."""
        return DeviceBatch(batch=batch, inputs=inputs, traffic=inputs.traffic)

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        """Begin forward and backward propagation."""
        self._asked.propagate(batch.batch, batch.inputs, weight)

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        """Wait for the mini-batch that was propagated last, and return its outcome."""
        with self._naming(_STEP, batch.batch.step, batch.batch.num_seeds):
            loss, seconds, rows = self._asked.finish(batch.batch)
        return BatchOutcome(
            loss=loss,
            size=BatchSize.of(batch.batch),
            traffic=batch.traffic,
            seconds={"propagate": seconds},
            counters=self._counters(rows),
        )

    def gradients_out(self, into: list[torch.Tensor]) -> None:
        """Copy the gradients of the shared parameters to the host."""
        self._wait()
        for target, grad in zip(into, self._learner.take_gradients(), strict=True):
            target.copy_(grad)

    def load_state(self) -> None:
        """Take over the host's parameters and buffers, and its optimizer's state for own steps."""
        if self._queue is not None:
            self._queue.forget()
        self._streams.training.run(self._learner.load_state)
        self._wait()
        self._look_at_memory()

    def update_weights(self) -> None:
        """Take over the parameters that the host's optimizer has updated."""
        self._streams.training.run(self._learner.load_weights)

    def buffers_out(self) -> None:
        """Copy the buffers to the host's model."""
        self._wait()
        self._learner.buffers_out()

    def state_out(self) -> None:
        """Copy weights, buffers and the optimizer's state to the host's, after all steps so far."""
        self._wait()
        self._learner.state_out()

    def inferred_rows(
        self, model: TrainableModel, needed: Sequence[Vertices]
    ) -> Iterator[torch.Tensor]:
        """Yield exact rows; see ``Inferring.inferred_rows``."""
        self._wait()
        with self._naming("in evaluation"):
            if self._inference is None:
                self._inference = CudaInference(self._host.graph, self._placed, self._engine)
            yield from self._inference.rows(model, needed)

    def rates(self) -> CardRates:
        """Return the card's rates; see ``Rated.rates``."""
        gpu, found = find_gpu(self.device.index)
        with self._naming("while it was measured"):
            return kept_rates(gpu.uuid, found.driver, self._measure)

    def _measure(self) -> CardRates:
        """Measure the card with memory that is given back."""
        engine = CudaEngine(replace(self.device, memory_bytes=None), limits=False)
        try:
            return probes.measure(engine)
        finally:
            engine.close()
            torch.cuda.empty_cache()

    def set_threads(self, threads: Threads) -> None:
        """Use so many host threads from now on."""
        self._host.sampler.num_threads = threads.sample
        self._host.loader.num_threads = threads.load
        torch.set_num_threads(max(threads.propagate, 1))

    def close(self) -> None:
        """Wait for the streams, and end the device's access to host memory."""
        for stream in (self._streams.reading, self._streams.training):
            stream.close()
        self._engine.close()

    def _look_at_memory(self) -> None:
        """Warn if a rehearsal, which comes before this, has left little memory."""
        peak, budget = self._engine.peak_bytes(), self._engine.memory_bytes
        if peak > _MUCH * budget:
            _LOG.warning(
                f"{self.device.label}: {size(peak)} of device memory were in use at once, of "
                f"{size(budget)} that may be; a larger mini-batch may not fit: a smaller "
                "batch_size, fewer neighbours (sampler.fanouts) or features=host take less"
            )

    def _wait(self) -> None:
        with self._naming("in one of the last steps"):
            self._streams.training.mark().wait()

    def _traffic(
        self, size: BatchSize, found: ReadCounts, sent_bytes: int | None = None
    ) -> Traffic:
        """Return what a mini-batch has moved, of ``sent_bytes`` if the host has sampled it."""
        placed, request = self._placed, self.device.link_request_bytes
        if self._traded is not None:
            return self._traded
        if sent_bytes is None and placed.rows_on_device and placed.lists_on_device:
            return NO_TRAFFIC
        traffic = Traffic(rows=placed.row_access(int(size.vertices[0]), found.rows))
        if sent_bytes is not None:
            return traffic.with_link(row_bytes=0, list_bytes=sent_bytes, request_bytes=request)
        reads = size.num_edges + sum(size.vertices[1:])
        return replace(traffic, lists=placed.list_access(int(reads), request, found.lists))

    @cached_property
    def _traded(self) -> Traffic | None:
        """What devices with columns of the features trade in a step (P3); None of others."""
        own = self._host.own_steps
        if own is None or own.columns is None:
            return None
        rows, blocks = self._own_steps.exchanged_bytes(cast(GNN, self._host.model).widths[1])
        return Traffic(rows=Access(peer_bytes=rows), lists=Access(peer_bytes=blocks))

    def _counters(self, rows: tuple[int, ...]) -> dict[str, float]:
        """Return the rows that were read at each place, by name."""
        if not rows or self._cache is None:
            return {}
        names = (*self._cache.kept.names, HOST)
        return {f"{ROWS_FROM}{name}": float(count) for name, count in zip(names, rows, strict=True)}

    def _naming(self, when: str, *numbers: int) -> CudaErrorContext:
        """Name the device and the step in errors of CUDA; see ``CudaErrorContext``.

        Args:
            when: with ``%d`` for each of ``numbers``.
        """
        return CudaErrorContext(self.device.label, when, numbers)


def _is_bounded(host: BackendInputs) -> bool:
    """Whether numbers of neighbours bound a mini-batch, so that its sizes need not be known.

    Otherwise the host waits for each sample's sizes, while the device trains the one before.
    """
    sampling = host.sampling
    if isinstance(sampling, LinkSampling):
        sampling = sampling.vertices
    return isinstance(sampling, Sampling) and (
        isinstance(sampling, LayerSampling) or -1 not in sampling.fanouts
    )


def _batch_size(sizes: SampleSizes) -> BatchSize:
    """Return the sizes of a mini-batch, inputs first."""
    return BatchSize(
        vertices=tuple(reversed(sizes.num_vertices)), edges=tuple(reversed(sizes.num_edges))
    )
