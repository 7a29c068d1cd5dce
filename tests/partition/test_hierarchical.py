from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.partition.hierarchical import Hierarchical

OPTIONS: dict[str, Any] = {"num_hops": 2, "num_threads": 2}


@pytest.fixture(scope="module")
def many(random_graph):
    return random_graph(4_000, 20_000)


@pytest.mark.parametrize(
    ("machine", "cliques", "told"),
    [
        ("dgx_v100", 2, "Kc=2, Kg=4: cliques 0-1-2-3, 4-5-6-7"),
        pytest.param("siton", 4, "Kc=4, Kg=2: cliques 0-1, 2-3, 4-5, 6-7", marks=pytest.mark.long),
        ("dgx_a100", 1, "Kc=1, Kg=8: cliques 0-1-2-3-4-5-6-7"),
    ],
)
def test_cliques_and_gpus_are_within_two_percent_in_training_vertices(machine, cliques, told, many):
    if cliques > 1:
        pytest.importorskip("mtkahypar")
    parts = Hierarchical(nvlink=machine).assign(many, num_parts=8, **OPTIONS)
    assert parts.notes[0] == told
    trains = np.array([len(each) for each in parts.train_vertices(many.train_idx)])
    assert trains.sum() == len(many.train_idx)
    for found in (trains, trains.reshape(cliques, -1).sum(axis=1)):
        assert np.abs(found / found.mean() - 1).max() <= 0.02
    assert np.bincount(parts.owner).max() <= 1.06 * many.num_vertices / 8


@pytest.mark.parametrize(
    ("cutter", "module"),
    [("mtkahypar", "mtkahypar"), pytest.param("metis", "pymetis", marks=pytest.mark.long)],
)
def test_the_edge_cut_is_between_cliques(cutter, module, bridge, tmp_path, make_graph):
    pytest.importorskip(module)
    pairs = np.stack([np.repeat(np.arange(10), np.diff(bridge.indptr)), bridge.indices], 1)
    graph = make_graph([(int(u), int(v)) for v, u in pairs], 10, list(range(10)))
    (tmp_path / "links").write_text("0 1 0 0\n1 0 0 0\n0 0 0 1\n0 0 1 0\n")
    partitioner = Hierarchical(nvlink=str(tmp_path / "links"), edge_cut=cutter)
    owner = partitioner.assign(graph, num_parts=4, **OPTIONS).owner
    cliques = owner // 2
    assert len(set(cliques[:5])) == len(set(cliques[5:])) == 1
    assert sorted(np.bincount(owner)) == [2, 2, 3, 3]


@pytest.mark.long
def test_a_clique_of_more_gpus_gets_more(tmp_path, many):
    pytest.importorskip("mtkahypar")
    (tmp_path / "links").write_text("0 1 1 0\n1 0 1 0\n1 1 0 0\n0 0 0 0\n")
    parts = Hierarchical(nvlink=str(tmp_path / "links")).assign(many, num_parts=4, **OPTIONS)
    assert parts.notes[0] == "Kc=2, Kg=3/1: cliques 0-1-2, 3"
    trains = np.array([len(each) for each in parts.train_vertices(many.train_idx)])
    assert np.abs(trains / trains.mean() - 1).max() <= 0.02


def test_tablets_are_equal_where_training_vertices_are_few(make_graph):
    graph = make_graph([(0, 1)], 40, list(range(16)))
    partitioner = Hierarchical(nvlink="dgx_a100")
    parts = partitioner.assign(graph, num_parts=8, **OPTIONS)
    assert [len(each) for each in parts.train_vertices(graph.train_idx)] == [2] * 8
    assert np.bincount(parts.owner).tolist() == [5] * 8
    # By a hash, not in a row.
    assert parts.owner[:2].tolist() != [0, 0]
    assert np.array_equal(parts.owner, partitioner.assign(graph, num_parts=8, **OPTIONS).owner)


def test_each_gpu_has_one_part_at_most(many):
    partitioner = Hierarchical(nvlink="dgx_v100")
    for call in (partitioner.assign, partitioner.forecast):
        message = r"^partitioner.num_parts=9: expected at most 8, a part for each GPU of dgx_v100"
        with pytest.raises(ConfigError, match=message):
            call(many, num_parts=9, **OPTIONS)


@pytest.mark.long
def test_the_first_gpus_of_a_machine(many):
    parts = Hierarchical(nvlink="siton").assign(many, num_parts=4, **OPTIONS)
    assert (parts.num_parts, parts.notes[0]) == (4, "Kc=2, Kg=2: cliques 0-1, 2-3")
    assert set(parts.owner.tolist()) == {0, 1, 2, 3}


def test_what_is_refused(bridge):
    message = r"^partitioner.num_parts=8: expected at most the 2 training"
    with pytest.raises(ConfigError, match=message):
        Hierarchical(nvlink="dgx_a100").assign(bridge, num_parts=8, **OPTIONS)
    with pytest.raises(ConfigError, match=r"^partitioner.edge_cut=best: allowed are auto"):
        Hierarchical(edge_cut="best")


def test_a_forecast_counts_the_cut_between_cliques(many):
    pytest.importorskip("mtkahypar")
    hashed, cut = (
        Hierarchical(nvlink=machine).forecast(many, num_parts=8, **OPTIONS)
        for machine in ("dgx_a100", "siton")
    )
    assert hashed.memory_bytes < cut.memory_bytes
    assert hashed.seconds < cut.seconds
