"""A seed order over parts: every device has seeds of its own, which may not move."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from same_seeds import SameSeeds

from gnnscale.sampling import SeedOrderConfig, StepSeeds


class PartOrder:
    """Vertex v belongs to device v modulo devices; parts end at different steps."""

    movable = False

    def __init__(
        self, train_idx: NDArray[Any], *, batch_size: int, num_devices: int, seed: int
    ) -> None:
        self.batch_size = batch_size
        self._seed = seed
        self._parts = [train_idx[train_idx % num_devices == i] for i in range(num_devices)]
        self._each = batch_size // num_devices

    @property
    def steps_per_epoch(self) -> int:
        return max(-(-len(part) // self._each) for part in self._parts)

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        generator = np.random.default_rng([self._seed, epoch])
        orders = [generator.permutation(part) for part in self._parts]
        for step in range(self.steps_per_epoch):
            first = step * self._each
            seeds = [order[first : first + self._each] for order in orders]
            yield StepSeeds(seeds=np.concatenate(seeds), counts=tuple(len(each) for each in seeds))


@dataclass(frozen=True, kw_only=True)
class Parts(SeedOrderConfig):
    """Parts by vertex id."""

    def order(self, train_idx: NDArray[Any], **given: int) -> PartOrder:
        return PartOrder(train_idx, **given)


@dataclass(frozen=True, kw_only=True)
class Forgetful(SeedOrderConfig):
    """An order that trains the first seed of an epoch twice, and the last never."""

    def order(self, train_idx: NDArray[Any], **given: int) -> PartOrder:
        twice = np.concatenate([train_idx[:1], train_idx[:-1]])
        return PartOrder(twice, **given)


@dataclass(frozen=True, kw_only=True)
class Merged(SeedOrderConfig):
    """What ``Parts`` trains on two devices."""

    def order(self, train_idx: NDArray[Any], **given: int) -> SameSeeds:
        return SameSeeds(PartOrder(train_idx, **(given | {"num_devices": 2})))


class _Tiring(PartOrder):
    """Trains the first seed of each step twice, and the last never, after the first epoch."""

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        for step in super().epoch(epoch):
            seeds = step.seeds.copy()
            seeds[-1] = seeds[0] if epoch else seeds[-1]
            yield StepSeeds(seeds=seeds, counts=step.counts)


@dataclass(frozen=True, kw_only=True)
class Tiring(SeedOrderConfig):
    """An order whose first epoch is right."""

    def order(self, train_idx: NDArray[Any], **given: int) -> PartOrder:
        return _Tiring(train_idx, **given)
