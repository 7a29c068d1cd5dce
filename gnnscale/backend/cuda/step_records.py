"""Memory through which the host and a device hand each other a step, without waiting."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda.device_cache import MAX_MEMBERS
from gnnscale.backend.cuda.dynamic_cache import CacheUpdates
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.kernels import Kernels, or_null
from gnnscale.backend.cuda.sampler_plan import State
from gnnscale.cache.belady import CacheUpdate
from gnnscale.core import Array

#: Steps whose records are kept: more than can be on their way.
NUM_RECORDS = 8
#: Words of a record, in the order of ``cuda/kernels/step.cu``.
_STEP, _RATE, _SEEDS = 0, 1, 2
_HALTED, _LOSS, _FIRST_TIME, _NUM_TIMES = 0, 1, 2, 6
_FIRST_STATE = _FIRST_TIME + _NUM_TIMES
_FIRST_FOUND = _FIRST_STATE + State.NUM_WORDS
#: Places of lists, and of rows: members of a clique, and the host.
_NUM_FOUND = 2 * (MAX_MEMBERS + 1)
#: Words that the device keeps of a record: step, learning rate, place of the record.
_KEPT = 3


@dataclass(frozen=True, kw_only=True)
class DeviceReport:
    """What the device reports of a step that is done."""

    halted: bool  #: whether it changed nothing, since it or a step before it found no room
    loss: float
    times: tuple[int, ...]  #: nanoseconds of the device's clock; see ``seconds``
    state: list[int]  #: words of the sample's state; see ``State``
    found: list[int]  #: reads of lists by place, then those of rows, if there are caches of them

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage by the device's clock."""
        begun, sampled, read, before, after, updated = self.times
        ends = {"sample": (begun, sampled), "load": (sampled, read)}
        ends |= {"propagate": (before, after), "sync": (after, updated)}
        return {stage: (last - first) / 1e9 for stage, (first, last) in ends.items()}


class StepRecords:
    """Records of the steps on their way, and what all steps share on the device.

    The device counts the steps by itself: a launch that is repeated as it was recorded takes the
    record that comes next.
    """

    def __init__(self, engine: Engine, max_seeds: int) -> None:
        """Make room for ``NUM_RECORDS`` steps of up to ``max_seeds`` seeds."""
        self._engine = engine
        self._kernels = engine.kernels
        self.replaced: CacheUpdates | None = (
            None  #: what enters a cache, once ``follow`` was called
        )
        self._given = engine.shared((NUM_RECORDS, _SEEDS + max_seeds), torch.int64)
        self._reports = engine.shared((NUM_RECORDS, _FIRST_FOUND + _NUM_FOUND), torch.int64)
        # Looked at as arrays once: making a view of a tensor takes as long as a launch.
        self._given_words, self._reported_words = self._given.numpy(), self._reports.numpy()
        self._counter = torch.zeros(1, dtype=torch.int64, device=engine.device)
        self._control = torch.zeros(2, device=engine.device)
        self._num_given = 0

    @property
    def halted(self) -> torch.Tensor:
        """1 on the device once a sample was worth nothing: steps change nothing from there on."""
        return self._control[0]

    @property
    def rate(self) -> torch.Tensor:
        """The learning rate of the step that is trained, float32 on the device."""
        return self._control[1]

    def resume(self) -> None:
        """Let steps change weights again; on a stream."""
        self.halted.zero_()

    def follow(self, capacity: int) -> None:
        """Let records say which rows enter a cache, up to ``capacity`` a step."""
        records = self._engine.shared((NUM_RECORDS, 1 + 2 * capacity), torch.int32)
        self.replaced = CacheUpdates(records=records, capacity=capacity)
        self._replaced_words = records.numpy()

    def give(
        self, vertices: Array, step: int, rate: float, replaced: CacheUpdate | None = None
    ) -> int:
        """Write the next record, and return its place.

        Args:
            vertices: ``[n]`` seeds.
            replaced: what enters a cache; None for nothing.
        """
        place = self._num_given % NUM_RECORDS
        self._num_given += 1
        record = self._given_words[place]
        record[_STEP] = step
        record[_RATE] = int.from_bytes(struct.pack("<f", rate), "little")
        record[_SEEDS : _SEEDS + len(vertices)] = vertices
        if self.replaced is not None:
            self._write_replaced(place, self.replaced.capacity, replaced)
        return place

    def _write_replaced(self, place: int, capacity: int, replaced: CacheUpdate | None) -> None:
        words = self._replaced_words[place]
        count = words[0] = 0 if replaced is None else len(replaced.slots)
        if replaced is not None:
            words[1 : 1 + count] = replaced.positions
            words[1 + capacity : 1 + capacity + count] = replaced.slots

    def reported(self, place: int) -> DeviceReport:
        """Return the report of a step, whose last mark was waited for."""
        words: list[int] = self._reported_words[place].tolist()
        (loss,) = struct.unpack("<f", words[_LOSS].to_bytes(4, "little"))
        return DeviceReport(
            halted=words[_HALTED] != 0,
            loss=loss,
            times=tuple(words[_FIRST_TIME:_FIRST_STATE]),
            state=words[_FIRST_STATE:_FIRST_FOUND],
            found=words[_FIRST_FOUND:],
        )

    def kernels_of(self, max_seeds: int) -> StepKernels:
        """Return the kernels of a slot, whose seeds are up to ``max_seeds``."""
        device = self._counter.device
        return StepKernels(
            seeds=torch.empty(max_seeds, dtype=torch.int64, device=device),
            words=torch.zeros(_KEPT, dtype=torch.int64, device=device),
            times=torch.zeros(_NUM_TIMES, dtype=torch.int64, device=device),
            given=self._given,
            reports=self._reports,
            counter=self._counter,
            control=self._control,
            kernels=self._kernels,
        )


