"""A GPU as a training device: it samples, reads host memory and trains by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from gnnscale.artifact.files import size
from gnnscale.backend.base import (
    BatchOutcome,
    DeviceBatch,
    DeviceError,
    DeviceMemoryError,
    HostParts,
)
from gnnscale.backend.cuda import probes
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.backend.cuda.device_cache import DeviceCache
from gnnscale.backend.cuda.device_sample import DeviceSample
from gnnscale.backend.cuda.engine import CudaEngine, Engine
from gnnscale.backend.cuda.host_engine import HostEngine, HostReadError
from gnnscale.backend.cuda.inference import CudaInference
from gnnscale.backend.cuda.learner import Learner
from gnnscale.backend.cuda.placement import place
from gnnscale.backend.cuda.reader import GraphReader
from gnnscale.backend.cuda.sampler_plan import SampleSizes, Sampling
from gnnscale.backend.cuda.seeds import seeds_of
from gnnscale.backend.cuda.step import Found, OwnStep
from gnnscale.backend.cuda.step_queue import StepQueue, Streams
from gnnscale.backend.cuda.streams import Mark
from gnnscale.backend.loading import Vertices
from gnnscale.backend.lowering import needs_sizes
from gnnscale.cache.cache_plan import HOST, ROWS_FROM
from gnnscale.core import Array, Traffic, one_line
from gnnscale.model import Inputs, TrainableModel
from gnnscale.plan import Cuda, Device, Threads
from gnnscale.plan.card_rates import CardRates, kept_rates
from gnnscale.plan.cuda import find_gpu
from gnnscale.plan.perf.equations import BYTES_PER_PARAMETER, BatchSize
from gnnscale.sampler import LayerSampling, MiniBatch
from gnnscale.sampler.links import LinkSampling

_LOG = logging.getLogger(__name__)
#: Part of the memory above which mini-batches that differ may not fit.
_MUCH = 0.9


def open_cuda(device: Device, host: HostParts) -> CudaBackend:
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

    def __init__(self, device: Cuda, host: HostParts, engine: Engine) -> None:
        """Bring model and graph to the device."""
        self.device = device
        self._host = host
        self._engine = engine
        self._training, self._reading = engine.stream(), engine.stream()
        #: Whether code of a user's computes the step, which may wait for the device.
        self._own_code = needs_sizes(host.model) is not None
        self._inference: CudaInference | None = None
        #: What ``propagate`` has begun: marks before and after it, and its loss.
        self._propagated: tuple[Mark, Mark, list[torch.Tensor]] | None = None
        #: By step: rows found at each place, of mini-batches that were read and are not finished.
        self._read_rows: dict[int, tuple[int, ...]] = {}
        self._cache: DeviceCache | None = None
        with self._naming("while it was opened"):
            if host.cache.kept is not None:
                self._cache = DeviceCache(host.cache.kept, host.graph, engine)
            if self._cache is None or self._cache.is_alone:
                self._open()

    def _open(self) -> None:
        """Bring model and graph to the device, once the caches of peers are known."""
        host, engine = self._host, self._engine
        weights = sum(each.numel() for each in host.model.parameters()) * BYTES_PER_PARAMETER
        self._placed = place(host.graph, self.device, engine, kept_bytes=weights, cache=self._cache)
        self._queue = None if host.own_steps is None else self._new_queue()
        if self._queue is None:
            self._learner = Learner(host, engine)
        else:
            self._learner = self._queue.learner
        engine.synchronize()  # buffers were cleared outside of the streams that use them

    @property
    def cache_address(self) -> str | None:
        """What peers open the device's cache by."""
        return None if self._cache is None else self._cache.address

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
            Streams(reading=self._reading, training=self._training),
            exact=self._own_code or not _is_bounded(self._host),
            captures=self.device.captures,
            own_code=self._own_code,
        )

    @cached_property
    def _reader(self) -> GraphReader:
        """What samples and reads for other devices' steps."""
        made = GraphReader(self._host, self._placed, self._engine, num_slots=1, bounded=False)
        self._engine.synchronize()
        return made

    def train(
        self, seeds: Array, step: int, *, num_seeds: int, rate: float, updates: bool
    ) -> OwnStep:
        """Start the step of ``seeds``; see ``StepOwner.train``."""
        with self._naming(f"in step {step}, of {len(seeds)} seeds"):
            return self._own_steps.start(
                seeds, step, num_seeds=num_seeds, rate=rate, updates=updates, outcomes=self
            )

    def outcome(self, step: OwnStep) -> BatchOutcome:
        """Wait for a step, and return its outcome."""
        with self._naming(f"in step {step.number}, of {step.seeds.count} seeds, or just before it"):
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
        reader, given = self._reader, seeds_of(self._host, seeds, step)
        drawn: list[DeviceSample] = []
        found: list[CudaBatch] = []

        def draw() -> None:
            vertices = torch.from_numpy(np.asarray(given.vertices, np.int64))
            drawn.append(reader.sample(vertices.to(self._engine.device), step, given))

        with self._naming(f"in step {step}, of {len(seeds)} seeds"):
            self._reading.run(draw)
            self._reading.mark().wait()
            sizes, lists = drawn[0].sizes(), _numbers(drawn[0].found_lists)
            self._reading.run(
                lambda: found.append(reader.batch(drawn[0], given, sizes, step=step).copy())
            )
            self._reading.mark().wait()
        return replace(found[0], found_lists=lists)

    def on_host(self, batch: CudaBatch) -> MiniBatch:
        """Return the host's form, which is drawn again."""
        return self._host.sampler.sample(batch.slice_seeds, batch.step)

    def load(self, batch: CudaBatch) -> Inputs:
        """Read the first layer's input, and wait for it."""
        found: list[Inputs] = []

        def read() -> None:
            inputs = self._reader.load(batch)
            found.append(replace(inputs, x=inputs.x.clone()))

        with self._naming(f"in step {batch.step}, of {batch.num_seeds} seeds"):
            self._reading.run(read)
            self._reading.mark().wait()
        places = Found(lists=batch.found_lists, rows=_numbers(self._reader.found_rows()))
        self._read_rows[batch.step] = places.rows
        return replace(found[0], traffic=self._traffic(BatchSize.of(batch), places))

    def transfer(self, batch: CudaBatch, inputs: Inputs) -> DeviceBatch:
        """Hand the mini-batch over: it is on the device."""
        return DeviceBatch(batch=batch, inputs=inputs, traffic=inputs.traffic)

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        """Begin forward and backward propagation."""
        loss: list[torch.Tensor] = []
        first = self._training.mark()
        self._training.run(
            lambda: loss.append(self._learner.backward(batch.batch, batch.inputs, weight)),
            waits=self._own_code,
        )
        self._propagated = (first, self._training.mark(), loss)

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        """Wait for the mini-batch that was propagated last, and return its outcome."""
        assert self._propagated is not None
        first, last, loss = self._propagated
        self._propagated = None
        with self._naming(f"in step {batch.batch.step}, of {batch.batch.num_seeds} seeds"):
            last.wait()
        return BatchOutcome(
            loss=float(loss[0]),
            size=BatchSize.of(batch.batch),
            traffic=batch.traffic,
            seconds={"propagate": last.seconds_since(first)},
            counters=self._counters(self._read_rows.pop(batch.batch.step, ())),
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
        self._training.run(self._learner.load_state)
        self._wait()
        self._look_at_memory()

    def update_weights(self) -> None:
        """Take over the parameters that the host's optimizer has updated."""
        self._training.run(self._learner.load_weights)

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
        engine = CudaEngine(self.device)
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
        for stream in (self._reading, self._training):
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
            self._training.mark().wait()

    def _traffic(self, size: BatchSize, found: Found) -> Traffic:
        placed = self._placed
        reads = size.num_edges + sum(size.vertices[1:])
        return Traffic(
            rows=placed.row_access(int(size.vertices[0]), found.rows),
            lists=placed.list_access(int(reads), self.device.link_request_bytes, found.lists),
        )

    def _counters(self, rows: tuple[int, ...]) -> dict[str, float]:
        """Return the rows that were read at each place, by name."""
        if not rows or self._cache is None:
            return {}
        names = (*self._cache.kept.names, HOST)
        return {f"{ROWS_FROM}{name}": float(count) for name, count in zip(names, rows, strict=True)}

    @contextmanager
    def _naming(self, when: str) -> Iterator[None]:
        """Name the device and the step in errors of CUDA.

        Raises:
            DeviceMemoryError: the device's memory is too small.
            DeviceError: the device has failed.
        """
        label = self.device.label
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"{label}: out of device memory {when}: {one_line(error, 200)}; a smaller "
                "batch_size, fewer neighbours (sampler.fanouts), or features=host and "
                "topology=host of the device take less"
            ) from None
        except HostReadError:
            raise
        except Exception as error:
            if "CUDA" not in f"{type(error).__name__}: {error}" or isinstance(error, DeviceError):
                raise
            raise DeviceError(
                f"{label}: the GPU failed {when}: {one_line(error, 200)}; with "
                "CUDA_LAUNCH_BLOCKING=1 the operation is named"
            ) from None


def _numbers(counts: torch.Tensor | None) -> tuple[int, ...]:
    """Return numbers of the device, whose mark was waited for."""
    return () if counts is None else tuple(counts.tolist())


def _is_bounded(host: HostParts) -> bool:
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
