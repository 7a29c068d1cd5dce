"""Presampling: mini-batches of a run sampled before or besides training, without being stored.

Sampling is a pure function of the run's seed and the step, so all batches are known beforehand.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from gnnscale.core import Array, Pipeline
from gnnscale.graph import Graph
from gnnscale.sampling import (
    InputFrontier,
    LaborSampler,
    MiniBatch,
    NeighborSampler,
    SamplerConfig,
    SeedOrder,
)

#: Batches in flight per thread.
_BATCHES_PER_THREAD = 2
#: Frontiers that a thread samples at a time; one is too short to hand over on its own.
_CHUNK_FRONTIERS = 4


@dataclass(kw_only=True)
class PresampledBatch:
    """Mini-batch of one device in one step, or only its input frontier, with its seeds."""

    step: int  #: step of the run, from 0
    device: int  #: position of the device in the plan
    seeds: Array  #: seeds of the device
    batch: MiniBatch = field(init=False)  #: sampled mini-batch, of ``epoch`` and ``first_step``
    #: vertices and lists that the mini-batch reads, of ``frontiers``
    frontier: InputFrontier = field(init=False)


class Presampler:
    """Sampler of the mini-batches of a run's devices, several at a time."""

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
        """Prepare to sample ``num_threads`` batches at a time, each by one thread.

        ``split`` takes a number of seeds and returns each device's number of them; it is not called
        if ``order`` gives these numbers. ``fixed``: the run never moves seeds to another device.
        """
        self.graph = graph
        self.num_threads = num_threads
        self._order = order
        self._split = split
        self._fixed = fixed
        # One thread per batch: parallel batches scale better than threads within a batch.
        self._sampler = sampler.sampler(graph, seed=seed, num_threads=1)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in every epoch."""
        return self._order.steps_per_epoch

    @property
    def exact(self) -> bool:
        """Whether each device certainly trains the seeds that are presampled for it."""
        return self._fixed or not self._order.movable

    def epoch(
        self, epoch: int, *, devices: Container[int] | None = None
    ) -> Iterator[PresampledBatch]:
        """Yield the mini-batches of ``devices`` (None: all) in epoch number ``epoch``, from 0.

        They are in the order of steps, then devices; a device without seeds in a step has no batch.
        """

        def sample(draw: PresampledBatch) -> None:
            draw.batch = self._sampler.sample(draw.seeds, draw.step)

        yield from self._sampled(sample, self._slices(epoch), devices)

    def frontiers(
        self, epoch: int, *, devices: Container[int] | None = None, num_steps: int | None = None
    ) -> Iterator[PresampledBatch]:
        """Yield the input vertices and adjacency lists that each device's mini-batches read.

        The mini-batches are those of ``devices`` (None: all) in the first ``num_steps`` (None: all)
        of ``epoch``. With neighbor and layer-neighbor sampling this takes less time than to sample
        the mini-batches; with other samplers they are sampled.
        """
        sampler = self._sampler
        # A subclass may override ``sample`` without overriding ``reach``.
        has_reach = type(sampler) in (NeighborSampler, LaborSampler)

        def sample(draw: PresampledBatch) -> None:
            if has_reach:
                assert isinstance(sampler, (NeighborSampler, LaborSampler))
                draw.frontier = sampler.reach(draw.seeds, draw.step)
            else:
                draw.frontier = InputFrontier.of(sampler.sample(draw.seeds, draw.step))

        steps = self._slices(epoch, num_steps)
        yield from self._sampled(sample, steps, devices, chunk=_CHUNK_FRONTIERS)

    def first_step(self) -> Iterator[PresampledBatch]:
        """Yield the batch of each device in the run's first step."""
        for draw in self._slices(0, 1):
            draw.batch = self._sampler.sample(draw.seeds, draw.step)
            yield draw

    def _sampled(
        self,
        sample: Callable[[PresampledBatch], None],
        draws: Iterator[PresampledBatch],
        devices: Container[int] | None,
        chunk: int = 1,
    ) -> Iterator[PresampledBatch]:
        """Let ``sample`` fill the draws of ``devices`` (None: all), and yield them in order.

        Each of the threads takes ``chunk`` draws at a time.
        """
        chosen = (draw for draw in draws if devices is None or draw.device in devices)

        def sample_chunk(chunk_draws: list[PresampledBatch]) -> None:
            for draw in chunk_draws:
                sample(draw)

        with Pipeline(
            iter(lambda: list(islice(chosen, chunk)), []),
            [[sample_chunk]],
            limit=_BATCHES_PER_THREAD * self.num_threads,
            num_threads=self.num_threads,
            adaptive=False,
        ) as chunks:
            for chunk_draws in chunks:
                yield from chunk_draws

    def _slices(self, epoch: int, num_steps: int | None = None) -> Iterator[PresampledBatch]:
        """Yield each batch, still without a sample, in the first steps of ``epoch``.

        ``num_steps`` is the number of these steps. None: all steps.
        """
        first = epoch * self._order.steps_per_epoch
        for step, batch in enumerate(islice(self._order.epoch(epoch), num_steps), first):
            counts = self._split(len(batch.seeds)) if batch.counts is None else batch.counts
            for device, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
                if count:
                    seeds = batch.seeds[end - count : end]
                    yield PresampledBatch(step=step, device=device, seeds=seeds)
