"""Two-stage task scheduling over the parts of a graph (HitGNN, section V-A, Algorithm 3)."""

from collections.abc import Iterator, Sequence
from itertools import chain, count

import numpy as np

from gnnscale.core import Array
from gnnscale.sampler.seed_order import StepSeeds


def two_stage_schedule(
    sizes: Sequence[int], batch_sizes: Sequence[int]
) -> Iterator[list[list[tuple[int, int]]]]:
    """Yield for every step the parts that each device takes from, and the seeds of each.

    This is Algorithm 3. Stage 1 lasts while every part has seeds left: device i takes a mini-batch
    of part i. In stage 2 the devices whose part is empty take an extra mini-batch each, in turn
    from the parts that began the step with seeds.

    The paper counts mini-batches of equal size. Here the seeds of a part may not fill its last one:
    the device then takes what is missing as it takes an extra mini-batch. So every mini-batch is
    full in every step but the last. Otherwise an epoch could end with a step of a few seeds, which
    moves the weights as much as a full one. ``sizes`` are the training vertices of the p parts,
    ``batch_sizes`` the seeds of each device's mini-batch.
    """
    left = list(sizes)
    extra = count()

    def take(part: int, wanted: int) -> tuple[int, int]:
        num_seeds = min(left[part], wanted)
        left[part] -= num_seeds
        return part, num_seeds

    while any(left):
        available = [part for part, seeds in enumerate(left) if seeds]
        step = [[take(device, batch_sizes[device])] for device in range(len(left))]
        missing = [size - taken for size, [(_, taken)] in zip(batch_sizes, step, strict=True)]
        # Who has nothing comes first.
        for device in sorted(range(len(left)), key=lambda each: step[each][0][1] > 0):
            while missing[device] and any(left):
                part = available[next(extra) % len(available)]
                if left[part]:
                    step[device].append(take(part, missing[device]))
                    missing[device] -= step[device][-1][1]
        yield [[(part, seeds) for part, seeds in taken if seeds] for taken in step]


class TwoStageOrder:
    """Every device trains the vertices of its part; one that is done helps the others.

    The vertices of a part are shuffled each epoch (local shuffling, PaGraph, section 3.2), by
    ``(seed, epoch, part)`` alone. Every vertex is trained once an epoch.
    """

    movable = False

    def __init__(self, parts: Sequence[Array], *, batch_sizes: Sequence[int], seed: int) -> None:
        """Order the training vertices of ``parts``, of which part i is device i's.

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
            for part, num_seeds in chain.from_iterable(step):
                seeds.append(orders[part][taken[part] : taken[part] + num_seeds])
                taken[part] += num_seeds
            counts = tuple(sum(num_seeds for _, num_seeds in taken_by) for taken_by in step)
            yield StepSeeds(seeds=np.concatenate(seeds), counts=counts)

    def _shuffled(self, part: int, epoch: int) -> Array:
        # The counter keeps the streams of parts apart, and from that of the whole graph.
        bits = np.random.Philox(key=[self._seed, epoch], counter=[0, 0, 0, part + 1])
        order: Array = np.random.Generator(bits).permutation(self._parts[part])
        return order
