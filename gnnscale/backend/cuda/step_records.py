"""Step records: memory by which the host and a device exchange a step's data asynchronously."""

import struct
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend.cuda.device_cache import MAX_MEMBERS
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.kernels import Kernels, or_null
from gnnscale.backend.cuda.row_gather import CacheUpdates
from gnnscale.backend.cuda.sampler_plan import State
from gnnscale.cache.belady import CacheUpdate
from gnnscale.core import Array

#: Records in the ring; more than the steps in flight.
NUM_RECORDS = 8
#: Words of a record, in the order of ``cuda/kernels/step.cu``.
_STEP, _RATE, _SEEDS = 0, 1, 2
_HALTED, _LOSS, _FIRST_TIME, _NUM_TIMES = 0, 1, 2, 6
_FIRST_STATE = _FIRST_TIME + _NUM_TIMES
_FIRST_COUNT = _FIRST_STATE + State.NUM_WORDS
#: Read counts of lists and of rows: one for each member of a clique, and one for the host.
_NUM_COUNTS = 2 * (MAX_MEMBERS + 1)
#: Words of a record that a slot copies: step, learning rate, index of the record.
_NUM_STEP_WORDS = 3


@dataclass(frozen=True, kw_only=True)
class DeviceReport:
    """Halt flag, loss, times, sample state and read counts that the device wrote after a step."""

    halted: bool  #: whether the step changed nothing: it or an earlier one exceeded its capacity
    loss: float
    times: tuple[int, ...]  #: nanoseconds of the device's clock; see ``seconds``
    state: list[int]  #: words of the sample's state; see ``State``
    read_counts: list[int]  #: list reads by location, then row reads, each if cached

    def seconds(self) -> dict[str, float]:
        """Return the seconds of stages sample, load, propagate and sync by the device's clock."""
        start, sampled, read, propagation_start, after, updated = self.times
        ends = {"sample": (start, sampled), "load": (sampled, read)}
        ends |= {"propagate": (propagation_start, after), "sync": (after, updated)}
        return {stage: (last - first) / 1e9 for stage, (first, last) in ends.items()}


class StepRecords:
    """Ring of step records in host memory, written by the host and read in order by the device.

    It also has the device's reports, and the halt flag and learning rate that all steps share.
    """

    def __init__(self, engine: Engine, max_seeds: int) -> None:
        self._engine = engine
        self._kernels = engine.kernels
        self.replaced: CacheUpdates | None = None  #: updates of a dynamic cache; set by ``follow``
        self._records = engine.shared((NUM_RECORDS, _SEEDS + max_seeds), torch.int64)
        self._reports = engine.shared((NUM_RECORDS, _FIRST_COUNT + _NUM_COUNTS), torch.int64)
        # NumPy views are cached, since creating one takes as long as a launch.
        self._record_words, self._reported_words = self._records.numpy(), self._reports.numpy()
        self._counter = torch.zeros(1, dtype=torch.int64, device=engine.device)
        self._control = torch.zeros(2, device=engine.device)
        self._num_records = 0

    @property
    def halted(self) -> torch.Tensor:
        """Halt flag on the device: 1 from a step with an invalid sample on, until ``resume``.

        A sample that exceeds its capacity is invalid. Halted steps do not change the weights.
        """
        return self._control[0]

    @property
    def rate(self) -> torch.Tensor:
        """Learning rate of the current step, float32 on the device."""
        return self._control[1]

    def resume(self) -> None:
        """Set ``halted`` to 0 on the current stream, so that later steps change weights again."""
        self.halted.zero_()

    def follow(self, capacity: int) -> None:
        """Allocate records of a dynamic cache's updates, of up to ``capacity`` rows per step."""
        records = self._engine.shared((NUM_RECORDS, 1 + 2 * capacity), torch.int32)
        self.replaced = CacheUpdates(records=records, capacity=capacity)
        self._replaced_words = records.numpy()

    def give(
        self, vertices: Array, step: int, rate: float, replaced: CacheUpdate | None = None
    ) -> int:
        """Write a step's record for the device, and return its index in the ring.

        ``vertices`` are the vertices to sample from, ``rate`` is the learning rate, ``replaced``
        the update of a dynamic cache. None: no update.
        """
        index = self._num_records % NUM_RECORDS
        self._num_records += 1
        record = self._record_words[index]
        record[_STEP] = step
        record[_RATE] = int.from_bytes(struct.pack("<f", rate), "little")
        record[_SEEDS : _SEEDS + len(vertices)] = vertices
        if self.replaced is not None:
            self._write_replaced(index, self.replaced.capacity, replaced)
        return index

    def _write_replaced(self, index: int, capacity: int, replaced: CacheUpdate | None) -> None:
        words = self._replaced_words[index]
        count = words[0] = 0 if replaced is None else len(replaced.slots)
        if replaced is not None:
            words[1 : 1 + count] = replaced.positions
            words[1 + capacity : 1 + capacity + count] = replaced.slots

    def reported(self, index: int) -> DeviceReport:
        """Return the device's report on the step with record ``index``.

        The caller has waited for the end of this step.
        """
        words: list[int] = self._reported_words[index].tolist()
        (loss,) = struct.unpack("<f", words[_LOSS].to_bytes(4, "little"))
        return DeviceReport(
            halted=words[_HALTED] != 0,
            loss=loss,
            times=tuple(words[_FIRST_TIME:_FIRST_STATE]),
            state=words[_FIRST_STATE:_FIRST_COUNT],
            read_counts=words[_FIRST_COUNT:],
        )

    def kernels_of(self, max_seeds: int) -> "StepKernels":
        """Return record kernels with device memory for a record of up to ``max_seeds`` seeds."""
        device = self._counter.device
        return StepKernels(
            seeds=torch.empty(max_seeds, dtype=torch.int64, device=device),
            words=torch.zeros(_NUM_STEP_WORDS, dtype=torch.int64, device=device),
            times=torch.zeros(_NUM_TIMES, dtype=torch.int64, device=device),
            records=self._records,
            reports=self._reports,
            counter=self._counter,
            control=self._control,
            kernels=self._kernels,
        )


