import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.partition import Hash, Random, Range
from gnnscale.partition.simple import splitmix64


def graph_of(num_vertices, train=None, labels=None):
    """A graph without edges."""
    none = np.empty(0, np.int64)
    features = np.zeros((num_vertices, 1), np.float32)
    train_idx = np.arange(num_vertices) if train is None else np.array(train)
    labels = np.zeros(num_vertices, np.int64) if labels is None else np.array(labels)
    return from_arrays((none, none), features, labels, train_idx=train_idx, num_classes=1)


def owners(config, graph, num_parts):
    parts = config.assign(graph, num_parts=num_parts, num_hops=2, num_threads=1)
    assert (parts.num_parts, parts.hops, parts.columns) == (num_parts, None, None)
    assert (parts.owner.dtype, parts.owner.shape) == (np.int16, (graph.num_vertices,))
    return parts.owner


def test_ranges_are_equal_and_slices_do_not_change_a_hash(monkeypatch):
    assert owners(Range(), graph_of(7), 3).tolist() == [0, 0, 1, 1, 2, 2, 2]
    whole = owners(Hash(), graph_of(100), 4)
    monkeypatch.setattr("gnnscale.partition.simple._SLICE_VERTICES", 7)
    assert (owners(Hash(), graph_of(100), 4) == whole).all()


def test_the_hash_is_that_of_splitmix64():
    # The first outputs of the generator with seed 0, as its authors publish them.
    states = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert splitmix64(states).tolist() == found


def test_a_hash_spreads_ids_of_any_stride():
    owner = owners(Hash(), graph_of(80_000), 8)
    for stride in (1, 8, 64):
        counts = np.bincount(owner[::stride], minlength=8)
        expected = counts.sum() / 8
        # Five standard deviations of a binomial.
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@settings(max_examples=20)
@given(st.integers(1, 200), st.floats(0, 1), st.integers(1, 20), st.integers(0, 2**63 - 1))
def test_random_parts_differ_by_one(num_vertices, share, num_parts, seed):
    train = np.flatnonzero(np.random.default_rng(0).random(num_vertices) < share)
    if len(train) < num_parts:
        return
    owner = owners(Random(seed=seed), graph_of(num_vertices, train), num_parts)
    for some in (owner, owner[train]):
        counts = np.bincount(some, minlength=num_parts)
        assert counts.max() - counts.min() <= 1


def test_random_parts_depend_on_the_seed():
    graph = graph_of(100)
    first = owners(Random(seed=1), graph, 4)
    assert (owners(Random(seed=1), graph, 4) == first).all()
    assert (owners(Random(seed=2), graph, 4) != first).any()
    with pytest.raises(ConfigError, match=r"^partitioner\.seed=-1: must be"):
        Random(seed=-1)


@pytest.mark.parametrize("config", [Hash(), Range(), Random()])
def test_parts_are_limited_and_forecasts_grow_with_the_graph(config, random_graph):
    message = r"^partitioner\.num_parts=3: expected at most the 2 training"
    with pytest.raises(ConfigError, match=message):
        owners(config, graph_of(10, [0, 9]), 3)
    small, large = (
        config.forecast(random_graph(n), num_parts=4, num_hops=2, num_threads=1)
        for n in (100, 1000)
    )
    assert 0 < small.memory_bytes < large.memory_bytes
    assert 0 < small.seconds < large.seconds


def test_vertices_without_a_label_do_not_train():
    graph = graph_of(4, labels=[0, -1, 0, -1])
    assert sorted(owners(Random(), graph, 2)[[0, 2]].tolist()) == [0, 1]
    with pytest.raises(ConfigError, match="at most the 2 training vertices"):
        owners(Random(), graph, 3)


@pytest.mark.parametrize("config", [Hash(), Range()])
def test_a_part_without_a_training_vertex(config):
    found = owners(config, graph_of(10, [0, 1]), 2)
    assert found[0] == found[1]
    assert set(found.tolist()) == {0, 1}
