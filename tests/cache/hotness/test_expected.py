from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fixture_types import Make

from gnnscale.cache import CacheTask, Legion, StaticCache
from gnnscale.cache.base import predict_traffic
from gnnscale.cache.hotness import Presampled, presample
from gnnscale.cache.hotness.expected import average_reads, later_steps
from gnnscale.cache.hotness.presampled import DeviceReads
from gnnscale.cache.policies import EXACT, METRICS
from gnnscale.data.readers.npz_benchmarks import Heterophilous
from gnnscale.data.readers.planetoid import Planetoid
from gnnscale.graph import Graph
from gnnscale.partition import Parts

PARTS = Parts(num_parts=4, owner=(np.arange(2000) // 500).astype(np.int16))


@pytest.fixture
def make(random_graph: Make, make_task: Make) -> Make:
    graph = random_graph(num_vertices=2000, num_edges=30_000)
    graph = graph.with_split(train_idx=np.arange(0, 2000, 2))
    options = {"cliques": [(0, 1), (2, 3)], "batch_size": 40, "fanouts": (4, 3), "num_epochs": 3}
    return lambda parts: make_task(graph, [0] * 4, parts=parts, **options)


@pytest.fixture
def task(make: Make) -> CacheTask:
    return make(PARTS)


@pytest.mark.parametrize("change", [{"num_epochs": 1}, {"fanouts": None}])
def test_runs_of_one_epoch_and_samplers_without_a_formula_are_counted(task, change) -> None:
    task = replace(task, **change)
    drawn = presample(task.draws, [0], devices=range(4))
    assert np.array_equal(task.expected.rows.sum([0, 1]), drawn.rows.sum([0, 1]))
    assert np.array_equal(task.expected.lists.sum([3]), drawn.lists.of(3))


def test_runs_of_one_epoch_and_of_several(task: CacheTask) -> None:
    # The first epoch weighs as one of the run.
    first = task.presampled.rows.sum([0, 1])
    three = task.expected.rows.sum([0, 1])
    five = replace(task, num_epochs=5).expected.rows.sum([0, 1])
    later = (3 * three - first) / 2
    assert np.allclose(5 * five, first + 4 * later, rtol=1e-4, atol=1e-3)
    # Of one epoch nothing is foretold.
    task = replace(task, num_epochs=1)
    assert task.counted.rows.later is None
    assert task.counted.rows.sum([0, 1]).tolist() == task.presampled.rows.sum([0, 1]).tolist()
    vertices = np.arange(9)
    assert task.counted.lists.at(1, vertices) == task.presampled.lists.at(1, vertices)


@pytest.mark.parametrize("parts", [PARTS, None])
def test_the_hottest_by_expectation_are_read_as_often_as_expected(make, parts) -> None:
    """Counts of one epoch promise more than the run holds; estimates do not."""
    task = make(parts)
    clique = (2, 3)
    run = presample(task.draws, range(3), devices=clique)
    for name in ("rows", "lists"):
        total = getattr(run, name).sum(clique) / 3
        expected = getattr(task.expected, name).sum(clique)
        counts = getattr(task.presampled, name).sum(clique)
        by_expectation, by_count = np.argsort(-expected)[:200], np.argsort(-counts)[:200]
        truth = total[by_expectation].sum()
        assert truth > total[by_count].sum()
        assert expected[by_expectation].sum() == pytest.approx(truth, rel=0.03)
        assert counts[by_count].sum() > 1.05 * total[by_count].sum()


def test_what_every_batch_reads_is_read_by_all_that_come(graph_of: Make, make_task: Make) -> None:
    """A hub in 200 lists is in every batch; what others are off by does not change that."""
    rng = np.random.default_rng(0)
    lists = [[200, *rng.integers(0, 200, 3).tolist()] for _ in range(200)] + [[]]
    task = make_task(
        graph_of(lists, train=range(200)), [0], batch_size=8, fanouts=(-1, -1), num_epochs=10
    )
    assert task.expected.rows.sum([0])[200] == pytest.approx(25, rel=1e-4)
    assert task.draws.steps_per_epoch == 25
    assert task.expected.rows.sum([0]).max() <= 25


def reads_of(rows: list[int], lists: list[int]) -> DeviceReads:
    sums = {"num_rows": sum(rows), "num_list_reads": sum(lists)}
    return DeviceReads(rows=np.array(rows, np.int32), lists=np.array(lists, np.int32), **sums)


def drawn(*reads: tuple[list[int], list[int]]) -> Presampled:
    return Presampled(reads={at: reads_of(*each) for at, each in enumerate(reads)}, num_epochs=1)


def test_other_epochs_are_like_those_drawn_later() -> None:
    first = drawn(([6, 2, 0], [4, 4, 0]), ([5, 5, 0], [0, 0, 0]))
    # Half as many reads: each stands for two. Device 1 has no seeds in these steps.
    later = drawn(([1, 1, 2], [0, 0, 2]), ([0, 0, 0], [0, 0, 0]))
    found = average_reads(first, later, num_epochs=4)
    assert found.rows.at(0, np.array([0, 1])) == (8 + 3 * 2 * 2) / 4
    assert found.rows.at(0, np.array([0, 1]), counted=8) == (8 + 3 * 2 * 2) / 4
    assert found.lists.at(0, np.array([2])) == (0 + 3 * 4 * 2) / 4
    assert found.rows.at(1, np.array([0])) == 5
    assert (found.rows.total(0), found.lists.total(0)) == (8, 8)
    assert found.rows.sum([0]).tolist() == [(6 + 6) / 4, (2 + 6) / 4, 12 / 4]
    assert found.rows.sum([0, 1]).tolist() == [3 + 5, 2 + 5, 3]
    assert found.lists.sum([0]).tolist() == [1, 1, 6]


@pytest.mark.parametrize(
    ("num_train", "batch_size", "num_epochs", "last_epoch", "num_steps"),
    [
        (301_000, 1000, 3, 1, 151),
        (20_000, 1000, 3, 1, 17),  # half of 20 steps would be 10,000 seeds
        *[(16_384, 1024, 9, 1, None), (140, 1024, 9, 8, None), (140, 1024, 200, 16, None)],
        (140, 1, 9, 2, None),  # of batches of one seed 256
        (400, 1, 9, 1, 256),
    ],
)
def test_more_is_drawn_of_small_graphs(num_train, batch_size, num_epochs, last_epoch, num_steps):
    found = later_steps(-(-num_train // batch_size), batch_size=batch_size, num_epochs=num_epochs)
    assert found == (range(1, last_epoch + 1), num_steps)


def without_some_lists(graph: Graph) -> Graph:
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
    found = []
    for reader, folder, name in (
        (Planetoid, "planetoid", "cora"),
        (Heterophilous, "heterophilous", "tolokers"),
    ):
        store = tmp_path_factory.mktemp(name) / name
        found.append(reader(name=name, raw=str(test_data / folder), store=str(store)).open())
    return [*found, without_some_lists(found[-1])]


POLICIES = (
    *(StaticCache(name=each, hotness=each, scope="all") for each in METRICS if each != EXACT),
    Legion(hotness="presampled"),
    Legion(),
)


@pytest.mark.parametrize("ratio", [0.2, pytest.param(0.05, marks=pytest.mark.long)])
def test_every_policy_hits_as_foretold(real_graphs, make_task, ratio) -> None:
    """Within a point, and Legion's transactions within 5 %, over a run of five epochs."""
    for graph in real_graphs:
        budget = int(ratio * graph.num_vertices) * graph.num_features * graph.features.itemsize
        task = make_task(graph, [budget], batch_size=64, fanouts=(10, 5), num_epochs=5)
        for planner in POLICIES:
            plan = planner.plan(task)
            (counted,) = predict_traffic(task, plan.devices, plan.cliques, task.run_reads)
            (told,) = plan.predicted
            where = f"{graph.name}, {planner.policy}"
            assert told.feature_hit_rate == pytest.approx(counted.feature_hit_rate, abs=0.01), where
            if isinstance(planner, Legion):
                assert told.transactions == pytest.approx(counted.transactions / 5, rel=0.05), where
