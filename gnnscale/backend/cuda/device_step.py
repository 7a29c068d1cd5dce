"""Steps of a device: stages and handle of device-driven steps, stages of host-driven steps."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from gnnscale.backend.base import BackendInputs, BatchOutcome
from gnnscale.backend.cuda.batch import CudaBatch, batch_from_host
from gnnscale.backend.cuda.capacity import SampleSizes, needs_sizes
from gnnscale.backend.cuda.device_model import DeviceGradientAccumulator, DeviceModel
from gnnscale.backend.cuda.device_sample import DeviceSample, DeviceSeeds, seeds_of
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.graph_reader import GraphPipeline
from gnnscale.backend.cuda.placement import ReadCounts, ResidentGraph
from gnnscale.backend.cuda.row_gather import CacheUpdates
from gnnscale.backend.cuda.step_records import StepKernels
from gnnscale.backend.cuda.streams import CapturedWork, DeviceStreams, Event, Stream
from gnnscale.core import Array
from gnnscale.nn import Inputs
from gnnscale.sampling import MiniBatch


class StepSlot:
    """One of two sets of device buffers that steps use in turn, with the stages of a step.

    Sample and rows of a slot have fixed addresses. A replayed CUDA graph therefore differs from its
    recording only in the values that kernels read from the step's record.
    """

    def __init__(
        self,
        number: int,
        reader: GraphPipeline,
        learner: DeviceModel,
        kernels: StepKernels,
        replaced: CacheUpdates | None,
    ) -> None:
        """Use buffer set ``number`` of ``reader``, and ``learner``, the model that all slots train.

        ``kernels`` copy the slot's step records. ``replaced`` are updates of a dynamic cache. None:
        the cache is static.
        """
        self._number = number
        self.reader = reader  #: graph pipeline of all slots
        self._learner = learner
        self._kernels = kernels
        self._replaced = replaced
        self.other: StepSlot | None = None  #: slot of the previous and of the next step
        self._sample: DeviceSample | None = None
        #: last batch read, and the batch of the recording for each number of seeds
        self._read: tuple[CudaBatch, Inputs] | None = None
        self._recorded: dict[int, tuple[CudaBatch, Inputs]] = {}
        self._captured: dict[Hashable, CapturedWork] = {}
        self._warmed_up: set[Hashable] = set()

    def read_counts(self, counts: list[int]) -> ReadCounts:
        """Split the read counts of a step's report into reads of adjacency lists and of rows.

        Each has an entry per device of the clique, then the host; reads of rows of the previous
        batch (Match) count as reads from the device.
        """
        lists, rows = self.current_sample.list_reads, self.reader.row_reads(self._number)
        num_lists = 0 if lists is None else len(lists)
        num_rows = 0 if rows is None else len(rows)
        row_counts = counts[num_lists : num_lists + num_rows]
        if self.reader.placed.following is not None:
            # Rows of the previous batch (Match) are device reads, as cached rows are.
            row_counts = [sum(row_counts[:-1]), row_counts[-1]]
        return ReadCounts(lists=tuple(counts[:num_lists]), rows=tuple(row_counts))

    def sample(self, seeds: DeviceSeeds) -> None:
        """Queue the kernels that take the step's record, sample, and empty an invalid sample.

        They go to the current stream.
        """
        count = len(seeds.vertices)
        self._kernels.take(count)
        self._sample = self.reader.sample(
            self._kernels.seeds[:count], self._kernels.step, seeds, slot=self._number
        )
        self._kernels.sampled(self._sample.state)

    def load(self, seeds: DeviceSeeds, step: int, sizes: SampleSizes) -> None:
        """Queue reads of the first layer's input, then the update of a dynamic cache, if any.

        Both go to the current stream. ``sizes`` are the sample's sizes, or upper bounds, ``step``
        the batch's step of the run.
        """
        batch = self.reader.batch(self.current_sample, seeds, sizes, step=step)
        self._read = (batch, self.reader.load(batch, slot=self._number))
        if self._replaced is not None:
            samples = (self.current_sample, None if self.other is None else self.other._sample)
            record_index = self._kernels.record_index
            self.reader.replace(self._replaced, record_index, *samples, self._number)
        self._kernels.read()

    def train(self, seeds: DeviceSeeds, part: "StepPart", *, rate: float, recorded: bool) -> None:
        """Queue a step's training and the writing of its report on the current stream.

        Training exchanges columns (P3), propagates, accumulates gradients, and if ``part.updates``
        updates the weights with learning rate ``rate``. ``recorded``: to train the batch stored by
        ``keep`` instead of the last batch read.
        """
        inputs_read = self._recorded[seeds.count] if recorded else self._read
        assert inputs_read is not None
        (batch, inputs), sample = inputs_read, self.current_sample
        self._kernels.begin(sample.state)
        inputs = self.reader.exchange(batch, inputs)
        loss = self._learner.backward(batch.again(), inputs, seeds.count / part.num_seeds)
        self._kernels.propagated()
        self._learner.finish(part.pending, part.num_seeds, updates=part.updates, rate=rate)
        rows = self.reader.row_reads(self._number)
        self._kernels.report(sample.state, loss.float().reshape(1), sample.list_reads, rows)

    def keep(self, seeds: DeviceSeeds) -> None:
        """Store the last batch read as the batch that ``train`` uses when recorded.

        There is one for each number of ``seeds``.
        """
        assert self._read is not None
        self._recorded[seeds.count] = self._read

    def do(self, stream: Stream, key: Hashable, work: Callable[[], object]) -> None:
        """Queue ``work`` on ``stream``: run it at first, then record it, and later replay it.

        Works of equal ``key`` differ only in the step's record. The first call warms up libraries,
        the second records and runs, later calls replay the recording.
        """
        captured = self._captured.get(key)
        if captured is not None:
            captured.replay()
        elif key in self._warmed_up:
            self._captured[key] = stream.capture(work)
        else:
            self._warmed_up.add(key)
            stream.run(work)

    def forget(self) -> None:
        """Drop all recordings and recorded batches, after a change of the memory that they use."""
        self._captured.clear()
        self._warmed_up.clear()
        self._recorded.clear()

    @property
    def current_sample(self) -> DeviceSample:
        """Sample of the current step."""
        assert self._sample is not None
        return self._sample


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """Share of a mini-batch in a weight update, which may average gradients of several batches."""

    num_seeds: int  #: seeds of the mini-batch over all devices
    pending: DeviceGradientAccumulator  #: earlier mini-batches of the same update
    updates: bool  #: whether the mini-batch is the last one before the update


class Outcomes(Protocol):
    """Object that waits for device-driven steps and returns their outcomes: the backend."""

    def outcome(self, step: "DeviceStepHandle") -> BatchOutcome:
        """Wait for ``step``, and return its outcome."""


@dataclass(kw_only=True, eq=False)
class DeviceStepHandle:
    """Handle of a device-driven step, whose outcome arrives later."""

    outcomes: Outcomes  #: returns the step's outcome
    seeds: DeviceSeeds
    number: int  #: step of the run
    rate: float  #: learning rate
    part: StepPart
    record_index: int = 0  #: index of its record
    done: Event | None = None  #: mark after the step
    _outcome: BatchOutcome | None = None

    @property
    def ready(self) -> bool:
        """Whether the step is done; ``read`` then waits only if the step has to be repeated."""
        return self.done is not None and self.done.is_done

    def read(self) -> BatchOutcome:
        """Wait for the step, and return its outcome; steps are read in the order of their start."""
        if self._outcome is None:
            self._outcome = self.outcomes.outcome(self)
        return self._outcome


class HostDrivenSteps:
    """Stages of a host-driven step, for runs that combine a GPU with other kinds of devices."""

    def __init__(
        self,
        host: BackendInputs,
        placed: ResidentGraph,
        learner: DeviceModel,
        streams: DeviceStreams,
        engine: Engine,
    ) -> None:
        self._host = host
        self._reader = GraphPipeline(host, placed, engine, num_slots=1, bounded=False)
        engine.synchronize()  # buffers are initialized outside the streams that use them
        self._learner = learner
        self._streams = streams
        self._engine = engine
        #: whether user code, which may wait for the device, computes the step
        self._waits = needs_sizes(host.model) is not None
        #: marks before and after the propagation in flight, and its loss
        self._propagated: tuple[Event, Event, list[torch.Tensor]] | None = None
        #: rows read from each location, by step, of loaded mini-batches that are not finished
        self._read_rows: dict[int, tuple[int, ...]] = {}

    def sample(self, seeds: Array, step: int) -> CudaBatch:
        """Return the mini-batch of ``seeds`` at ``step``, after sampling it on the device."""
        reader, step_seeds = self._reader, seeds_of(self._host, seeds, step)
        reading = self._streams.reading
        samples: list[DeviceSample] = []
        batches: list[CudaBatch] = []

        def draw() -> None:
            vertices = torch.from_numpy(np.asarray(step_seeds.vertices, np.int64))
            samples.append(reader.sample(vertices.to(self._engine.device), step, step_seeds))

        reading.run(draw)
        reading.mark().wait()
        sizes, lists = samples[0].sizes(), _numbers(samples[0].list_reads)
        reading.run(
            lambda: batches.append(reader.batch(samples[0], step_seeds, sizes, step=step).copy())
        )
        reading.mark().wait()
        return replace(batches[0], list_reads=lists)

    def receive_sample(self, batch: MiniBatch, seeds: Array) -> CudaBatch:
        """Copy the host's sample of ``seeds`` to the device; waits for the copy."""
        batches: list[CudaBatch] = []
        kernels, device = self._engine.kernels, self._engine.device
        reading = self._streams.reading
        reading.run(lambda: batches.append(batch_from_host(batch, seeds, kernels, device)))
        reading.mark().wait()
        return batches[0]

    def load(self, batch: CudaBatch) -> tuple[Inputs, ReadCounts]:
        """Read the first layer's input, wait, and return it with numbers of lists and of rows read.

        Numbers are those read from each clique member, then from the host.
        """
        results: list[Inputs] = []

        def read() -> None:
            inputs = self._reader.load(batch)
            results.append(replace(inputs, x=inputs.x.clone()))

        self._streams.reading.run(read)
        self._streams.reading.mark().wait()
        rows = self._read_rows[batch.step] = _numbers(self._reader.row_reads())
        return results[0], ReadCounts(lists=batch.list_reads, rows=rows)

    def propagate(self, batch: CudaBatch, inputs: Inputs, weight: float) -> None:
        """Start forward and backward propagation of the mini-batch's mean loss times ``weight``."""
        training = self._streams.training
        loss: list[torch.Tensor] = []
        first = training.mark()
        training.run(
            lambda: loss.append(self._learner.backward(batch, inputs, weight)), waits=self._waits
        )
        self._propagated = (first, training.mark(), loss)

    def finish(self, batch: CudaBatch) -> tuple[float, dict[str, float], tuple[int, ...]]:
        """Wait for ``batch``, the last one propagated; return its loss, seconds, and row reads.

        The loss is weighted, seconds are by stage, and reads are from each clique member, then from
        the host.
        """
        assert self._propagated is not None
        first, last, loss = self._propagated
        self._propagated = None
        last.wait()
        rows = self._read_rows.pop(batch.step, ())
        return float(loss[0]), {"propagate": last.seconds_since(first)}, rows


def _numbers(counts: torch.Tensor | None) -> tuple[int, ...]:
    """Return ``counts``, a tensor in device memory, as integers; () for None.

    The caller has waited for the stream that computes the counts.
    """
    return () if counts is None else tuple(counts.tolist())
