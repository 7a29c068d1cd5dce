"""GPU as a training device that samples, reads host memory and trains without the host."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import torch

from gnnscale.backend import base
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.backend.cuda.device_cache import ResidentCache
from gnnscale.backend.cuda.device_model import DeviceModel
from gnnscale.backend.cuda.device_step import DeviceStepHandle, HostDrivenSteps
from gnnscale.backend.cuda.engine import CudaEngine, Engine
from gnnscale.backend.cuda.host_engine import HostEngine, HostReadError
from gnnscale.backend.cuda.inference import CudaInference
from gnnscale.backend.cuda.placement import ReadCounts, place_graph
from gnnscale.backend.cuda.probes import measure_card
from gnnscale.backend.cuda.step_queue import StepQueue
from gnnscale.backend.cuda.streams import DeviceStreams
from gnnscale.backend.feature_loading import Vertices
from gnnscale.core import Array, ConfigError, Traffic, one_line
from gnnscale.core.artifact.files import size
from gnnscale.graph.dtypes import MAX_QUANTIZED
from gnnscale.nn import Inputs, TrainableModel
from gnnscale.planner import CardRates, Cuda, Device, Threads, find_gpu, load_or_measure_rates
from gnnscale.planner.cost_model.equations import BYTES_PER_PARAMETER, BatchSize
from gnnscale.sampling import MiniBatch

_LOG = logging.getLogger(__name__)
#: Fraction of the memory budget whose use triggers a warning: batch sizes vary.
_WARN_FRACTION = 0.9
#: Context of a step in errors: its number and its seeds.
_STEP = "in step %d, of %d seeds"


def open_cuda(device: Device, host: base.BackendInputs) -> "CudaBackend":
    """Return the backend of a GPU, or of its emulation on the host for host-driven steps.

    ConfigError: a driver or library is missing.
    """
    assert isinstance(device, Cuda)
    engine: Engine = HostEngine(device) if device.host_driven else CudaEngine(device)
    return CudaBackend(device, host, engine)


class CudaBackend:
    """GPU backend with device-driven steps, or host-driven steps next to other kinds of devices.

    One stream reads the next mini-batch while another trains. ``train`` does not wait for the end:

        pending = backend.train(seeds, step, num_seeds=1024, rate=0.003, updates=True)
        outcome = pending.read()  # waits for the step
    """

    def __init__(self, device: Cuda, host: base.BackendInputs, engine: Engine) -> None:
        """Allocate and fill the cache, if any; then copy the model, and place the graph's arrays.

        With peers that read the cache, ``open_peers`` copies and places. ConfigError: the features
        are int8 or int4.
        """
        dtype = host.graph.feature_dtype
        if dtype in MAX_QUANTIZED:  # torch's int8 is another type
            raise ConfigError(f"{device.label}: no kernels for features of {dtype}")
        self.device = device
        self._host = host
        self._engine = engine
        self._streams = DeviceStreams(training=engine.stream(), reading=engine.stream())
        self._inference: CudaInference | None = None
        self._cache: ResidentCache | None = None
        self._queue: StepQueue | None
        with self._naming("while it was opened"):
            if host.cache.kept is not None:
                self._cache = ResidentCache(host.cache.kept, host.graph, engine)
            if self._cache is None or self._cache.has_no_peers:
                self._open()

    def _open(self) -> None:
        """Copy the model, place the graph, and allocate the buffers of device-driven steps.

        Caches of peers are open by then.
        """
        host, engine, cache = self._host, self._engine, self._cache
        weights = BYTES_PER_PARAMETER * sum(p.numel() for p in host.model.parameters())
        placed = place_graph(host.graph, self.device, engine, kept_bytes=weights, cache=cache)
        self._placed, self._queue = placed, None
        if host.step_inputs is None:
            self._learner = DeviceModel(host, engine)
        else:
            self._queue = StepQueue(host, placed, engine, self._streams, self.device.captures)
            self._learner = self._queue.learner
        engine.synchronize()  # buffers are initialized outside the streams that use them

    @property
    def cache_address(self) -> str | None:
        """Address by which peers open the device's cache. None: the device has no cache."""
        return None if self._cache is None else self._cache.address

    def unused_bytes(self) -> int:
        """Return the bytes of the memory budget that torch's allocator did not use at its peak."""
        return max(self._engine.memory_bytes - self._engine.peak_bytes(), 0)

    def open_peers(self, addresses: Sequence[str]) -> None:
        """Open the peers' caches at ``addresses``; then copy the model, and place the graph.

        ``addresses`` has one of each clique member. Without peers it does nothing, as the
        constructor has copied and placed both.
        """
        assert self._cache is not None
        if not self._cache.has_no_peers:
            with self._naming("while it was opened"):
                self._cache.open_peers(addresses)
                self._open()

    @cached_property
    def _host_driven(self) -> HostDrivenSteps:
        """Host-driven steps, opened on first use."""
        return HostDrivenSteps(self._host, self._placed, self._learner, self._streams, self._engine)

    def train(
        self, seeds: Array, step: int, *, num_seeds: int, rate: float, updates: bool
    ) -> DeviceStepHandle:
        """Start sampling from ``seeds``, loading, propagation and update; return the step's handle.

        ``num_seeds`` are the seeds over all devices, ``rate`` is the learning rate, ``updates``
        tells whether to update the weights or only to accumulate gradients.
        """
        with self._naming(_STEP, step, len(seeds)):
            return self._own_steps.start(
                seeds, step, num_seeds=num_seeds, rate=rate, updates=updates, outcomes=self
            )

    def outcome(self, step: DeviceStepHandle) -> base.BatchOutcome:
        """Wait for a device-driven step, the oldest one not yet read, and return its outcome."""
        with self._naming(_STEP + ", or just before it", step.number, step.seeds.count):
            reported, sizes, counts = self._own_steps.reported(step)
        size = BatchSize(vertices=sizes.num_vertices[::-1], edges=sizes.num_edges[::-1])
        loss, seconds = reported.loss, reported.seconds()
        traffic, counters = self._traffic(size, counts), self._counters(counts.rows)
        return base.BatchOutcome(
            loss=loss, size=size, traffic=traffic, seconds=seconds, counters=counters
        )

    @property
    def _own_steps(self) -> StepQueue:
        assert self._queue is not None, "opened with step_inputs"
        return self._queue

    def sample(self, seeds: Array, step: int) -> CudaBatch:
        """Return the mini-batch of ``seeds`` at ``step``, after sampling it on the device."""
        with self._naming(_STEP, step, len(seeds)):
            return self._host_driven.sample(seeds, step)

    def sample_on_host(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` at ``step``, sampled by the host."""
        return self._host.sampler.sample(seeds, step)

    def receive_sample(self, batch: MiniBatch, seeds: Array) -> CudaBatch:
        """Copy a mini-batch that the host has sampled from ``seeds`` to the device."""
        with self._naming(_STEP, batch.step, len(seeds)):
            return self._host_driven.receive_sample(batch, seeds)

    def on_host(self, batch: CudaBatch) -> MiniBatch:
        """Sample the mini-batch again on the host, and return it in host memory."""
        return self._host.sampler.sample(batch.slice_seeds, batch.step)

    def load(self, batch: CudaBatch) -> Inputs:
        """Read the first layer's input on the device, wait, and return it with its traffic."""
        with self._naming(_STEP, batch.step, batch.num_seeds):
            inputs, counts = self._host_driven.load(batch)
        return replace(inputs, traffic=self._traffic(BatchSize.of(batch), counts, batch.sent_bytes))

    def transfer(self, batch: CudaBatch, inputs: Inputs) -> base.DeviceBatch:
        """Return the mini-batch, which is already in device memory, with its ``inputs``."""
        return base.DeviceBatch(batch=batch, inputs=inputs, traffic=inputs.traffic)

    def propagate(self, batch: base.DeviceBatch, weight: float) -> None:
        """Start forward and backward propagation of the mini-batch's mean loss times ``weight``."""
        self._host_driven.propagate(batch.batch, batch.inputs, weight)

    def finish(self, batch: base.DeviceBatch) -> base.BatchOutcome:
        """Wait for ``batch``, the last one propagated, and return its outcome."""
        with self._naming(_STEP, batch.batch.step, batch.batch.num_seeds):
            loss, seconds, rows = self._host_driven.finish(batch.batch)
        size, counters = BatchSize.of(batch.batch), self._counters(rows)
        return base.BatchOutcome(
            loss=loss, size=size, traffic=batch.traffic, seconds=seconds, counters=counters
        )

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        """Wait for the device, copy shared parameters' gradients to ``into``, and reset them."""
        self._wait()
        for target, grad in zip(into, self._learner.take_gradients(), strict=True):
            target.copy_(grad)

    def load_state(self) -> None:
        """Copy the host's weights, buffers and optimizer state (if device-driven) to the device.

        Drops recorded CUDA graphs, accumulated gradients and unread steps. Logs a warning if less
        than a tenth of the memory budget was free at the peak.
        """
        if self._queue is not None:
            self._queue.forget()
        self._streams.training.run(self._learner.load_state)
        self._wait()
        _check_use(self.device, self._engine)

    def update_weights(self) -> None:
        """Queue a copy of the host's parameters, updated by its optimizer, to the device."""
        self._streams.training.run(self._learner.load_weights)

    def copy_buffers(self) -> None:
        """Wait for the device, and copy the buffers to the host's model."""
        self._wait()
        self._learner.copy_buffers()

    def copy_state(self) -> None:
        """Copy weights, buffers and optimizer state to the host, after all started steps."""
        self._wait()
        self._learner.copy_state()

    def inferred_rows(
        self, model: TrainableModel, needed: Sequence[Vertices]
    ) -> Iterator[torch.Tensor]:
        """Yield the last layer's output rows of ``needed[-1]`` over all neighbors, in host memory.

        ``needed`` has the vertices whose rows each layer computes, the first layer first. Rows are
        in order, in chunks.
        """
        self._wait()
        with self._naming("in evaluation"):
            if self._inference is None:
                self._inference = CudaInference(self._host.graph, self._placed, self._engine)
            yield from self._inference.rows(model, needed)

    def rates(self) -> CardRates:
        """Return the card's rates from disk; the first call for a card measures and stores them."""
        (gpu, gpus), measure = find_gpu(self.device.index), partial(measure_card, self.device)
        with self._naming("while it was measured"):
            return load_or_measure_rates(gpu.uuid, gpus.driver, measure)

    def set_threads(self, threads: Threads) -> None:
        """Set the numbers of host threads that sample, load and propagate."""
        self._host.set_threads(threads)

    def close(self) -> None:
        """Wait for the streams, release registered host memory, and free or unmap all caches."""
        for stream in (self._streams.reading, self._streams.training):
            stream.close()
        self._engine.close()

    def _wait(self) -> None:
        with self._naming("in one of the last steps"):
            self._streams.training.mark().wait()

    def _traffic(
        self, size: BatchSize, counts: ReadCounts, sent_bytes: int | None = None
    ) -> Traffic:
        """Return the traffic of a mini-batch of ``size``; in P3 only that of its device exchange.

        ``counts`` are numbers of reads from each clique member and the host. ``sent_bytes`` of a
        sample came from the host; None: the device has sampled.
        """
        exchanged = None if self._queue is None else self._queue.exchange_traffic
        request = self.device.link_request_bytes
        return exchanged or self._placed.traffic(size, counts, request, sent_bytes)

    def _counters(self, rows: tuple[int, ...]) -> dict[str, float]:
        return {} if not rows or self._cache is None else self._cache.counters(rows)

    def _naming(self, when: str, *numbers: int) -> "CudaErrorContext":
        """Return a context that raises CUDA errors as ``DeviceError`` with the device and ``when``.

        ``when`` is a text such as ``in step %d``, with a ``%d`` for each of ``numbers``.
        """
        return CudaErrorContext(self.device.label, when, numbers)


def _check_use(device: Cuda, engine: Engine) -> None:
    """Log a warning if the peak use of device memory so far is above 0.9 of the budget."""
    peak, budget = engine.peak_bytes(), engine.memory_bytes
    if peak > _WARN_FRACTION * budget:
        _LOG.warning(
            f"{device.label}: peak use of device memory is {size(peak)} of the "
            f"{size(budget)} budget; a larger mini-batch may not fit; a smaller "
            "batch_size, fewer neighbors (sampler.fanouts) or features=host take less"
        )


class CudaErrorContext:
    """Context that raises CUDA errors as ``DeviceError``, out of memory ``DeviceMemoryError``."""

    def __init__(self, label: str, when: str, numbers: tuple[int, ...]) -> None:
        """Set the device's name, and ``when``: a text with a ``%d`` for each of ``numbers``."""
        self._label = label
        self._when = when
        self._numbers = numbers

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Raise a CUDA error as ``DeviceError``, or as ``DeviceMemoryError`` if memory ran out."""
        if error is None or isinstance(error, HostReadError) or not isinstance(error, Exception):
            return
        label, when = self._label, self._when % self._numbers
        if isinstance(error, torch.OutOfMemoryError):
            raise base.DeviceMemoryError(
                f"{label}: out of device memory {when}: {one_line(error, 200)}; a smaller "
                "batch_size, fewer neighbors (sampler.fanouts), or features=host and "
                "topology=host of the device take less"
            ) from None
        if "CUDA" in f"{type(error).__name__}: {error}" and not isinstance(error, base.DeviceError):
            raise base.DeviceError(
                f"{label}: the GPU failed {when}: {one_line(error, 200)}; with "
                "CUDA_LAUNCH_BLOCKING=1 the operation is named"
            ) from None
