"""Queue of device-driven steps: CUDA graphs, repeated if a mini-batch exceeds its capacity."""

import logging
from collections import deque
from collections.abc import Callable, Hashable
from functools import cached_property

import torch

from gnnscale.backend.base import BackendInputs
from gnnscale.backend.cuda.capacity import SampleSizes, Sampling, needs_sizes, vertex_sampling
from gnnscale.backend.cuda.device_model import DeviceGradientAccumulator, DeviceModel
from gnnscale.backend.cuda.device_sample import max_seeds, seeds_of
from gnnscale.backend.cuda.device_step import DeviceStepHandle, Outcomes, StepPart, StepSlot
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.graph_reader import GraphPipeline
from gnnscale.backend.cuda.placement import ReadCounts, ResidentGraph
from gnnscale.backend.cuda.step_records import NUM_RECORDS, DeviceReport, StepRecords
from gnnscale.backend.cuda.streams import DeviceStreams, Event, Stream
from gnnscale.core import Array, Traffic, one_line
from gnnscale.sampling import LayerSampling

_LOG = logging.getLogger(__name__)

#: Steps with a sample and rows in memory: one is trained while the next is read.
NUM_SLOTS = 2


def _is_bounded(host: BackendInputs) -> bool:
    """Return whether fan-outs or layer sizes bound mini-batches, so that they fit padded buffers.

    Otherwise the host waits for the sizes of each sample.
    """
    sampling = vertex_sampling(host.sampling)
    return isinstance(sampling, Sampling) and (
        isinstance(sampling, LayerSampling) or -1 not in sampling.fanouts
    )


class _Recorder:
    """Recorder of steps as CUDA graphs, until a recording fails."""

    def __init__(self, learner: DeviceModel, *, captures: bool) -> None:
        self._learner = learner
        self.captures = captures

    def do(self, slot: StepSlot, stream: Stream, key: Hashable, work: Callable[[], object]) -> None:
        """Queue ``work`` on ``stream``; ``slot.do`` runs, records or replays work of equal ``key``.

        Once a recording has failed, except for lack of memory, this and all later work is queued
        operation by operation; a warning is logged, and gradients of the failed recording are
        dropped.
        """
        if not self.captures:
            stream.run(work)
            return
        try:
            slot.do(stream, key, work)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            _LOG.warning(
                f"device_plan: steps are queued piece by piece, as with captures=false: they "
                f"cannot be recorded as CUDA graphs ({one_line(error, 200)})"
            )
            self.captures = False
            self._learner.take_gradients()
            stream.run(work)


