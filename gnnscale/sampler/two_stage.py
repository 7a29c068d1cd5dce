"""Two-stage task scheduling over the parts of a graph (HitGNN, section V-A, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.sampler.seed_order import StepSeeds

__all__ = ["TwoStageOrder", "two_stage_schedule"]


def two_stage_schedule(
    sizes: Sequence[int], batch_sizes: Sequence[int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield for every step the part that each device takes seeds from, and how many (Algorithm 3).

    Stage 1 lasts while every part has seeds left: device i takes a mini-batch of part i. In stage 2
    the devices whose part is empty take an extra mini-batch each, in turn from the parts that began
    the step with seeds. All devices are busy in every step but the last, where seeds run out.

    The paper numbers mini-batches, which it takes to be equal. Here a part is left with what seeds
    it has, so that its last mini-batch may be smaller.

    Args:
        sizes: training vertices of each part, p of them.
        batch_sizes: seeds of each device's mini-batch, p of them.
    """
    left = list(sizes)
    extra = count()

    def take(part: int, device: int) -> tuple[int, int]:
        num_seeds = min(left[part], batch_sizes[device])
        left[part] -= num_seeds
        return part, num_seeds

    while any(left):
        available = [part for part, seeds in enumerate(left) if seeds]
        step = [take(device, device) for device in range(len(left))]
        for device in sorted(set(range(len(left))) - set(available)):
            # A part may be left with nothing by its own device, or by an extra mini-batch.
            turns = (available[next(extra) % len(available)] for _ in available)
            part = next((each for each in turns if left[each]), device)
            step[device] = take(part, device)
        yield step


class TwoStageOrder:
    """Every device trains the vertices of its part; one that is done helps the others.

    The vertices of a part are shuffled among themselves each epoch (local shuffling, PaGraph,
    section 3.2). The order of a part is fixed by ``(seed, epoch, part)``. Every vertex is trained
    once an epoch.
    """

    movable = False

    def __init__(
        self, parts: Sequence[NDArray[Any]], *, batch_sizes: Sequence[int], seed: int
    ) -> None:
        """Order the training vertices of ``parts``.

        Args:
            parts: training vertices of each part; part i is device i's.
            batch_sizes: seeds of each device's mini-batch.
            seed: the run's seed.

        Raises:
            ValueError: there is not a mini-batch of at least one seed for each part.
        """
        if len(parts) != len(batch_sizes) or min(batch_sizes) < 1:
            raise ValueError(f"batch_sizes: {list(batch_sizes)} for {len(parts)} parts")
        self.batch_size = sum(batch_sizes)
        self._parts = list(parts)
        self._seed = seed
        self._steps = list(two_stage_schedule([len(part) for part in parts], batch_sizes))

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every epoch."""
        return len(self._steps)

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        """Yield the seeds of each step of ``epoch``, those of device 0 first."""
        orders = [self._shuffled(part, epoch) for part in range(len(self._parts))]
        taken = [0] * len(orders)
        for step in self._steps:
            seeds = []
            for part, num_seeds in step:
                seeds.append(orders[part][taken[part] : taken[part] + num_seeds])
                taken[part] += num_seeds
            yield StepSeeds(
                seeds=np.concatenate(seeds), counts=tuple(num_seeds for _, num_seeds in step)
            )

    def _shuffled(self, part: int, epoch: int) -> NDArray[Any]:
        # The counter keeps the streams of parts apart, and from that of the whole graph.
        bits = np.random.Philox(key=[self._seed, epoch], counter=[0, 0, 0, part + 1])
        order: NDArray[Any] = np.random.Generator(bits).permutation(self._parts[part])
        return order
