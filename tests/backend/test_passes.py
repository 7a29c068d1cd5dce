from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gnnscale.backend.passes import passes, size_of_part
from gnnscale.graph import Graph
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.sampler import MiniBatch, NeighborSampler

SEEDS = np.arange(0, 240, 6)


@pytest.fixture
def sampler(random_graph: Callable[..., Graph]) -> NeighborSampler:
    return NeighborSampler(random_graph(), fanouts=[4, 3], seed=1)


def test_a_part_is_the_mini_batch_of_its_seeds(sampler: NeighborSampler) -> None:
    """Samples follow from seed and step alone: those of some seeds are a part of those of all."""
    batch = sampler.sample(SEEDS, 3)
    for part in (range(40), range(1), range(7, 19), range(39, 40)):
        alone = sampler.sample(SEEDS[part.start : part.stop], 3)
        assert size_of_part(batch, part) == BatchSize.of(alone)


def largest_input(limit: int) -> Callable[[BatchSize], bool]:
    return lambda size: size.vertices[0] <= limit


def test_seeds_are_halved_until_each_part_fits(sampler: NeighborSampler) -> None:
    batch: MiniBatch = sampler.sample(SEEDS, 0)
    whole = BatchSize.of(batch)
    assert passes(batch, range(40), largest_input(int(whole.vertices[0]))) == (whole,)
    limit = int(whole.vertices[0]) // 3
    found = passes(batch, range(40), largest_input(limit))
    assert found is not None
    assert len(found) > 2
    assert all(size.vertices[0] <= limit for size in found)
    assert sum(size.vertices[-1] for size in found) == 40
    # No edge to a seed is in two parts, and rows may be.
    assert sum(size.edges[-1] for size in found) == whole.edges[-1]
    assert sum(size.vertices[0] for size in found) > whole.vertices[0]


def test_a_seed_that_does_not_fit(sampler: NeighborSampler) -> None:
    batch = sampler.sample(SEEDS, 0)
    assert passes(batch, range(40), largest_input(0)) is None
