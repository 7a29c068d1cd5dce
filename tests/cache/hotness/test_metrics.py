from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnscale.cache import CacheTask
from gnnscale.cache.hotness import degree_ratio, inclusion, out_degree, pagerank, presample, uniform
from gnnscale.cache.hotness.degree import train_vertices
from gnnscale.cache.hotness.metrics import METRICS, measure
from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition import UNREACHED, Parts

FANOUTS = (3, 2)


@pytest.fixture
def parted(random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask]) -> CacheTask:
    """Two devices over the first 100 and the last 200 vertices, of which every third trains."""
    graph = replace(random_graph(), train_idx=np.arange(0, 300, 3))
    parts = Parts(num_parts=2, owner=(np.arange(300) >= 100).astype(np.int16))
    return make_task(graph, [0, 0], parts=parts, fanouts=FANOUTS, batch_size=9)


def test_structure_alone(parted: CacheTask) -> None:
    for devices in ([0], [0, 1]):
        assert np.array_equal(measure("out_degree", parted, devices), out_degree(parted.graph))
        assert np.array_equal(measure("degree_ratio", parted, devices), degree_ratio(parted.graph))
        assert np.array_equal(measure("random", parted, devices), uniform(300, parted.seed))


def test_walks_start_where_devices_train(parted: CacheTask) -> None:
    graph = parted.graph
    first, last = np.arange(0, 100, 3), np.arange(102, 300, 3)
    for devices, seeds in (([0], first), ([1], last), ([0, 1], graph.train_idx)):
        expected = pagerank(graph, seeds, num_threads=1)
        assert np.array_equal(measure("pagerank", parted, devices), expected)


def test_inclusion_is_of_each_devices_batches(parted: CacheTask) -> None:
    first, last = np.arange(0, 100, 3), np.arange(102, 300, 3)

    def of(seeds: Any) -> Any:
        return inclusion(parted.graph, seeds, FANOUTS, batch_size=5, num_threads=1).probability

    assert np.array_equal(measure("inclusion", parted, [0]), of(first))
    both = measure("inclusion", parted, [0, 1])
    assert np.allclose(both, of(first) + of(last))
    # A part with fewer vertices than a mini-batch has seeds trains all of them at once.
    few = replace(parted, batch_size=1000)
    assert measure("inclusion", few, [0])[first].min() == 1


def test_inclusion_needs_fanouts(parted: CacheTask) -> None:
    with pytest.raises(ConfigError, match=r"hotness=inclusion: .*neighbor and full alone"):
        measure("inclusion", replace(parted, fanouts=None), [0])


def test_reads_are_added_up(parted: CacheTask) -> None:
    first = presample(parted.draws, [0], devices=[0, 1])
    run = presample(parted.draws, [0, 1], devices=[0, 1])
    for devices in ([0], [1], [0, 1]):
        assert np.array_equal(measure("presampled", parted, devices), first.sum_rows(devices))
        expected = parted.expected.sum_rows(devices)
        assert np.array_equal(measure("expected", parted, devices), expected)
        assert np.array_equal(measure("exact", parted, devices), run.sum_rows(devices))
    assert not np.array_equal(run.sum_rows([0]), first.sum_rows([0]))


def test_what_parts_do_not_have_is_cold(
    graph_of: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    graph = graph_of([[2], [2, 3], [3], []])
    no = UNREACHED
    hops = np.array([[0, no, 1, no], [no, 0, 1, 1]], np.uint8)
    owner = np.array([0, 1, 0, 1], np.int16)
    parts = Parts(num_parts=2, owner=owner, hops=hops, num_hops=1)
    task = make_task(graph, [0, 0], parts=parts)
    assert measure("out_degree", task, [0]).tolist() == [0, 0, 2, 0]
    assert measure("out_degree", task, [1]).tolist() == [0, 0, 2, 2]
    assert measure("out_degree", task, [0, 1]).tolist() == [0, 0, 2, 2]
    assert measure("degree_ratio", task, [0]).tolist() == [0, 0, 2, 0]
    assert measure("degree_ratio", task, [1]).tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("name", METRICS)
def test_a_part_without_training_vertices_helps_the_others(
    graph_of: Callable[..., Graph], make_task: Callable[..., CacheTask], name: str
) -> None:
    graph = graph_of([[1], [2], [0], [1]], train=[0, 2])
    parts = Parts(num_parts=2, owner=np.array([0, 1, 0, 1], np.int16))
    task = make_task(graph, [0, 0], parts=parts, batch_size=2)
    assert train_vertices(task, 1).tolist() == [0, 2]
    assert measure(name, task, [1]).shape == (4,)
    assert measure(name, task, [1]).any()
