from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.graph import Graph
from gnnscale.plan.perf.equations import (
    BatchSize,
    load_seconds,
    pipeline_seconds,
    sync_seconds,
    trainer_seconds,
    transfer_seconds,
)
from gnnscale.sampler import NeighborSampler
from gnnscale.stages import StageTimes

SIZE = BatchSize(vertices=(100, 20, 5), edges=(60, 10))
WIDTHS = (8, 4, 2)
#: Seconds of aggregation at 32 bytes per second and of update at 10 products per second.
AGGREGATE = (60 * 8 * 4 / 32, 10 * 4 * 4 / 32)
UPDATE = (20 * 8 * 4 / 10, 5 * 4 * 2 / 10)


def trainer(size: BatchSize = SIZE, *, pipelined: bool = False, aggregated: bool = False) -> float:
    return trainer_seconds(
        size,
        WIDTHS,
        memory_bandwidth=32,
        macs_per_s=10,
        pipelined=pipelined,
        aggregated=aggregated,
    )


def test_sizes_of_a_batch(tiny_graph: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3: the seed 0 reaches 1 and 2, and these reach 0 and 3.
    batch = NeighborSampler(tiny_graph, fanouts=[-1, -1]).sample(np.array([0]), 0)
    size = BatchSize.of(batch)
    assert size.vertices == (4, 3, 1)
    assert size.edges == (5, 2)
    assert size.num_edges == batch.num_edges == 7


def test_equations_7_8_and_13() -> None:
    assert load_seconds(300, 100) == 3
    assert transfer_seconds(300, 100, 0.5) == 3.5
    assert sync_seconds(300, 100, 0.5) == 7


def test_trainer_without_overlap_is_the_sum() -> None:
    assert AGGREGATE == (60, 5)
    assert UPDATE == (64, 4)
    # Forward 60 + 64 + 5 + 4; backward 64 + 5 + 4.
    assert trainer() == 133 + 73


def test_trainer_with_overlap_is_the_maximum() -> None:
    # Forward 64 + 5; backward 64 + 5.
    assert trainer(pipelined=True) == 69 + 69


def test_aggregation_on_the_host_is_left_out() -> None:
    assert trainer(aggregated=True) == trainer() - 60
    assert trainer(pipelined=True, aggregated=True) == trainer(pipelined=True)


@given(
    vertices=st.lists(st.integers(0, 10**6), min_size=3, max_size=3),
    edges=st.lists(st.integers(0, 10**6), min_size=2, max_size=2),
    more=st.integers(0, 4),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_trainer_grows_with_its_batch(
    vertices: list[int], edges: list[int], more: int, flags: tuple[bool, bool]
) -> None:
    larger = [*vertices, *edges]
    larger[more] += 1000
    small = BatchSize(vertices=tuple(vertices), edges=tuple(edges))
    large = BatchSize(vertices=tuple(larger[:3]), edges=tuple(larger[3:]))
    pipelined, aggregated = flags
    before = trainer(small, pipelined=pipelined, aggregated=aggregated)
    assert trainer(large, pipelined=pipelined, aggregated=aggregated) >= before
    assert trainer(small, pipelined=True, aggregated=aggregated) <= trainer(
        small, pipelined=False, aggregated=aggregated
    )


@pytest.mark.parametrize(
    ("prefetch", "seconds"), [("none", 16), ("one_stage", 9), ("two_stage", 7)]
)
def test_stages_that_overlap_count_as_the_longest(prefetch: str, seconds: float) -> None:
    stages = StageTimes(sample=2, load=3, transfer=4, propagate=6, sync=1)
    assert pipeline_seconds(stages, prefetch) == seconds
