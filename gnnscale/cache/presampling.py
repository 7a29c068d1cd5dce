"""Mini-batches drawn again, or ahead of time, without being stored.

Sampling is a pure function of the run's seed and the step, so the batches of every step are known
before the run starts.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import TypeVar

from gnnscale.core import Array, Pipeline
from gnnscale.graph import Graph
from gnnscale.sampling import (
    InputFrontier,
    LaborSampler,
    MiniBatch,
    NeighborSampler,
    SamplerConfig,
    SeedOrder,
    StepSeeds,
)

_Kind = TypeVar("_Kind")
#: Batches on their way for each thread.
_AHEAD = 2
#: Batches without edges that a thread samples before it hands them over, which takes as long as a
#: small one.
_TOGETHER = 4


@dataclass(kw_only=True)
class PresampledBatch:
    """One device's mini-batch of one step."""

    step: int  #: the step's number in the run, from 0
    device: int  #: the device's position in the plan
    seeds: Array  #: its seeds
    batch: MiniBatch = field(init=False)  #: what was drawn for them


@dataclass(kw_only=True)
class PresampledInputs:
    """What one device's mini-batch of one step reads."""

    #: step, device, seeds: as in ``PresampledBatch``
    step: int
    device: int
    seeds: Array
    reach: InputFrontier = field(init=False)  #: what it reads


class Presampler:
    """Draws the mini-batches of a run's devices, several at once."""

    def __init__(
        self,
        graph: Graph,
        sampler: SamplerConfig,
        order: SeedOrder,
        *,
        split: Callable[[int], Sequence[int]],
        fixed: bool = False,
        seed: int,
        num_threads: int,
    ) -> None:
        """Prepare to draw.

        Args:
            graph: the graph that is sampled.
            sampler: options of the run's sampler.
            order: the seeds of every step of the run.
            split: returns each device's seeds in a step of so many; used if ``order`` leaves it
                open.
            fixed: whether the run is sure to split seeds in this way, in all of its steps.
            seed: the run's seed.
            num_threads: batches that are drawn at once, each by one thread.
        """
        self.graph = graph
        self.num_threads = num_threads
        self._order = order
        self._split = split
        self._fixed = fixed
        # A batch has one thread: many of them scale better than the threads of one.
        self._sampler = sampler.sampler(graph, seed=seed, num_threads=1)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every epoch."""
        return self._order.steps_per_epoch

    @property
    def exact(self) -> bool:
        """Whether each device is sure to get these seeds."""
        return self._fixed or not self._order.movable

    def epoch(
        self,
        epoch: int,
        *,
        devices: Container[int] | None = None,
        visit: Callable[[PresampledBatch], None] | None = None,
    ) -> Iterator[PresampledBatch]:
        """Yield the batches of ``epoch``, from 0, in the order of steps and devices.

        Devices without seeds in a step have no batch. Epochs beyond the run's end may be drawn.
        ``visit`` is called with each batch by the thread that drew it, several at once.
        """

        def sample(draw: PresampledBatch) -> None:
            draw.batch = self._sampler.sample(draw.seeds, draw.step)
            if visit is not None:
                visit(draw)

        yield from self._drawn(PresampledBatch, sample, self._slices(epoch), devices)

    def reaches(
        self, epoch: int, *, devices: Container[int] | None = None, num_steps: int | None = None
    ) -> Iterator[PresampledInputs]:
        """Yield what the batches of ``epoch``, or of its first steps, read, in the order of steps.

        For neighbour sampling and LABOR this is faster than drawing the batches.
        """
        sampler = self._sampler
        # A sampler that is derived from it may draw others.
        knows_reach = type(sampler) in (NeighborSampler, LaborSampler)

        def sample(reached: PresampledInputs) -> None:
            if knows_reach:
                assert isinstance(sampler, (NeighborSampler, LaborSampler))
                reached.reach = sampler.reach(reached.seeds, reached.step)
            else:
                reached.reach = InputFrontier.of(sampler.sample(reached.seeds, reached.step))

        steps = self._slices(epoch, num_steps)
        yield from self._drawn(PresampledInputs, sample, steps, devices, together=_TOGETHER)

    def first_step(self) -> Iterator[PresampledBatch]:
        """Yield the batches of the run's first step."""
        for step, device, seeds in self._slices(0, 1):
            draw = PresampledBatch(step=step, device=device, seeds=seeds)
            draw.batch = self._sampler.sample(draw.seeds, draw.step)
            yield draw

    def _drawn(
        self,
        kind: Callable[..., _Kind],
        sample: Callable[[_Kind], None],
        slices: Iterator[tuple[int, int, Array]],
        devices: Container[int] | None,
        together: int = 1,
    ) -> Iterator[_Kind]:
        """Yield ``slices`` in order after ``sample``; a thread samples ``together`` at once."""
        wanted = (
            kind(step=step, device=device, seeds=seeds)
            for step, device, seeds in slices
            if devices is None or device in devices
        )

        def sample_all(some: list[_Kind]) -> None:
            for each in some:
                sample(each)

        with Pipeline(
            iter(lambda: list(islice(wanted, together)), []),
            [[sample_all]],
            limit=_AHEAD * self.num_threads,
            num_threads=self.num_threads,
            adaptive=False,
        ) as drawn:
            for some in drawn:
                yield from some

    def _slices(self, epoch: int, num_steps: int | None = None) -> Iterator[tuple[int, int, Array]]:
        """Yield step, device and seeds of the batches of ``epoch``, or of its first steps."""
        first = epoch * self._order.steps_per_epoch
        for step, each in enumerate(islice(self._order.epoch(epoch), num_steps), first):
            counts = self._counts(each)
            for device, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
                if count:
                    yield step, device, each.seeds[end - count : end]

    def _counts(self, step: StepSeeds) -> Sequence[int]:
        return self._split(len(step.seeds)) if step.counts is None else step.counts
