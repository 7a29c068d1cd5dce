from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gnnscale.cache import CacheTask
from gnnscale.cache.hotness import presample
from gnnscale.graph import Graph
from gnnscale.partition import Parts

Make = Callable[..., CacheTask]


PARTS = Parts(num_parts=4, owner=(np.arange(2000) // 500).astype(np.int16))


@pytest.fixture
def make(random_graph: Callable[..., Graph], make_task: Make) -> Make:
    """Make a run of three epochs for four devices in two cliques."""
    graph = random_graph(num_vertices=2000, num_edges=30_000)
    graph = replace(graph, train_idx=np.arange(0, 2000, 2))

    def of(parts: Parts | None = PARTS) -> CacheTask:
        return make_task(
            graph,
            [0, 0, 0, 0],
            cliques=[(0, 1), (2, 3)],
            parts=parts,
            batch_size=40,
            fanouts=(4, 3),
            num_epochs=3,
        )

    return of


@pytest.fixture
def task(make: Make) -> CacheTask:
    return make()


def test_a_run_of_one_epoch_is_known(task: CacheTask) -> None:
    task = replace(task, num_epochs=1)
    drawn = presample(task.draws, [0], devices=range(4))
    assert np.array_equal(task.expected.sum_rows([0, 1]), drawn.sum_rows([0, 1]))
    assert np.array_equal(task.expected.sum_lists([3]), drawn.lists_of(3))


def test_samplers_without_a_formula_are_counted(task: CacheTask) -> None:
    task = replace(task, fanouts=None)
    drawn = presample(task.draws, [0], devices=range(4))
    assert np.array_equal(task.expected.sum_rows([0, 1]), drawn.sum_rows([0, 1]))
    assert np.array_equal(task.expected.sum_lists([2]), drawn.lists_of(2))


@pytest.mark.parametrize("parts", [PARTS, None])
def test_the_hottest_by_expectation_are_read_as_often_as_expected(
    make: Make, parts: Parts | None
) -> None:
    """Counts of one epoch promise more than the run holds; estimates do not."""
    task = make(parts)
    clique = (2, 3)
    run = presample(task.draws, range(3), devices=clique)
    for name in ("rows", "lists"):
        total = getattr(run, f"sum_{name}")(clique) / 3
        expected = getattr(task.expected, f"sum_{name}")(clique)
        counts = getattr(task.presampled, f"sum_{name}")(clique)
        by_expectation, by_count = np.argsort(-expected)[:200], np.argsort(-counts)[:200]
        truth = total[by_expectation].sum()
        assert truth > total[by_count].sum()
        assert expected[by_expectation].sum() == pytest.approx(truth, rel=0.03)
        assert counts[by_count].sum() > 1.05 * total[by_count].sum()


def test_the_first_epoch_weighs_as_one_of_the_run(task: CacheTask) -> None:
    first = task.presampled.sum_rows([0, 1])
    three = task.expected.sum_rows([0, 1])
    five = replace(task, num_epochs=5).expected.sum_rows([0, 1])
    later = (3 * three - first) / 2
    assert np.allclose(5 * five, first + 4 * later, rtol=1e-4, atol=1e-3)


def test_what_every_batch_reads_is_read_by_all_that_come(
    graph_of: Callable[..., Graph], make_task: Make
) -> None:
    """A hub in 200 lists is in every batch; what others are off by does not change that."""
    rng = np.random.default_rng(0)
    lists = [[200, *rng.integers(0, 200, 3).tolist()] for _ in range(200)] + [[]]
    task = make_task(
        graph_of(lists, train=range(200)), [0], batch_size=8, fanouts=(-1, -1), num_epochs=10
    )
    hub = task.expected.sum_rows([0])[200]
    assert hub == pytest.approx(25, rel=1e-4)
    assert task.draws.steps_per_epoch == 25
    assert task.expected.sum_rows([0]).max() <= 25
