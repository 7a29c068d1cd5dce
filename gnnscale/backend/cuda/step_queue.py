"""Steps that a device does by itself, as CUDA graphs if it can, and again if one found no room."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from functools import cached_property

import torch

from gnnscale.backend.base import BackendInputs
from gnnscale.backend.cuda.capacity import SampleSizes
from gnnscale.backend.cuda.device_model import DeviceGradientAccumulator, DeviceModel
from gnnscale.backend.cuda.device_sample import DeviceSeeds, max_seeds, seeds_of
from gnnscale.backend.cuda.device_step import (
    DeviceStepHandle,
    Outcomes,
    ReadCounts,
    StepPart,
    StepSlot,
)
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.graph_reader import GraphPipeline
from gnnscale.backend.cuda.placement import ResidentGraph
from gnnscale.backend.cuda.step_records import NUM_RECORDS, DeviceReport, StepRecords
from gnnscale.backend.cuda.streams import DeviceStreams, Event, Stream
from gnnscale.core import Array, one_line

_LOG = logging.getLogger(__name__)

#: Steps whose sample and rows are kept at a time: one is trained while the next is read.
NUM_SLOTS = 2


class StepQueue:
    """Starts steps without waiting for them.

    A step is two pieces of work: reading, which samples and brings the rows, and training. A
    mini-batch of the usual size does both as they were recorded (CUDA graphs). Their arrays have
    the room that mini-batches need by trial; a sample that finds no room halts the device, and the
    host does that step and those after it again, with all the room that there can be.

    Mini-batches of other sizes, and predicted edges, are queued piece by piece. If neither fan-outs
    nor layers bound a mini-batch, or code of a user's computes, the host waits for each sample's
    sizes, while the device trains the step before.
    """

    def __init__(
        self,
        host: BackendInputs,
        placed: ResidentGraph,
        engine: Engine,
        streams: DeviceStreams,
        *,
        exact: bool,
        captures: bool,
        own_code: bool,
    ) -> None:
        """Make room for two steps.

        Args:
            exact: whether the host waits for the sizes of each sample.
            captures: whether steps are recorded.
            own_code: whether code that may wait for the device computes the step.
        """
        self._host = host
        self._placed = placed
        self._engine = engine
        self._streams = streams
        self._captures = captures
        self._records = StepRecords(engine, max_seeds(host))
        self.learner = DeviceModel(host, engine, self._records)
        # An optimizer that counts its steps on the host is waited for, as code of a user's is.
        self._waits = own_code or not self.learner.is_fused
        self._is_exact = exact or self._waits
        if placed.following is not None:
            self._records.follow(len(placed.following.rows))
        self._slots = self._new_slots(bounded=not self._is_exact)
        #: marks after the training of the last steps: a slot is free once its own was reached
        self._trained: deque[Event] = deque(maxlen=NUM_SLOTS)
        self._num_started = 0
        #: steps whose outcome was not read, in their order
        self._unread: deque[DeviceStepHandle] = deque()
        self._accumulated = DeviceGradientAccumulator()
        #: seeds of the largest slice, which most have
        self._usual = 1

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
        """Start a step; see ``StepOwner.train``.

        Args:
            outcomes: makes the step's outcome of what is ``reported``.
        """
        started = DeviceStepHandle(
            outcomes,
            seeds_of(self._host, seeds, step),
            step,
            rate=rate,
            part=StepPart(num_seeds=num_seeds, before=self._accumulated, updates=updates),
        )
        self._accumulated = (
            DeviceGradientAccumulator() if updates else self._accumulated + num_seeds
        )
        self._usual = max(self._usual, started.seeds.count)
        assert len(self._unread) < NUM_RECORDS
        self._queue(started, exact=self._is_exact, again=False)
        self._unread.append(started)
        return started

    def reported(self, step: DeviceStepHandle) -> tuple[DeviceReport, SampleSizes, ReadCounts]:
        """Wait for a step, and return what the device reports of it.

        Raises:
            ValueError, GraphError: the sample is wrong.
        """
        found = self._wait(step)
        if found.halted:
            self._repeat()
            found = self._wait(step)
        assert self._unread.popleft() is step, "outcomes are read in the order of steps"
        slot = self._slots[0]
        return found, slot.drawn.sizes_in(found.state), slot.places(found.found)

    def exchanged_bytes(self, width: int) -> tuple[int, int]:
        """Return the bytes of rows and of blocks that a step receives from peers (P3)."""
        return self._slots[0].exchanged_bytes(width)

    def forget(self) -> None:
        """Forget what was recorded, and what waits for an update; the device is idle."""
        self._accumulated = DeviceGradientAccumulator()
        self._unread.clear()
        self._forget_rows()
        for each in self._slots:
            each.forget()

    def _queue(self, step: DeviceStepHandle, *, exact: bool, again: bool) -> None:
        """Queue a step, for the first time or again."""
        reading, training = self._streams.reading, self._streams.training
        slot = (self._slots_again if again else self._slots)[self._num_started % NUM_SLOTS]
        self._num_started += 1
        if len(self._trained) == NUM_SLOTS:
            # The step that had the slot must be done; so must those that free its memory.
            reading.wait_for(self._trained[0])
        replaced = None
        if not again and self._host.cache.replay is not None:
            replaced = self._host.cache.replay.take()
        step.place = self._records.give(step.seeds.vertices, step.number, step.rate, replaced)
        repeats = not exact and self._repeats(step.seeds)
        if exact:
            self._read_exactly(slot, step)
        else:
            self._read(slot, step, repeats=repeats)
        training.wait_for(reading.mark())
        self._train(slot, step, repeats=repeats)
        step.done = training.mark()
        self._trained.append(step.done)

    def _repeats(self, seeds: DeviceSeeds) -> bool:
        """Whether a step differs from others by its record alone."""
        return self._captures and seeds.edges is None and seeds.count == self._usual

    def _read(self, slot: StepSlot, step: DeviceStepHandle, *, repeats: bool) -> None:
        seeds, number = step.seeds, step.number
        sizes = slot.largest_sizes(len(seeds.vertices))

        def work() -> None:
            slot.sample(seeds)
            slot.load(seeds, number, sizes)
            if repeats:
                slot.keep(seeds)

        if repeats:
            self._do(slot, self._streams.reading, ("read", seeds.count), work)
        else:
            self._streams.reading.run(work)

    def _read_exactly(self, slot: StepSlot, step: DeviceStepHandle) -> None:
        """Wait for a sample's sizes, and read as many rows."""
        reading, seeds, number = self._streams.reading, step.seeds, step.number
        reading.run(lambda: slot.sample(seeds))
        reading.mark().wait()
        sizes = slot.drawn.sizes()
        reading.run(lambda: slot.load(seeds, number, sizes))

    def _train(self, slot: StepSlot, step: DeviceStepHandle, *, repeats: bool) -> None:
        seeds, part, rate = step.seeds, step.part, step.rate

        def work() -> None:
            slot.train(seeds, part, rate=rate, recorded=repeats)

        if repeats:
            self._do(slot, self._streams.training, (part, seeds.count), work)
        else:
            self._streams.training.run(work, waits=self._waits)

    def _do(
        self, slot: StepSlot, stream: Stream, key: Hashable, work: Callable[[], object]
    ) -> None:
        """Queue work that is recorded; if it cannot be, piece by piece from now on."""
        if not self._captures:
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
            self._captures = False
            self.learner.take_gradients()
            stream.run(work)

    def _wait(self, step: DeviceStepHandle) -> DeviceReport:
        assert step.done is not None
        step.done.wait()
        return self._records.reported(step.place)

    def _repeat(self) -> None:
        """Do all steps whose outcome was not read once more: the first of them found no room."""
        _LOG.info(
            f"step {self._unread[0].number}: the mini-batch is larger than those of the rehearsal; "
            f"{len(self._unread)} steps are done again with more room"
        )
        training = self._streams.training
        training.mark().wait()
        training.run(self._records.resume)
        self._forget_rows()
        for step in self._unread:
            self._queue(step, exact=True, again=True)

    def _forget_rows(self) -> None:
        """Empty a cache that follows the batches: those that were read are others."""
        following = self._placed.following
        if following is not None:
            self._streams.reading.run(following.forget)

    @cached_property
    def _slots_again(self) -> tuple[StepSlot, ...]:
        """Slots with all the room that a mini-batch may need, which change no cache."""
        return self._new_slots(bounded=False, again=True)

    def _new_slots(self, *, bounded: bool, again: bool = False) -> tuple[StepSlot, ...]:
        reader = GraphPipeline(
            self._host, self._placed, self._engine, num_slots=NUM_SLOTS, bounded=bounded
        )
        kernels = [self._records.kernels_of(max_seeds(self._host)) for _ in range(NUM_SLOTS)]
        replaced = None if again else self._records.replaced
        made = tuple(
            StepSlot(number, reader, self.learner, each, replaced)
            for number, each in enumerate(kernels)
        )
        made[0].other, made[1].other = made[1], made[0]
        self._engine.synchronize()  # buffers were cleared outside of the streams that use them
        return made
