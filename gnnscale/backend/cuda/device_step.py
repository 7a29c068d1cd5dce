"""Device-driven step: its memory, its stages, and its handle on the host."""

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
    """Device memory of every second step, and the stages that use it.

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
        """Wrap slot ``number`` of ``reader``; without updates (None) the cache is static."""
        self._number = number
        self._reader = reader
        self._learner = learner
        self._kernels = kernels
        self._replaced = replaced
        #: slot of the previous and of the next step
        self.other: StepSlot | None = None
        self._sample: DeviceSample | None = None
        #: last batch read, and the batch of the recording for each number of seeds
        self._read: tuple[CudaBatch, Inputs] | None = None
        self._recorded: dict[int, tuple[CudaBatch, Inputs]] = {}
        self._captured: dict[Hashable, CapturedWork] = {}
        self._warmed_up: set[Hashable] = set()

    def largest_sizes(self, num_seeds: int) -> SampleSizes:
        """Return the maximum sizes of a sample of ``num_seeds`` seeds."""
        return self._reader.largest_sizes(num_seeds)

    def exchanged_bytes(self, width: int) -> tuple[int, int]:
        """Return the bytes of rows and of blocks that a step receives from peers (P3)."""
        return self._reader.exchanged_bytes(width)

    def read_counts(self, counts: list[int]) -> ReadCounts:
        """Split reported read counts into reads of adjacency lists and of rows, by location."""
        lists, rows = self.current_sample.list_reads, self._reader.row_reads(self._number)
        num_lists = 0 if lists is None else len(lists)
        num_rows = 0 if rows is None else len(rows)
        row_counts = counts[num_lists : num_lists + num_rows]
        if self._reader.placed.following is not None:
            # Rows of the previous batch (Match) are device reads, as cached rows are.
            row_counts = [sum(row_counts[:-1]), row_counts[-1]]
        return ReadCounts(lists=tuple(counts[:num_lists]), rows=tuple(row_counts))

    def sample(self, seeds: DeviceSeeds) -> None:
        """Read the step's record, and sample; on a stream."""
        count = len(seeds.vertices)
        self._kernels.take(count)
        self._sample = self._reader.sample(
            self._kernels.seeds[:count], self._kernels.step, seeds, slot=self._number
        )
        self._kernels.sampled(self._sample.state)

    def load(self, seeds: DeviceSeeds, step: int, sizes: SampleSizes) -> None:
        """Read the first layer's input, and update a dynamic cache; on a stream."""
        batch = self._reader.batch(self.current_sample, seeds, sizes, step=step)
        self._read = (batch, self._reader.load(batch, slot=self._number))
        if self._replaced is not None:
            previous = None if self.other is None else self.other._sample
            self._reader.replace(
                self._replaced,
                self._kernels.record_index,
                self.current_sample,
                previous,
                self._number,
            )
        self._kernels.read()

    def train(self, seeds: DeviceSeeds, part: StepPart, *, rate: float, recorded: bool) -> None:
        """Propagate, update the weights, and report; on a stream.

        Args:
            rate: learning rate on the host.
            recorded: whether to train the batch stored by ``keep`` instead of the last batch read.
        """
        inputs_read = self._recorded[seeds.count] if recorded else self._read
        assert inputs_read is not None
        batch, inputs = inputs_read
        self._kernels.begin(self.current_sample.state)
        inputs = self._reader.exchange(batch, inputs)
        loss = self._learner.backward(batch.again(), inputs, seeds.count / part.num_seeds)
        self._kernels.propagated()
        self._learner.finish(part.pending, part.num_seeds, updates=part.updates, rate=rate)
        self._kernels.report(
            self.current_sample.state,
            loss.float().reshape(1),
            self.current_sample.list_reads,
            self._reader.row_reads(self._number),
        )

    def keep(self, seeds: DeviceSeeds) -> None:
        """Store the last batch read as the batch of the recording; on a stream."""
        assert self._read is not None
        self._recorded[seeds.count] = self._read

    def do(self, stream: Stream, key: Hashable, work: Callable[[], object]) -> None:
        """Queue ``work``, which for equal ``key`` differs only in the step's record.

        The first call warms up libraries, the second records, later calls replay the recording.
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
        """Drop all recordings, after a change of their memory."""
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
    """Role of a mini-batch in its update."""

    num_seeds: int  #: seeds of the mini-batch over all devices
    pending: DeviceGradientAccumulator  #: earlier mini-batches of the same update
    updates: bool  #: whether the mini-batch is the last one before the update


@dataclass(frozen=True, kw_only=True)
class ReadCounts:
    """Number of reads by location: each member of the clique, then the host. Empty: no cache."""

    lists: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


class Outcomes(Protocol):
    """Source of step outcomes."""

    def outcome(self, step: DeviceStepHandle) -> BatchOutcome:
        """Wait for ``step``, and return its outcome."""


class DeviceStepHandle:
    """Handle of a step of the run, whose outcome arrives later."""

    def __init__(
        self, outcomes: Outcomes, seeds: DeviceSeeds, number: int, *, rate: float, part: StepPart
    ) -> None:
        self.seeds = seeds
        self.number = number
        self.rate = rate
        self.part = part
        self.record_index = 0  #: index of its record
        self.done: Event | None = None  #: mark after the step
        self._outcomes = outcomes
        self._outcome: BatchOutcome | None = None

    @property
    def ready(self) -> bool:
        """Whether ``read`` returns without waiting."""
        return self.done is not None and self.done.is_done

    def read(self) -> BatchOutcome:
        """Wait for the step, and return its outcome."""
        if self._outcome is None:
            self._outcome = self._outcomes.outcome(self)
        return self._outcome