@dataclass(frozen=True, kw_only=True)
class StepKernels:
    """The kernels at the border of a step, and the device's memory of it."""

    seeds: torch.Tensor  #: ``[max_seeds]`` int64
    words: torch.Tensor  #: int64 step of the run, bits of the learning rate, place of the record
    times: torch.Tensor  #: ``[6]`` int64 nanoseconds
    given: torch.Tensor  #: records of the host, which kernels read
    reports: torch.Tensor  #: records of the device
    counter: torch.Tensor  #: ``[1]`` int64 records that were taken
    control: torch.Tensor  #: what all steps share
    kernels: Kernels

    @property
    def step(self) -> torch.Tensor:
        """``[1]`` int64: the step of the run, once it was taken."""
        return self.words[:1]

    @property
    def place(self) -> torch.Tensor:
        """``[1]`` int64: the place of the record, once it was taken."""
        return self.words[_KEPT - 1 :]

    def take(self, num_seeds: int) -> None:
        """Take the next record, and begin."""
        self.kernels.launch(
            "step_take",
            self.given,
            np.int64(self.given.shape[1]),
            np.int64(NUM_RECORDS),
            self.counter,
            np.int64(num_seeds),
            self.words,
            self.seeds,
            self.times,
            grid=1,
        )

    def sampled(self, state: torch.Tensor) -> None:
        """Note the time; empty a sample that is worth nothing."""
        self.kernels.launch("step_sampled", state, self.times, grid=1)

    def read(self) -> None:
        """Note that input rows were read."""
        self._note(2)

    def begin(self, state: torch.Tensor) -> None:
        """Begin to train on a sample."""
        self.kernels.launch("step_begin", state, self.words, self.control, self.times, grid=1)

    def propagated(self) -> None:
        """Note that gradients are there."""
        self._note(4)

    def report(
        self,
        state: torch.Tensor,
        loss: torch.Tensor,
        lists: torch.Tensor | None,
        rows: torch.Tensor | None,
    ) -> None:
        """Report the step.

        Args:
            loss: ``[1]`` float32.
            lists, rows: int64 reads by place; None without a cache of them.
        """
        self.kernels.launch(
            "step_report",
            state,
            np.int64(State.NUM_WORDS),
            or_null(lists),
            or_null(rows),
            np.int64(0 if lists is None else len(lists)),
            np.int64(0 if rows is None else len(rows)),
            self.words,
            self.times,
            loss,
            self.control,
            self.reports,
            np.int64(self.reports.shape[1]),
            grid=1,
        )

    def _note(self, which: int) -> None:
        self.kernels.launch("step_time", self.times, np.int32(which), grid=1)