class StepQueue:
    """Queue that starts steps without waiting for earlier steps.

    A step is two pieces of work on two streams: reading (sample, load) and training. Mini-batches
    of the usual size replay both as CUDA graphs, whose arrays have the observed capacity. A sample
    that exceeds it halts the device, and the host repeats that step and all later ones with the
    maximum capacity. Mini-batches of other sizes, and batches of edges, are queued operation by
    operation.

        handle = queue.start(seeds, 7, num_seeds=2048, rate=0.01, updates=True, outcomes=backend)
        report, sizes, counts = queue.reported(handle)  # in step order; waits for step 7
    """

    def __init__(
        self,
        host: BackendInputs,
        placed: ResidentGraph,
        engine: Engine,
        streams: DeviceStreams,
        captures: bool,
    ) -> None:
        """Allocate two slots of buffers, step records, and the device's model with its optimizer.

        ``captures``: whether steps are recorded as CUDA graphs.
        """
        self._host = host
        self._placed = placed
        self._engine = engine
        self._streams = streams
        self._records = StepRecords(engine, max_seeds(host))
        self.learner = DeviceModel(host, engine, self._records)
        self._recorder = _Recorder(self.learner, captures=captures)
        # User code may wait for the device, as an optimizer that is not fused, which counts its
        # steps on the host.
        self._waits = needs_sizes(host.model) is not None or not self.learner.is_fused
        #: whether the host waits for the sizes of each sample
        self._is_exact = self._waits or not _is_bounded(host)
        if placed.following is not None:
            self._records.follow(len(placed.following.rows))
        self._slots = self._new_slots(bounded=not self._is_exact)
        #: marks after the training of the last steps; a slot is free once its mark is done
        self._trained: deque[Event] = deque(maxlen=NUM_SLOTS)
        self._num_started = 0
        self._unread: deque[DeviceStepHandle] = deque()  #: steps with unread outcomes, in order
        self._accumulated = DeviceGradientAccumulator()
        self._usual_seeds = 1  #: seeds of the largest slice, the size of most slices

    def start(
        self,
        seeds: Array,
        step: int,
        *,
        num_seeds: int,
        rate: float,
        updates: bool,
        outcomes: Outcomes,
    ) -> DeviceStepHandle:
        """Start a step, without waiting unless sizes or user code need it; return its handle.

        ``num_seeds`` are the seeds over all devices, ``rate`` is the learning rate, and ``updates``
        tells whether the step updates the weights or only accumulates gradients. The handle reads
        its outcome from ``outcomes``.
        """
        step_seeds, pending = seeds_of(self._host, seeds, step), self._accumulated
        part = StepPart(num_seeds=num_seeds, pending=pending, updates=updates)
        started = DeviceStepHandle(
            outcomes=outcomes, seeds=step_seeds, number=step, rate=rate, part=part
        )
        self._accumulated = DeviceGradientAccumulator() if updates else pending + num_seeds
        self._usual_seeds = max(self._usual_seeds, step_seeds.count)
        assert len(self._unread) < NUM_RECORDS
        self._queue(started, exact=self._is_exact, again=False)
        self._unread.append(started)
        return started

    def reported(self, step: DeviceStepHandle) -> tuple[DeviceReport, SampleSizes, ReadCounts]:
        """Wait for ``step``, the oldest unread one; return report, sample sizes and read counts.

        If it exceeded its capacity, it is first repeated with all later steps. An invalid sample
        raises its error.
        """
        report = self._wait(step)
        if report.halted:
            self._repeat()
            report = self._wait(step)
        assert self._unread.popleft() is step, "outcomes are read in the order of steps"
        slot = self._slots[0]
        sizes = slot.current_sample.sizes_in(report.state)
        return report, sizes, slot.read_counts(report.read_counts)

    @property
    def exchange_traffic(self) -> Traffic | None:
        """Traffic of a step's exchange with peers (P3). None: the run does not use P3."""
        return self._slots[0].reader.exchange_traffic

    def forget(self) -> None:
        """Drop recordings, accumulated gradients, unread steps, and the rows of a dynamic cache.

        The device must be idle.
        """
        self._accumulated = DeviceGradientAccumulator()
        self._unread.clear()
        self._forget_rows()
        for slot in self._slots:
            slot.forget()

    def _queue(self, step: DeviceStepHandle, *, exact: bool, again: bool) -> None:
        """Queue a step's reading and training, and set its record and the mark after it.

        ``exact``: the host waits for the sample's sizes. ``again``: the step is repeated, with
        maximum capacity and without a cache update.
        """
        reading, training = self._streams.reading, self._streams.training
        slot = (self._slots_again if again else self._slots)[self._num_started % NUM_SLOTS]
        self._num_started += 1
        if len(self._trained) == NUM_SLOTS:
            # The previous step of the slot is done, and with it all use of the slot's memory.
            reading.wait_for(self._trained[0])
        replay = None if again else self._host.cache.replay
        replaced = None if replay is None else replay.take()
        seeds = step.seeds
        step.record_index = self._records.give(seeds.vertices, step.number, step.rate, replaced)
        # The step equals its recording up to the step's record.
        repeats = not exact and self._recorder.captures and seeds.edges is None
        repeats = repeats and seeds.count == self._usual_seeds
        if exact:
            self._read_exactly(slot, step)
        else:
            self._read(slot, step, repeats=repeats)
        training.wait_for(reading.mark())
        self._train(slot, step, repeats=repeats)
        step.done = training.mark()
        self._trained.append(step.done)

    def _read(self, slot: StepSlot, step: DeviceStepHandle, *, repeats: bool) -> None:
        seeds, number = step.seeds, step.number
        sizes = slot.reader.largest_sizes(len(seeds.vertices))

        def work() -> None:
            slot.sample(seeds)
            slot.load(seeds, number, sizes)
            if repeats:
                slot.keep(seeds)

        if repeats:
            self._recorder.do(slot, self._streams.reading, ("read", seeds.count), work)
        else:
            self._streams.reading.run(work)

    def _read_exactly(self, slot: StepSlot, step: DeviceStepHandle) -> None:
        """Queue sampling, wait for the sample's sizes, and queue reads of just these rows."""
        reading, seeds, number = self._streams.reading, step.seeds, step.number
        reading.run(lambda: slot.sample(seeds))
        reading.mark().wait()
        sizes = slot.current_sample.sizes()
        reading.run(lambda: slot.load(seeds, number, sizes))

    def _train(self, slot: StepSlot, step: DeviceStepHandle, *, repeats: bool) -> None:
        seeds, part, rate = step.seeds, step.part, step.rate

        def work() -> None:
            slot.train(seeds, part, rate=rate, recorded=repeats)

        if repeats:
            self._recorder.do(slot, self._streams.training, (part, seeds.count), work)
        else:
            self._streams.training.run(work, waits=self._waits)

    def _wait(self, step: DeviceStepHandle) -> DeviceReport:
        assert step.done is not None
        step.done.wait()
        return self._records.reported(step.record_index)

    def _repeat(self) -> None:
        """Wait for the device, resume it, and queue all unread steps again at maximum capacity.

        Empties a dynamic cache.
        """
        _LOG.info(
            f"step {self._unread[0].number}: the mini-batch exceeds the observed capacity; "
            f"{len(self._unread)} steps are repeated with the maximum capacity"
        )
        training = self._streams.training
        training.mark().wait()
        training.run(self._records.resume)
        self._forget_rows()
        for step in self._unread:
            self._queue(step, exact=True, again=True)

    def _forget_rows(self) -> None:
        """Queue the emptying of a dynamic cache, if any, as batches will differ from its plan."""
        following = self._placed.following
        if following is not None:
            self._streams.reading.run(following.forget)

    @cached_property
    def _slots_again(self) -> tuple[StepSlot, ...]:
        """Two sets of buffers of maximum capacity for repeated steps, which update no cache."""
        return self._new_slots(bounded=False, again=True)

    def _new_slots(self, *, bounded: bool, again: bool = False) -> tuple[StepSlot, ...]:
        host, records = self._host, self._records
        reader = GraphPipeline(
            host, self._placed, self._engine, num_slots=NUM_SLOTS, bounded=bounded
        )
        replaced = None if again else records.replaced
        kernels = (records.kernels_of(max_seeds(host)) for _ in range(NUM_SLOTS))
        slots = tuple(StepSlot(i, reader, self.learner, k, replaced) for i, k in enumerate(kernels))
        slots[0].other, slots[1].other = slots[1], slots[0]
        self._engine.synchronize()  # buffers are initialized outside the streams that use them
        return slots