@dataclass(frozen=True, kw_only=True)
class StepKernels:
    """Launcher of the kernels between a step's stages, with device memory for the step's record."""

    seeds: torch.Tensor  #: ``[max_seeds]`` int64
    words: torch.Tensor  #: int64 step of the run, bits of the learning rate, index of the record
    times: torch.Tensor  #: ``[6]`` int64 nanoseconds
    records: torch.Tensor  #: records written by the host
    reports: torch.Tensor  #: reports written by the device
    counter: torch.Tensor  #: ``[1]`` int64 number of records read
    control: torch.Tensor  #: float32 halt flag and learning rate, shared by all steps
    kernels: Kernels

    @property
    def step(self) -> torch.Tensor:
        """``[1]`` int64 step of the run, after ``take``."""
        return self.words[:1]

    @property
    def record_index(self) -> torch.Tensor:
        """``[1]`` int64 index of the record, after ``take``."""
        return self.words[_NUM_STEP_WORDS - 1 :]

    def take(self, num_seeds: int) -> None:
        """Launch the kernel that copies the next step's record to ``seeds`` and ``words``.

        ``num_seeds`` are the record's seeds. The kernel also stores the start time.
        """
        sizes = (np.int64(self.records.shape[1]), np.int64(NUM_RECORDS))
        outputs = (np.int64(num_seeds), self.words, self.seeds, self.times)
        self.kernels.launch("step_take", self.records, *sizes, self.counter, *outputs, grid=1)

    def sampled(self, state: torch.Tensor) -> None:
        """Launch the kernel that stores the time after sampling, and empties an invalid sample.

        ``state`` has the sample's sizes and first error, such as an exceeded capacity; see
        ``State``. A sample with an error gets 0 vertices and 0 edges.
        """
        self.kernels.launch("step_sampled", state, self.times, grid=1)

    def read(self) -> None:
        """Launch the kernel that stores the time after the input rows are read."""
        self._note(2)

    def begin(self, state: torch.Tensor) -> None:
        """Launch the kernel that begins training: it sets the learning rate and stores the time.

        It also halts the device if ``state`` has an error; see ``StepRecords.halted``.
        """
        self.kernels.launch("step_begin", state, self.words, self.control, self.times, grid=1)

    def propagated(self) -> None:
        """Launch the kernel that stores the time after gradients are computed."""
        self._note(4)

    def report(
        self,
        state: torch.Tensor,
        loss: torch.Tensor,
        lists: torch.Tensor | None,
        rows: torch.Tensor | None,
    ) -> None:
        """Launch the kernel that writes the step's report: halt flag, loss, times, state and reads.

        ``state`` has the sample's sizes and first error; see ``State``. ``lists`` and ``rows`` are
        int64 numbers of adjacency lists and of rows read, from each cache and then from the host.
        None: not cached.
        """
        counts = (np.int64(0 if reads is None else len(reads)) for reads in (lists, rows))
        self.kernels.launch(
            "step_report",
            *(state, np.int64(State.NUM_WORDS), or_null(lists), or_null(rows), *counts),
            *(self.words, self.times, loss, self.control),
            *(self.reports, np.int64(self.reports.shape[1])),
            grid=1,
        )

    def _note(self, which: int) -> None:
        self.kernels.launch("step_time", self.times, np.int32(which), grid=1)
