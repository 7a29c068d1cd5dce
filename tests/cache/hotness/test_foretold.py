from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.cache import CacheTask, Legion, StaticCache
from gnnscale.cache.hotness import Presampled, presample
from gnnscale.cache.hotness.foretold import Foretold, later_steps
from gnnscale.cache.hotness.metrics import EXACT, METRICS
from gnnscale.cache.hotness.presampled import DeviceReads
from gnnscale.cache.placement import predict_traffic
from gnnscale.dataset.readers.heterophilous import Heterophilous
from gnnscale.dataset.readers.planetoid import Planetoid
from gnnscale.graph import Graph

Make = Callable[..., CacheTask]


def reads_of(rows: list[int], lists: list[int]) -> DeviceReads:
    return DeviceReads(
        rows=np.array(rows, np.int32),
        lists=np.array(lists, np.int32),
        num_rows=sum(rows),
        num_list_reads=sum(lists),
    )


def drawn(*reads: tuple[list[int], list[int]]) -> Presampled:
    return Presampled(
        reads={device: reads_of(*each) for device, each in enumerate(reads)}, num_epochs=1
    )


def test_other_epochs_are_like_those_drawn_later() -> None:
    first = drawn(([6, 2, 0], [4, 4, 0]), ([5, 5, 0], [0, 0, 0]))
    # Half as many reads: each stands for two. Device 1 has no seeds in these steps.
    later = drawn(([1, 1, 2], [0, 0, 2]), ([0, 0, 0], [0, 0, 0]))
    found = Foretold(first=first, later=later, num_epochs=4)
    assert found.rows_at(0, np.array([0, 1])) == (8 + 3 * 2 * 2) / 4
    assert found.rows_at(0, np.array([0, 1]), counted=8) == (8 + 3 * 2 * 2) / 4
    assert found.lists_at(0, np.array([2])) == (0 + 3 * 4 * 2) / 4
    assert found.rows_at(1, np.array([0])) == 5
    assert (found.num_rows(0), found.num_list_reads(0)) == (8, 8)
    assert found.sum_rows([0]).tolist() == [(6 + 6) / 4, (2 + 6) / 4, 12 / 4]
    assert found.sum_rows([0, 1]).tolist() == [3 + 5, 2 + 5, 3]
    assert found.sum_lists([0]).tolist() == [1, 1, 6]


def test_a_run_of_one_epoch_is_known(random_graph: Callable[..., Graph], make_task: Make) -> None:
    task = make_task(random_graph(), [0, 0], batch_size=40, num_epochs=1)
    assert task.foretold.later is None
    assert task.foretold.sum_rows([0, 1]).tolist() == task.presampled.sum_rows([0, 1]).tolist()
    vertices = np.arange(9)
    assert task.foretold.lists_at(1, vertices) == task.presampled.lists_at(1, vertices)


@pytest.mark.parametrize(
    ("num_train", "batch_size", "num_epochs", "drawn_later"),
    [
        (300_000, 1000, 3, (range(1, 2), 150)),
        (301_000, 1000, 3, (range(1, 2), 151)),
        # Half of 20 steps would be 10,000 seeds.
        (20_000, 1000, 3, (range(1, 2), 17)),
        (16_384, 1024, 9, (range(1, 2), None)),
        (5_000, 1000, 9, (range(1, 5), None)),
        (140, 1024, 9, (range(1, 9), None)),
        (140, 1024, 200, (range(1, 17), None)),
        # Of batches of one seed 256.
        (140, 1, 9, (range(1, 3), None)),
        (20_000, 1, 9, (range(1, 2), 10_000)),
        (400, 1, 9, (range(1, 2), 256)),
    ],
)
def test_more_is_drawn_of_small_graphs(
    graph_of: Callable[..., Graph],
    make_task: Make,
    num_train: int,
    batch_size: int,
    num_epochs: int,
    drawn_later: tuple[range, int | None],
) -> None:
    graph = replace(graph_of([[]]), train_idx=np.zeros(num_train, np.int32))
    task = make_task(graph, [0], batch_size=batch_size, num_epochs=num_epochs)
    assert later_steps(task) == drawn_later


@given(data=st.data())
def test_a_run_that_is_drawn_as_a_whole_is_known(
    tasks: Callable[..., st.SearchStrategy[CacheTask]], data: st.DataObject
) -> None:
    """Each epoch is counted as if it had as many reads as the first one."""
    task = data.draw(tasks())
    device = data.draw(st.sampled_from(sorted(task.device_at)))
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, task.graph.num_vertices - 1)))), int)
    epochs = [presample(task.draws, [each], devices=[device]) for each in range(task.num_epochs)]
    if not all(each.num_rows(device) for each in epochs):
        return
    rates = [each.rows_at(device, kept) / each.num_rows(device) for each in epochs]
    found = task.foretold.rows_at(device, kept) / task.foretold.num_rows(device)
    assert found == pytest.approx(np.mean(rates))


def without_some_lists(graph: Graph) -> Graph:
    """Return ``graph`` with a third of its lists empty."""
    kept = np.random.default_rng(0).random(graph.num_vertices) > 1 / 3
    degrees = np.diff(graph.indptr)
    return replace(
        graph,
        name="without some lists",
        indptr=np.concatenate([[0], np.cumsum(degrees * kept)]),
        indices=graph.indices[np.repeat(kept, degrees)],
    )


@pytest.fixture(scope="module")
def real_graphs(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Graph]:
    """A small citation graph, and a social one as it is and with empty lists."""
    stores = tmp_path_factory.mktemp("stores")
    cora = Planetoid(
        name="cora", raw=str(test_data / "planetoid"), store=str(stores / "cora")
    ).open()
    tolokers = Heterophilous(
        name="tolokers", raw=str(test_data / "heterophilous"), store=str(stores / "tolokers")
    ).open()
    return [cora, tolokers, without_some_lists(tolokers)]


POLICIES = (
    *(StaticCache(name=each, hotness=each, scope="all") for each in METRICS if each != EXACT),
    Legion(hotness="presampled"),
    Legion(),
)


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5])
def test_every_policy_hits_as_foretold(
    real_graphs: list[Graph], make_task: Make, ratio: float
) -> None:
    """Within a point, and Legion's transactions within 5 %, over a run of five epochs."""
    for graph in real_graphs:
        budget = int(ratio * graph.num_vertices) * graph.num_features * graph.features.itemsize
        task = make_task(graph, [budget], batch_size=64, fanouts=(10, 5), num_epochs=5)
        for planner in POLICIES:
            plan = planner.plan(task)
            (counted,) = predict_traffic(task, plan.devices, plan.cliques, task.counted_run)
            assert plan.predicted is not None
            (told,) = plan.predicted
            where = f"{graph.name}, {planner.policy}"
            assert told.feature_hit_rate == pytest.approx(counted.feature_hit_rate, abs=0.01), where
            if isinstance(planner, Legion):
                assert told.transactions == pytest.approx(counted.transactions / 5, rel=0.05), where
