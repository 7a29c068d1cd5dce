"""A step that a device does by itself: its memory, its parts, and the host's side of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from gnnscale.backend.base import BatchOutcome
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.backend.cuda.capacity import SampleSizes
from gnnscale.backend.cuda.device_model import DeviceGradientAccumulator, DeviceModel
from gnnscale.backend.cuda.device_sample import DeviceSample, DeviceSeeds
from gnnscale.backend.cuda.dynamic_cache import CacheUpdates
from gnnscale.backend.cuda.graph_reader import GraphPipeline
from gnnscale.backend.cuda.step_records import StepKernels
from gnnscale.backend.cuda.streams import CapturedWork, Event, Stream
from gnnscale.nn import Inputs


class StepSlot:
    """The device's memory of every second step, and what is done with it.

    Sample and rows of a slot lie at fixed addresses, so that a step can be repeated as it was
    recorded: only what the device reads from the step's record is another one.
    """

    def __init__(
        self,
        number: int,
        reader: GraphPipeline,
        learner: DeviceModel,
        kernels: StepKernels,
        replaced: CacheUpdates | None,
    ) -> None:
        """Take slot ``number`` of ``reader``.

        Args:
            replaced: what enters a cache; None if none follows the batches.
        """
        self._number = number
        self._reader = reader
        self._learner = learner
        self._kernels = kernels
        self._replaced = replaced
        #: the slot of the steps before and after
        self.other: StepSlot | None = None
        self._sample: DeviceSample | None = None
        #: what was read last, and by number of seeds what a recording of reading reads
        self._read: tuple[CudaBatch, Inputs] | None = None
        self._recorded: dict[int, tuple[CudaBatch, Inputs]] = {}
        self._captured: dict[Hashable, CapturedWork] = {}
        self._known: set[Hashable] = set()

    def largest_sizes(self, num_seeds: int) -> SampleSizes:
        """Return what the sample of so many seeds may have at most."""
        return self._reader.largest_sizes(num_seeds)

    def exchanged_bytes(self, width: int) -> tuple[int, int]:
        """Return the bytes of rows and of blocks that a step receives from peers (P3)."""
        return self._reader.exchanged_bytes(width)

    def places(self, found: list[int]) -> ReadCounts:
        """Return reads by place, as they were reported: those of lists, then those of rows."""
        lists, rows = self.drawn.found_lists, self._reader.found_rows(self._number)
        num_lists = 0 if lists is None else len(lists)
        num_rows = 0 if rows is None else len(rows)
        of_rows = found[num_lists : num_lists + num_rows]
        if self._reader.placed.following is not None:
            of_rows = [sum(of_rows[:-1]), of_rows[-1]]  # what gathers have left is on the device
        return ReadCounts(lists=tuple(found[:num_lists]), rows=tuple(of_rows))

    def sample(self, seeds: DeviceSeeds) -> None:
        """Take the step's record, and sample; on a stream."""
        count = len(seeds.vertices)
        self._kernels.take(count)
        self._sample = self._reader.sample(
            self._kernels.seeds[:count], self._kernels.step, seeds, slot=self._number
        )
        self._kernels.sampled(self._sample.state)

    def load(self, seeds: DeviceSeeds, step: int, sizes: SampleSizes) -> None:
        """Read what the first layer needs; on a stream."""
        batch = self._reader.batch(self.drawn, seeds, sizes, step=step)
        self._read = (batch, self._reader.load(batch, slot=self._number))
        if self._replaced is not None:
            before = None if self.other is None else self.other._sample
            self._reader.replace(
                self._replaced, self._kernels.place, self.drawn, before, self._number
            )
        self._kernels.read()

    def train(
        self,
        seeds: DeviceSeeds,
        part: StepPart,
        *,
        rate: float,
        recorded: bool,
    ) -> None:
        """Propagate, update the weights, and report; on a stream.

        Args:
            part: what the seeds are of the mini-batch, and that of the update.
            rate: learning rate, as the host knows it.
            recorded: whether the step takes what ``keep`` kept, and not what was read last.
        """
        found = self._recorded[seeds.count] if recorded else self._read
        assert found is not None
        batch, inputs = found
        self._kernels.begin(self.drawn.state)
        inputs = self._reader.exchange(batch, inputs)
        loss = self._learner.backward(batch.again(), inputs, seeds.count / part.num_seeds)
        self._kernels.propagated()
        self._learner.finish(part.before, part.num_seeds, updates=part.updates, rate=rate)
        self._kernels.report(
            self.drawn.state,
            loss.float().reshape(1),
            self.drawn.found_lists,
            self._reader.found_rows(self._number),
        )

    def keep(self, seeds: DeviceSeeds) -> None:
        """Take what was just read as what is read whenever this is repeated; on a stream."""
        assert self._read is not None
        self._recorded[seeds.count] = self._read

    def do(self, stream: Stream, key: Hashable, work: Callable[[], object]) -> None:
        """Queue ``work``, which is the same for each ``key`` but for the step's record.

        The first time warms up what libraries need, the second records, others repeat that.
        """
        captured = self._captured.get(key)
        if captured is not None:
            captured.replay()
        elif key in self._known:
            self._captured[key] = stream.capture(work)
        else:
            self._known.add(key)
            stream.run(work)

    def forget(self) -> None:
        """Forget what was recorded: memory that it used is another."""
        self._captured.clear()
        self._known.clear()
        self._recorded.clear()

    @property
    def drawn(self) -> DeviceSample:
        """The sample."""
        assert self._sample is not None
        return self._sample


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """A mini-batch as a part of its update."""

    num_seeds: int  #: of the mini-batch, over all devices
    before: DeviceGradientAccumulator  #: mini-batches that count for the same update
    updates: bool  #: whether the weights are updated after it


@dataclass(frozen=True, kw_only=True)
class ReadCounts:
    """Reads by place: each member of the clique, and last the host; empty without a cache."""

    lists: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


class Outcomes(Protocol):
    """What waits for a step."""

    def outcome(self, step: DeviceStepHandle) -> BatchOutcome:
        """Wait for ``step``, and return its outcome."""
        ...


class DeviceStepHandle:
    """One step on its way, as the host knows it: its outcome comes late."""

    def __init__(
        self,
        outcomes: Outcomes,
        seeds: DeviceSeeds,
        number: int,
        *,
        rate: float,
        part: StepPart,
    ) -> None:
        """Know a step that is to be started.

        Args:
            number: of the step in the run.
            rate: learning rate.
            part: of its update.
        """
        self.seeds = seeds
        self.number = number
        self.rate = rate
        self.part = part
        self.place = 0  #: of its record
        self.done: Event | None = None  #: after all of it
        self._outcomes = outcomes
        self._outcome: BatchOutcome | None = None

    @property
    def ready(self) -> bool:
        """Whether ``read`` would return at once."""
        return self.done is not None and self.done.reached

    def read(self) -> BatchOutcome:
        """Wait for the step, and return its outcome."""
        if self._outcome is None:
            self._outcome = self._outcomes.outcome(self)
        return self._outcome
