"""A step that a device does by itself, and the host memory through which its outcome comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from gnnscale.backend.base import BatchOutcome
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.backend.cuda.device_sample import DeviceSample, SampleSizes
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.learner import Learner
from gnnscale.backend.cuda.reader import GraphReader
from gnnscale.backend.cuda.sampler_plan import State
from gnnscale.backend.cuda.seeds import StepSeeds
from gnnscale.backend.cuda.streams import Mark
from gnnscale.model import Inputs


@dataclass(frozen=True, kw_only=True)
class StagingSlot:
    """Host memory of one step that copies do not wait for, and the seeds on the device."""

    host_seeds: torch.Tensor  #: ``[max_seeds]`` int64, pinned
    seeds: torch.Tensor  #: ``[max_seeds]`` int64 on the device
    state: torch.Tensor  #: int64, pinned: that of the sample; see ``State``
    loss: torch.Tensor  #: ``[1]`` float32, pinned


class Staging:
    """Slots of steps, each of which one step has until its outcome was read."""

    def __init__(self, engine: Engine, max_seeds: int) -> None:
        """Make none yet."""
        self._engine = engine
        self._max_seeds = max_seeds
        self._free: list[StagingSlot] = []

    def take(self) -> StagingSlot:
        """Return a slot that nobody has."""
        return self._free.pop() if self._free else self._new()

    def give_back(self, slot: StagingSlot) -> None:
        """Let others have a slot."""
        self._free.append(slot)

    def _new(self) -> StagingSlot:
        engine, size = self._engine, self._max_seeds
        return StagingSlot(
            host_seeds=engine.pinned(size, torch.int64),
            # Not cleared: that would be done outside of the stream that writes it.
            seeds=torch.empty(size, dtype=torch.int64, device=engine.device),
            state=engine.pinned(State.NUM_WORDS, torch.int64),
            loss=engine.pinned(1, torch.float32),
        )


class _Outcomes(Protocol):
    def outcome(self, step: OwnStep) -> BatchOutcome: ...


class OwnStep:
    """One step on its way: its parts are queued one after the other; its outcome comes late.

    Attributes:
        seeds: as the host knows them.
        number: of the step in the run.
        marks: before sampling, after it, after reading; before propagation, after it, and after
            the update.
    """

    def __init__(
        self, outcomes: _Outcomes, staging: Staging, seeds: StepSeeds, number: int
    ) -> None:
        """Stage the seeds."""
        self.seeds = seeds
        self.number = number
        self.marks: list[Mark] = []
        self._outcomes = outcomes
        self._staging = staging
        self._slot = staging.take()
        self._slot.host_seeds[: len(seeds.vertices)] = torch.from_numpy(seeds.vertices)
        self._sample: DeviceSample | None = None
        self._batch: CudaBatch | None = None
        self._inputs: Inputs | None = None
        self._outcome: BatchOutcome | None = None

    @property
    def ready(self) -> bool:
        """Whether ``read`` would return at once."""
        return self.marks[-1].reached

    def read(self) -> BatchOutcome:
        """Wait for the step, and return its outcome."""
        if self._outcome is None:
            self._outcome = self._outcomes.outcome(self)
            self.give_back()
        return self._outcome

    def give_back(self) -> None:
        """Free the slot; nothing of the step is read any more."""
        self._staging.give_back(self._slot)

    def sample(self, reader: GraphReader) -> None:
        """Copy the seeds to the device, and sample; on a stream."""
        count = len(self.seeds.vertices)
        seeds = self._slot.seeds[:count]
        seeds.copy_(self._slot.host_seeds[:count], non_blocking=True)
        self._sample = reader.sample(seeds, self.number, self.seeds)
        self._slot.state.copy_(self._sample.state, non_blocking=True)

    def sizes(self) -> SampleSizes:
        """Return the sizes of the sample, whose mark was waited for."""
        return self._drawn.sizes_in(self._slot.state)

    def batch(self, reader: GraphReader, sizes: SampleSizes) -> CudaBatch:
        """Return the sample as a mini-batch; on a stream."""
        return reader.batch(self._drawn, self.seeds, sizes)

    def read_rows(self, reader: GraphReader, sizes: SampleSizes) -> None:
        """Read what the first layer needs; on a stream."""
        self._batch = self.batch(reader, sizes)
        self._inputs = reader.load(self._batch)

    def propagate(self, learner: Learner) -> None:
        """Compute gradients; on a stream."""
        assert self._batch is not None
        assert self._inputs is not None
        loss = learner.backward(self._batch, self._inputs, 1.0)
        self._slot.loss.copy_(loss.reshape(1), non_blocking=True)
        learner.accumulate(self.seeds.count)

    def update(self, learner: Learner, rate: float | None) -> None:
        """Update the weights at ``rate``, if it is not None; on a stream."""
        if rate is not None:
            learner.update(rate)

    @property
    def loss(self) -> float:
        """The loss, once the step is done."""
        return float(self._slot.loss)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage by the device's clock, once the step is done."""
        began, sampled, read, before, after, updated = self.marks
        return {
            "sample": sampled.seconds_since(began),
            "load": read.seconds_since(sampled),
            "propagate": after.seconds_since(before),
            "sync": updated.seconds_since(after),
        }

    @property
    def _drawn(self) -> DeviceSample:
        assert self._sample is not None
        return self._sample
