"""The seeds that devices train over parts, step by step, for one device: nothing else differs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.sampling import SeedOrder, SeedOrderConfig, StepSeeds, TwoStageOrder


class SameSeeds:
    """Another order's seeds, which may be split in any way."""

    movable = True

    def __init__(self, order: SeedOrder) -> None:
        self.batch_size = order.batch_size
        self.steps_per_epoch = order.steps_per_epoch
        self._order = order

    def epoch(self, epoch: int) -> Iterator[StepSeeds]:
        return (StepSeeds(seeds=step.seeds) for step in self._order.epoch(epoch))


@dataclass(frozen=True, kw_only=True)
class OfParts(SeedOrderConfig):
    """What devices train over parts with these owners, each ``batch_sizes`` seeds a step."""

    owner: Any
    batch_sizes: tuple[int, ...]

    def order(self, train_idx: NDArray[Any], *, seed: int, **_: int) -> SameSeeds:
        owners = np.asarray(self.owner)[train_idx]
        parts = [train_idx[owners == part] for part in range(len(self.batch_sizes))]
        return SameSeeds(TwoStageOrder(parts, batch_sizes=self.batch_sizes, seed=seed))
